#pragma once

#include <optional>
#include <string>

#include "faultline/error.h"

namespace faultline::rpc {

/// What is wrong with a certificate, its key, and (if named) a client authority, in files. gRPC itself would
/// say nothing, and refuse every handshake.
[[nodiscard]] std::optional<Error> check_tls_files(const std::string& cert, const std::string& key,
                                                   const std::string& client_ca);

}  // namespace faultline::rpc

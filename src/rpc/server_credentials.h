#pragma once

#include <memory>

#include <grpcpp/security/server_credentials.h>

#include "tls/certificates.h"

namespace faultline::rpc {

/// How clients are met: in plain text, or by TLS with the certificate that is current at the handshake.
[[nodiscard]] std::shared_ptr<grpc::ServerCredentials> server_credentials(
    std::shared_ptr<const tls::Certificates> certificates);

}  // namespace faultline::rpc

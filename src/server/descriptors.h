#pragma once

#include <cstddef>

#include "config/settings.h"
#include "faultline/error.h"

namespace faultline::server {

/// How many connections each wire may have, so that both together never use up the process's descriptors.
struct ConnectionShares {
  std::size_t descriptors = 0;  ///< that the process may have
  std::size_t http = 0;
  std::size_t grpc = 0;
  bool limited = false;  ///< fewer than the settings ask for
};

/// Raises the process's limit of descriptors as far as it may, and shares them out: what the settings ask
/// for, or as much of it as there is.
[[nodiscard]] Expected<ConnectionShares> share_descriptors(const config::Settings& settings);

}  // namespace faultline::server

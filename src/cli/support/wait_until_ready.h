#pragma once

#include <chrono>

#include "cli/support/signal_count.h"
#include "server/server.h"

namespace faultline::cli {

/// What is said to serve can be used, so this comes before it is said. Not for ever: a database that does not
/// let it be is told of as an event. A signal ends the wait.
inline void wait_until_ready(const server::Server& server, SignalCount& signals,
                             std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!server.ready() && std::chrono::steady_clock::now() < end)
    if (signals.wait_for(1, std::chrono::milliseconds{20})) return;
}

}  // namespace faultline::cli

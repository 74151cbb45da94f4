#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "config/settings.h"
#include "faultline/error.h"
#include "faultline/event.h"

namespace faultline::server {

/// `faultline serve`: the service with both transports, keys and a watchdog. It keeps no state that matters:
/// run as many as you like on one database, and kill any of them at any moment.
class Server {
 public:
  /// `settings.database` is set. Does not need the database to be there yet. An error says what to change.
  [[nodiscard]] static Expected<std::unique_ptr<Server>> start(const config::Settings& settings,
                                                               EventSink log);
  virtual ~Server() = default;

  [[nodiscard]] virtual std::uint16_t http_port() const = 0;  ///< 0: none
  [[nodiscard]] virtual std::uint16_t grpc_port() const = 0;
  /// The database can be used, and the server does not drain.
  [[nodiscard]] virtual bool ready() const = 0;
  /// Not ready at once; then, after `drain_delay`, takes no more calls, answers those under way until
  /// `drain_max`, and stops.
  virtual void drain() = 0;
  /// Ends the wait of `drain_delay`, and then gives calls under way no time. Comes too late once they have
  /// been given theirs.
  virtual void hurry() = 0;
};

}  // namespace faultline::server

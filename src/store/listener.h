#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/interrupt.h"
#include "pg/connection.h"

namespace faultline::store {

/// Hears announcements of queues that have due jobs, on a connection and a thread of its own. It reconnects
/// by itself, with jitter and for ever. What was announced meanwhile is lost, so `connected` is called after
/// every connect: then it is time to look.
///
/// Behind a transaction pooler nothing can be heard. There it calls nothing and does nothing.
class Listener {
 public:
  /// Both are called on the listener's thread; they return soon and do not throw.
  struct Callbacks {
    std::function<void(std::string_view queue)> announced;
    std::function<void()> connected;
  };

  Listener(std::string database, std::string application_name, Callbacks callbacks);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  /// Returns soon, wherever the thread is; nothing is called afterwards.
  ~Listener();

 private:
  void run();
  /// Until the connection is lost or the interrupt fires.
  void hear(pg::Connection& connection);

  const std::string database_;
  const std::string application_name_;
  const Callbacks callbacks_;
  Interrupt interrupt_;
  std::jthread thread_;
};

}  // namespace faultline::store

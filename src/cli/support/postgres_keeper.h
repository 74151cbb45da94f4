#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cli/support/context.h"
#include "faultline/event.h"

namespace faultline::cli {

/// Keeps the private PostgreSQL running while a command lives that needs it all the time: notices when it has
/// died, starts it again, and tells what happened. With another database it does nothing. Connections to it
/// break, and are made anew by whoever has them.
///
/// Thread-safe. `sink` and `on_failure` are called from a thread of its own.
class PostgresKeeper {
 public:
  /// What to do when an upgrade has replaced the files that it runs from.
  enum class WhenReplaced { tell, renew };
  /// `on_failure` is called once, when it could not be started several times in a row and will not be tried
  /// again.
  PostgresKeeper(Context& context, EventSink sink, std::function<void()> on_failure,
                 WhenReplaced when_replaced = WhenReplaced::tell);
  PostgresKeeper(const PostgresKeeper&) = delete;
  PostgresKeeper& operator=(const PostgresKeeper&) = delete;
  ~PostgresKeeper() = default;

  /// Lets it be from now on; a start that is under way is waited for.
  void stop();
  /// Why it was given up, if it was.
  [[nodiscard]] std::optional<Failure> failure() const;

 private:
  void keep(const std::stop_token& stop);
  void look_for_new_files(const std::stop_token& stop);
  void start_again(const std::stop_token& stop);
  /// False when asked to stop.
  bool pause(const std::stop_token& stop, std::chrono::milliseconds duration);
  void tell(Severity severity, std::string_view name,
            std::vector<std::pair<std::string, std::string>> fields = {}) const;

  Context& context_;
  const EventSink sink_;
  const std::function<void()> on_failure_;
  const WhenReplaced when_replaced_;
  bool told_replaced_ = false;  ///< only its thread knows
  mutable std::mutex mutex_;    ///< guards failure_
  std::condition_variable_any stopped_;
  std::optional<Failure> failure_;
  std::jthread thread_;  ///< the last member: it uses the others
};

}  // namespace faultline::cli

#include "cli/support/postgres_keeper.h"

namespace faultline::cli {
namespace {

using std::chrono::milliseconds;

/// A look reads one small file and asks the kernel for one process.
constexpr milliseconds kLookEvery{500};
/// From the first file of an upgrade to its last.
constexpr milliseconds kUpgradeMax{5'000};
constexpr int kTriesMax = 5;
constexpr milliseconds kFirstPause{500};  // and twice as long after each further failure

}  // namespace

PostgresKeeper::PostgresKeeper(Context& context, EventSink sink, std::function<void()> on_failure,
                               WhenReplaced when_replaced)
    : context_(context),
      sink_(std::move(sink)),
      on_failure_(std::move(on_failure)),
      when_replaced_(when_replaced) {
  if (context_.holds_private_postgres())
    thread_ = std::jthread{[this](const std::stop_token& stop) { keep(stop); }};
}

void PostgresKeeper::stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

std::optional<Failure> PostgresKeeper::failure() const {
  const std::lock_guard lock{mutex_};
  return failure_;
}

void PostgresKeeper::keep(const std::stop_token& stop) {
  while (pause(stop, kLookEvery) && !failure()) {
    if (!context_.private_postgres_died()) {
      look_for_new_files(stop);
      continue;
    }
    tell(Severity::error, "private_postgres_lost");
    start_again(stop);
  }
}

void PostgresKeeper::look_for_new_files(const std::stop_token& stop) {
  const bool replaced = context_.private_postgres_replaced();
  const bool news = replaced && !told_replaced_;
  told_replaced_ = replaced;
  if (!news) return;
  tell(Severity::warning, "private_postgres_replaced");
  if (when_replaced_ == WhenReplaced::tell) return;
  // An upgrade writes many files: the new program may come before what it needs.
  if (!pause(stop, kUpgradeMax)) return;
  if (context_.renew_private_postgres()) return tell(Severity::info, "private_postgres_back");
  start_again(stop);
}

void PostgresKeeper::start_again(const std::stop_token& stop) {
  milliseconds wait = kFirstPause;
  for (int tries = 1;; ++tries) {
    auto started = context_.restart_private_postgres();
    if (started) return tell(Severity::info, "private_postgres_back");
    tell(Severity::error, "private_postgres_start_failed",
         {{"error", started.error().message}, {"tries", std::to_string(tries)}});
    if (tries == kTriesMax) {
      Failure failure = std::move(started.error());
      failure.message = "the private PostgreSQL has ended and could not be started again in " +
                        std::to_string(kTriesMax) + " tries: " + failure.message;
      {
        const std::lock_guard lock{mutex_};
        failure_ = std::move(failure);
      }
      return on_failure_();
    }
    if (!pause(stop, wait)) return;
    wait *= 2;
  }
}

bool PostgresKeeper::pause(const std::stop_token& stop, milliseconds duration) {
  std::unique_lock lock{mutex_};
  stopped_.wait_for(lock, stop, duration, [] { return false; });
  return !stop.stop_requested();
}

void PostgresKeeper::tell(Severity severity, std::string_view name,
                          std::vector<std::pair<std::string, std::string>> fields) const {
  if (sink_)
    sink_({.name = name,
           .severity = severity,
           .at = std::chrono::system_clock::now(),
           .fields = std::move(fields)});
}

}  // namespace faultline::cli

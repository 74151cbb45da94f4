#include "service/monitored_store.h"

#include <algorithm>
#include <random>

#include "store/backend.h"

namespace faultline::service {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{1'000};
/// How long a look may take.
constexpr milliseconds kLookMax{3'000};
/// Waits between attempts to open, with full jitter.
/// Between two looks on a connection that is made for them.
constexpr milliseconds kAnewEvery{10'000};
constexpr milliseconds kRetryMin{50};
constexpr milliseconds kRetryMax{2'000};

StoreOptions reader_options(StoreOptions options) {
  options.application_name += " look";
  options.connections_max = 1;
  options.transactions_max = 1;
  options.call_timeout = std::min(options.call_timeout, kLookMax);
  return options;
}

}  // namespace

MonitoredStore::MonitoredStore(Options options) : options_(std::move(options)), thread_([this] { run(); }) {}

void MonitoredStore::stop() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool MonitoredStore::pause(milliseconds time) {
  std::unique_lock lock{mutex_};
  return !stopped_.wait_for(lock, time, [&] { return stopping_; });
}

void MonitoredStore::run() {
  std::minstd_rand random{std::random_device{}()};
  milliseconds ceiling = kRetryMin;
  bool was_usable = false;
  auto anew_at = std::chrono::steady_clock::now();
  for (;;) {
    // Now and then on a new connection: what an old one has loaded, a new one may not find any more.
    const bool anew = !usable() || std::chrono::steady_clock::now() >= anew_at;
    auto probed = anew ? open() : probe(*reader_);
    if (anew && probed) anew_at = std::chrono::steady_clock::now() + kAnewEvery;
    if (probed && !usable()) {
      {
        const std::lock_guard lock{mutex_};
        why_not_.clear();
      }
      usable_.store(store_.get(), std::memory_order_release);
      if (was_usable) {
        const auto lasted =
            std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - lost_at_);
        options_.log({.name = "database_back",
                      .at = std::chrono::system_clock::now(),
                      .fields = {{"lasted_ms", std::to_string(lasted.count())}}});
      }
      was_usable = true;
      ceiling = kRetryMin;
    } else if (!probed) {
      lost(probed.error());
    }
    milliseconds wait = kLookEvery;
    if (!probed) {
      wait = milliseconds{std::uniform_int_distribution<milliseconds::rep>{1, ceiling.count()}(random)};
      ceiling = std::min(ceiling * 2, kRetryMax);
    }
    if (!pause(wait)) return;
  }
}

/// A new connection for looks, which checks the schema, too: another server may have migrated it meanwhile.
Expected<void> MonitoredStore::open() {
  auto opened = Store::open(reader_options(options_.store));
  if (!opened) return std::unexpected(std::move(opened.error()));
  auto reader = std::make_shared<Store>(std::move(*opened));
  if (auto probed = probe(*reader); !probed) return probed;
  if (!store_) {
    auto store = Store::open(options_.store);
    if (!store) return std::unexpected(std::move(store.error()));
    store_ = std::make_unique<Store>(std::move(*store));
  }
  const std::lock_guard lock{mutex_};
  reader_ = std::move(reader);
  return {};
}

Expected<void> MonitoredStore::probe(Store& store) {
  auto queues = store.queues();
  if (!queues) return std::unexpected(std::move(queues.error()));
  if (auto writable = store.check_writable(); !writable) return writable;
  const std::lock_guard lock{mutex_};
  queues_.clear();
  for (Queue& queue : *queues) queues_.insert(std::move(queue.name));
  return {};
}

void MonitoredStore::lost(const Error& error) {
  const bool first = usable_.exchange(nullptr) != nullptr;
  if (first) lost_at_ = std::chrono::steady_clock::now();
  const Problem problem = Problem::from(error);
  std::string why = problem.message;
  // An absence passes by itself; for what does not, somebody has to do something.
  const bool passes = may_pass(error.code) || error.code == ErrorCode::timed_out;
  if (!passes) why += ": " + problem.hint;
  if (error.hint == store::kRestartServer) why += ": " + error.hint;
  {
    const std::lock_guard lock{mutex_};
    cause_ = error.describe();
    if (!first && why == why_not_) return;
    why_not_ = std::move(why);
  }
  options_.log({.name = error.code == ErrorCode::locked ? "database_locked" : "database_lost",
                .severity = Severity::warning,
                .at = std::chrono::system_clock::now(),
                .fields = {{"error", error.describe()}}});
}

Problem MonitoredStore::unavailable() const {
  const std::lock_guard lock{mutex_};
  return {.code = Code::unavailable,
          .message = why_not_.empty() ? "the database is not ready" : why_not_,
          .hint = "nothing was changed; try again",
          .retry_after = kLookEvery,
          .cause = cause_};
}

ServiceResult<Store*> MonitoredStore::get() const {
  Store* const store = usable_.load(std::memory_order_acquire);
  if (store == nullptr) return std::unexpected(unavailable());
  return store;
}

ServiceResult<std::shared_ptr<Store>> MonitoredStore::reader() const {
  if (!usable()) return std::unexpected(unavailable());
  const std::lock_guard lock{mutex_};
  return reader_;
}

std::string MonitoredStore::why_not() const {
  const std::lock_guard lock{mutex_};
  return why_not_;
}

bool MonitoredStore::knows_queue(std::string_view name) const {
  const std::lock_guard lock{mutex_};
  return queues_.contains(name);
}

ServiceResult<bool> MonitoredStore::queue_exists(std::string_view name) {
  if (knows_queue(name)) return true;
  auto store = reader();
  if (!store) return std::unexpected(std::move(store.error()));
  if (auto probed = probe(**store); !probed) return std::unexpected(Problem::from(probed.error()));
  return knows_queue(name);
}

void MonitoredStore::remember_queue(std::string_view name) {
  const std::lock_guard lock{mutex_};
  queues_.emplace(name);
}

void MonitoredStore::forget_queue(const std::string& name) {
  const std::lock_guard lock{mutex_};
  queues_.erase(name);
}

}  // namespace faultline::service

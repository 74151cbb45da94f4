#include "service/store_holder.h"

#include <algorithm>
#include <random>

namespace faultline::service {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{1'000};
/// How long a look may take.
constexpr milliseconds kLookMax{3'000};
/// Waits between attempts to open, with full jitter.
constexpr milliseconds kRetryMin{50};
constexpr milliseconds kRetryMax{2'000};

StoreOptions looker_options(StoreOptions options) {
  options.application_name += " look";
  options.connections_max = 1;
  options.transactions_max = 1;
  options.call_timeout = std::min(options.call_timeout, kLookMax);
  return options;
}

}  // namespace

StoreHolder::StoreHolder(Options options) : options_(std::move(options)), thread_([this] { run(); }) {}

void StoreHolder::stop() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool StoreHolder::pause(milliseconds time) {
  std::unique_lock lock{mutex_};
  return !stopped_.wait_for(lock, time, [&] { return stopping_; });
}

void StoreHolder::run() {
  std::minstd_rand random{std::random_device{}()};
  milliseconds ceiling = kRetryMin;
  bool was_usable = false;
  for (;;) {
    auto looked = usable() ? look(*looker_) : open();
    if (looked && !usable()) {
      {
        const std::lock_guard lock{mutex_};
        why_not_.clear();
      }
      usable_.store(store_.get(), std::memory_order_release);
      if (was_usable) options_.log({.name = "database_back", .at = std::chrono::system_clock::now()});
      was_usable = true;
      ceiling = kRetryMin;
    } else if (!looked) {
      lost(looked.error());
    }
    milliseconds wait = kLookEvery;
    if (!looked) {
      wait = milliseconds{std::uniform_int_distribution<milliseconds::rep>{1, ceiling.count()}(random)};
      ceiling = std::min(ceiling * 2, kRetryMax);
    }
    if (!pause(wait)) return;
  }
}

/// A new connection for looks, which checks the schema, too: another server may have migrated it meanwhile.
Expected<void> StoreHolder::open() {
  auto opened = Store::open(looker_options(options_.store));
  if (!opened) return std::unexpected(std::move(opened.error()));
  auto looker = std::make_shared<Store>(std::move(*opened));
  if (auto looked = look(*looker); !looked) return looked;
  if (!store_) {
    auto store = Store::open(options_.store);
    if (!store) return std::unexpected(std::move(store.error()));
    store_ = std::make_unique<Store>(std::move(*store));
  }
  const std::lock_guard lock{mutex_};
  looker_ = std::move(looker);
  return {};
}

Expected<void> StoreHolder::look(Store& store) {
  auto queues = store.queues();
  if (!queues) return std::unexpected(std::move(queues.error()));
  const std::lock_guard lock{mutex_};
  for (Queue& queue : *queues) queues_.insert(std::move(queue.name));
  return {};
}

void StoreHolder::lost(const Error& error) {
  const bool first = usable_.exchange(nullptr) != nullptr;
  const Problem problem = Problem::from(error);
  std::string why = problem.message;
  // An absence passes by itself; for what does not, somebody has to do something.
  const bool passes = error.code == ErrorCode::unavailable || error.code == ErrorCode::timed_out;
  if (!passes) why += ": " + problem.hint;
  {
    const std::lock_guard lock{mutex_};
    if (!first && why == why_not_) return;
    why_not_ = std::move(why);
  }
  options_.log({.name = "database_lost",
                .severity = Severity::warning,
                .at = std::chrono::system_clock::now(),
                .fields = {{"error", error.describe()}}});
}

Problem StoreHolder::unavailable() const {
  const std::lock_guard lock{mutex_};
  return {.code = Code::unavailable,
          .message = why_not_.empty() ? "the database is not ready" : why_not_,
          .hint = "nothing was changed; try again",
          .retry_after = kLookEvery};
}

Answer<Store*> StoreHolder::get() const {
  Store* const store = usable_.load(std::memory_order_acquire);
  if (store == nullptr) return std::unexpected(unavailable());
  return store;
}

Answer<std::shared_ptr<Store>> StoreHolder::looker() const {
  if (!usable()) return std::unexpected(unavailable());
  const std::lock_guard lock{mutex_};
  return looker_;
}

std::string StoreHolder::why_not() const {
  const std::lock_guard lock{mutex_};
  return why_not_;
}

bool StoreHolder::knows_queue(std::string_view name) const {
  const std::lock_guard lock{mutex_};
  return queues_.contains(name);
}

Answer<bool> StoreHolder::queue_exists(std::string_view name) {
  if (knows_queue(name)) return true;
  auto store = looker();
  if (!store) return std::unexpected(std::move(store.error()));
  if (auto looked = look(**store); !looked) return std::unexpected(Problem::from(looked.error()));
  return knows_queue(name);
}

void StoreHolder::remember_queue(std::string_view name) {
  const std::lock_guard lock{mutex_};
  queues_.emplace(name);
}

}  // namespace faultline::service

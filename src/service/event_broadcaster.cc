#include "service/event_broadcaster.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "service/operations.h"

namespace faultline::service {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

/// More than this do not wait for the thread that tells them.
constexpr std::size_t kItemsMax = 20'000;
constexpr milliseconds kEvidenceEvery{500};
constexpr milliseconds kPause{20};
constexpr milliseconds kQueuesEvery{1'000};
/// Evidence becomes visible in the order of its commits, not of its moments: so far back it is looked at
/// again.
constexpr std::chrono::seconds kEvidenceOverlap{10};
constexpr std::size_t kEvidenceMax = 500;

std::string dump(const json& object) { return object.dump(-1, ' ', false, json::error_handler_t::replace); }

json to_json(const QueueOverview& overview) {
  const QueueCounts& counts = overview.counts;
  json object{
      {"name", overview.queue.name},   {"paused", overview.queue.paused}, {"scheduled", counts.scheduled},
      {"available", counts.available}, {"running", counts.running},       {"held", counts.held},
      {"dead", counts.dead},           {"succeeded", counts.succeeded},   {"cancelled", counts.cancelled},
      {"retrying", counts.retrying},   {"failures", counts.failures}};
  object["running_max"] = overview.queue.running_max ? json(*overview.queue.running_max) : json();
  object["oldest_due_age_ms"] =
      counts.oldest_due_age ? json(std::chrono::duration_cast<milliseconds>(*counts.oldest_due_age).count())
                            : json();
  return object;
}

std::string snapshot_json(const std::vector<QueueOverview>& overviews, const Principal* only_for) {
  json list = json::array();
  for (const QueueOverview& overview : overviews) {
    if (only_for == nullptr || only_for->may_use(overview.queue.name)) list.push_back(to_json(overview));
  }
  return dump({{"queues", std::move(list)}});
}

std::string evidence_json(const StaleWrite& write) {
  json object{{"job_id", write.job.to_string()},
              {"verb", write.verb},
              {"reason", to_string(write.reason)},
              {"token", write.token.value},
              {"worker", write.worker},
              {"at", to_string(write.at)},
              {"queue", write.queue ? json(*write.queue) : json()}};
  object["current_token"] = write.current_token ? json(write.current_token->value) : json();
  object["current_worker"] = write.current_worker ? json(*write.current_worker) : json();
  object["current_state"] = write.current_state ? json(*write.current_state) : json();
  return dump(object);
}

}  // namespace

struct EventBroadcaster::Watcher {
  Principal who;
  Next next;
  Ended ended;
  std::list<std::shared_ptr<Watcher>>::iterator place{};
  bool gone = false;
  bool in_call = false;
  bool refused = false;  ///< the deliverer's: its key is not good any more, and it was told
};

class EventBroadcaster::Subscription : public Service::EventSubscription {
 public:
  Subscription(EventBroadcaster& events, std::shared_ptr<Watcher> watcher)
      : events_(events), watcher_(std::move(watcher)) {}
  ~Subscription() override { events_.leave(watcher_); }
  Subscription(const Subscription&) = delete;
  Subscription& operator=(const Subscription&) = delete;

 private:
  EventBroadcaster& events_;
  std::shared_ptr<Watcher> watcher_;
};

EventBroadcaster::EventBroadcaster(MonitoredStore& store, StillGood still_good)
    : store_(store),
      still_good_(std::move(still_good)),
      deliverer_([this] { deliver(); }),
      observer_([this] { observe(); }) {}

void EventBroadcaster::stop() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  told_.notify_all();
  kicked_.notify_all();
  if (deliverer_.joinable()) deliverer_.join();
  if (observer_.joinable()) observer_.join();
}

std::unique_ptr<Service::EventSubscription> EventBroadcaster::watch(const Principal& who, Next next,
                                                                    Ended ended) {
  auto watcher =
      std::make_shared<Watcher>(Watcher{.who = who, .next = std::move(next), .ended = std::move(ended)});
  {
    const std::lock_guard lock{mutex_};
    if (watchers_.empty()) watched_since_ = Clock::now();
    watcher->place = watchers_.insert(watchers_.end(), watcher);
    watchers_count_ = watchers_.size();
    kick_ = true;
  }
  kicked_.notify_all();
  return std::make_unique<Subscription>(*this, std::move(watcher));
}

void EventBroadcaster::leave(const std::shared_ptr<Watcher>& watcher) {
  std::unique_lock lock{mutex_};
  watcher->gone = true;
  watchers_.erase(watcher->place);
  watchers_count_ = watchers_.size();
  if (watchers_.empty()) items_.clear();
  handed_.wait(lock, [&] { return !watcher->in_call; });
}

void EventBroadcaster::tell(std::string name, std::string queue, std::string json,
                            std::shared_ptr<const Overviews> snapshot) {
  {
    const std::lock_guard lock{mutex_};
    if (watchers_.empty() || items_.size() >= kItemsMax) return;
    items_.push_back(
        {.event = std::make_shared<const LiveEvent>(LiveEvent{
             .id = ++last_id_, .name = std::move(name), .queue = std::move(queue), .json = std::move(json)}),
         .snapshot = std::move(snapshot)});
  }
  told_.notify_one();
}

void EventBroadcaster::deliver() {
  std::unique_lock lock{mutex_};
  for (;;) {
    told_.wait(lock, [&] { return stopping_ || !items_.empty(); });
    if (stopping_) return;
    const Item item = std::move(items_.front());
    items_.pop_front();
    const std::vector<std::shared_ptr<Watcher>> watchers(watchers_.begin(), watchers_.end());
    for (const auto& watcher : watchers) {
      if (watcher->gone) continue;
      watcher->in_call = true;
      lock.unlock();
      hand_to(*watcher, item);
      lock.lock();
      watcher->in_call = false;
      handed_.notify_all();
    }
  }
}

void EventBroadcaster::hand_to(Watcher& watcher, const Item& item) {
  if (watcher.refused) return;
  if (const auto problem = still_good_ ? still_good_(watcher.who) : std::nullopt) {
    watcher.refused = true;
    if (watcher.ended) watcher.ended(*problem);
    return;
  }
  if (!item.event) return;
  if (!watcher.who.queues) {
    watcher.next(item.event);
  } else if (item.snapshot) {
    LiveEvent part = *item.event;
    part.json = snapshot_json(*item.snapshot, &watcher.who);
    watcher.next(std::make_shared<const LiveEvent>(std::move(part)));
  } else if (watcher.who.may_use(item.event->queue)) {
    watcher.next(item.event);
  }
}

void EventBroadcaster::enqueued(std::span<const NewJob> jobs, std::span<const Submission> submissions) {
  if (!watched()) return;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (submissions[i].status != Submission::Status::created) continue;
    const NewJob& job = jobs[i];
    tell("job_enqueued", job.queue,
         dump({{"job_id", submissions[i].job.to_string()},
               {"queue", job.queue},
               {"kind", job.kind},
               {"priority", job.priority}}));
  }
}

void EventBroadcaster::claimed(std::span<const ClaimedJob> jobs) {
  if (!watched()) return;
  for (const ClaimedJob& job : jobs) {
    tell("lease_acquired", job.queue,
         dump({{"job_id", job.lease.job.to_string()},
               {"queue", job.queue},
               {"kind", job.kind},
               {"attempt", job.attempt},
               {"token", job.lease.token.value},
               {"worker", job.lease.worker},
               {"lease_expires_at", to_string(job.lease_expires_at)}}));
  }
}

void EventBroadcaster::settled(std::span<const Settlement> settlements, std::span<const Verdict> verdicts,
                               std::span<const std::optional<LeaseRegistry::Entry>> known) {
  if (!watched()) return;
  for (std::size_t i = 0; i < settlements.size(); ++i) {
    if (!is_news(verdicts[i], known[i])) continue;
    const Lease& lease = settlements[i].lease;
    const Outcome& outcome = settlements[i].outcome;
    std::string queue = known[i] ? *known[i]->queue : std::string{};
    json object{{"job_id", lease.job.to_string()},
                {"queue", queue.empty() ? json() : json(queue)},
                {"outcome", to_string(outcome.kind)},
                {"token", lease.token.value},
                {"worker", lease.worker}};
    tell("job_settled", std::move(queue), dump(object));
  }
}

void EventBroadcaster::queue_changed(const QueueOverview& queue) {
  if (watched()) tell("queue_changed", queue.queue.name, dump(to_json(queue)));
}

void EventBroadcaster::refused() {
  if (!watched()) return;
  {
    const std::lock_guard lock{mutex_};
    kick_ = true;
  }
  kicked_.notify_all();
}

void EventBroadcaster::observe() {
  auto queues_due = Clock::now();
  std::unique_lock lock{mutex_};
  for (;;) {
    if (watchers_.empty()) {
      seen_.clear();
      observed_since_ = {};
      kicked_.wait(lock, [&] { return stopping_ || !watchers_.empty(); });
      queues_due = Clock::now();
    }
    if (stopping_) return;
    kick_ = false;
    const Clock::time_point since = watched_since_;
    lock.unlock();
    if (auto store = store_.reader()) {
      if (observed_since_ != since) {
        // The database's time at the moment at which the watching began.
        if (const auto now = (*store)->now()) {
          evidence_since_ =
              *now - std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - since);
          observed_since_ = since;
          seen_.clear();
        }
      }
      if (observed_since_ == since) read_evidence(**store);
      if (Clock::now() >= queues_due) {
        read_queues(**store);
        queues_due = Clock::now() + kQueuesEvery;
      }
    }
    lock.lock();
    // An item without an event: while nothing happens, too, keys are looked at.
    if (still_good_ && items_.empty() && !watchers_.empty()) {
      items_.push_back({});
      told_.notify_one();
    }
    // However often it is kicked, it does not keep the database busy.
    kicked_.wait_for(lock, kPause, [&] { return stopping_; });
    kicked_.wait_for(lock, kEvidenceEvery - kPause, [&] { return stopping_ || kick_; });
  }
}

void EventBroadcaster::read_evidence(Store& store) {
  auto writes = store.stale_writes(kEvidenceMax);
  if (!writes) return;
  DatabaseTime newest = evidence_since_;
  for (auto write = writes->rbegin(); write != writes->rend(); ++write) {
    newest = std::max(newest, write->at);
    if (write->at < evidence_since_) continue;
    if (!seen_.emplace(write->at, write->id).second) continue;
    tell("stale_write_blocked", write->queue.value_or(""), evidence_json(*write));
  }
  evidence_since_ = std::max(evidence_since_, newest - kEvidenceOverlap);
  while (!seen_.empty() && seen_.begin()->first < evidence_since_) seen_.erase(seen_.begin());
}

void EventBroadcaster::read_queues(Store& store) {
  auto queues = store.queues();
  if (!queues) return;
  auto counts = store.counts();
  if (!counts) return;
  auto overviews = std::make_shared<const Overviews>(overviews_of(std::move(*queues), std::move(*counts)));
  std::string json = snapshot_json(*overviews, nullptr);
  tell("queues", "", std::move(json), std::move(overviews));
}

}  // namespace faultline::service

#include "metrics/metrics.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/text_serializer.h>

#include "base/words.h"

namespace faultline::metrics {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using Counters = prometheus::Family<prometheus::Counter>;
using Histograms = prometheus::Family<prometheus::Histogram>;

constexpr std::array kOutcomes{Outcome::Kind::succeeded, Outcome::Kind::failed,   Outcome::Kind::buried,
                               Outcome::Kind::snoozed,   Outcome::Kind::released, Outcome::Kind::cancelled};
constexpr std::array kReasons{StaleReason::token_mismatch, StaleReason::lease_expired,
                              StaleReason::already_settled, StaleReason::cancelled};
/// Every verb of the evidence.
std::vector<std::string_view> all_verbs() {
  std::vector<std::string_view> verbs{"commit", "heartbeat", "extend",       "progress",
                                      "check",  "effect",    Metrics::kOther};
  for (const Outcome::Kind outcome : kOutcomes) verbs.push_back(verb_of(outcome));
  return verbs;
}
/// Where an expired lease's job can go.
constexpr std::array kAfterExpiry{JobState::available, JobState::held, JobState::dead, JobState::cancelled};
constexpr std::array kLosses{Loss::unbegun, Loss::shared, Loss::alone};

const std::vector<double>& seconds_of_work() {
  static const std::vector<double> bounds{0.0001, 0.001, 0.005, 0.01, 0.05, 0.1,  0.5,
                                          1,      5,     10,    60,   300,  1'800};
  return bounds;
}

const std::vector<double>& seconds_of_recovery() {
  static const std::vector<double> bounds{0.1, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 300};
  return bounds;
}

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

prometheus::Labels labels(Id id, std::initializer_list<std::string_view> values) {
  prometheus::Labels named;
  std::size_t i = 0;
  for (const std::string_view value : values) named.emplace(entry(id).labels[i++], value);
  return named;
}

template <class Family>
std::unique_ptr<Family> family(Id id) {
  return std::make_unique<Family>(std::string{entry(id).name}, std::string{entry(id).help},
                                  prometheus::Labels{});
}

/// Made when it is first used.
class LazyHistogram {
 public:
  template <class Make>
  prometheus::Histogram& get(const Make& make) {
    if (auto* made = made_.load(std::memory_order_acquire)) return *made;
    prometheus::Histogram& made = make();  // a family makes one per set of labels, whoever asks
    made_.store(&made, std::memory_order_release);
    return made;
  }

 private:
  std::atomic<prometheus::Histogram*> made_{nullptr};
};

/// Samples of one histogram, to be observed together: under one lock instead of one each.
class Samples {
 public:
  void add(double value) {
    if (counts_.empty()) counts_.resize(seconds_of_work().size() + 1);
    const auto bucket = std::ranges::lower_bound(seconds_of_work(), value) - seconds_of_work().begin();
    ++counts_[static_cast<std::size_t>(bucket)];
    sum_ += value;
  }
  [[nodiscard]] bool empty() const { return counts_.empty(); }
  void observe_in(prometheus::Histogram& histogram) const { histogram.ObserveMultiple(counts_, sum_); }

 private:
  std::vector<double> counts_;
  double sum_ = 0;
};

/// The metrics of one queue.
struct QueueSeries {
  prometheus::Counter* acquisitions = nullptr;
  prometheus::Counter* renewals = nullptr;
  prometheus::Counter* losses = nullptr;
  prometheus::Counter* failed_again = nullptr;
  prometheus::Counter* expired_again = nullptr;
  prometheus::Counter* dead_by_failure = nullptr;
  prometheus::Counter* dead_by_burial = nullptr;
  prometheus::Counter* dead_by_expiry = nullptr;
  std::array<std::array<prometheus::Counter*, kLosses.size()>, kAfterExpiry.size()> expirations{};
  prometheus::Counter* sweep_problems = nullptr;
  prometheus::Histogram* recovery = nullptr;
};

}  // namespace

class Series {
 public:
  Series(std::string_view queue_name, std::string_view kind_name, QueueSeries& of)
      : queue(queue_name), kind(kind_name), of_queue(of) {}

  const std::string queue;
  const std::string kind;
  QueueSeries& of_queue;
  std::array<prometheus::Counter*, kOutcomes.size()> outcomes{};
  std::atomic<prometheus::Counter*> enqueued{nullptr};
  LazyHistogram wait, held, execution;
};

class Metrics::Impl {
 public:
  Impl();

  [[nodiscard]] Series& series(std::string_view queue, std::string_view kind);
  [[nodiscard]] QueueSeries& queue(std::string_view name) {
    const std::lock_guard lock{mutex_};
    return *known_queue(name).series;
  }
  /// Under which name a queue is shown.
  [[nodiscard]] std::string shown_queue(std::string_view name) {
    const std::lock_guard lock{mutex_};
    return known_queue(name).name;
  }

  [[nodiscard]] Counters& counters(Id id) { return *counters_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] prometheus::Counter& counter(Id id) { return counters(id).Add({}); }
  [[nodiscard]] prometheus::Histogram& histogram(Id id, const Series& series) {
    return histograms(id).Add(labels(id, {series.queue, series.kind}), seconds_of_work());
  }
  [[nodiscard]] prometheus::Counter& enqueued(Series& series) {
    if (auto* made = series.enqueued.load(std::memory_order_acquire)) return *made;
    auto& made = counters(Id::jobs_enqueued).Add(labels(Id::jobs_enqueued, {series.queue, series.kind}));
    series.enqueued.store(&made, std::memory_order_release);
    return made;
  }

  /// What a part of the process shows, instead of what it showed before.
  enum class Part { queues, database, audit, watchdog, link };
  void show(Part part, std::vector<Reading> readings) {
    const std::lock_guard lock{mutex_};
    shown_[part] = std::move(readings);
  }
  /// Returns what it was before.
  bool set_up(std::optional<bool>& state, bool up) {
    const std::lock_guard lock{mutex_};
    return std::exchange(state, up).value_or(false);
  }
  std::optional<bool> database_up_, connected_;  // guarded by mutex_

  [[nodiscard]] std::string text(std::span<const Reading> readings) const;

 private:
  struct KnownQueue {
    std::string name;
    std::unique_ptr<QueueSeries> series;
    std::map<std::string, std::unique_ptr<Series>, std::less<>> kinds;
  };

  [[nodiscard]] Histograms& histograms(Id id) { return *histograms_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] KnownQueue& known_queue(std::string_view name);
  [[nodiscard]] std::unique_ptr<QueueSeries> make_queue(const std::string& name);
  [[nodiscard]] std::unique_ptr<Series> make_series(const KnownQueue& queue, std::string_view kind);
  [[nodiscard]] bool has_room_for(std::string_view kind);
  [[nodiscard]] MetricFamily collect(Id id) const;

  // One per entry of the table, or none.
  std::array<std::unique_ptr<Counters>, kTable.size()> counters_;
  std::array<std::unique_ptr<Histograms>, kTable.size()> histograms_;

  mutable std::mutex mutex_;  // guards all below
  std::map<std::string, KnownQueue, std::less<>> queues_;
  std::set<std::string, std::less<>> kinds_;
  std::size_t pairs_ = 0;
  std::map<Part, std::vector<Reading>> shown_;
};

Metrics::Impl::Impl() {
  for (const Entry& each : kTable) {
    const auto at = static_cast<std::size_t>(each.id);
    if (each.type == Type::counter) counters_[at] = family<Counters>(each.id);
    if (each.type == Type::histogram) histograms_[at] = family<Histograms>(each.id);
  }
  // What is not there before it first happens looks as if it had never risen.
  for (const std::string_view verb : all_verbs()) {
    for (const StaleReason reason : kReasons)
      counters(Id::stale_writes_blocked).Add(labels(Id::stale_writes_blocked, {verb, to_string(reason)}));
  }
}

std::unique_ptr<QueueSeries> Metrics::Impl::make_queue(const std::string& name) {
  auto made = std::make_unique<QueueSeries>();
  const auto counter = [&](Id id, std::initializer_list<std::string_view> values) {
    return &counters(id).Add(labels(id, values));
  };
  made->acquisitions = counter(Id::lease_acquisitions, {name});
  made->renewals = counter(Id::lease_renewals, {name});
  made->losses = counter(Id::lease_losses, {name});
  made->failed_again = counter(Id::jobs_retried, {name, "failed"});
  made->expired_again = counter(Id::jobs_retried, {name, "expired"});
  made->dead_by_failure = counter(Id::jobs_dead, {name, "failed"});
  made->dead_by_burial = counter(Id::jobs_dead, {name, "buried"});
  made->dead_by_expiry = counter(Id::jobs_dead, {name, "expired"});
  for (std::size_t i = 0; i < kAfterExpiry.size(); ++i) {
    for (std::size_t k = 0; k < kLosses.size(); ++k)
      made->expirations[i][k] =
          counter(Id::lease_expirations, {name, to_string(kAfterExpiry[i]), to_string(kLosses[k])});
  }
  made->sweep_problems = counter(Id::sweep_problems, {name});
  made->recovery =
      &histograms(Id::lease_recovery).Add(labels(Id::lease_recovery, {name}), seconds_of_recovery());
  return made;
}

Metrics::Impl::KnownQueue& Metrics::Impl::known_queue(std::string_view name) {
  auto found = queues_.find(name);
  if (found == queues_.end() && queues_.size() >= kQueuesMax) {
    name = kOther;
    found = queues_.find(name);
  }
  if (found != queues_.end()) return found->second;
  KnownQueue& made = queues_[std::string{name}];
  made.name = name;
  made.series = make_queue(made.name);
  return made;
}

bool Metrics::Impl::has_room_for(std::string_view kind) {
  if (pairs_ >= kPairsMax) return false;
  return kinds_.contains(kind) || kinds_.size() < kKindsMax;
}

std::unique_ptr<Series> Metrics::Impl::make_series(const KnownQueue& queue, std::string_view kind) {
  auto made = std::make_unique<Series>(queue.name, kind, *queue.series);
  for (const Outcome::Kind outcome : kOutcomes) {
    made->outcomes[static_cast<std::size_t>(outcome)] =
        &counters(Id::jobs_settled).Add(labels(Id::jobs_settled, {queue.name, kind, to_string(outcome)}));
  }
  return made;
}

Series& Metrics::Impl::series(std::string_view queue, std::string_view kind) {
  const std::lock_guard lock{mutex_};
  KnownQueue& of = known_queue(queue);
  auto found = of.kinds.find(kind);
  if (found == of.kinds.end() && !has_room_for(kind)) {
    kind = kOther;
    found = of.kinds.find(kind);
  }
  if (found != of.kinds.end()) return *found->second;
  ++pairs_;
  if (kind != kOther) kinds_.emplace(kind);
  return *(of.kinds[std::string{kind}] = make_series(of, kind));
}

MetricFamily Metrics::Impl::collect(Id id) const {
  const auto at = static_cast<std::size_t>(id);
  const prometheus::Collectable* made = counters_[at].get();
  if (made == nullptr) made = histograms_[at].get();
  if (made != nullptr) {
    if (auto families = made->Collect(); !families.empty()) return std::move(families.front());
  }
  return {.name = std::string{entry(id).name},
          .help = std::string{entry(id).help},
          .type = entry(id).type == Type::counter     ? prometheus::MetricType::Counter
                  : entry(id).type == Type::histogram ? prometheus::MetricType::Histogram
                                                      : prometheus::MetricType::Gauge};
}

std::string Metrics::Impl::text(std::span<const Reading> readings) const {
  std::vector<MetricFamily> families;
  families.reserve(kTable.size());
  for (const Entry& each : kTable) families.push_back(collect(each.id));
  const auto add = [&](const Reading& reading) {
    ClientMetric metric;
    for (std::size_t i = 0; i < reading.labels.size(); ++i)
      metric.label.push_back({.name = std::string{entry(reading.id).labels[i]}, .value = reading.labels[i]});
    metric.counter.value = metric.gauge.value = reading.value;
    families[static_cast<std::size_t>(reading.id)].metric.push_back(std::move(metric));
  };
  {
    const std::lock_guard lock{mutex_};
    for (const auto& [part, shown] : shown_) std::ranges::for_each(shown, add);
  }
  std::ranges::for_each(readings, add);
  std::erase_if(families, [](const MetricFamily& each) { return each.metric.empty(); });
  std::ostringstream out;
  prometheus::TextSerializer{}.Serialize(out, families);
  return std::move(out).str();
}

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

Series& Metrics::series(std::string_view queue, std::string_view kind) { return impl_->series(queue, kind); }

Series& Finder::operator()(std::string_view queue, std::string_view kind) {
  if (last_ == nullptr || last_->kind != kind || last_->queue != queue) last_ = &metrics_.series(queue, kind);
  return *last_;
}

namespace {

/// What a batch adds up to, series by series. A batch has few kinds, and mostly one.
template <class Sum>
class Sums {
 public:
  Sum& of(Series& series) {
    if (last_ < sums_.size() && sums_[last_].first == &series) return sums_[last_].second;
    const auto found = std::ranges::find(sums_, &series, &std::pair<Series*, Sum>::first);
    last_ = static_cast<std::size_t>(found - sums_.begin());
    if (found == sums_.end()) sums_.emplace_back(&series, Sum{});
    return sums_[last_].second;
  }
  [[nodiscard]] const std::vector<std::pair<Series*, Sum>>& all() const { return sums_; }

 private:
  std::vector<std::pair<Series*, Sum>> sums_;
  std::size_t last_ = 0;
};

void add(prometheus::Counter& counter, std::size_t count) {
  if (count > 0) counter.Increment(static_cast<double>(count));
}

}  // namespace

void Metrics::enqueued(std::span<const NewJob> jobs, std::span<const Submission> submissions) {
  Finder find{*this};
  Sums<std::size_t> sums;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (submissions[i].status == Submission::Status::created) ++sums.of(find(jobs[i].queue, jobs[i].kind));
  }
  for (const auto& [series, count] : sums.all()) add(impl_->enqueued(*series), count);
}

void Metrics::claimed(std::span<const ClaimedJob> jobs) {
  struct Sum {
    std::size_t count = 0;
    Samples waits;
  };
  Finder find{*this};
  Sums<Sum> sums;
  for (const ClaimedJob& job : jobs) {
    Sum& sum = sums.of(find(job.queue, job.kind));
    ++sum.count;
    // The lease begins with the claim. A job that was given back keeps the moment at which it was due.
    const auto claimed_at =
        job.lease_expires_at - std::min(job.lease_ttl, job.run_max.value_or(job.lease_ttl));
    sum.waits.add(std::max(0.0, seconds(claimed_at - job.run_at)));
  }
  for (const auto& [series, sum] : sums.all()) {
    add(*series->of_queue.acquisitions, sum.count);
    sum.waits.observe_in(series->wait.get(
        [&, s = series]() -> prometheus::Histogram& { return impl_->histogram(Id::queue_wait, *s); }));
  }
}

void Metrics::settled(std::span<const Settled> settled) {
  struct Sum {
    std::array<std::size_t, kOutcomes.size()> outcomes{};
    std::size_t dead = 0;  // of those that failed
    Samples held;
  };
  Sums<Sum> sums;
  for (const Settled& each : settled) {
    Sum& sum = sums.of(*each.series);
    ++sum.outcomes[static_cast<std::size_t>(each.outcome)];
    if (each.outcome == Outcome::Kind::failed && !each.attempts_left) ++sum.dead;
    if (each.held) sum.held.add(seconds(*each.held));
  }
  for (const auto& [series, sum] : sums.all()) {
    for (std::size_t i = 0; i < kOutcomes.size(); ++i) add(*series->outcomes[i], sum.outcomes[i]);
    const std::size_t failed = sum.outcomes[static_cast<std::size_t>(Outcome::Kind::failed)];
    add(*series->of_queue.failed_again, failed - sum.dead);
    add(*series->of_queue.dead_by_failure, sum.dead);
    add(*series->of_queue.dead_by_burial, sum.outcomes[static_cast<std::size_t>(Outcome::Kind::buried)]);
    if (sum.held.empty()) continue;
    sum.held.observe_in(series->held.get(
        [&, s = series]() -> prometheus::Histogram& { return impl_->histogram(Id::lease_held, *s); }));
  }
}

void Metrics::executed(std::span<const Executed> executed) {
  Sums<Samples> sums;
  for (const Executed& each : executed) sums.of(*each.series).add(seconds(each.took));
  for (const auto& [series, samples] : sums.all())
    samples.observe_in(series->execution.get(
        [&, s = series]() -> prometheus::Histogram& { return impl_->histogram(Id::execution, *s); }));
}

void Metrics::renewed(Series& series, std::size_t leases) { add(*series.of_queue.renewals, leases); }

void Metrics::lost(std::string_view queue) { impl_->queue(queue).losses->Increment(); }

void Metrics::stale(std::string_view verb, StaleReason reason) {
  static const std::vector<std::string_view> known = all_verbs();
  if (std::ranges::find(known, verb) == known.end()) verb = kOther;
  impl_->counters(Id::stale_writes_blocked)
      .Add(labels(Id::stale_writes_blocked, {verb, to_string(reason)}))
      .Increment();
}

void Metrics::stale(Outcome::Kind outcome, StaleReason reason) { stale(verb_of(outcome), reason); }

void Metrics::know_refusals(std::span<const std::string_view> reasons) {
  for (const std::string_view reason : reasons)
    impl_->counters(Id::server_auth_refusals).Add(labels(Id::server_auth_refusals, {reason}));
}

void Metrics::turned_away(std::string_view reason) {
  impl_->counters(Id::server_auth_refusals).Add(labels(Id::server_auth_refusals, {reason})).Increment();
}

void Metrics::swept(const Sweep& sweep) {
  impl_->counter(Id::watchdog_ticks).Increment();
  add(impl_->counter(Id::watchdog_errors), sweep.error != nullptr ? 1 : 0);
  if (sweep.error != nullptr) return;
  impl_->show(Impl::Part::watchdog, {{.id = Id::watchdog_last_tick, .value = seconds_since_1970()}});
  for (const ExpiredLease& lease : sweep.expired) {
    QueueSeries& queue = impl_->queue(lease.queue);
    const auto state = std::ranges::find(kAfterExpiry, lease.next_state);
    const auto loss = std::ranges::find(kLosses, lease.loss);
    if (state != kAfterExpiry.end() && loss != kLosses.end())
      queue
          .expirations[static_cast<std::size_t>(state - kAfterExpiry.begin())]
                      [static_cast<std::size_t>(loss - kLosses.begin())]
          ->Increment();
    if (lease.next_state == JobState::dead) queue.dead_by_expiry->Increment();
    if (lease.next_state != JobState::available) continue;
    queue.expired_again->Increment();
    if (sweep.ended_at) queue.recovery->Observe(std::max(0.0, seconds(*sweep.ended_at - lease.expired_at)));
  }
  for (const SweepProblem& problem : sweep.problems) impl_->queue(problem.queue).sweep_problems->Increment();
}

void Metrics::show_queues(std::span<const QueueCounts> counts) {
  struct Depth {
    std::array<std::int64_t, 7> jobs{};  // by state, in JobState's order
    std::int64_t retrying = 0;
    double oldest = 0;
  };
  std::map<std::string, Depth> depths;
  for (const QueueCounts& of : counts) {
    Depth& depth = depths[impl_->shown_queue(of.queue)];
    const std::array<std::int64_t, 7> jobs{of.scheduled, of.available, of.running,  of.held,
                                           of.dead,      of.succeeded, of.cancelled};
    for (std::size_t i = 0; i < jobs.size(); ++i) depth.jobs[i] += jobs[i];
    depth.retrying += of.retrying;
    if (of.oldest_due_age) depth.oldest = std::max(depth.oldest, seconds(*of.oldest_due_age));
  }
  std::vector<Reading> readings;
  for (const auto& [queue, depth] : depths) {
    for (std::size_t i = 0; i < depth.jobs.size(); ++i) {
      readings.push_back({.id = Id::queue_jobs,
                          .value = static_cast<double>(depth.jobs[i]),
                          .labels = {queue, std::string{to_string(static_cast<JobState>(i))}}});
    }
    readings.push_back(
        {.id = Id::queue_jobs, .value = static_cast<double>(depth.retrying), .labels = {queue, "retrying"}});
    readings.push_back({.id = Id::queue_oldest_due_age, .value = depth.oldest, .labels = {queue}});
  }
  impl_->show(Impl::Part::queues, std::move(readings));
}

void Metrics::show_database(const DatabaseHealth& health) {
  impl_->set_up(impl_->database_up_, true);
  impl_->counter(Id::database_losses).Increment(0);
  impl_->show(Impl::Part::database,
              {{.id = Id::database_up, .value = 1},
               {.id = Id::database_connections, .value = health.connections},
               {.id = Id::database_connections_max, .value = health.connections_max},
               {.id = Id::database_oldest_snapshot_age, .value = health.oldest_snapshot_age_seconds},
               {.id = Id::database_oldest_xmin_age, .value = health.oldest_xmin_age_transactions}});
}

void Metrics::database_is_lost() {
  if (impl_->set_up(impl_->database_up_, false)) impl_->counter(Id::database_losses).Increment();
  impl_->show(Impl::Part::queues, {});
  impl_->show(Impl::Part::database, {{.id = Id::database_up, .value = 0}});
}

void Metrics::show_audit(std::vector<std::pair<std::string, std::int64_t>> violations,
                         std::chrono::duration<double> took) {
  std::vector<Reading> readings{{.id = Id::audit_last_run, .value = seconds_since_1970()},
                                {.id = Id::audit_duration, .value = took.count()}};
  for (auto& [check, count] : violations)
    readings.push_back(
        {.id = Id::invariant_violations, .value = static_cast<double>(count), .labels = {std::move(check)}});
  impl_->counter(Id::audit_errors).Increment(0);
  impl_->show(Impl::Part::audit, std::move(readings));
}

void Metrics::audit_failed() { impl_->counter(Id::audit_errors).Increment(); }

void Metrics::connected(bool is) {
  const bool was = impl_->set_up(impl_->connected_, is);
  add(impl_->counter(Id::worker_disconnections), was && !is ? 1 : 0);
  impl_->show(Impl::Part::link, {{.id = Id::worker_connected, .value = is ? 1.0 : 0.0}});
}

std::string Metrics::text(std::span<const Reading> readings) const { return impl_->text(readings); }

std::function<void(const Sweep&)> counting(std::shared_ptr<Metrics> metrics) {
  return [metrics = std::move(metrics)](const Sweep& sweep) { metrics->swept(sweep); };
}

}  // namespace faultline::metrics

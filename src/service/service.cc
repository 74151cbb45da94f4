#include "service/service.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include "base/events.h"
#include "base/line_limit.h"
#include "service/budget.h"
#include "service/bulk.h"
#include "service/coalescer.h"
#include "service/cursor.h"
#include "service/dispatcher.h"
#include "service/event_broadcaster.h"
#include "service/lease_registry.h"
#include "service/monitored_store.h"
#include "service/operations.h"
#include "service/thread_pool.h"
#include "store/announce.h"
#include "store/listener.h"
#include "store/validate.h"
#include "trace/enqueue_spans.h"

namespace faultline::service {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kApplication = "faultline server";
constexpr std::size_t kSubmitters = 2;
constexpr std::size_t kKeyedSubmitters = 2;
constexpr std::size_t kSettlers = 2;
constexpr std::size_t kWorking = 2;  ///< for what workers ask beside heartbeats and settlements
constexpr std::size_t kLooking = 2;  ///< for those who look and operate
constexpr milliseconds kOverloadedRetryAfter{1'000};
constexpr std::size_t kLeasesRemembered = 100'000;

/// The group of heartbeats that do not extend; others are grouped by their extension, which is at least 100
/// ms.
constexpr std::int64_t kByTtl = 0;

Problem stopping() {
  return {.code = Code::unavailable,
          .message = "this server stops",
          .hint = "nothing was changed; use another one, or try again",
          .retry_after = milliseconds{1'000}};
}

Problem no_such_job(JobId id) {
  return {.code = Code::not_found,
          .message = "there is no job " + id.to_string(),
          .hint = "check the id; a finished job is retired after its queue's retention"};
}

StoreOptions store_options(const ServiceOptions& options) {
  return {.database = options.database,
          .application_name = std::string{kApplication},
          // Those who wait for a key leave the others their connections.
          .connections_max = std::max<std::size_t>(options.connections, 1) + kKeyedSubmitters,
          .transactions_max = 1,
          .call_timeout = options.call_timeout,
          .payload_bytes_max = options.payload_bytes_max,
          .json_depth_max = options.json_depth_max};
}

const Lease& lease_of(const Lease& lease) { return lease; }
template <class Item>
const Lease& lease_of(const Item& item) {
  return item.lease;
}

/// What a fenced verb answers where there is no such job.
Verdict no_such_lease() {
  return {.status = Verdict::Status::stale, .stale = {.reason = StaleReason::token_mismatch}};
}

Effect no_such_effect() { return {.status = Effect::Status::stale, .stale = no_such_lease().stale}; }

std::size_t bytes_in(const std::optional<std::string>& text) { return text ? text->size() : 0; }

class ServiceImpl : public Service {
 public:
  explicit ServiceImpl(ServiceOptions options);
  ~ServiceImpl() override { stop(); }
  ServiceImpl(const ServiceImpl&) = delete;
  ServiceImpl& operator=(const ServiceImpl&) = delete;

  [[nodiscard]] const ServiceOptions& options() const override { return options_; }

  void enqueue(const Principal& who, std::vector<NewJob> jobs, Done<std::vector<Submission>> done) override;
  [[nodiscard]] ServiceResult<std::unique_ptr<Consumer>> consume(const Principal& who, std::string queue,
                                                                 std::string worker, Deliver deliver,
                                                                 Ended ended) override;
  void heartbeat(const Principal& who, std::vector<Lease> leases, std::optional<milliseconds> extend,
                 Done<std::vector<Beat>> done) override;
  void settle(const Principal& who, std::vector<Settlement> settlements,
              Done<std::vector<Verdict>> done) override;
  void progress(const Principal& who, std::vector<ProgressReport> reports,
                Done<std::vector<Verdict>> done) override;
  void check(const Principal& who, std::vector<Lease> leases, Done<std::vector<Verdict>> done) override;
  void resolve(const Principal& who, std::vector<Lease> leases,
               Done<std::vector<std::optional<Outcome::Kind>>> done) override;
  void begin_effects(const Principal& who, std::vector<EffectKey> keys,
                     Done<std::vector<Effect>> done) override;
  void record_effects(const Principal& who, std::vector<EffectResult> results,
                      Done<std::vector<Effect>> done) override;
  void forget_effects(const Principal& who, std::vector<EffectKey> keys,
                      Done<std::vector<Verdict>> done) override;

  void job(const Principal& who, JobId id, Done<JobHistory> done) override;
  void list(const Principal& who, ListRequest request, std::string cursor, Done<Page> done) override;
  void queues(const Principal& who, Done<std::vector<QueueOverview>> done) override;
  void set_queue(const Principal& who, std::string name, QueueSettings settings, bool make,
                 Done<QueueOverview> done) override;
  void cancel(const Principal& who, Selection jobs, std::string reason,
              Done<Changed<CancelStatus>> done) override;
  void requeue(const Principal& who, Selection jobs, Done<Changed<RequeueStatus>> done) override;
  void purge(const Principal& who, Selection jobs, Done<Changed<PurgeStatus>> done) override;
  void decide_effect(const Principal& who, EffectFinding finding, Done<DecideStatus> done) override;
  void delete_queue(const Principal& who, std::string name, Done<QueueDeletion> done) override;
  void stale_writes(const Principal& who, std::size_t limit, std::string cursor,
                    Done<StalePage> done) override;

  [[nodiscard]] ServiceResult<std::unique_ptr<EventSubscription>> watch(
      const Principal& who, std::function<void(const std::shared_ptr<const LiveEvent>&)> next,
      Ended ended) override;

  [[nodiscard]] bool ready() const override {
    return !draining_ && !stopping_ && store_.usable() && impediment().empty();
  }
  void impede(std::string why) override {
    const std::lock_guard lock{impediment_mutex_};
    impediment_ = std::move(why);
  }
  [[nodiscard]] std::string why_not_ready() const override;
  [[nodiscard]] Counters counters() const override;
  void drain() override;
  void stop() override;

 private:
  using Submitting = Coalescer<NewJob, Submission>;
  using Settling = Coalescer<Settlement, Verdict>;
  using Beating = Coalescer<Lease, Beat>;
  using Progressing = Coalescer<ProgressReport, Verdict>;

  [[nodiscard]] store::Limits limits() const {
    return {.payload_bytes_max = options_.payload_bytes_max, .json_depth_max = options_.json_depth_max};
  }

  // Before a call: whether it may be taken on.

  [[nodiscard]] std::optional<Problem> check_size(std::size_t items, std::string_view what) const;
  [[nodiscard]] std::optional<Problem> check_new_jobs(const Principal& who,
                                                      std::span<const NewJob> jobs) const;
  [[nodiscard]] std::optional<Problem> check_leases(const Principal& who, Operation operation,
                                                    std::span<const Lease> leases) const;
  /// Splits what is written under leases: what is of the caller's queues is handed to `go(items, done)`, and
  /// the rest is answered with `refusal`, as if there were no such jobs.
  template <class Item, class Reply, class Go>
  void with_own(const Principal& who, std::vector<Item> items, Reply refusal, Done<std::vector<Reply>> done,
                Go go);
  template <class Item, class Reply, class Go>
  void go_with_own(const Principal& who, std::vector<Item> items, const std::vector<bool>& own, Reply refusal,
                   Done<std::vector<Reply>> done, Go go);
  /// The database is there and there is room; takes the room.
  [[nodiscard]] std::optional<Problem> admit(const std::string& account, std::size_t items, std::size_t bytes,
                                             Budget::Rank rank = Budget::Rank::ordinary);
  /// Gives the room back, then answers.
  template <class T>
  [[nodiscard]] Done<T> giving_back(std::string account, std::size_t items, std::size_t bytes, Done<T> done);

  template <class Item, class Reply>
  void share(Coalescer<Item, Reply>& coalescer, typename Coalescer<Item, Reply>::Call call,
             Budget::Rank rank = Budget::Rank::ordinary);
  /// Runs `ask(Store&) -> ServiceResult<T>` on a thread of the pool.
  template <class T, class Ask>
  void ask_store(ThreadPool& pool, const Principal& who, std::size_t items, std::size_t bytes, Done<T> done,
                 Ask ask);

  // The shared batches.

  [[nodiscard]] ServiceResult<std::vector<Submission>> run_submissions(std::span<const NewJob> jobs);
  [[nodiscard]] ServiceResult<std::vector<Verdict>> run_settlements(std::span<const Settlement> settlements);
  [[nodiscard]] ServiceResult<std::vector<Beat>> run_heartbeats(std::span<const Lease> leases,
                                                                std::int64_t group);
  [[nodiscard]] ServiceResult<std::vector<Verdict>> run_progress(std::span<const ProgressReport> reports);
  [[nodiscard]] ServiceResult<std::vector<ClaimedJob>> run_claim(const ClaimRequest& request);
  void release(std::vector<Lease> leases);
  void count_refused(std::string_view verb, std::span<const Verdict> verdicts);
  void count_refused(std::span<const Effect> effects);
  void count_settled(std::span<const Settlement> settlements, std::span<const Verdict> verdicts,
                     std::span<const std::optional<LeaseRegistry::Entry>> known);
  void count_beats(std::span<const Lease> leases, std::span<const Beat> beats, std::string_view verb);
  /// Of leases that were given out elsewhere.
  [[nodiscard]] metrics::Series& unknown_series() {
    return metrics_->series(metrics::Metrics::kUnknown, metrics::Metrics::kUnknown);
  }
  [[nodiscard]] std::string impediment() const {
    const std::lock_guard lock{impediment_mutex_};
    return impediment_;
  }
  void tell_refused(const Lease& lease, std::string_view verb, const Stale& stale) const;
  void tell_foreign(const Principal& who, std::size_t leases) const;

  /// `change(Store&, ids, call) -> ServiceResult<std::vector<Status>>`.
  template <class Status, class Change>
  void change(const Principal& who, Operation operation, Selection jobs, std::vector<JobState> states,
              Done<Changed<Status>> done, Change change);

  const ServiceOptions options_;
  const std::shared_ptr<metrics::Metrics> metrics_;
  LeaseRegistry leases_{kLeasesRemembered};
  Budget budget_;
  mutable std::mutex impediment_mutex_;
  std::string impediment_;  // guarded by impediment_mutex_
  std::atomic<bool> draining_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> heartbeats_{0};
  // Of what anybody can make up as much of as he likes, some lines a second are enough.
  mutable LineLimit made_up_lines_;
  mutable LineLimit foreign_lines_;

  MonitoredStore store_;
  EventBroadcaster events_;
  ThreadPool working_;
  ThreadPool looking_;
  Submitting submitting_;
  /// Of jobs with idempotency keys. The database makes them wait for a transaction that has the same key in
  /// hand; nobody else waits for them.
  Submitting submitting_keyed_;
  Settling settling_;
  Beating beating_;
  Progressing progressing_;
  Dispatcher dispatcher_;
  std::unique_ptr<store::Listener> listener_;
};

ServiceImpl::ServiceImpl(ServiceOptions options)
    : options_(std::move(options)),
      metrics_(options_.metrics ? options_.metrics : std::make_shared<metrics::Metrics>()),
      budget_(options_.waiting_max),
      store_({.store = store_options(options_), .log = options_.log}),
      events_(store_, options_.still_good),
      working_(kWorking),
      looking_(kLooking),
      submitting_(
          {.threads = kSubmitters,
           .patience = options_.call_timeout,
           .run = [this](std::span<const NewJob> jobs, std::int64_t) { return run_submissions(jobs); }}),
      submitting_keyed_(
          {.threads = kKeyedSubmitters,
           .patience = options_.call_timeout,
           .run = [this](std::span<const NewJob> jobs, std::int64_t) { return run_submissions(jobs); }}),
      settling_({.threads = kSettlers,
                 .patience = options_.call_timeout,
                 .run = [this](std::span<const Settlement> settlements,
                               std::int64_t) { return run_settlements(settlements); },
                 .job = [](const Settlement& settlement) { return settlement.lease.job; }}),
      beating_({.patience = options_.call_timeout,
                .run = [this](std::span<const Lease> leases,
                              std::int64_t group) { return run_heartbeats(leases, group); },
                .job = [](const Lease& lease) { return lease.job; }}),
      progressing_({.patience = options_.call_timeout,
                    .run = [this](std::span<const ProgressReport> reports,
                                  std::int64_t) { return run_progress(reports); },
                    .job = [](const ProgressReport& report) { return report.lease.job; }}),
      dispatcher_({.claimers = std::max<std::size_t>(options_.connections, 2) - 1,
                   .consumers_max = options_.consumers_max,
                   .poll_max = options_.poll_max},
                  {.claim = [this](const ClaimRequest& request) { return run_claim(request); },
                   .release = [this](std::vector<Lease> leases) { release(std::move(leases)); },
                   .still_good = options_.still_good}) {
  if (!options_.listen) return;
  listener_ = std::make_unique<store::Listener>(
      options_.database, std::string{kApplication} + " listen",
      store::Listener::Callbacks{.announced = [this](std::string_view queue) { dispatcher_.wake(queue); },
                                 .connected = [this] { dispatcher_.wake_all(); }});
}

void ServiceImpl::drain() {
  draining_ = true;
  dispatcher_.drain();
}

void ServiceImpl::stop() {
  if (stopping_.exchange(true)) return;
  listener_.reset();
  // What comes last may still use what comes after it.
  dispatcher_.stop();
  working_.stop();
  looking_.stop();
  submitting_.stop();
  submitting_keyed_.stop();
  progressing_.stop();
  beating_.stop();
  settling_.stop();
  events_.stop();
  store_.stop();
}

std::string ServiceImpl::why_not_ready() const {
  if (draining_ || stopping_) return "this server stops";
  std::string why = store_.why_not();
  return why.empty() ? impediment() : why;
}

Service::Counters ServiceImpl::counters() const {
  return {.heartbeats = heartbeats_,
          .refused_overload = budget_.refused(),
          .consumers = dispatcher_.consumers(),
          .waiting = budget_.items()};
}

// Before a call.

std::optional<Problem> ServiceImpl::check_size(std::size_t items, std::string_view what) const {
  if (items <= options_.batch_max) return std::nullopt;
  return Problem{.code = Code::too_large,
                 .message = "there are " + std::to_string(items) + " " + std::string{what} + " in one call",
                 .hint = "send at most " + std::to_string(options_.batch_max) + " at once"};
}

std::optional<Problem> ServiceImpl::check_new_jobs(const Principal& who, std::span<const NewJob> jobs) const {
  if (auto problem = check_access(who, Operation::enqueue)) return problem;
  if (auto problem = check_size(jobs.size(), "jobs")) return problem;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    auto problem = check_access(who, Operation::enqueue, jobs[i].queue);
    if (!problem) {
      if (const auto error = store::check_job(jobs[i], limits())) problem = Problem::from(*error);
    }
    if (!problem) continue;
    if (jobs.size() > 1) problem->message = "job " + std::to_string(i) + " of the batch: " + problem->message;
    return problem;
  }
  return std::nullopt;
}

std::optional<Problem> ServiceImpl::check_leases(const Principal& who, Operation operation,
                                                 std::span<const Lease> leases) const {
  if (auto problem = check_access(who, operation)) return problem;
  if (auto problem = check_size(leases.size(), "leases")) return problem;
  for (const Lease& lease : leases) {
    if (const auto error = store::check_lease(lease)) return Problem::from(*error);
  }
  return std::nullopt;
}

std::optional<Problem> ServiceImpl::admit(const std::string& account, std::size_t items, std::size_t bytes,
                                          Budget::Rank rank) {
  if (stopping_) return stopping();
  if (const auto store = store_.get(); !store) return store.error();
  if (budget_.take(account, items, bytes, rank)) return std::nullopt;
  return Problem{.code = Code::overloaded,
                 .message = "too much waits for the database already",
                 .hint = "nothing was changed; try again later",
                 .retry_after = kOverloadedRetryAfter};
}

template <class Item, class Reply, class Go>
void ServiceImpl::with_own(const Principal& who, std::vector<Item> items, Reply refusal,
                           Done<std::vector<Reply>> done, Go go) {
  if (!who.queues) return go(std::move(items), std::move(done));
  std::vector<bool> own(items.size());
  // Of leases that were given out by another server, or long ago, the database is asked.
  std::vector<std::size_t> asked;
  std::vector<JobId> jobs;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Lease& lease = lease_of(items[i]);
    if (const auto known = leases_.find(lease)) {
      own[i] = who.may_use(*known->queue);
    } else {
      asked.push_back(i);
      jobs.push_back(lease.job);
    }
  }
  if (asked.empty())
    return go_with_own(who, std::move(items), own, std::move(refusal), std::move(done), std::move(go));
  Done<std::vector<bool>> go_on = [this, who, items = std::move(items), own = std::move(own),
                                   asked = std::move(asked), refusal = std::move(refusal),
                                   done = std::move(done),
                                   go = std::move(go)](ServiceResult<std::vector<bool>> found) mutable {
    if (!found) return done(std::unexpected(std::move(found.error())));
    for (std::size_t i = 0; i < asked.size(); ++i) own[asked[i]] = (*found)[i];
    go_with_own(who, std::move(items), own, std::move(refusal), std::move(done), std::move(go));
  };
  const std::size_t size = jobs.size();
  ask_store<std::vector<bool>>(
      working_, who, size, 0, std::move(go_on),
      [who, jobs = std::move(jobs)](Store& store) { return known_to(store, who, jobs); });
}

template <class Item, class Reply, class Go>
void ServiceImpl::go_with_own(const Principal& who, std::vector<Item> items, const std::vector<bool>& own,
                              Reply refusal, Done<std::vector<Reply>> done, Go go) {
  const auto foreign = static_cast<std::size_t>(std::ranges::count(own, false));
  if (foreign == 0) return go(std::move(items), std::move(done));
  tell_foreign(who, foreign);
  if (foreign == items.size()) return done(std::vector<Reply>(items.size(), refusal));
  std::vector<Item> mine;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (own[i]) mine.push_back(std::move(items[i]));
  }
  go(std::move(mine), [own, refusal = std::move(refusal),
                       done = std::move(done)](ServiceResult<std::vector<Reply>> replies) mutable {
    if (!replies) return done(std::unexpected(std::move(replies.error())));
    std::vector<Reply> all;
    all.reserve(own.size());
    auto next = replies->begin();
    for (const bool is_own : own) {
      if (is_own)
        all.push_back(std::move(*next++));
      else
        all.push_back(refusal);
    }
    done(std::move(all));
  });
}

template <class T>
Done<T> ServiceImpl::giving_back(std::string account, std::size_t items, std::size_t bytes, Done<T> done) {
  return [this, account = std::move(account), items, bytes,
          done = std::move(done)](ServiceResult<T> result) mutable {
    budget_.give_back(account, items, bytes);
    done(std::move(result));
  };
}

template <class Item, class Reply>
void ServiceImpl::share(Coalescer<Item, Reply>& coalescer, typename Coalescer<Item, Reply>::Call call,
                        Budget::Rank rank) {
  const std::size_t items = call.items.size();
  if (items == 0) return call.done(std::vector<Reply>{});
  if (auto problem = admit(call.account, items, call.bytes, rank))
    return call.done(std::unexpected(std::move(*problem)));
  call.done = giving_back<std::vector<Reply>>(call.account, items, call.bytes, std::move(call.done));
  if (!coalescer.submit(call)) call.done(std::unexpected(stopping()));
}

template <class T, class Ask>
void ServiceImpl::ask_store(ThreadPool& pool, const Principal& who, std::size_t items, std::size_t bytes,
                            Done<T> done, Ask ask) {
  const std::string account = who.account();
  if (auto problem = admit(account, items, bytes)) return done(std::unexpected(std::move(*problem)));
  pool.post(account, [this, done = giving_back<T>(account, items, bytes, std::move(done)),
                      ask = std::move(ask)](bool refused) mutable {
    if (refused) return done(std::unexpected(stopping()));
    auto store = store_.get();
    if (!store) return done(std::unexpected(std::move(store.error())));
    done(ask(**store));
  });
}

// Producing.

void ServiceImpl::enqueue(const Principal& who, std::vector<NewJob> jobs,
                          Done<std::vector<Submission>> done) {
  if (auto problem = check_new_jobs(who, jobs)) return done(std::unexpected(std::move(*problem)));
  if (options_.exporter != nullptr) {
    done = [spans = trace::EnqueueSpans{*options_.exporter, jobs},
            done = std::move(done)](ServiceResult<std::vector<Submission>> submissions) mutable {
      if (submissions) spans.added(*submissions);
      done(std::move(submissions));
    };
  }
  Submitting::Call call{.items = std::move(jobs), .done = std::move(done), .account = who.account()};
  bool keyed = false;
  std::string_view known;
  for (const NewJob& job : call.items) {
    call.bytes += job.payload.size();
    keyed = keyed || job.idempotency_key;
    if (job.queue == known) continue;
    // Nobody else's jobs wait while the database is asked about this name.
    if (!store_.knows_queue(job.queue)) call.group = Submitting::kAlone;
    known = job.queue;
  }
  share(keyed ? submitting_keyed_ : submitting_, std::move(call));
}

ServiceResult<std::vector<Submission>> ServiceImpl::run_submissions(std::span<const NewJob> jobs) {
  auto store = store_.get();
  if (!store) return std::unexpected(std::move(store.error()));
  auto submissions = (*store)->enqueue(jobs);
  if (!submissions) return std::unexpected(Problem::from(submissions.error()));
  std::string_view last;
  for (const NewJob& job : jobs) {
    if (job.queue == last) continue;
    last = job.queue;
    if (!store_.knows_queue(job.queue)) store_.remember_queue(job.queue);
    if (store::due_at_once(job)) dispatcher_.wake(job.queue);
  }
  metrics_->enqueued(jobs, *submissions);
  events_.enqueued(jobs, *submissions);
  return std::move(*submissions);
}

// Working.

ServiceResult<std::unique_ptr<Consumer>> ServiceImpl::consume(const Principal& who, std::string queue,
                                                              std::string worker, Deliver deliver,
                                                              Ended ended) {
  if (auto problem = check_access(who, Operation::claim, queue)) return std::unexpected(std::move(*problem));
  if (const auto error = store::check_claim({.queue = queue, .worker = worker})) {
    return std::unexpected(Problem::from(*error));
  }
  if (stopping_) return std::unexpected(stopping());
  const auto exists = store_.queue_exists(queue);
  if (!exists) return std::unexpected(exists.error());
  if (!*exists) {
    return std::unexpected(Problem{.code = Code::not_found,
                                   .message = "there is no queue \"" + queue + "\"",
                                   .hint = "make it first, or check the name"});
  }
  return dispatcher_.add(who, std::move(queue), std::move(worker), std::move(deliver), std::move(ended));
}

ServiceResult<std::vector<ClaimedJob>> ServiceImpl::run_claim(const ClaimRequest& request) {
  auto store = store_.get();
  if (!store) return std::unexpected(std::move(store.error()));
  auto jobs = to_result((*store)->claim(request));
  if (jobs) {
    metrics_->claimed(*jobs);
    leases_.add(*metrics_, *jobs);
    events_.claimed(*jobs);
  }
  return jobs;
}

void ServiceImpl::release(std::vector<Lease> leases) {
  Settling::Call call;
  for (Lease& lease : leases) {
    call.items.push_back({.lease = std::move(lease), .outcome = Outcome::release()});
  }
  // If this fails, the leases run out.
  call.done = [](const ServiceResult<std::vector<Verdict>>&) {};
  static_cast<void>(settling_.submit(call));
}

void ServiceImpl::heartbeat(const Principal& who, std::vector<Lease> leases,
                            std::optional<milliseconds> extend, Done<std::vector<Beat>> done) {
  if (auto problem = check_leases(who, Operation::heartbeat, leases)) {
    return done(std::unexpected(std::move(*problem)));
  }
  if (extend) {
    if (const auto error = store::check_extend(*extend)) return done(std::unexpected(Problem::from(*error)));
  }
  with_own(who, std::move(leases), Beat{.status = Beat::Status::lost, .stale = no_such_lease().stale},
           std::move(done),
           [this, extend, account = who.account()](std::vector<Lease> own, Done<std::vector<Beat>> answer) {
             share(beating_,
                   {.items = std::move(own),
                    .done = std::move(answer),
                    .group = extend ? extend->count() : kByTtl,
                    .account = account},
                   Budget::Rank::first);
           });
}

ServiceResult<std::vector<Beat>> ServiceImpl::run_heartbeats(std::span<const Lease> leases,
                                                             std::int64_t group) {
  auto store = store_.get();
  if (!store) return std::unexpected(std::move(store.error()));
  std::optional<milliseconds> extend;
  if (group != kByTtl) extend = milliseconds{group};
  auto beats = to_result((*store)->heartbeat(leases, extend));
  if (!beats) return beats;
  heartbeats_ += beats->size();
  count_beats(leases, *beats, extend ? "extend" : "heartbeat");
  return beats;
}

void ServiceImpl::tell_refused(const Lease& lease, std::string_view verb, const Stale& stale) const {
  Event event{.name = "stale_write_blocked",
              .severity = Severity::warning,
              .at = std::chrono::system_clock::now(),
              .worker = lease.worker,
              .job = lease.job,
              .token = lease.token,
              .fields = fields_of(stale)};
  event.fields.insert(event.fields.begin(), {"verb", std::string{verb}});
  if (!stale.current_state) {
    const auto untold = made_up_lines_.tell(std::chrono::steady_clock::now());
    if (!untold) return;
    if (*untold > 0) event.fields.emplace_back("untold", std::to_string(*untold));
  }
  options_.log(event);
}

void ServiceImpl::tell_foreign(const Principal& who, std::size_t leases) const {
  const auto untold = foreign_lines_.tell(std::chrono::steady_clock::now());
  if (!untold) return;
  Event event{.name = "foreign_leases_refused",
              .severity = Severity::warning,
              .at = std::chrono::system_clock::now(),
              .fields = {{"key", who.label()}, {"leases", std::to_string(leases)}}};
  if (*untold > 0) event.fields.emplace_back("untold", std::to_string(*untold));
  options_.log(event);
}

void ServiceImpl::count_beats(std::span<const Lease> leases, std::span<const Beat> beats,
                              std::string_view verb) {
  bool lost = false;
  for (std::size_t i = 0; i < beats.size(); ++i) {
    if (beats[i].status == Beat::Status::lost) {
      metrics_->stale(verb, beats[i].stale.reason);
      tell_refused(leases[i], verb, beats[i].stale);
      lost = true;
    } else if (beats[i].status == Beat::Status::renewed) {
      const auto known = leases_.find(leases[i]);
      metrics_->renewed(known ? *known->series : unknown_series());
    }
  }
  if (lost) events_.refused();
}

void ServiceImpl::count_refused(std::string_view verb, std::span<const Verdict> verdicts) {
  bool stale = false;
  for (const Verdict& verdict : verdicts) {
    if (verdict.status != Verdict::Status::stale) continue;
    metrics_->stale(verb, verdict.stale.reason);
    stale = true;
  }
  if (stale) events_.refused();
}

void ServiceImpl::count_refused(std::span<const Effect> effects) {
  bool stale = false;
  for (const Effect& effect : effects) {
    if (effect.status != Effect::Status::stale) continue;
    metrics_->stale("effect", effect.stale.reason);
    stale = true;
  }
  if (stale) events_.refused();
}

void ServiceImpl::count_settled(std::span<const Settlement> settlements, std::span<const Verdict> verdicts,
                                std::span<const std::optional<LeaseRegistry::Entry>> known) {
  const auto now = std::chrono::steady_clock::now();
  std::vector<metrics::Settled> settled;
  settled.reserve(settlements.size());
  bool stale = false;
  for (std::size_t i = 0; i < settlements.size(); ++i) {
    const Lease& lease = settlements[i].lease;
    const Outcome& outcome = settlements[i].outcome;
    if (verdicts[i].status == Verdict::Status::stale) {
      metrics_->stale(outcome.kind, verdicts[i].stale.reason);
      tell_refused(lease, to_string(outcome.kind), verdicts[i].stale);
      stale = true;
    }
    if (!is_news(verdicts[i], known[i])) continue;
    if (known[i])
      settled.push_back({.series = known[i]->series,
                         .outcome = outcome.kind,
                         .attempts_left = known[i]->attempts_left,
                         .held = now - known[i]->since});
    else
      settled.push_back({.series = &unknown_series(), .outcome = outcome.kind});
  }
  metrics_->settled(settled);
  if (stale) events_.refused();
}

void ServiceImpl::settle(const Principal& who, std::vector<Settlement> settlements,
                         Done<std::vector<Verdict>> done) {
  if (auto problem = check_access(who, Operation::settle)) return done(std::unexpected(std::move(*problem)));
  if (auto problem = check_size(settlements.size(), "settlements")) {
    return done(std::unexpected(std::move(*problem)));
  }
  for (Settlement& settlement : settlements) {
    auto error = store::check_lease(settlement.lease);
    if (!error) error = store::check_outcome(settlement.outcome, limits());
    if (error) return done(std::unexpected(Problem::from(*error)));
    settlement.written_by = who.id.empty() ? std::string{} : who.label();
  }
  with_own(who, std::move(settlements), no_such_lease(), std::move(done),
           [this, account = who.account()](std::vector<Settlement> own, Done<std::vector<Verdict>> answer) {
             std::size_t bytes = 0;
             for (const Settlement& settlement : own)
               bytes += bytes_in(settlement.outcome.result) + bytes_in(settlement.outcome.error);
             share(settling_,
                   {.items = std::move(own), .done = std::move(answer), .bytes = bytes, .account = account},
                   Budget::Rank::first);
           });
}

ServiceResult<std::vector<Verdict>> ServiceImpl::run_settlements(std::span<const Settlement> settlements) {
  auto store = store_.get();
  if (!store) return std::unexpected(std::move(store.error()));
  for (const Settlement& settlement : settlements) leases_.settling(settlement.lease);
  auto verdicts = to_result((*store)->settle(settlements));
  std::vector<std::optional<LeaseRegistry::Entry>> known(settlements.size());
  for (std::size_t i = 0; i < settlements.size(); ++i)
    known[i] = leases_.settled(settlements[i].lease, verdicts ? &(*verdicts)[i] : nullptr);
  if (!verdicts) return verdicts;
  count_settled(settlements, *verdicts, known);
  events_.settled(settlements, *verdicts, known);
  return verdicts;
}

void ServiceImpl::progress(const Principal& who, std::vector<ProgressReport> reports,
                           Done<std::vector<Verdict>> done) {
  if (auto problem = check_access(who, Operation::progress))
    return done(std::unexpected(std::move(*problem)));
  if (auto problem = check_size(reports.size(), "reports")) return done(std::unexpected(std::move(*problem)));
  for (const ProgressReport& report : reports) {
    if (const auto error = store::check_progress(report)) return done(std::unexpected(Problem::from(*error)));
  }
  with_own(
      who, std::move(reports), no_such_lease(), std::move(done),
      [this, account = who.account()](std::vector<ProgressReport> own, Done<std::vector<Verdict>> answer) {
        std::size_t bytes = 0;
        for (const ProgressReport& report : own) bytes += report.note.size();
        share(progressing_,
              {.items = std::move(own), .done = std::move(answer), .bytes = bytes, .account = account});
      });
}

ServiceResult<std::vector<Verdict>> ServiceImpl::run_progress(std::span<const ProgressReport> reports) {
  auto store = store_.get();
  if (!store) return std::unexpected(std::move(store.error()));
  auto verdicts = to_result((*store)->progress(reports));
  if (verdicts) count_refused("progress", *verdicts);
  return verdicts;
}

void ServiceImpl::check(const Principal& who, std::vector<Lease> leases, Done<std::vector<Verdict>> done) {
  if (auto problem = check_leases(who, Operation::check, leases))
    return done(std::unexpected(std::move(*problem)));
  with_own(who, std::move(leases), no_such_lease(), std::move(done),
           [this, who](std::vector<Lease> own, Done<std::vector<Verdict>> answer) {
             const std::size_t items = own.size();
             ask_store<std::vector<Verdict>>(working_, who, items, 0, std::move(answer),
                                             [this, own = std::move(own)](Store& store) {
                                               auto verdicts = to_result(store.check(own));
                                               if (verdicts) count_refused("check", *verdicts);
                                               return verdicts;
                                             });
           });
}

void ServiceImpl::resolve(const Principal& who, std::vector<Lease> leases,
                          Done<std::vector<std::optional<Outcome::Kind>>> done) {
  if (auto problem = check_leases(who, Operation::resolve, leases)) {
    return done(std::unexpected(std::move(*problem)));
  }
  using Kinds = std::vector<std::optional<Outcome::Kind>>;
  with_own(who, std::move(leases), std::optional<Outcome::Kind>{}, std::move(done),
           [this, who](std::vector<Lease> own, Done<Kinds> answer) {
             const std::size_t items = own.size();
             ask_store<Kinds>(working_, who, items, 0, std::move(answer),
                              [own = std::move(own)](Store& store) { return to_result(store.resolve(own)); });
           });
}

void ServiceImpl::begin_effects(const Principal& who, std::vector<EffectKey> keys,
                                Done<std::vector<Effect>> done) {
  if (auto problem = check_access(who, Operation::effects)) return done(std::unexpected(std::move(*problem)));
  if (auto problem = check_size(keys.size(), "effects")) return done(std::unexpected(std::move(*problem)));
  with_own(who, std::move(keys), no_such_effect(), std::move(done),
           [this, who](std::vector<EffectKey> own, Done<std::vector<Effect>> answer) {
             const std::size_t items = own.size();
             ask_store<std::vector<Effect>>(working_, who, items, 0, std::move(answer),
                                            [this, own = std::move(own)](Store& store) {
                                              auto effects = to_result(store.begin_effects(own));
                                              if (effects) count_refused(*effects);
                                              return effects;
                                            });
           });
}

void ServiceImpl::record_effects(const Principal& who, std::vector<EffectResult> results,
                                 Done<std::vector<Effect>> done) {
  if (auto problem = check_access(who, Operation::effects)) return done(std::unexpected(std::move(*problem)));
  if (auto problem = check_size(results.size(), "effects")) return done(std::unexpected(std::move(*problem)));
  with_own(who, std::move(results), no_such_effect(), std::move(done),
           [this, who](std::vector<EffectResult> own, Done<std::vector<Effect>> answer) {
             const std::size_t items = own.size();
             std::size_t bytes = 0;
             for (const EffectResult& result : own) bytes += result.result.size();
             ask_store<std::vector<Effect>>(working_, who, items, bytes, std::move(answer),
                                            [this, own = std::move(own)](Store& store) {
                                              auto effects = to_result(store.record_effects(own));
                                              if (effects) count_refused(*effects);
                                              return effects;
                                            });
           });
}

void ServiceImpl::forget_effects(const Principal& who, std::vector<EffectKey> keys,
                                 Done<std::vector<Verdict>> done) {
  if (auto problem = check_access(who, Operation::effects)) return done(std::unexpected(std::move(*problem)));
  if (auto problem = check_size(keys.size(), "effects")) return done(std::unexpected(std::move(*problem)));
  with_own(who, std::move(keys), no_such_lease(), std::move(done),
           [this, who](std::vector<EffectKey> own, Done<std::vector<Verdict>> answer) {
             const std::size_t items = own.size();
             ask_store<std::vector<Verdict>>(working_, who, items, 0, std::move(answer),
                                             [this, own = std::move(own)](Store& store) {
                                               auto verdicts = to_result(store.forget_effects(own));
                                               if (verdicts) count_refused("effect", *verdicts);
                                               return verdicts;
                                             });
           });
}

// Looking and operating.

void ServiceImpl::job(const Principal& who, JobId id, Done<JobHistory> done) {
  if (auto problem = check_access(who, Operation::get_job)) return done(std::unexpected(std::move(*problem)));
  ask_store<JobHistory>(looking_, who, 1, 0, std::move(done),
                        [who, id](Store& store) -> ServiceResult<JobHistory> {
                          auto history = to_result(store.history(id));
                          if (!history) return std::unexpected(std::move(history.error()));
                          // A job of a queue that is none of the caller's business is not there.
                          if (!*history || !who.may_use((*history)->job.queue))
                            return std::unexpected(no_such_job(id));
                          return std::move(**history);
                        });
}

void ServiceImpl::list(const Principal& who, ListRequest request, std::string cursor, Done<Page> done) {
  if (auto problem = check_filter(who, Operation::list_jobs, request)) {
    return done(std::unexpected(std::move(*problem)));
  }
  if (const auto error = store::check_list(request)) return done(std::unexpected(Problem::from(*error)));
  if (!cursor.empty()) {
    auto before = from_cursor(request, cursor);
    if (!before) return done(std::unexpected(std::move(before.error())));
    request.before = *before;
  }
  ask_store<Page>(
      looking_, who, 1, 0, std::move(done),
      [request = std::move(request)](Store& store) -> ServiceResult<Page> {
        auto listed = to_result(store.list(request));
        if (!listed) return std::unexpected(std::move(listed.error()));
        Page page{.jobs = std::move(listed->jobs), .next = std::nullopt, .looked_at = listed->looked_at};
        if (listed->next) page.next = to_cursor(request, *listed->next);
        return page;
      });
}

void ServiceImpl::queues(const Principal& who, Done<std::vector<QueueOverview>> done) {
  if (auto problem = check_access(who, Operation::list_queues)) {
    return done(std::unexpected(std::move(*problem)));
  }
  ask_store<std::vector<QueueOverview>>(
      looking_, who, 1, 0, std::move(done), [who](Store& store) -> ServiceResult<std::vector<QueueOverview>> {
        auto queues = to_result(store.queues());
        if (!queues) return std::unexpected(std::move(queues.error()));
        std::erase_if(*queues, [&](const Queue& queue) { return !who.may_use(queue.name); });
        auto counts = to_result(store.counts());
        if (!counts) return std::unexpected(std::move(counts.error()));
        return overviews_of(std::move(*queues), std::move(*counts));
      });
}

void ServiceImpl::set_queue(const Principal& who, std::string name, QueueSettings settings, bool make,
                            Done<QueueOverview> done) {
  if (auto problem = check_access(who, Operation::set_queue, name)) {
    return done(std::unexpected(std::move(*problem)));
  }
  if (const auto error = store::check_queue(name, settings)) {
    return done(std::unexpected(Problem::from(*error)));
  }
  ask_store<QueueOverview>(
      looking_, who, 1, 0, std::move(done),
      [this, name = std::move(name), settings, make](Store& store) -> ServiceResult<QueueOverview> {
        if (auto set = make ? store.set_queue(name, settings) : store.change_queue(name, settings); !set)
          return std::unexpected(Problem::from(set.error()));
        store_.remember_queue(name);
        dispatcher_.wake(name);
        auto overview = find_queue(store, name);
        if (overview) events_.queue_changed(*overview);
        return overview;
      });
}

template <class Status, class Change>
void ServiceImpl::change(const Principal& who, Operation operation, Selection jobs,
                         std::vector<JobState> states, Done<Changed<Status>> done, Change change) {
  if (auto problem = check_selection(who, operation, jobs)) return done(std::unexpected(std::move(*problem)));
  const Uuid call = jobs.call.is_nil() ? Uuid::random() : jobs.call;
  const auto act = [call, change = std::move(change)](Store& store, std::span<const JobId> ids) {
    return change(store, ids, call);
  };
  if (!jobs.filter) {
    if (auto problem = check_size(jobs.ids.size(), "jobs")) return done(std::unexpected(std::move(*problem)));
    const std::size_t items = jobs.ids.size();
    return ask_store<Changed<Status>>(looking_, who, items, 0, std::move(done),
                                      [who, ids = std::move(jobs.ids), act](Store& store) {
                                        return change_by_id<Status>(store, who, ids, act);
                                      });
  }
  if (auto problem = admit(who.account(), 1, 0)) return done(std::unexpected(std::move(*problem)));
  if (jobs.filter->state) states = {*jobs.filter->state};
  Bulk<Status>::start({.store = store_,
                       .thread_pool = looking_,
                       .account = who.account(),
                       .filter = std::move(*jobs.filter),
                       .states = std::move(states),
                       .dry_run = jobs.dry_run,
                       .act = act,
                       .done = giving_back<Changed<Status>>(who.account(), 1, 0, std::move(done))});
}

void ServiceImpl::cancel(const Principal& who, Selection jobs, std::string reason,
                         Done<Changed<CancelStatus>> done) {
  // All that have not ended.
  change<CancelStatus>(
      who, Operation::cancel, std::move(jobs),
      {JobState::scheduled, JobState::available, JobState::running, JobState::held, JobState::dead},
      std::move(done),
      [name = who.label(), reason = std::move(reason)](Store& store, std::span<const JobId> ids, Uuid call) {
        return to_result(store.cancel(ids, name, reason, call));
      });
}

void ServiceImpl::requeue(const Principal& who, Selection jobs, Done<Changed<RequeueStatus>> done) {
  // All that wait for a person. Whoever wants to run again what has succeeded says so.
  change<RequeueStatus>(who, Operation::requeue, std::move(jobs), {JobState::dead, JobState::held},
                        std::move(done),
                        [this, name = who.label()](Store& store, std::span<const JobId> ids, Uuid call) {
                          auto statuses = to_result(store.requeue(ids, name, call));
                          if (statuses) dispatcher_.wake_all();
                          return statuses;
                        });
}

void ServiceImpl::purge(const Principal& who, Selection jobs, Done<Changed<PurgeStatus>> done) {
  if (jobs.filter && jobs.filter->state.value_or(JobState::dead) != JobState::dead) {
    if (auto problem = check_access(who, Operation::purge)) return done(std::unexpected(std::move(*problem)));
    return done(std::unexpected(Problem{.code = Code::invalid,
                                        .message = "only dead jobs are purged",
                                        .hint = "leave the state out of the filter, or say dead"}));
  }
  change<PurgeStatus>(who, Operation::purge, std::move(jobs), {JobState::dead}, std::move(done),
                      [name = who.label()](Store& store, std::span<const JobId> ids, Uuid call) {
                        return to_result(store.purge_dead(ids, name, call));
                      });
}

void ServiceImpl::decide_effect(const Principal& who, EffectFinding finding, Done<DecideStatus> done) {
  if (auto problem = check_access(who, Operation::decide)) return done(std::unexpected(std::move(*problem)));
  const std::size_t bytes = finding.result.size();
  ask_store<DecideStatus>(looking_, who, 1, bytes, std::move(done),
                          [who, finding = std::move(finding)](Store& store) -> ServiceResult<DecideStatus> {
                            const auto known = known_to(store, who, {&finding.job, 1});
                            if (!known) return std::unexpected(known.error());
                            if (!known->front()) return DecideStatus::not_found;
                            return to_result(store.decide_effect(finding, who.label()));
                          });
}

void ServiceImpl::delete_queue(const Principal& who, std::string name, Done<QueueDeletion> done) {
  if (auto problem = check_access(who, Operation::delete_queue, name)) {
    return done(std::unexpected(std::move(*problem)));
  }
  ask_store<QueueDeletion>(
      looking_, who, 1, 0, std::move(done),
      [this, name = std::move(name)](Store& store) -> ServiceResult<QueueDeletion> {
        auto deletion = to_result(store.delete_queue(name));
        if (!deletion) return deletion;
        if (deletion->status == QueueDeletion::Status::not_found) return std::unexpected(no_such_queue(name));
        if (deletion->status == QueueDeletion::Status::has_jobs) {
          return std::unexpected(Problem{.code = Code::conflict,
                                         .message = "the queue \"" + name + "\" has " +
                                                    std::to_string(deletion->live) +
                                                    (deletion->live == 1 ? " live job" : " live jobs"),
                                         .hint = "let them finish, or cancel or purge them first"});
        }
        store_.forget_queue(name);
        return deletion;
      });
}

void ServiceImpl::stale_writes(const Principal& who, std::size_t limit, std::string cursor,
                               Done<StalePage> done) {
  if (auto problem = check_access(who, Operation::list_stale))
    return done(std::unexpected(std::move(*problem)));
  if (const auto error = store::check_list({.limit = limit}))
    return done(std::unexpected(Problem::from(*error)));
  std::optional<DatabaseTime> before;
  if (!cursor.empty()) {
    auto from = stale_writes_from_cursor(cursor);
    if (!from) return done(std::unexpected(std::move(from.error())));
    before = *from;
  }
  ask_store<StalePage>(looking_, who, 1, 0, std::move(done), [who, limit, before](Store& store) {
    return list_stale_writes(store, who, limit, before);
  });
}

ServiceResult<std::unique_ptr<Service::EventSubscription>> ServiceImpl::watch(
    const Principal& who, std::function<void(const std::shared_ptr<const LiveEvent>&)> next, Ended ended) {
  if (auto problem = check_access(who, Operation::watch_events)) return std::unexpected(std::move(*problem));
  if (stopping_) return std::unexpected(stopping());
  return events_.watch(who, std::move(next), std::move(ended));
}

}  // namespace

std::unique_ptr<Service> Service::start(ServiceOptions options) {
  return std::make_unique<ServiceImpl>(std::move(options));
}

}  // namespace faultline::service

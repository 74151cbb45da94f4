#include "remote/remote_link.h"

#include <algorithm>
#include <thread>

#include "remote/job_subscription.h"

namespace faultline::remote {
namespace {

constexpr std::chrono::milliseconds kCallTimeout{10'000};
/// A beat that takes longer is better sent again over another connection.
constexpr std::chrono::milliseconds kBeatTimeout{5'000};
/// How long a handler's call goes on while the server is away.
constexpr std::chrono::milliseconds kHandlerPatience{30'000};
constexpr std::chrono::milliseconds kStartMax{10'000};
/// Of one call: servers take a thousand items and some mebibytes at a time.
constexpr std::size_t kItemsMax = 500;
constexpr std::size_t kBytesMax = 4'194'304;

Error misunderstood() {
  return {.code = ErrorCode::internal,
          .message = "the server's answer does not fit what was asked",
          .hint = "the server is of another version"};
}

std::size_t bytes_of(const Settlement& settlement) {
  const Outcome& outcome = settlement.outcome;
  return 256 + outcome.result.value_or("").size() + outcome.error.value_or("").size();
}
std::size_t bytes_of(const EffectResult& item) { return 256 + item.key.size() + item.result.size(); }
std::size_t bytes_of(const ProgressReport& item) { return 256 + item.note.size(); }
std::size_t bytes_of(const EffectKey& item) { return 256 + item.key.size(); }
std::size_t bytes_of(const Lease& item) { return 256 + item.worker.size(); }

/// As many of the first items as go into one call.
template <class Item>
std::span<const Item> first_part(std::span<const Item> items) {
  std::size_t count = 0;
  std::size_t bytes = 0;
  while (count < std::min(items.size(), kItemsMax)) {
    bytes += bytes_of(items[count]);
    if (count > 0 && bytes > kBytesMax) break;
    ++count;
  }
  return items.first(count);
}

template <class Request, class Response>
using Method = grpc::Status (pb::Faultline::Stub::*)(grpc::ClientContext*, const Request&, Response*);

class RemoteLink : public worker::Link {
 public:
  RemoteLink(std::string worker, std::unique_ptr<ServerConnections> connections)
      : worker_(std::move(worker)), connections_(std::move(connections)) {
    connections_->on_change = [this] { poke(); };
  }
  ~RemoteLink() override {
    stop_listening();
    subscriptions_.clear();
  }

  std::optional<Error> check_queues(std::span<const std::string> queues) override;
  [[nodiscard]] bool through_server() const override { return true; }

  Expected<Claimed> claim(const ClaimRequest& request) override;
  void want(std::string_view queue, std::size_t limit) override {
    if (JobSubscription* subscription = find(queue)) subscription->want(limit);
  }
  Expected<Exchange> exchange(std::span<const Settlement> settlements, const ClaimRequest& request) override;
  Expected<std::vector<Verdict>> settle(std::span<const Settlement> settlements) override;
  Expected<std::vector<std::optional<Outcome::Kind>>> resolve(std::span<const Lease> leases) override;
  Expected<std::vector<Beat>> heartbeat(std::span<const Lease> leases, std::span<const Stage>) override {
    return beat(leases, std::nullopt);
  }

  Expected<std::vector<Verdict>> progress(std::span<const ProgressReport> reports) override;
  Expected<std::vector<Verdict>> check(std::span<const Lease> leases) override;
  Expected<std::vector<Beat>> extend(std::span<const Lease> leases, std::chrono::milliseconds by) override {
    return patiently([&] { return beat(leases, by); });
  }
  Expected<std::vector<Effect>> begin_effects(std::span<const EffectKey> keys) override;
  Expected<std::vector<Effect>> record_effects(std::span<const EffectResult> results) override;
  Expected<std::vector<Verdict>> forget_effects(std::span<const EffectKey> keys) override;
  Expected<Verdict> transact(const Lease&, const std::function<Outcome(Transaction&)>&) override {
    return std::unexpected(Error{
        .code = ErrorCode::invalid_argument,
        .message = "the fenced transaction needs the database: this worker has its jobs through a server",
        .hint = "give the worker WorkerOptions::database, or use once() for what is done elsewhere"});
  }

  void listen(const std::vector<std::string>& queues, Callbacks callbacks) override;
  void give_up() override { connections_->give_up(); }
  void stop_claims() override {
    for (const auto& entry : subscriptions_) entry->subscription->stop();
  }
  void stop_listening() override;

 private:
  [[nodiscard]] Expected<std::vector<Beat>> beat(std::span<const Lease> leases,
                                                 std::optional<std::chrono::milliseconds> extend);
  struct Entry {
    std::unique_ptr<JobSubscription> subscription;
    bool news = false;  // guarded by mutex_
  };

  [[nodiscard]] JobSubscription* find(std::string_view queue) const {
    for (const auto& entry : subscriptions_) {
      if (entry->subscription->queue() == queue) return entry->subscription.get();
    }
    return nullptr;
  }
  void open_feeds(std::span<const std::string> queues);
  /// Opens a stream for no jobs, and ends it: the server says whether it would take it.
  [[nodiscard]] std::expected<void, Failed> probe(const std::string& queue);
  [[nodiscard]] Expected<Claimed> end_claim(JobSubscription& subscription, std::size_t limit);
  /// Renews the leases that began too long ago. What was lost meanwhile is left out.
  [[nodiscard]] std::optional<Error> renew(JobSubscription& subscription,
                                           std::vector<JobSubscription::Arrived>& jobs);
  [[nodiscard]] Expected<std::vector<Verdict>> report(std::span<const Settlement> settlements);

  /// A call with one answer per item, in parts if there are many.
  template <class Out, class Request, class Response, class Item, class Fill, class Read>
  [[nodiscard]] Expected<std::vector<Out>> ask(Method<Request, Response> method, std::span<const Item> items,
                                               const Fill& fill, const Read& read,
                                               std::chrono::milliseconds timeout = kCallTimeout);
  /// For handlers: tries again until the server is back.
  template <class Call>
  [[nodiscard]] auto patiently(const Call& call) -> decltype(call());

  /// Keeps the streams going.
  void keep();
  /// Tells of jobs, and gives back what nobody took.
  void carry();
  void give_back();
  void poke() {
    const std::lock_guard lock{mutex_};
    poked_ = true;
    changed_.notify_all();
  }

  const std::string worker_;
  const std::unique_ptr<ServerConnections> connections_;
  std::vector<std::unique_ptr<Entry>> subscriptions_;  ///< made once, before there are threads
  Callbacks callbacks_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  bool poked_ = false;
  bool opened_ = false;
  bool arrived_ = false;
  bool no_more_news_ = false;
  bool over_ = false;
  std::vector<Settlement> cancelled_;
  std::thread keeper_;
  std::thread courier_;
};

// Calls.

template <class Out, class Request, class Response, class Item, class Fill, class Read>
Expected<std::vector<Out>> RemoteLink::ask(Method<Request, Response> method, std::span<const Item> items,
                                           const Fill& fill, const Read& read,
                                           std::chrono::milliseconds timeout) {
  std::vector<Out> all;
  all.reserve(items.size());
  while (all.size() < items.size()) {
    const std::span<const Item> part = first_part(items.subspan(all.size()));
    Request request;
    for (const Item& item : part) fill(request, item);
    Response response;
    const auto done =
        connections_->call(timeout, [&](pb::Faultline::Stub& stub, grpc::ClientContext& context) {
          return (stub.*method)(&context, request, &response);
        });
    if (!done) return std::unexpected(done.error().error);
    auto& answers = *read(response);
    if (static_cast<std::size_t>(answers.size()) != part.size()) return std::unexpected(misunderstood());
    for (auto& answer : answers) all.push_back(wire::from_proto(std::move(answer)));
  }
  return all;
}

template <class Call>
auto RemoteLink::patiently(const Call& call) -> decltype(call()) {
  const Clock::time_point until = Clock::now() + kHandlerPatience;
  std::chrono::milliseconds pause{50};
  for (;;) {
    auto answer = call();
    const bool retry = !answer && (answer.error().code == ErrorCode::unavailable ||
                                   answer.error().code == ErrorCode::outcome_unknown);
    if (!retry || connections_->given_up() || Clock::now() + pause >= until) return answer;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds{1'000});
  }
}

Expected<std::vector<Verdict>> RemoteLink::report(std::span<const Settlement> settlements) {
  pb::ReportResultRequest request;
  for (const Settlement& settlement : settlements) *request.add_results() = wire::to_proto(settlement);
  pb::ReportResultResponse response;
  const auto done =
      connections_->call(kCallTimeout, [&](pb::Faultline::Stub& stub, grpc::ClientContext& context) {
        return stub.ReportResult(&context, request, &response);
      });
  const auto& answers = done ? response.verdicts() : done.error().failure.verdicts();
  if (static_cast<std::size_t>(answers.size()) == settlements.size()) {
    std::vector<Verdict> verdicts;
    verdicts.reserve(settlements.size());
    for (const pb::Verdict& answer : answers) verdicts.push_back(wire::from_proto(answer));
    return verdicts;
  }
  const bool nothing_happened =
      !done && done.error().answered && done.error().error.code != ErrorCode::outcome_unknown;
  if (nothing_happened) return std::unexpected(done.error().error);
  return std::vector<Verdict>(settlements.size(), Verdict{.status = Verdict::Status::unknown});
}

Expected<std::vector<Verdict>> RemoteLink::settle(std::span<const Settlement> settlements) {
  std::vector<Verdict> all;
  all.reserve(settlements.size());
  while (all.size() < settlements.size()) {
    const auto part = first_part(settlements.subspan(all.size()));
    auto verdicts = report(part);
    if (!verdicts) {
      // An error says that nothing was changed. That is no longer true of the whole call.
      if (all.empty()) return verdicts;
      all.resize(settlements.size(), Verdict{.status = Verdict::Status::unknown});
      return all;
    }
    std::ranges::move(*verdicts, std::back_inserter(all));
  }
  return all;
}

Expected<std::vector<std::optional<Outcome::Kind>>> RemoteLink::resolve(std::span<const Lease> leases) {
  std::vector<std::optional<Outcome::Kind>> all;
  while (all.size() < leases.size()) {
    const auto part = first_part(leases.subspan(all.size()));
    pb::ResolveResultsRequest request;
    for (const Lease& lease : part) *request.add_leases() = wire::to_proto(lease);
    pb::ResolveResultsResponse response;
    const auto done =
        connections_->call(kCallTimeout, [&](pb::Faultline::Stub& stub, grpc::ClientContext& context) {
          return stub.ResolveResults(&context, request, &response);
        });
    if (!done) return std::unexpected(done.error().error);
    if (static_cast<std::size_t>(response.resolved_size()) != part.size())
      return std::unexpected(misunderstood());
    for (const pb::Resolved& resolved : response.resolved()) {
      pb::Outcome outcome;
      outcome.set_kind(resolved.kind());
      const auto read = wire::from_proto(std::move(outcome));
      all.push_back(resolved.committed() && read ? std::optional{read->kind} : std::nullopt);
    }
  }
  return all;
}

Expected<std::vector<Beat>> RemoteLink::beat(std::span<const Lease> leases,
                                             std::optional<std::chrono::milliseconds> extend) {
  return ask<Beat>(
      &pb::Faultline::Stub::Heartbeat, leases,
      [&](pb::HeartbeatRequest& request, const Lease& lease) {
        if (extend) request.set_extend_ms(extend->count());
        *request.add_leases() = wire::to_proto(lease);
      },
      [](pb::HeartbeatResponse& response) { return response.mutable_beats(); }, kBeatTimeout);
}

Expected<std::vector<Verdict>> RemoteLink::progress(std::span<const ProgressReport> reports) {
  return ask<Verdict>(
      &pb::Faultline::Stub::ReportProgress, reports,
      [](pb::ReportProgressRequest& request, const ProgressReport& report) {
        *request.add_reports() = wire::to_proto(report);
      },
      [](pb::ReportProgressResponse& response) { return response.mutable_verdicts(); });
}

Expected<std::vector<Verdict>> RemoteLink::check(std::span<const Lease> leases) {
  return patiently([&] {
    return ask<Verdict>(
        &pb::Faultline::Stub::CheckLeases, leases,
        [](pb::CheckLeasesRequest& request, const Lease& lease) {
          *request.add_leases() = wire::to_proto(lease);
        },
        [](pb::CheckLeasesResponse& response) { return response.mutable_verdicts(); });
  });
}

Expected<std::vector<Effect>> RemoteLink::begin_effects(std::span<const EffectKey> keys) {
  return patiently([&] {
    return ask<Effect>(
        &pb::Faultline::Stub::BeginEffects, keys,
        [](pb::BeginEffectsRequest& request, const EffectKey& key) {
          *request.add_keys() = wire::to_proto(key);
        },
        [](pb::EffectsResponse& response) { return response.mutable_effects(); });
  });
}

Expected<std::vector<Effect>> RemoteLink::record_effects(std::span<const EffectResult> results) {
  return patiently([&] {
    return ask<Effect>(
        &pb::Faultline::Stub::RecordEffects, results,
        [](pb::RecordEffectsRequest& request, const EffectResult& result) {
          *request.add_results() = wire::to_proto(result);
        },
        [](pb::EffectsResponse& response) { return response.mutable_effects(); });
  });
}

Expected<std::vector<Verdict>> RemoteLink::forget_effects(std::span<const EffectKey> keys) {
  return ask<Verdict>(
      &pb::Faultline::Stub::ForgetEffects, keys,
      [](pb::ForgetEffectsRequest& request, const EffectKey& key) {
        *request.add_keys() = wire::to_proto(key);
      },
      [](pb::ForgetEffectsResponse& response) { return response.mutable_verdicts(); });
}

// Claims.

Expected<worker::Link::Claimed> RemoteLink::claim(const ClaimRequest& request) {
  JobSubscription* subscription = find(request.queue);
  if (subscription == nullptr) return Claimed{};
  subscription->begin_claim(request.limit);
  return end_claim(*subscription, request.limit);
}

Expected<worker::Link::Exchange> RemoteLink::exchange(std::span<const Settlement> settlements,
                                                      const ClaimRequest& request) {
  JobSubscription* subscription = find(request.queue);
  // The jobs come while the settlements are under way.
  if (subscription != nullptr) subscription->begin_claim(request.limit);
  auto verdicts = settle(settlements);
  if (!verdicts) {
    if (subscription != nullptr) subscription->put_back(subscription->end_claim(request.limit));
    return std::unexpected(std::move(verdicts.error()));
  }
  Exchange done{.verdicts = std::move(*verdicts), .claimed = {}};
  if (subscription == nullptr) return done;
  if (auto claimed = end_claim(*subscription, request.limit)) done.claimed = std::move(*claimed);
  return done;
}

Expected<worker::Link::Claimed> RemoteLink::end_claim(JobSubscription& subscription, std::size_t limit) {
  std::vector<JobSubscription::Arrived> jobs = subscription.end_claim(limit);
  if (jobs.empty()) {
    if (auto trouble = subscription.trouble()) return std::unexpected(std::move(*trouble));
    return Claimed{};
  }
  if (auto problem = renew(subscription, jobs)) return std::unexpected(std::move(*problem));
  Claimed claimed{.jobs = {}, .since = Clock::time_point::max()};
  for (JobSubscription::Arrived& arrived : jobs) {
    claimed.since = std::min(claimed.since, arrived.since);
    claimed.jobs.push_back(std::move(arrived.job));
  }
  return claimed;
}

std::optional<Error> RemoteLink::renew(JobSubscription& subscription,
                                       std::vector<JobSubscription::Arrived>& jobs) {
  const Clock::time_point now = Clock::now();
  const auto is_fresh = [&](const JobSubscription::Arrived& a) {
    return a.since + a.job.lease_ttl / 3 > now;
  };
  const auto first_old = std::stable_partition(jobs.begin(), jobs.end(), is_fresh);
  if (first_old == jobs.end()) return std::nullopt;
  std::vector<JobSubscription::Arrived> old{std::make_move_iterator(first_old),
                                            std::make_move_iterator(jobs.end())};
  jobs.erase(first_old, jobs.end());
  std::vector<Lease> leases;
  for (const JobSubscription::Arrived& arrived : old) leases.push_back(arrived.job.lease);
  auto beats = beat(leases, std::nullopt);
  if (!beats) {
    subscription.put_back(std::move(old));
    // What is fresh need not wait for it.
    return jobs.empty() ? std::optional{std::move(beats.error())} : std::nullopt;
  }
  std::vector<JobSubscription::Arrived> unsure;
  for (std::size_t i = 0; i < old.size(); ++i) {
    const Beat& beat = (*beats)[i];
    if (beat.status == Beat::Status::renewed) {
      old[i].since = now;
      jobs.push_back(std::move(old[i]));
    } else if (beat.status == Beat::Status::cancel_requested) {
      const std::lock_guard lock{mutex_};
      cancelled_.push_back({.lease = old[i].job.lease,
                            .outcome = {.kind = Outcome::Kind::cancelled, .error = beat.cancel_reason}});
      arrived_ = true;
      changed_.notify_all();
    } else if (beat.status == Beat::Status::unknown) {
      unsure.push_back(std::move(old[i]));
    }
  }
  if (!unsure.empty()) subscription.put_back(std::move(unsure));
  return std::nullopt;
}

// The streams.

void RemoteLink::open_feeds(std::span<const std::string> queues) {
  for (const std::string& queue : queues) {
    subscriptions_.push_back(std::make_unique<Entry>());
    Entry& entry = *subscriptions_.back();
    const auto note = [this](bool& what) {
      const std::lock_guard lock{mutex_};
      what = true;
      changed_.notify_all();
    };
    entry.subscription = std::make_unique<JobSubscription>(
        JobSubscription::Options{.queue = queue, .worker = worker_}, *connections_,
        JobSubscription::Callbacks{.arrived =
                                       [note, this, &entry] {
                                         note(entry.news);
                                         note(arrived_);
                                       },
                                   .opened = [note, this] { note(opened_); },
                                   .changed = [this] { poke(); }});
  }
  keeper_ = std::thread{[this] { keep(); }};
}

std::expected<void, Failed> RemoteLink::probe(const std::string& queue) {
  pb::StreamJobsRequest first;
  first.set_queue(queue);
  first.set_worker(worker_);
  return connections_->call(kCallTimeout, [&](pb::Faultline::Stub& stub, grpc::ClientContext& context) {
    const auto stream = stub.StreamJobs(&context);
    stream->WriteLast(first, grpc::WriteOptions{});
    pb::StreamJobsResponse nothing;
    while (stream->Read(&nothing)) {
    }
    return stream->Finish();
  });
}

std::optional<Error> RemoteLink::check_queues(std::span<const std::string> queues) {
  const Clock::time_point until = Clock::now() + kStartMax;
  for (const std::string& queue : queues) {
    for (;;) {
      const auto probed = probe(queue);
      if (probed) break;
      const bool hopeless = probed.error().error.code != ErrorCode::unavailable;
      if (hopeless || Clock::now() >= until) return probed.error().error;
      std::this_thread::sleep_for(std::chrono::milliseconds{200});
    }
  }
  return std::nullopt;
}

void RemoteLink::listen(const std::vector<std::string>& queues, Callbacks callbacks) {
  open_feeds(queues);
  callbacks_ = std::move(callbacks);
  courier_ = std::thread{[this] { carry(); }};
}

void RemoteLink::keep() {
  std::unique_lock lock{mutex_};
  while (!over_) {
    poked_ = false;
    lock.unlock();
    Clock::time_point next = Clock::time_point::max();
    for (const auto& entry : subscriptions_) next = std::min(next, entry->subscription->tend(Clock::now()));
    lock.lock();
    changed_.wait_until(lock, next, [&] { return poked_ || over_; });
  }
}

void RemoteLink::carry() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [&] { return opened_ || arrived_ || no_more_news_; });
    const bool last = no_more_news_;
    const bool opened = std::exchange(opened_, false);
    arrived_ = false;
    std::vector<JobSubscription*> announced;
    for (const auto& entry : subscriptions_) {
      if (std::exchange(entry->news, false)) announced.push_back(entry->subscription.get());
    }
    lock.unlock();
    if (!last && opened) callbacks_.connected();
    if (!last) {
      for (const JobSubscription* subscription : announced) callbacks_.announced(subscription->queue());
    }
    give_back();
    if (last) return;
    lock.lock();
  }
}

void RemoteLink::give_back() {
  std::vector<Settlement> settlements;
  {
    const std::lock_guard lock{mutex_};
    settlements = std::exchange(cancelled_, {});
  }
  const Clock::time_point now = Clock::now();
  for (const auto& entry : subscriptions_) {
    for (JobSubscription::Arrived& arrived : entry->subscription->unwanted()) {
      // What has certainly run out needs no word.
      if (arrived.at + arrived.job.lease_ttl > now)
        settlements.push_back({.lease = std::move(arrived.job.lease), .outcome = Outcome::release()});
    }
  }
  if (settlements.empty()) return;
  // If it does not succeed, their leases run out.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    const auto verdicts = settle(settlements);
    const auto is_unknown = [](const Verdict& v) { return v.status == Verdict::Status::unknown; };
    if (verdicts && std::ranges::none_of(*verdicts, is_unknown)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
  }
}

void RemoteLink::stop_listening() {
  stop_claims();
  // What the server has sent still comes, and is given back. The keeper cancels what takes too long.
  for (const auto& entry : subscriptions_) entry->subscription->wait_until_ended();
  {
    const std::lock_guard lock{mutex_};
    no_more_news_ = true;
    changed_.notify_all();
  }
  if (courier_.joinable()) courier_.join();
  {
    const std::lock_guard lock{mutex_};
    over_ = true;
    changed_.notify_all();
  }
  if (keeper_.joinable()) keeper_.join();
}

}  // namespace

Expected<std::unique_ptr<worker::Link>> open_remote_link(const RemoteLinkOptions& options) {
  auto connections = ServerConnections::open(options);
  if (!connections) return std::unexpected(std::move(connections.error()));
  return std::make_unique<RemoteLink>(options.worker, std::move(*connections));
}

}  // namespace faultline::remote

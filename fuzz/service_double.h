#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "service/authenticator.h"
#include "service/service.h"

namespace faultline::fuzz {

/// Answers every call at once: with the problem that was chosen, or with values whose texts are `echo`, as a
/// database may hold anything. For wire behaviour only; what a real service decides is not looked at.
class ServiceDouble : public service::Service {
 public:
  using Principal = service::Principal;
  template <class T>
  using Done = service::Done<T>;

  /// 0: calls succeed; else the problem with that code, counted from 1.
  unsigned problem = 0;
  std::string echo = "x";
  /// Tells all who watch.
  void happen() {
    const auto event = std::make_shared<const service::LiveEvent>(
        service::LiveEvent{.id = 1, .name = "job_settled", .queue = "default", .json = "{}"});
    for (const auto& next : watching_) next(event);
  }

  const service::ServiceOptions& options() const override { return options_; }

  void enqueue(const Principal&, std::vector<NewJob> jobs, Done<std::vector<Submission>> done) override {
    std::vector<Submission> all(jobs.size());
    for (std::size_t i = 1; i < all.size(); i += 2) all[i].status = Submission::Status::existing;
    to_result(done, std::move(all));
  }
  service::ServiceResult<std::unique_ptr<service::Consumer>> consume(const Principal&, std::string,
                                                                     std::string, service::Deliver deliver,
                                                                     service::Ended) override {
    if (problem != 0) return std::unexpected(the_problem());
    return std::make_unique<ConsumerDouble>(std::move(deliver), *this);
  }
  void heartbeat(const Principal&, std::vector<Lease> leases, std::optional<std::chrono::milliseconds>,
                 Done<std::vector<Beat>> done) override {
    to_result(done, std::vector<Beat>(leases.size(), {.status = Beat::Status::cancel_requested,
                                                      .cancel_reason = echo,
                                                      .stale = {.current_worker = echo}}));
  }
  void settle(const Principal&, std::vector<Settlement> settlements,
              Done<std::vector<Verdict>> done) override {
    // Both answers can be had: all are refused unless one has succeeded.
    const bool committed = std::ranges::any_of(settlements, [](const Settlement& settlement) {
      return settlement.outcome.kind == Outcome::Kind::succeeded;
    });
    verdicts(settlements.size(), committed, done);
  }
  void progress(const Principal&, std::vector<ProgressReport> reports,
                Done<std::vector<Verdict>> done) override {
    verdicts(reports.size(), true, done);
  }
  void check(const Principal&, std::vector<Lease> leases, Done<std::vector<Verdict>> done) override {
    verdicts(leases.size(), false, done);
  }
  void resolve(const Principal&, std::vector<Lease> leases,
               Done<std::vector<std::optional<Outcome::Kind>>> done) override {
    to_result(done, std::vector<std::optional<Outcome::Kind>>(leases.size()));
  }
  void begin_effects(const Principal&, std::vector<EffectKey> keys, Done<std::vector<Effect>> done) override {
    to_result(done, std::vector<Effect>(keys.size(), {.status = Effect::Status::recorded, .result = echo}));
  }
  void record_effects(const Principal&, std::vector<EffectResult> results,
                      Done<std::vector<Effect>> done) override {
    to_result(done, std::vector<Effect>(results.size(), {.status = Effect::Status::stale,
                                                         .stale = {.current_worker = echo}}));
  }
  void forget_effects(const Principal&, std::vector<EffectKey> keys,
                      Done<std::vector<Verdict>> done) override {
    verdicts(keys.size(), true, done);
  }
  void job(const Principal&, JobId id, Done<JobHistory> done) override {
    to_result(
        done,
        JobHistory{
            .job = {.id = id,
                    .queue = echo,
                    .kind = echo,
                    .encoding = Encoding::bytes,
                    .payload = echo,
                    .result = echo,
                    .last_error = echo,
                    .tags = {echo, echo}},
            .attempts = {{.outcome = echo, .state = echo, .lease_expires_at = DatabaseTime{}, .error = echo}},
            .stale_writes = {{.verb = echo, .worker = echo, .lease_expired_at = DatabaseTime{}}},
            .effects = {{.key = echo, .worker = echo, .result = echo}}});
  }
  void list(const Principal&, ListRequest, std::string cursor, Done<service::Page> done) override {
    to_result(done, service::Page{.jobs = {{.queue = echo, .kind = echo}}, .next = std::move(cursor)});
  }
  void queues(const Principal&, Done<std::vector<service::QueueOverview>> done) override {
    to_result(done,
              std::vector<service::QueueOverview>{{.queue = {.name = echo}, .counts = {.queue = echo}}});
  }
  void set_queue(const Principal&, std::string name, QueueSettings, bool,
                 Done<service::QueueOverview> done) override {
    to_result(done, service::QueueOverview{.queue = {.name = name}, .counts = {.queue = name}});
  }
  void cancel(const Principal&, service::Selection jobs, std::string,
              Done<service::Changed<CancelStatus>> done) override {
    to_result(done, changed<CancelStatus>(jobs));
  }
  void requeue(const Principal&, service::Selection jobs,
               Done<service::Changed<RequeueStatus>> done) override {
    to_result(done, changed<RequeueStatus>(jobs));
  }
  void purge(const Principal&, service::Selection jobs, Done<service::Changed<PurgeStatus>> done) override {
    to_result(done, changed<PurgeStatus>(jobs));
  }
  void decide_effect(const Principal&, EffectFinding, Done<DecideStatus> done) override {
    to_result(done, DecideStatus::decided);
  }
  void delete_queue(const Principal&, std::string, Done<QueueDeletion> done) override {
    to_result(done, QueueDeletion{});
  }
  void stale_writes(const Principal&, std::size_t, std::string cursor, Done<StalePage> done) override {
    to_result(done, StalePage{.writes = {{.verb = echo, .worker = echo}}, .next = std::move(cursor)});
  }
  service::ServiceResult<std::unique_ptr<EventSubscription>> watch(
      const Principal&, std::function<void(const std::shared_ptr<const service::LiveEvent>&)> next,
      service::Ended) override {
    if (problem != 0) return std::unexpected(the_problem());
    watching_.push_back(std::move(next));
    return std::make_unique<EventSubscription>();
  }
  bool ready() const override { return problem == 0; }
  void impede(std::string /*why*/) override {}
  std::string why_not_ready() const override { return problem == 0 ? "" : echo; }
  Counters counters() const override { return {}; }
  void drain() override {}
  void stop() override {}

 private:
  /// Delivers as soon as it may, and once more.
  class ConsumerDouble : public service::Consumer {
   public:
    ConsumerDouble(service::Deliver deliver, const ServiceDouble& service)
        : deliver_(std::move(deliver)), service_(service) {}
    void grant(std::int64_t credit, std::int64_t sequence) override {
      if (credit % 2 != 0) return;
      const std::string& text = service_.echo;
      const ClaimedJob job{.queue = text, .kind = text, .payload = "[]", .tags = {text}};
      if (deliver_({job}, sequence)) (void)deliver_({job, job}, sequence);
    }

   private:
    service::Deliver deliver_;
    const ServiceDouble& service_;
  };

  [[nodiscard]] service::Problem the_problem() const {
    constexpr unsigned kCodes = static_cast<unsigned>(service::Code::internal) + 1;
    return {.code = static_cast<service::Code>((problem - 1) % kCodes), .message = echo, .hint = echo};
  }
  template <class T>
  void to_result(Done<T>& done, T value) const {
    if (problem != 0) return done(std::unexpected(the_problem()));
    done(std::move(value));
  }
  void verdicts(std::size_t count, bool committed, Done<std::vector<Verdict>>& done) const {
    to_result(done, std::vector<Verdict>(
                        count, {.status = committed ? Verdict::Status::committed : Verdict::Status::stale,
                                .stale = {.current_token = FenceToken{1}, .current_worker = echo},
                                .repeated = committed}));
  }
  template <class Status>
  static service::Changed<Status> changed(const service::Selection& jobs) {
    service::Changed<Status> all{.matched = jobs.ids.size()};
    for (const JobId& id : jobs.ids) all.items.emplace_back(id, Status{});
    return all;
  }

  service::ServiceOptions options_{.batch_max = 4};
  std::vector<std::function<void(const std::shared_ptr<const service::LiveEvent>&)>> watching_;
};

/// Good keys begin with g; without a key everybody is a reader.
class AuthenticatorDouble : public service::Authenticator {
 public:
  service::ServiceResult<service::Principal> authenticate(std::string_view bearer) const override {
    if (bearer.starts_with('g')) return service::Principal::anybody();
    if (bearer.empty()) return service::Principal{.name = "reader", .scopes = {service::Scope::read}};
    return std::unexpected(
        service::Problem{.code = service::Code::unauthenticated, .message = "this key is not known"});
  }
};

}  // namespace faultline::fuzz

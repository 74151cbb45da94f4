#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "faultline/job.h"

namespace faultline::testing {

/// What the store promises, as a few maps in memory. It knows nothing of SQL, rows or statements: it is told
/// what was called and says what must come of it.
class Model {
 public:
  using ms = std::chrono::milliseconds;

  struct QueueModel {
    bool paused = false;
    std::optional<int> cap{};
    ms ttl{30'000};
    int attempts_max = 3;
    ms backoff_base{1'000};
    ms backoff_max{8'000};
    ms key_retention{10'000};
  };

  struct EffectModel {
    FenceToken token;
    std::optional<std::string> result{};
  };

  struct JobModel {
    JobId id;
    NewJob spec;
    JobState state = JobState::available;  // scheduled is available here: only the clock tells them apart
    std::int64_t token = 0;
    int attempt = 0;
    int requeues = 0;
    DatabaseTime run_at{};
    /// After a failure the store draws the time of the next attempt from [run_at_first, run_at].
    std::optional<DatabaseTime> run_at_first{};
    bool cancel_requested = false;
    bool purged = false;
    std::optional<Lease> lease{};
    DatabaseTime expires_at{};
    ms granted_ttl{};
    DatabaseTime claimed_at{};
    std::map<std::int64_t, std::pair<std::optional<Uuid>, std::string>>
        ended{};  // by token: lease id, outcome
    std::map<std::string, EffectModel> effects{};

    [[nodiscard]] bool finished() const {
      return state == JobState::succeeded || state == JobState::cancelled;
    }
  };

  explicit Model(DatabaseTime now) : now_(now) {}

  [[nodiscard]] DatabaseTime now() const { return now_; }
  void advance(std::chrono::microseconds by) { now_ += by; }
  [[nodiscard]] QueueModel& queue(const std::string& name) { return queues_[name]; }
  [[nodiscard]] std::map<JobId, JobModel>& jobs() { return jobs_; }
  [[nodiscard]] std::size_t stale_writes() const { return stale_writes_; }

  // Producing.

  /// What a submission must be answered with; the id of a new job is the store's choice.
  [[nodiscard]] Submission expect_submission(const NewJob& job) const {
    const auto key = job.idempotency_key ? keys_.find({job.queue, *job.idempotency_key}) : keys_.end();
    if (key == keys_.end() || (key->second.expires_at && *key->second.expires_at <= now_)) return {};
    const JobModel& owner = jobs_.at(key->second.job);
    const bool same = owner.spec.kind == job.kind && owner.spec.payload == job.payload;
    return {.status = same ? Submission::Status::existing : Submission::Status::conflict, .job = owner.id};
  }
  void add(JobId id, const NewJob& job) {
    JobModel& added = jobs_[id];
    added = {.id = id, .spec = job, .run_at = job.run_at.value_or(now_ + job.delay.value_or(ms{0}))};
    if (job.idempotency_key) keys_[{job.queue, *job.idempotency_key}] = {.job = id};
  }

  // Working.

  /// The jobs that may be claimed now, in their order.
  [[nodiscard]] std::vector<JobId> eligible(const std::string& queue) const {
    std::vector<const JobModel*> due;
    for (const auto& [id, job] : jobs_) {
      if (job.spec.queue == queue && job.state == JobState::available && job.run_at <= now_)
        due.push_back(&job);
    }
    std::ranges::sort(
        due, {}, [](const JobModel* job) { return std::tuple{job->spec.priority, job->run_at, job->id}; });
    std::vector<JobId> ids;
    for (const JobModel* job : due) ids.push_back(job->id);
    return ids;
  }
  [[nodiscard]] int running(const std::string& queue) const {
    return static_cast<int>(std::ranges::count_if(jobs_, [&](const auto& entry) {
      return entry.second.spec.queue == queue && entry.second.state == JobState::running;
    }));
  }
  /// How many jobs a claim must get.
  [[nodiscard]] std::size_t claimable(const std::string& name, std::size_t limit) {
    const QueueModel& settings = queue(name);
    if (settings.paused) return 0;
    std::size_t most = std::min(limit, eligible(name).size());
    if (settings.cap)
      most = std::min(most, static_cast<std::size_t>(std::max(0, *settings.cap - running(name))));
    return most;
  }
  void grant(const Lease& lease) {
    JobModel& job = jobs_.at(lease.job);
    job.state = JobState::running;
    ++job.token;
    ++job.attempt;
    job.lease = lease;
    job.claimed_at = now_;
    job.granted_ttl = ttl_of(job);
    job.expires_at = now_ + job.granted_ttl;
    if (job.spec.run_max) job.expires_at = std::min(job.expires_at, now_ + *job.spec.run_max);
  }

  enum class OfCancelled { refused, allowed };
  /// Why a write under this lease must be refused; nothing: it must be accepted.
  [[nodiscard]] std::optional<StaleReason> refusal(const Lease& lease, OfCancelled cancelled) const {
    const auto found = jobs_.find(lease.job);
    if (found == jobs_.end()) return StaleReason::token_mismatch;
    const JobModel& job = found->second;
    if (job.state == JobState::cancelled) return StaleReason::cancelled;
    if (job.token != lease.token.value) return StaleReason::token_mismatch;
    if (job.lease) {
      if (job.lease->lease_id != lease.lease_id) return StaleReason::token_mismatch;
      if (job.expires_at <= now_) return StaleReason::lease_expired;
      if (job.cancel_requested && cancelled == OfCancelled::refused) return StaleReason::cancelled;
      return std::nullopt;
    }
    const auto ended = job.ended.find(lease.token.value);
    if (ended == job.ended.end() || ended->second.first != lease.lease_id) return StaleReason::token_mismatch;
    return ended->second.second == "expired" ? StaleReason::lease_expired : StaleReason::already_settled;
  }
  /// The same for a write that is made: a refusal leaves evidence, if there is such a job.
  std::optional<StaleReason> write(const Lease& lease, OfCancelled cancelled = OfCancelled::refused) {
    const auto reason = refusal(lease, cancelled);
    if (reason && jobs_.contains(lease.job)) ++stale_writes_;
    return reason;
  }
  /// Of a heartbeat or progress: its own worker's settlement may have overtaken it, and that is no evidence.
  std::optional<StaleReason> sign_of_life(const Lease& lease, OfCancelled cancelled = OfCancelled::refused) {
    const auto reason = refusal(lease, cancelled);
    return reason == StaleReason::already_settled ? reason : write(lease, cancelled);
  }

  std::optional<StaleReason> settle(const Lease& lease, const Outcome& outcome) {
    using Kind = Outcome::Kind;
    const bool cancels = outcome.kind == Kind::cancelled;
    // The same again is told the same, and changes nothing.
    if (const auto before = settled_.find({lease.job, lease.token.value, lease.lease_id});
        before != settled_.end() && jobs_.contains(lease.job) && before->second.kind == outcome.kind &&
        before->second.result == outcome.result &&
        (before->second.error == outcome.error || (cancels && !outcome.error))) {
      return std::nullopt;
    }
    const auto reason = write(lease, cancels ? OfCancelled::allowed : OfCancelled::refused);
    if (reason) {
      // The worker is done with a job that is to be cancelled: that ends it.
      if (*reason == StaleReason::cancelled && jobs_.at(lease.job).state == JobState::running) {
        end_attempt(jobs_.at(lease.job), "cancelled", JobState::cancelled);
        settled_[{lease.job, lease.token.value, lease.lease_id}] = {.kind = Kind::cancelled};
      }
      return reason;
    }
    settled_[{lease.job, lease.token.value, lease.lease_id}] = outcome;
    JobModel& job = jobs_.at(lease.job);
    switch (outcome.kind) {
      case Kind::succeeded:
        end_attempt(job, "succeeded", JobState::succeeded);
        break;
      case Kind::cancelled:
        end_attempt(job, "cancelled", JobState::cancelled);
        break;
      case Kind::buried:
        end_attempt(job, "buried", JobState::dead);
        break;
      case Kind::failed:
        fail(job, "failed", outcome.delay);
        break;
      case Kind::snoozed:
      case Kind::released:
        end_attempt(job, std::string{to_string(outcome.kind)}, JobState::available);
        --job.attempt;
        if (outcome.kind == Kind::snoozed) job.run_at = now_ + *outcome.delay;
        break;
    }
    return std::nullopt;
  }

  /// The lease's expiry after a renewal that was accepted.
  DatabaseTime renew(const Lease& lease, std::optional<ms> extend) {
    JobModel& job = jobs_.at(lease.job);
    if (job.cancel_requested) return job.expires_at;
    DatabaseTime wanted = now_ + extend.value_or(job.granted_ttl);
    if (job.spec.run_max) wanted = std::min(wanted, job.claimed_at + *job.spec.run_max);
    job.expires_at = std::max(job.expires_at, wanted);
    return job.expires_at;
  }

  Effect begin_effect(const Lease& lease, const std::string& key) {
    if (const auto reason = write(lease))
      return {.status = Effect::Status::stale, .stale = {.reason = *reason}};
    const auto [effect, is_new] =
        jobs_.at(lease.job).effects.try_emplace(key, EffectModel{.token = lease.token});
    if (is_new) return {};
    if (effect->second.result) return {.status = Effect::Status::recorded, .result = effect->second.result};
    return {.status = Effect::Status::unknown, .begun_under = effect->second.token};
  }
  Effect record_effect(const Lease& lease, const std::string& key, const std::string& result) {
    if (const auto reason = write(lease))
      return {.status = Effect::Status::stale, .stale = {.reason = *reason}};
    EffectModel& effect = jobs_.at(lease.job).effects[key];
    if (!effect.result) effect = {.token = lease.token, .result = result};
    return {.status = Effect::Status::recorded, .result = effect.result};
  }

  /// Ends what has run out; gives where each job went.
  std::map<JobId, JobState> sweep() {
    std::map<JobId, JobState> ended;
    for (auto& [id, job] : jobs_) {
      if (job.state != JobState::running || job.expires_at > now_) continue;
      if (job.cancel_requested)
        end_attempt(job, "cancelled", JobState::cancelled);
      else if (job.spec.delivery == Delivery::hold)
        end_attempt(job, "expired", JobState::held);
      else if (job.spec.delivery == Delivery::at_most_once)
        end_attempt(job, "expired", JobState::dead);
      else
        fail(job, "expired", std::nullopt);
      ended[id] = job.state;
    }
    return ended;
  }

  // Operating. What a call must answer is in the words of the store's statuses.

  std::string cancel(JobId id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return "not_found";
    JobModel& job = found->second;
    if (job.finished()) return "finished";
    if (job.state == JobState::running) {
      job.cancel_requested = true;
      return "requested";
    }
    act(job, "cancelled", JobState::cancelled);
    return "cancelled";
  }
  std::string requeue(JobId id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return "not_found";
    JobModel& job = found->second;
    if (job.purged) return "not_found";
    if (job.state == JobState::available || job.state == JobState::running) return "live";
    if (auto* key = key_of(job)) key->expires_at.reset();
    act(job, "requeued", JobState::available);
    ++job.requeues;
    job.attempt = 0;
    job.run_at = now_;
    return "requeued";
  }
  std::string purge(JobId id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return "not_found";
    JobModel& job = found->second;
    if (job.state != JobState::dead) return "not_dead";
    act(job, "purged", JobState::cancelled);
    job.purged = true;
    return "purged";
  }

 private:
  struct KeyModel {
    JobId job;
    std::optional<DatabaseTime> expires_at{};
  };

  [[nodiscard]] ms ttl_of(const JobModel& job) {
    return job.spec.lease_ttl.value_or(queue(job.spec.queue).ttl);
  }

  KeyModel* key_of(const JobModel& job) {
    if (!job.spec.idempotency_key) return nullptr;
    KeyModel& key = keys_.at({job.spec.queue, *job.spec.idempotency_key});
    return key.job == job.id ? &key : nullptr;
  }
  void move_to(JobModel& job, JobState state) {
    job.state = state;
    job.run_at_first.reset();
    if (!job.finished()) return;
    if (auto* key = key_of(job)) key->expires_at = now_ + queue(job.spec.queue).key_retention;
  }
  void end_attempt(JobModel& job, std::string outcome, JobState state) {
    job.ended[job.token] = {job.lease->lease_id, std::move(outcome)};
    job.lease.reset();
    job.cancel_requested = false;
    move_to(job, state);
  }
  void act(JobModel& job, std::string outcome, JobState state) {
    job.ended[++job.token] = {std::nullopt, std::move(outcome)};
    move_to(job, state);
  }
  void fail(JobModel& job, std::string outcome, std::optional<ms> delay) {
    const QueueModel& settings = queue(job.spec.queue);
    const bool dead = job.attempt >= job.spec.attempts_max.value_or(settings.attempts_max);
    end_attempt(job, std::move(outcome), dead ? JobState::dead : JobState::available);
    if (delay) {
      job.run_at = now_ + *delay;
    } else {
      ms longest = job.spec.backoff_base.value_or(settings.backoff_base);
      const ms most = job.spec.backoff_max.value_or(settings.backoff_max);
      for (int n = 1; n < job.attempt && longest < most; ++n) longest *= 2;
      longest = std::min(longest, most);
      job.run_at_first = now_ + std::chrono::microseconds{longest} / 2;
      job.run_at = now_ + longest;
    }
  }

  DatabaseTime now_;
  std::map<std::string, QueueModel> queues_;
  std::map<JobId, JobModel> jobs_;
  std::map<std::pair<std::string, std::string>, KeyModel> keys_;
  /// What was settled, by job, token and lease id.
  std::map<std::tuple<JobId, std::int64_t, Uuid>, Outcome> settled_;
  std::size_t stale_writes_ = 0;
};

}  // namespace faultline::testing

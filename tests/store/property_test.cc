// Random verbs by several workers, who keep stale leases and use them on purpose, against a model in memory.
// After each step the answers and the whole database are what the model says.
//
// A failure prints its seed and the shortest list of commands that still fails. FAULTLINE_PROPERTY_SEED
// replays one case; FAULTLINE_PROPERTY_CASES runs as many as it says, of random seeds.

#include <charconv>
#include <cstdlib>
#include <numeric>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "store/fixture.h"
#include "store/invariants.h"
#include "store/model.h"

namespace faultline::testing {
namespace {

using ms = std::chrono::milliseconds;
using us = std::chrono::microseconds;

enum class Verb {
  enqueue,
  claim,
  settle,
  settle_many,
  exchange,
  heartbeat,
  progress,
  check,
  begin_effect,
  record_effect,
  cancel,
  requeue,
  purge,
  sweep,
  set_queue,
  fold_counts,
  restart,
  advance,
  advance_to_the_edge,
};
constexpr std::array kWeights{14U, 16U, 14U, 4U, 5U, 8U, 3U, 2U, 4U, 4U, 4U, 5U, 3U, 7U, 4U, 1U, 1U, 6U, 8U};

/// One step, independent of those before it: what its numbers pick is decided when it runs, so that a
/// sequence stays meaningful when steps are taken out.
struct Command {
  Verb verb = Verb::advance;
  std::array<unsigned, 6> dice{};
};

std::vector<Command> draw_commands(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random{seed};
  std::vector<Command> commands(count);
  for (Command& command : commands) {
    auto at = random() % std::accumulate(kWeights.begin(), kWeights.end(), 0U);
    std::size_t verb = 0;
    for (; at >= kWeights[verb]; ++verb) at -= kWeights[verb];
    command.verb = static_cast<Verb>(verb);
    for (unsigned& die : command.dice) die = static_cast<unsigned>(random() >> 33U);
  }
  return commands;
}

struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string show(JobState state) { return std::string{to_string(state)}; }
std::string show(StaleReason reason) { return std::string{to_string(reason)}; }
std::string show(DatabaseTime time) { return to_string(time); }
std::string show(const Uuid& id) { return id.to_string(); }
template <class T>
std::string show(const T& value) {
  std::ostringstream text;
  if constexpr (std::is_enum_v<T>)
    text << static_cast<int>(value);
  else
    text << value;
  return text.str();
}
template <class T>
std::string show(const std::optional<T>& value) {
  return value ? show(*value) : "nothing";
}

template <class T>
void expect_equal(const std::string& what, const T& actual, const T& expected) {
  if (actual != expected) throw Mismatch(what + " is " + show(actual) + ", not " + show(expected));
}

/// What the store and the model share of one case.
class Case {
 public:
  Case(const std::string& dsn, MovableClock& clock, pg::Connection& sql, std::vector<std::string>& trace)
      : dsn_(dsn), clock_(clock), sql_(sql), trace_(trace), model_(DatabaseTime{}) {
    must(
        sql_.exec_script("DELETE FROM faultline.jobs WHERE queue <> '';"
                         // Not TRUNCATE, after which every session plans everything anew.
                         "DELETE FROM faultline.ledger; DELETE FROM faultline.effects;"
                         "DELETE FROM faultline.idempotency_keys; DELETE FROM faultline.stale_writes;"
                         "DELETE FROM faultline.grants; DELETE FROM faultline.tallies;"
                         "DELETE FROM faultline.queues;",
                         soon()));
    for (std::size_t i = 0; i < kStores; ++i) stores_.push_back(open());
    model_ = Model{must(stores_[0].now())};
    for (const std::string& name : queues()) {
      const Model::QueueModel& queue = model_.queue(name);
      must(stores_[0].set_queue(name, {.lease_ttl = queue.ttl,
                                       .attempts_max = queue.attempts_max,
                                       .backoff_base = queue.backoff_base,
                                       .backoff_max = queue.backoff_max,
                                       .key_retention = queue.key_retention}));
    }
  }

  void run(const std::vector<Command>& commands) {
    for (const Command& command : commands) {
      dice_ = command.dice;
      step(command.verb);
      compare();
    }
    expect_no_broken_invariants();
  }

 private:
  static constexpr std::size_t kStores = 2;

  static std::vector<std::string> queues() { return {"default", "other"}; }
  Store open() { return must(Store::open({.database = dsn_, .connections_max = 1})); }

  unsigned die(std::size_t i, unsigned sides) const { return dice_[i] % sides; }
  Store& store() { return stores_[die(5, kStores)]; }
  std::string queue() const { return die(4, 4) == 0 ? "other" : "default"; }
  std::string worker() const { return "w" + std::to_string(die(5, 3)); }
  void note(std::string text) { trace_.push_back(std::move(text)); }

  void step(Verb verb) {
    switch (verb) {
      case Verb::enqueue:
        return enqueue();
      case Verb::claim:
        return claim();
      case Verb::settle:
        return settle(1);
      case Verb::settle_many:
        return settle(2 + die(3, 3));
      case Verb::exchange:
        return exchange();
      case Verb::heartbeat:
        return heartbeat();
      case Verb::progress:
        return progress();
      case Verb::check:
        return check();
      case Verb::begin_effect:
        return begin_effect();
      case Verb::record_effect:
        return record_effect();
      case Verb::cancel:
        return cancel();
      case Verb::requeue:
        return requeue();
      case Verb::purge:
        return purge();
      case Verb::sweep:
        return sweep();
      case Verb::set_queue:
        return set_queue();
      case Verb::fold_counts:
        note("fold the counts");
        while (must(store().fold_counts())) {
        }
        return;
      case Verb::restart:
        return restart();
      case Verb::advance:
        return advance(us{ms{die(0, 3) == 0 ? die(1, 60'000) : die(1, 3'000)}});
      case Verb::advance_to_the_edge:
        return advance_to_the_edge();
    }
  }

  // Producing.

  void enqueue() {
    NewJob job{.queue = queue(), .kind = "k", .priority = static_cast<int>(die(0, 3)) * 4};
    job.payload = std::to_string(die(1, 2));
    if (die(1, 5) == 0) job.delay = ms{die(2, 4'000)};
    if (die(1, 5) == 1) job.run_at = model_.now() - ms{die(2, 4'000)};
    if (die(2, 4) == 0) job.attempts_max = static_cast<int>(1 + die(3, 3));
    if (die(2, 5) == 0) job.lease_ttl = ms{500 + die(3, 5'000)};
    if (die(2, 6) == 0) job.run_max = ms{1'000 + die(3, 60'000)};
    if (die(2, 7) == 0) job.backoff_base = ms{die(3, 2'000)};
    if (die(3, 5) == 0) job.delivery = Delivery::at_most_once;
    if (die(3, 5) == 1) job.delivery = Delivery::hold;
    if (die(3, 3) == 0) job.idempotency_key = "key" + std::to_string(die(0, 3));
    const Submission expected = model_.expect_submission(job);
    const Submission got = must(store().enqueue(job));
    note("enqueue into " + job.queue + " with key " + show(job.idempotency_key) + ": " + got.job.to_string());
    expect_equal("the submission's status", got.status, expected.status);
    if (got.status == Submission::Status::created) {
      model_.add(got.job, job);
      ids_.push_back(got.job);
    } else {
      expect_equal("the key's job", got.job.value, expected.job.value);
    }
  }

  // Working.

  void claim() {
    const std::size_t limit = die(0, 4) == 0 ? 1 + die(1, 10) : 1 + die(1, 3);
    const std::vector<JobId> first_ones = model_.eligible(queue());
    const std::size_t due = model_.claimable(queue(), limit);
    const bool fresh = fresh_.erase({die(5, kStores), queue()}) > 0;
    const std::vector<ClaimedJob> got =
        must(store().claim({.queue = queue(), .worker = worker(), .limit = limit}));
    note("claim " + std::to_string(limit) + " of " + queue() + " as " + worker() + ": " +
         std::to_string(got.size()));
    if (!std::ranges::is_sorted(got, {}, [](const ClaimedJob& job) {
          return std::tuple{job.priority, job.run_at, job.lease.job};
        })) {
      throw Mismatch("the claimed jobs are not in order");
    }
    accept(got, limit);
    for (std::size_t i = 0; fresh && i < got.size(); ++i) {
      expect_equal("job " + std::to_string(i) + " of a first claim", got[i].lease.job.value,
                   first_ones[i].value);
    }
    claim_the_rest(limit, due, got.size());
  }
  /// A claim may leave jobs in front of its cursor to a later one, if looking from the beginning is slow now.
  void claim_the_rest(std::size_t limit, std::size_t due, std::size_t got) {
    const Deadline deadline = soon();
    while (got < due && Deadline::clock::now() < deadline) {
      const auto more = must(store().claim({.queue = queue(), .worker = worker(), .limit = limit - got}));
      accept(more, limit - got);
      got += more.size();
    }
    expect_equal("the number of claimed jobs", got, due);
  }
  void accept(const std::vector<ClaimedJob>& claimed, std::size_t limit) {
    if (claimed.size() > limit) throw Mismatch("a claim took more than its limit");
    for (const ClaimedJob& job : claimed) {
      const std::vector<JobId> eligible = model_.eligible(queue());
      if (std::ranges::find(eligible, job.lease.job) == eligible.end()) {
        throw Mismatch("claimed though it may not be: " + job.lease.job.to_string());
      }
      model_.grant(job.lease);
      const Model::JobModel& granted = model_.jobs().at(job.lease.job);
      expect_equal("the token", job.lease.token.value, granted.token);
      expect_equal("the attempt", job.attempt, granted.attempt);
      expect_equal("the requeues", job.requeues, granted.requeues);
      expect_equal("the lease's expiry", job.lease_expires_at, granted.expires_at);
      leases_.push_back(job.lease);
    }
  }

  /// Mostly a lease that is held now, often one that was, now and then one that nobody ever gave.
  std::optional<Lease> pick_lease(unsigned number) const {
    if (leases_.empty()) return std::nullopt;
    std::vector<Lease> held;
    for (const Lease& lease : leases_) {
      if (!model_.refusal(lease, Model::OfCancelled::allowed)) held.push_back(lease);
    }
    const std::vector<Lease>& from = held.empty() || number % 4 == 0 ? leases_ : held;
    Lease lease = from[(number / 32) % from.size()];
    switch (number % 32) {
      case 1:
        lease.lease_id = Uuid::random();
        break;  // a number that a failover gave out twice
      case 2:
        ++lease.token.value;
        break;
      case 3:
        lease.job.value.bytes[8] ^= std::uint8_t{1};
        break;  // no such job
      default:
        break;
    }
    return lease;
  }
  std::vector<Lease> pick_leases(std::size_t count) const {
    std::vector<Lease> picked;
    for (std::size_t i = 0; i < count; ++i) {
      const auto lease = pick_lease(dice_[i % 3] + static_cast<unsigned>(i) * 7919U);
      const auto same_job = [&](const Lease& other) { return other.job == lease->job; };
      if (lease && std::ranges::none_of(picked, same_job)) picked.push_back(*lease);
    }
    return picked;
  }
  Outcome pick_outcome(unsigned number) const {
    switch (number % 8) {
      case 0:
        return Outcome::failure("it failed");
      case 1:
        return Outcome::failure("it failed", ms{number % 3'000});
      case 2:
        return Outcome::bury("hopeless");
      case 3:
        return Outcome::snooze(ms{number % 5'000});
      case 4:
        return Outcome::release();
      case 5:
        return Outcome::cancel("no");
      default:
        return Outcome::success("done");
    }
  }
  std::vector<Settlement> pick_settlements(std::size_t count) const {
    std::vector<Settlement> settlements;
    const unsigned step = die(1, 2) == 0 ? 0 : 3;  // one verb for all, or several
    for (const Lease& lease : pick_leases(count)) {
      const auto number = dice_[2] + static_cast<unsigned>(settlements.size()) * step;
      settlements.push_back({.lease = lease, .outcome = pick_outcome(number)});
    }
    return settlements;
  }

  void expect_verdict(const Lease& lease, const Verdict& verdict, std::optional<StaleReason> expected) {
    const auto reason = verdict.committed() ? std::nullopt : std::optional{verdict.stale.reason};
    expect_equal("the verdict on " + lease.job.to_string() + " token " + std::to_string(lease.token.value),
                 reason, expected);
    if (!verdict.committed()) expect_stale(lease, verdict.stale);
  }
  void expect_stale(const Lease& lease, const Stale& stale) {
    const auto found = model_.jobs().find(lease.job);
    const bool known = found != model_.jobs().end();
    std::optional<std::int64_t> token;
    if (stale.current_token) token = stale.current_token->value;
    expect_equal("the current token", token, known ? std::optional{found->second.token} : std::nullopt);
  }

  /// An exchange may judge what it refused after its claim: the job may have been `claimed` by then.
  void settle_in_model(const std::vector<Settlement>& settlements, const std::vector<Verdict>& verdicts,
                       const std::vector<ClaimedJob>& claimed = {}) {
    expect_equal("the number of verdicts", verdicts.size(), settlements.size());
    for (std::size_t i = 0; i < settlements.size(); ++i) {
      const Lease& lease = settlements[i].lease;
      const Outcome& outcome = settlements[i].outcome;
      note(std::string{to_string(outcome.kind)} + " for " + lease.job.to_string() + " token " +
           std::to_string(lease.token.value) + (verdicts[i].committed() ? ": committed" : ": refused"));
      // What is true when the write is judged; ending a cancelled job comes after.
      const auto reason = model_.settle(lease, outcome);
      const auto got = verdicts[i].committed() ? std::nullopt : std::optional{verdicts[i].stale.reason};
      const bool judged_later =
          got == StaleReason::token_mismatch && reason &&
          std::ranges::any_of(claimed, [&](const ClaimedJob& job) {
            return job.lease.job == lease.job && job.lease.token == verdicts[i].stale.current_token;
          });
      if (judged_later) continue;
      expect_equal("the verdict", got, reason);
      if (reason) expect_stale(lease, verdicts[i].stale);
    }
  }
  void settle(std::size_t count) {
    const std::vector<Settlement> settlements = pick_settlements(count);
    if (settlements.empty()) return;
    settle_in_model(settlements, must(store().settle(settlements)));
  }
  void exchange() {
    const std::vector<Settlement> settlements = pick_settlements(1 + die(3, 3));
    const std::size_t limit = 1 + die(1, 4);
    fresh_.erase({die(5, kStores), queue()});
    const Store::Exchange done =
        must(store().exchange(settlements, {.queue = queue(), .worker = worker(), .limit = limit}));
    note("exchange, claimed " + std::to_string(done.claimed.size()) + " of " + queue());
    settle_in_model(settlements, done.verdicts, done.claimed);
    resolve_backoffs(done.claimed);
    const std::size_t due = model_.claimable(queue(), limit);
    accept(done.claimed, limit);
    if (!settlements.empty() || due > done.claimed.size()) claim_the_rest(limit, due, done.claimed.size());
  }
  /// A job that failed without a wait is claimed again in the same breath: only the claim knows its run_at.
  void resolve_backoffs(const std::vector<ClaimedJob>& claimed) {
    for (const ClaimedJob& job : claimed) {
      const auto found = model_.jobs().find(job.lease.job);
      if (found != model_.jobs().end()) resolve_backoff(found->second, job.run_at);
    }
  }
  static void resolve_backoff(Model::JobModel& job, DatabaseTime run_at) {
    if (!job.run_at_first) return;
    // The store rounds to microseconds.
    if (run_at + us{1} < *job.run_at_first || run_at > job.run_at + us{1}) {
      throw Mismatch("the backoff ends at " + to_string(run_at) + ", not between " +
                     to_string(*job.run_at_first) + " and " + to_string(job.run_at));
    }
    job.run_at = run_at;
    job.run_at_first.reset();
  }

  void heartbeat() {
    const std::vector<Lease> leases = pick_leases(1 + die(3, 3));
    if (leases.empty()) return;
    const auto extend = die(4, 4) == 0 ? std::optional{ms{100 + die(5, 60'000)}} : std::nullopt;
    const std::vector<Beat> beats = must(store().heartbeat(leases, extend));
    for (std::size_t i = 0; i < leases.size(); ++i) {
      note("heartbeat for " + leases[i].job.to_string() + " token " + std::to_string(leases[i].token.value) +
           ": " + show(beats[i].status));
      const auto refused = extend ? model_.write(leases[i], Model::OfCancelled::allowed)
                                  : model_.sign_of_life(leases[i], Model::OfCancelled::allowed);
      expect_equal("whether the lease is lost", beats[i].status == Beat::Status::lost, refused.has_value());
      if (refused) {
        expect_equal("why it is lost", beats[i].stale.reason, *refused);
        expect_stale(leases[i], beats[i].stale);
        continue;
      }
      const bool cancelled = model_.jobs().at(leases[i].job).cancel_requested;
      expect_equal("whether it is told to cancel", beats[i].status == Beat::Status::cancel_requested,
                   cancelled);
      expect_equal("the renewed expiry", beats[i].lease_expires_at, model_.renew(leases[i], extend));
    }
  }
  void progress() {
    const auto lease = pick_lease(dice_[0]);
    if (!lease) return;
    const ProgressReport report{.lease = *lease, .fraction = 0.25};
    note("progress for " + lease->job.to_string());
    expect_verdict(*lease, must(store().progress({&report, 1})).front(), model_.sign_of_life(*lease));
  }
  void check() {
    const auto lease = pick_lease(dice_[0]);
    if (!lease) return;
    note("check " + lease->job.to_string());
    expect_verdict(*lease, must(store().check({&*lease, 1})).front(), model_.write(*lease));
  }

  void expect_effect(const Effect& got, const Effect& expected) {
    expect_equal("the effect's status", got.status, expected.status);
    if (got.status == Effect::Status::stale) expect_equal("why", got.stale.reason, expected.stale.reason);
    if (got.status == Effect::Status::recorded)
      expect_equal("the effect's result", got.result, expected.result);
    if (got.status == Effect::Status::unknown) {
      expect_equal("who began it", got.begun_under->value, expected.begun_under->value);
    }
  }
  void begin_effect() {
    const auto lease = pick_lease(dice_[0]);
    if (!lease) return;
    const EffectKey key{.lease = *lease, .key = "e" + std::to_string(die(1, 2))};
    note("begin " + key.key + " of " + lease->job.to_string());
    expect_effect(must(store().begin_effects({&key, 1})).front(), model_.begin_effect(*lease, key.key));
  }
  void record_effect() {
    const auto lease = pick_lease(dice_[0]);
    if (!lease) return;
    const EffectResult result{
        .lease = *lease, .key = "e" + std::to_string(die(1, 2)), .result = std::to_string(dice_[2])};
    note("record " + result.key + " of " + lease->job.to_string());
    expect_effect(must(store().record_effects({&result, 1})).front(),
                  model_.record_effect(*lease, result.key, result.result));
  }

  // Keeping house and operating.

  void sweep() {
    std::map<JobId, JobState> got;
    for (const ExpiredLease& expired : must(store().expire_leases()).expired) {
      expect_equal("the reaped token", expired.token.value, model_.jobs().at(expired.job).token);
      if (!got.emplace(expired.job, expired.next_state).second) throw Mismatch("reaped twice in one sweep");
    }
    note("sweep: " + std::to_string(got.size()));
    if (got != model_.sweep()) throw Mismatch("the sweep did not end exactly what had run out");
  }
  std::optional<JobId> pick_job() const {
    if (ids_.empty()) return std::nullopt;
    if (die(0, 16) == 0) return JobId{Uuid{}};
    return ids_[die(1, static_cast<unsigned>(ids_.size()))];
  }
  void cancel() {
    const auto id = pick_job();
    if (!id) return;
    static const std::map<CancelStatus, std::string> words{
        {CancelStatus::cancelled, "cancelled"},
        {CancelStatus::requested, "requested"},
        {CancelStatus::finished, "finished"},
        {CancelStatus::not_found, "not_found"},
        {CancelStatus::token_exhausted, "token_exhausted"}};
    const std::string got = words.at(must(store().cancel({&*id, 1}, "operator", "not wanted")).front());
    note("cancel " + id->to_string() + ": " + got);
    expect_equal("the cancellation", got, model_.cancel(*id));
  }
  void requeue() {
    const auto id = pick_job();
    if (!id) return;
    static const std::map<RequeueStatus, std::string> words{
        {RequeueStatus::requeued, "requeued"},
        {RequeueStatus::live, "live"},
        {RequeueStatus::not_found, "not_found"},
        {RequeueStatus::token_exhausted, "token_exhausted"}};
    const std::string got = words.at(must(store().requeue({&*id, 1}, "operator")).front());
    note("requeue " + id->to_string() + ": " + got);
    expect_equal("the requeue", got, model_.requeue(*id));
  }
  void purge() {
    const auto id = pick_job();
    if (!id) return;
    const std::string got{to_string(must(store().purge_dead({&*id, 1}, "operator")).front())};
    note("purge " + id->to_string() + ": " + got);
    expect_equal("the purge", got, model_.purge(*id));
  }
  void set_queue() {
    Model::QueueModel& queue_model = model_.queue(queue());
    QueueSettings settings;
    if (die(0, 3) == 0) {
      settings.paused = !queue_model.paused && die(1, 2) == 0;
      queue_model.paused = *settings.paused;
    } else if (die(0, 3) == 1) {
      settings.running_max = static_cast<int>(die(1, 5)) - 1;
      queue_model.cap = *settings.running_max < 0 ? std::nullopt : settings.running_max;
    } else {
      settings.lease_ttl = ms{500 + die(1, 40'000)};
      queue_model.ttl = *settings.lease_ttl;
    }
    note("set " + queue() + ": paused " + show(settings.paused) + ", cap " + show(settings.running_max));
    must(store().set_queue(queue(), settings));
  }
  void restart() {
    note("restart");
    stores_[die(5, kStores)] = open();
    for (const std::string& name : queues()) fresh_.insert({die(5, kStores), name});
  }

  void advance(us by) {
    note("advance by " + std::to_string(by.count()) + " us");
    clock_.advance(by);
    model_.advance(by);
  }
  /// To the very moment in which a lease runs out or a job falls due, or one microsecond before.
  void advance_to_the_edge() {
    std::vector<DatabaseTime> edges;
    for (const auto& [id, job] : model_.jobs()) {
      const DatabaseTime edge = job.state == JobState::running ? job.expires_at : job.run_at;
      if (!job.finished() && edge > model_.now()) edges.push_back(edge);
    }
    if (edges.empty()) return;
    const DatabaseTime edge = edges[die(0, static_cast<unsigned>(edges.size()))];
    advance(edge - model_.now() - us{die(1, 3) == 0 ? 1 : 0});
  }

  // Comparing.

  void compare() {
    static constexpr std::string_view kJobs = R"sql(
      SELECT id, state::text, token, attempt, requeues, CASE state WHEN 'available' THEN run_at END, lease_id,
             lease_expires_at, cancel_requested_at IS NOT NULL,
             (SELECT count(*) FROM faultline.ledger l WHERE l.bucket = 0 AND l.job_id = j.id)
        FROM faultline.jobs j WHERE bucket = 0 AND queue <> ''
      UNION ALL
      SELECT job_id, state::text, token, attempt, requeues, NULL, NULL, NULL, false, token
        FROM (SELECT DISTINCT ON (job_id) * FROM faultline.ledger WHERE bucket = 0 ORDER BY job_id, token DESC) AS last
       WHERE state IN ('succeeded', 'cancelled'))sql";
    const pg::Result rows = must(sql_.exec({"property_jobs", kJobs}, {}, soon()));
    expect_equal("the number of jobs", static_cast<std::size_t>(rows.rows()), model_.jobs().size());
    for (int row = 0; row < rows.rows(); ++row) compare_job(rows, row);
    const pg::Result evidence =
        must(sql_.exec({"property_evidence", "SELECT count(*) FROM faultline.stale_writes"}, {}, soon()));
    expect_equal("the number of stale writes", static_cast<std::size_t>(evidence.get<std::int64_t>(0, 0)),
                 model_.stale_writes());
  }
  void compare_job(const pg::Result& rows, int row) {
    const JobId id{rows.get<Uuid>(row, 0)};
    const std::string of = " of job " + id.to_string();
    const auto found = model_.jobs().find(id);
    if (found == model_.jobs().end()) throw Mismatch("nobody enqueued job " + id.to_string());
    Model::JobModel& job = found->second;
    expect_equal("the state" + of, *parse_job_state(rows.get<std::string>(row, 1)), job.state);
    expect_equal("the token" + of, rows.get<std::int64_t>(row, 2), job.token);
    expect_equal("the requeues" + of, rows.get<std::int64_t>(row, 4), std::int64_t{job.requeues});
    if (!job.finished())
      expect_equal("the attempt" + of, rows.get<std::int64_t>(row, 3), std::int64_t{job.attempt});
    if (job.state == JobState::available) {
      resolve_backoff(job, rows.get<DatabaseTime>(row, 5));
      expect_equal("the run_at" + of, rows.get<DatabaseTime>(row, 5), job.run_at);
    }
    if (job.state == JobState::running) {
      expect_equal("the lease id" + of, rows.get<Uuid>(row, 6), job.lease->lease_id);
      expect_equal("the expiry" + of, rows.get<DatabaseTime>(row, 7), job.expires_at);
    }
    expect_equal("the request to cancel" + of, rows.get<bool>(row, 8), job.cancel_requested);
    expect_equal("the length of the ledger" + of, static_cast<std::size_t>(rows.get<std::int64_t>(row, 9)),
                 job.ended.size());
  }
  void expect_no_broken_invariants() {
    const std::vector<std::string> broken = broken_invariants(sql_);
    if (!broken.empty()) throw Mismatch("broken invariant: " + broken.front());
  }

  const std::string& dsn_;
  MovableClock& clock_;
  pg::Connection& sql_;
  std::vector<std::string>& trace_;
  std::vector<Store> stores_;
  Model model_;
  std::array<unsigned, 6> dice_{};
  std::vector<JobId> ids_;
  std::vector<Lease> leases_;
  /// Where no claim has been yet: (store, queue). Such a claim looks from the beginning.
  std::set<std::pair<unsigned, std::string>> fresh_{
      {0, "default"}, {0, "other"}, {1, "default"}, {1, "other"}};
};

class PropertyTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kCommands = 80;

  struct Failure {
    std::string what;
    std::vector<std::string> trace;
  };

  PropertyTest() : dsn_(database_.dsn()), clock_(database_), sql_(database_.connect()) {}

  std::optional<Failure> run(const std::vector<Command>& commands) {
    Failure failure;
    try {
      Case{dsn_, clock_, sql_, failure.trace}.run(commands);
      return std::nullopt;
    } catch (const std::exception& error) {
      failure.what = error.what();
      return failure;
    }
  }

  /// Takes out as many commands as it can, larger pieces first, such that it still fails.
  std::vector<Command> shrink(std::vector<Command> commands) {
    int tries = 150;
    for (std::size_t piece = commands.size() / 2; piece > 0; piece /= 2) {
      for (std::size_t at = 0; at + piece <= commands.size() && tries > 0;) {
        std::vector<Command> fewer = commands;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(at),
                    fewer.begin() + static_cast<std::ptrdiff_t>(at + piece));
        --tries;
        if (run(fewer))
          commands = std::move(fewer);
        else
          at += piece;
      }
    }
    return commands;
  }

  void check_seed(std::uint64_t seed) {
    const std::vector<Command> commands = draw_commands(seed, kCommands);
    const auto failure = run(commands);
    if (!failure) return;
    const auto smallest = run(shrink(commands));
    std::string report = "FAULTLINE_PROPERTY_SEED=" + std::to_string(seed) + "\n" + failure->what;
    const Failure& shown = smallest ? *smallest : *failure;
    if (smallest) report += "\nshrunk to: " + smallest->what;
    for (const std::string& line : shown.trace) report += "\n  " + line;
    FAIL() << report;
  }

  static std::optional<std::uint64_t> number_from_environment(const char* name) {
    const char* text = std::getenv(name);
    std::uint64_t number = 0;
    if (text == nullptr) return std::nullopt;
    const std::string_view digits{text};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc{} || end != digits.data() + digits.size()) {
      throw std::runtime_error(std::string{name} + " is not a number: " + text);
    }
    return number;
  }

 private:
  TestDatabase database_{Template::clocked};
  std::string dsn_;
  MovableClock clock_;
  pg::Connection sql_;
};

TEST_F(PropertyTest, the_store_does_what_the_model_says_whatever_is_called_in_whatever_order) {
  if (const auto seed = number_from_environment("FAULTLINE_PROPERTY_SEED")) return check_seed(*seed);
  constexpr std::uint64_t kUsualCases = 100;
  const auto cases = number_from_environment("FAULTLINE_PROPERTY_CASES");
  const std::uint64_t first = cases ? std::random_device{}() * std::uint64_t{1'000'000} : 1;
  for (std::uint64_t i = 0; i < cases.value_or(kUsualCases) && !HasFatalFailure(); ++i) check_seed(first + i);
}

}  // namespace
}  // namespace faultline::testing

// A job's way through the store, verb by verb.

#include <fstream>
#include <random>

#include <gmock/gmock.h>

#include "store/fixture.h"
#include "store/invariants.h"

namespace faultline::testing {
namespace {

class LifecycleTest : public StoreTest {};

/// A line of what the kernel says about a process's memory, in kB.
std::int64_t memory_of(const std::string& pid, const std::string& line) {
  std::ifstream status{"/proc/" + pid + "/status"};
  std::string name;
  while (status >> name) {
    if (name != line + ":") continue;
    std::int64_t kb = 0;
    status >> kb;
    return kb;
  }
  ADD_FAILURE() << "process " << pid << " has no " << line;
  return 0;
}

TEST_F(LifecycleTest, a_job_is_claimed_with_token_one_and_leaves_for_the_ledger_when_it_succeeds) {
  const std::string traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const JobId id =
      enqueue({.kind = "mail", .payload = R"({"to":"a"})", .tags = {"x", "y"}, .traceparent = traceparent});

  const ClaimedJob claimed = claim_one("A");
  EXPECT_EQ(claimed.lease.job, id);
  EXPECT_EQ(claimed.lease.token, FenceToken{1});
  EXPECT_EQ(claimed.attempt, 1);
  EXPECT_EQ(claimed.kind, "mail");
  EXPECT_EQ(claimed.payload, R"({"to":"a"})");
  EXPECT_EQ(claimed.tags, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(claimed.traceparent, traceparent);
  EXPECT_EQ(job(id).traceparent, traceparent);
  EXPECT_EQ(claimed.lease_expires_at, must(store_.now()) + kTtl);
  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_EQ(job(id).worker, "A");

  EXPECT_TRUE(settle(claimed.lease, Outcome::success("done")).committed());

  const JobHistory whole = history(id);
  EXPECT_EQ(whole.job.state, JobState::succeeded);
  EXPECT_EQ(whole.job.result, "done");
  EXPECT_EQ(whole.job.payload, R"({"to":"a"})");
  EXPECT_EQ(whole.job.traceparent, traceparent);
  ASSERT_EQ(whole.attempts.size(), 1U);
  EXPECT_EQ(whole.attempts[0].outcome, "succeeded");
  EXPECT_EQ(whole.attempts[0].token, claimed.lease.token);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"), 0);
}

TEST_F(LifecycleTest, nobody_else_gets_a_job_that_is_running) {
  enqueue();
  claim_one("A");

  EXPECT_TRUE(claim("B").empty());
}

TEST_F(LifecycleTest, a_claim_gives_at_most_its_limit_and_takes_urgent_jobs_first_then_the_oldest) {
  const JobId late = enqueue({.priority = 9});
  const JobId first = enqueue({.priority = 5});
  advance(ms{1});
  const JobId second = enqueue({.priority = 5});
  const JobId urgent = enqueue({.priority = 0});

  std::vector<JobId> order;
  for (const ClaimedJob& claimed : claim("A", 3)) order.push_back(claimed.lease.job);
  EXPECT_EQ(order, (std::vector{urgent, first, second}));
  EXPECT_EQ(claim_one("A").lease.job, late);
}

TEST_F(LifecycleTest, a_claim_brings_16_mib_of_payloads_at_most_and_the_next_ones_the_rest) {
  const auto ids = enqueue_many(20, {.payload = std::string(1'048'576, 'x'), .encoding = Encoding::bytes});
  const JobId small = enqueue();

  std::vector<std::size_t> sizes;
  std::vector<JobId> found;
  for (int i = 0; i < 3; ++i) {
    const auto jobs = claim("A", 100);
    sizes.push_back(jobs.size());
    for (const ClaimedJob& each : jobs) found.push_back(each.lease.job);
  }

  EXPECT_THAT(sizes, ::testing::ElementsAre(16, 5, 0));
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray([&] {
                auto all = ids;
                all.push_back(small);
                return all;
              }()));
  EXPECT_EQ(counts().running, 21);
}

TEST_F(LifecycleTest, a_job_that_is_larger_than_a_claim_comes_alone) {
  Store store = open_store({.payload_bytes_max = 20'000'000});
  const NewJob large{.kind = "test", .payload = std::string(17'000'000, 'x'), .encoding = Encoding::bytes};
  must(store.enqueue(std::vector<NewJob>{large, {.kind = "test"}, large}));

  std::vector<std::size_t> sizes;
  for (int i = 0; i < 4; ++i) sizes.push_back(must(store.claim({.worker = "A", .limit = 100})).size());

  EXPECT_THAT(sizes, ::testing::ElementsAre(1, 1, 1, 0));
}

TEST_F(LifecycleTest, a_settlement_of_large_jobs_takes_little_memory_and_is_one_transaction) {
  constexpr int kJobs = 64;
  std::mt19937 random{1};
  std::string payload(1'048'576, ' ');
  std::ranges::generate(payload, [&] { return static_cast<char>(random()); });
  enqueue_many(kJobs, {.payload = payload, .encoding = Encoding::bytes});
  std::vector<Lease> leases;
  while (leases.size() < kJobs) {
    for (const ClaimedJob& each : claim("A", 100)) leases.push_back(each.lease);
  }
  std::ranges::sort(leases, {}, &Lease::job);
  const auto array_of = [&](const auto& text) {
    std::string array;
    for (const Lease& lease : leases) array += (array.empty() ? "'{" : ",") + text(lease);
    return array + "}'";
  };
  // Every fourth has another token.
  pg::Connection session = database_.connect();
  const std::string pid = query_text(session, "SELECT pg_backend_pid()::text");
  const std::string settle =
      "SELECT string_agg(DISTINCT s.status || s.n, ' ') FROM (SELECT s.status, count(*) AS n"
      "  FROM faultline.settle_jobs(0::smallint, " +
      array_of([](const Lease& lease) { return lease.job.value.to_string(); }) + ", " +
      array_of(
          [&](const Lease& lease) { return std::to_string((&lease - leases.data()) % 4 == 0 ? 9 : 1); }) +
      ", " + array_of([](const Lease& lease) { return lease.lease_id.to_string(); }) +
      ", '{A}', '{succeeded}', NULL, NULL, NULL, NULL) AS s GROUP BY 1) AS s";

  EXPECT_EQ(query_text(session, settle), "committed48 stale16");

  // Its most, less what it shares with other processes.
  EXPECT_LT(memory_of(pid, "VmHWM") - memory_of(pid, "RssShmem"), 100'000);
  EXPECT_EQ(number("SELECT count(DISTINCT xmin::text) FROM faultline.ledger"), 1);
  EXPECT_EQ(counts().succeeded, 48);
  EXPECT_EQ(counts().running, 16);
}

TEST_F(LifecycleTest, an_exchange_brings_no_more_bytes_than_a_claim) {
  enqueue_many(1);
  const auto first = claim("A");
  enqueue_many(20, {.payload = std::string(1'048'576, 'x'), .encoding = Encoding::bytes});
  const Settlement settlement{.lease = first.front().lease};

  const auto done = must(store_.exchange({&settlement, 1}, {.worker = "A", .limit = 100}));

  EXPECT_TRUE(done.verdicts.at(0).committed());
  EXPECT_EQ(done.claimed.size(), 16U);
}

TEST_F(LifecycleTest, a_scheduled_job_runs_when_its_time_has_come_and_not_before) {
  const JobId id = enqueue({.delay = ms{5'000}});
  EXPECT_EQ(job(id).state, JobState::scheduled);
  EXPECT_TRUE(claim("A").empty());

  advance(ms{4'999});
  EXPECT_TRUE(claim("A").empty());
  advance(ms{1});
  EXPECT_EQ(claim_one("A").lease.job, id);
}

TEST_F(LifecycleTest, the_late_worker_of_the_race_changes_nothing_and_leaves_evidence) {
  const JobId id = enqueue({.backoff_base = ms{0}});
  const Lease a = claim_one("A").lease;
  advance(kTtl);
  ASSERT_EQ(sweep().size(), 1U);
  const Lease b = claim_one("B").lease;
  EXPECT_EQ(b.token, FenceToken{2});
  EXPECT_TRUE(settle(b, Outcome::success("by B")).committed());

  const Verdict late = settle(a, Outcome::success("by A"));

  EXPECT_EQ(late.status, Verdict::Status::stale);
  EXPECT_EQ(late.stale.reason, StaleReason::token_mismatch);
  EXPECT_EQ(late.stale.current_token, FenceToken{2});
  EXPECT_EQ(late.stale.current_worker, "B");
  const JobHistory whole = history(id);
  EXPECT_EQ(whole.job.result, "by B");
  ASSERT_EQ(whole.stale_writes.size(), 1U);
  EXPECT_EQ(whole.stale_writes[0].verb, "complete");
  EXPECT_EQ(whole.stale_writes[0].worker, "A");
  EXPECT_EQ(whole.stale_writes[0].token, FenceToken{1});
  EXPECT_EQ(whole.stale_writes[0].current_worker, "B");
  EXPECT_EQ(whole.stale_writes[0].current_token, FenceToken{2});
}

TEST_F(LifecycleTest, a_heartbeat_keeps_the_lease_and_the_token) {
  enqueue();
  const Lease lease = claim_one("A").lease;
  advance(kTtl - ms{1});

  const Beat beat = heartbeat(lease);

  EXPECT_EQ(beat.status, Beat::Status::renewed);
  EXPECT_EQ(beat.lease_expires_at, must(store_.now()) + kTtl);
  advance(kTtl - ms{1});
  EXPECT_TRUE(sweep().empty());
  EXPECT_TRUE(complete(lease).committed());
}

TEST_F(LifecycleTest, no_heartbeat_carries_a_job_past_its_maximum_run_time) {
  const JobId id = enqueue({.run_max = ms{40'000}});
  const Lease lease = claim_one("A").lease;
  advance(ms{20'000});
  EXPECT_EQ(heartbeat(lease).lease_expires_at, must(store_.now()) + ms{20'000});
  advance(ms{20'000});

  EXPECT_EQ(heartbeat(lease).status, Beat::Status::lost);
  EXPECT_EQ(sweep().size(), 1U);
  EXPECT_EQ(job(id).last_error, "worker lease expired: other jobs may have run beside this one");
}

TEST_F(LifecycleTest, a_failure_is_tried_again_after_a_backoff_and_buried_when_attempts_are_used_up) {
  const JobId id = enqueue({.attempts_max = 2, .backoff_base = ms{1'000}});

  EXPECT_TRUE(settle(claim_one("A").lease, Outcome::failure("first")).committed());
  EXPECT_EQ(job(id).state, JobState::scheduled);
  advance(ms{499});
  EXPECT_TRUE(claim("A").empty());
  advance(ms{501});
  EXPECT_TRUE(settle(claim_one("A").lease, Outcome::failure("second")).committed());

  EXPECT_EQ(job(id).state, JobState::dead);
  EXPECT_EQ(job(id).last_error, "second");
  advance(std::chrono::hours{24});
  EXPECT_TRUE(claim("A").empty());
}

TEST_F(LifecycleTest, a_snooze_gives_the_attempt_back_and_keeps_the_token) {
  const JobId id = enqueue();
  EXPECT_TRUE(settle(claim_one("A").lease, Outcome::snooze(ms{60'000})).committed());
  EXPECT_EQ(job(id).attempt, 0);
  EXPECT_EQ(job(id).token, FenceToken{1});
  advance(ms{60'000});

  const ClaimedJob again = claim_one("A");

  EXPECT_EQ(again.attempt, 1);
  EXPECT_EQ(again.lease.token, FenceToken{2});
}

TEST_F(LifecycleTest, a_released_job_keeps_its_place_and_is_claimed_at_once) {
  const JobId first = enqueue();
  advance(ms{1});
  enqueue();
  EXPECT_TRUE(settle(claim_one("A").lease, Outcome::release()).committed());

  const ClaimedJob again = claim_one("B");

  EXPECT_EQ(again.lease.job, first);
  EXPECT_EQ(again.attempt, 1);
}

TEST_F(LifecycleTest, an_expired_lease_goes_where_the_delivery_class_says) {
  const JobId again = enqueue({.delivery = Delivery::at_least_once});
  const JobId once = enqueue({.delivery = Delivery::at_most_once});
  const JobId hold = enqueue({.delivery = Delivery::hold});
  ASSERT_EQ(claim("A", 3).size(), 3U);
  advance(kTtl);

  EXPECT_EQ(sweep().size(), 3U);

  EXPECT_EQ(job(again).state, JobState::scheduled);
  EXPECT_EQ(job(once).state, JobState::dead);
  EXPECT_EQ(job(hold).state, JobState::held);
  EXPECT_EQ(requeue(hold), RequeueStatus::requeued);
  EXPECT_EQ(claim_one("B").lease.job, hold);
}

TEST_F(LifecycleTest, a_waiting_job_is_cancelled_at_once_and_never_runs) {
  const JobId id = enqueue();

  EXPECT_EQ(cancel(id), CancelStatus::cancelled);

  EXPECT_EQ(job(id).state, JobState::cancelled);
  EXPECT_TRUE(claim("A").empty());
  EXPECT_EQ(cancel(id), CancelStatus::finished);
}

TEST_F(LifecycleTest, a_running_job_is_told_at_the_next_heartbeat_and_ends_as_cancelled) {
  const JobId id = enqueue();
  const Lease lease = claim_one("A").lease;

  EXPECT_EQ(cancel(id), CancelStatus::requested);

  const Beat beat = heartbeat(lease);
  EXPECT_EQ(beat.status, Beat::Status::cancel_requested);
  EXPECT_EQ(beat.cancel_reason, "not wanted");
  EXPECT_TRUE(settle(lease, Outcome::cancel("as asked")).committed());
  EXPECT_EQ(job(id).state, JobState::cancelled);
}

TEST_F(LifecycleTest, a_job_that_is_to_be_cancelled_cannot_succeed_any_more) {
  const JobId id = enqueue();
  const Lease lease = claim_one("A").lease;
  cancel(id);

  const Verdict verdict = complete(lease);

  EXPECT_EQ(verdict.status, Verdict::Status::stale);
  EXPECT_EQ(verdict.stale.reason, StaleReason::cancelled);
  EXPECT_EQ(job(id).state, JobState::cancelled);
  EXPECT_EQ(history(id).stale_writes.size(), 1U);
}

TEST_F(LifecycleTest, a_job_that_is_to_be_cancelled_ends_so_when_its_worker_dies) {
  const JobId id = enqueue();
  claim_one("A");
  cancel(id);
  advance(kTtl);

  EXPECT_EQ(sweep().size(), 1U);

  EXPECT_EQ(job(id).state, JobState::cancelled);
  EXPECT_TRUE(claim("B").empty());
}

TEST_F(LifecycleTest, a_requeue_is_recorded_and_the_token_goes_on) {
  const JobId id = enqueue({.payload = "1"});
  complete(claim_one("A").lease);

  EXPECT_EQ(requeue(id), RequeueStatus::requeued);
  EXPECT_EQ(requeue(id), RequeueStatus::live);
  const ClaimedJob again = claim_one("B");
  EXPECT_EQ(again.lease.token, FenceToken{3});
  EXPECT_EQ(again.attempt, 1);
  EXPECT_EQ(again.payload, "1");
  EXPECT_TRUE(complete(again.lease).committed());

  std::vector<std::string> outcomes;
  for (const Attempt& attempt : history(id).attempts) outcomes.push_back(attempt.outcome);
  EXPECT_EQ(outcomes, (std::vector<std::string>{"succeeded", "requeued", "succeeded"}));
}

TEST_F(LifecycleTest, an_exchange_settles_and_claims_in_one_go) {
  enqueue_many(4);
  std::vector<Settlement> done;
  for (const ClaimedJob& claimed : claim("A", 2)) done.push_back({.lease = claimed.lease});

  const Store::Exchange next = must(store_.exchange(done, {.worker = "A", .limit = 2}));

  ASSERT_EQ(next.verdicts.size(), 2U);
  EXPECT_TRUE(next.verdicts[0].committed());
  EXPECT_TRUE(next.verdicts[1].committed());
  EXPECT_EQ(next.claimed.size(), 2U);
  EXPECT_EQ(counts().succeeded, 2);
  EXPECT_EQ(counts().running, 2);
}

TEST_F(LifecycleTest, an_effect_is_recorded_once_and_a_later_attempt_gets_its_value) {
  enqueue({.backoff_base = ms{0}});
  const Lease a = claim_one("A").lease;
  const EffectKey a_key{.lease = a, .key = "charge"};
  EXPECT_EQ(must(store_.begin_effects({&a_key, 1}))[0].status, Effect::Status::begun);
  const EffectResult a_result{.lease = a, .key = "charge", .result = "receipt 1"};
  EXPECT_EQ(must(store_.record_effects({&a_result, 1}))[0].status, Effect::Status::recorded);
  settle(a, Outcome::failure("later"));
  const Lease b = claim_one("B").lease;
  const EffectKey b_key{.lease = b, .key = "charge"};

  const Effect effect = must(store_.begin_effects({&b_key, 1}))[0];

  EXPECT_EQ(effect.status, Effect::Status::recorded);
  EXPECT_EQ(effect.result, "receipt 1");
}

TEST_F(LifecycleTest, an_effect_that_began_and_was_never_recorded_is_unknown) {
  enqueue({.backoff_base = ms{0}});
  const Lease a = claim_one("A").lease;
  const EffectKey a_key{.lease = a, .key = "charge"};
  must(store_.begin_effects({&a_key, 1}));
  advance(kTtl);
  sweep();
  const Lease b = claim_one("B").lease;
  const EffectKey b_key{.lease = b, .key = "charge"};

  const Effect effect = must(store_.begin_effects({&b_key, 1}))[0];

  EXPECT_EQ(effect.status, Effect::Status::unknown);
  EXPECT_EQ(effect.begun_under, FenceToken{1});
  const EffectResult late{.lease = a, .key = "charge", .result = "late"};
  EXPECT_EQ(must(store_.record_effects({&late, 1}))[0].status, Effect::Status::stale);
}

TEST_F(LifecycleTest, progress_is_kept_while_the_job_runs) {
  const JobId id = enqueue();
  const ProgressReport report{.lease = claim_one("A").lease, .fraction = 0.5, .note = "half"};

  EXPECT_TRUE(must(store_.progress({&report, 1}))[0].committed());

  EXPECT_EQ(job(id).progress, 0.5);
  EXPECT_EQ(job(id).progress_note, "half");
}

TEST_F(LifecycleTest, a_paused_queue_gives_nothing_and_takes_jobs) {
  must(store_.pause("default"));
  enqueue();
  EXPECT_TRUE(claim("A").empty());

  must(store_.resume("default"));

  EXPECT_EQ(claim("A").size(), 1U);
}

TEST_F(LifecycleTest, a_queue_with_a_cap_never_runs_more_than_that) {
  must(store_.set_queue("default", {.running_max = 3}));
  enqueue_many(10);

  const auto first = claim("A", 2);
  EXPECT_EQ(first.size(), 2U);
  EXPECT_EQ(claim("B", 5).size(), 1U);
  EXPECT_TRUE(claim("C", 5).empty());
  complete(first[0].lease);
  EXPECT_EQ(claim("C", 5).size(), 1U);
}

TEST_F(LifecycleTest, evidence_leaves_when_its_queues_retention_has_passed) {
  must(store_.set_queue("default", {.retention = ms{1'000}}));
  const JobId id = enqueue();
  const Lease lease = claim_one("A").lease;
  settle(lease, Outcome::bury("no use"));
  EXPECT_FALSE(settle(lease, Outcome::success()).committed());
  advance(ms{1'000});
  EXPECT_EQ(must(store_.prune()).stale_writes, 0U);
  EXPECT_EQ(history(id).stale_writes.size(), 1U);
  advance(ms{1});

  EXPECT_EQ(must(store_.prune()).stale_writes, 1U);

  EXPECT_TRUE(history(id).stale_writes.empty());
  EXPECT_EQ(job(id).state, JobState::dead);
}

TEST_F(LifecycleTest, a_write_about_a_job_that_does_not_exist_is_refused_and_leaves_nothing) {
  Lease lease = (enqueue(), claim_one("A").lease);
  lease.job.value.bytes[0] ^= 1;

  EXPECT_FALSE(settle(lease, Outcome::success()).committed());

  EXPECT_TRUE(must(store_.stale_writes(10)).empty());
}

TEST_F(LifecycleTest, finished_jobs_leave_when_their_retention_has_passed) {
  must(store_.set_queue("default", {.retention = ms{1'000}, .key_retention = ms{2'000}}));
  const JobId id = enqueue({.idempotency_key = "k"});
  complete(claim_one("A").lease);
  advance(ms{1'000});
  EXPECT_EQ(must(store_.prune()).jobs, 0U);
  advance(ms{1});

  EXPECT_EQ(must(store_.prune()).jobs, 1U);

  EXPECT_FALSE(must(store_.job(id)).has_value());
  EXPECT_EQ(counts().succeeded, 0);
  EXPECT_EQ(must(store_.enqueue({.kind = "test", .idempotency_key = "k"})).status,
            Submission::Status::existing);
  advance(ms{1'000});
  EXPECT_EQ(must(store_.prune()).keys, 1U);
  EXPECT_EQ(must(store_.enqueue({.kind = "test", .idempotency_key = "k"})).status,
            Submission::Status::created);
}

TEST_F(LifecycleTest, dead_jobs_stay_for_ever_unless_their_queue_says_for_how_long) {
  const JobId id = enqueue();
  settle(claim_one("A").lease, Outcome::bury("no use"));
  EXPECT_EQ(must(store_.queues()).at(0).dead_retention, std::chrono::days{36'500});
  advance(std::chrono::days{1'000});

  EXPECT_EQ(must(store_.prune()).dead, 0U);

  EXPECT_EQ(job(id).state, JobState::dead);
}

TEST_F(LifecycleTest, dead_jobs_past_their_queues_dead_retention_are_purged_and_that_is_on_record) {
  must(store_.set_queue("default", {.retention = ms{10'000}, .dead_retention = ms{1'000}}));
  const JobId buried = enqueue({.idempotency_key = "k"});
  settle(claim_one("A").lease, Outcome::bury("no use"));
  const JobId expired = enqueue({.delivery = Delivery::at_most_once});
  const JobId held = enqueue({.delivery = Delivery::hold});
  const JobId requeued = enqueue();
  for (const ClaimedJob& claimed : claim("A", 10)) {
    if (claimed.lease.job == requeued) settle(claimed.lease, Outcome::bury("not yet"));
  }
  requeue(requeued);
  advance(kTtl);
  ASSERT_EQ(sweep().size(), 2U);
  EXPECT_EQ(must(store_.prune()).dead, 1U) << "one has died just now";
  EXPECT_EQ(job(expired).state, JobState::dead);
  advance(ms{1'001});

  EXPECT_EQ(must(store_.prune()).dead, 1U);

  for (const JobId id : {buried, expired}) {
    const JobHistory whole = history(id);
    EXPECT_EQ(whole.job.state, JobState::cancelled);
    EXPECT_EQ(whole.attempts.back().outcome, "purged");
    EXPECT_EQ(whole.attempts.back().worker, "dead_retention");
    EXPECT_EQ(whole.attempts.size(), 2U);
  }
  EXPECT_EQ(job(held).state, JobState::held);
  EXPECT_EQ(job(requeued).state, JobState::available);
  EXPECT_EQ(counts().dead, 0);
  EXPECT_EQ(counts().cancelled, 2);
  EXPECT_THAT(broken_invariants(sql_), ::testing::IsEmpty());
  // And from then on it is a job that has ended.
  advance(ms{10'001});
  EXPECT_EQ(must(store_.prune()).jobs, 2U);
  EXPECT_FALSE(must(store_.job(buried)).has_value());
}

TEST_F(LifecycleTest, dead_retention_goes_in_batches) {
  must(store_.set_queue("default", {.dead_retention = ms{0}}));
  enqueue_many(25);
  std::vector<Settlement> buried;
  for (const ClaimedJob& claimed : claim("A", 100))
    buried.push_back({.lease = claimed.lease, .outcome = Outcome::bury("no use")});
  must(store_.settle(buried));
  advance(ms{1});

  EXPECT_EQ(must(store_.prune(10)).dead, 10U);
  EXPECT_EQ(counts().dead, 15);
  EXPECT_EQ(must(store_.prune(10)).dead, 10U);
  EXPECT_EQ(must(store_.prune(10)).dead, 5U);
}

TEST_F(LifecycleTest, counts_are_exact_after_every_kind_of_move) {
  enqueue_many(6);
  const JobId scheduled = enqueue({.delay = ms{1'000}});
  const auto running = claim("A", 4);
  complete(running[0].lease);
  settle(running[1].lease, Outcome::bury("no use"));
  settle(running[2].lease, Outcome::release());
  cancel(scheduled);

  for (int round = 0; round < 2; ++round) {
    const QueueCounts now = counts();
    EXPECT_EQ(now.available, 3);
    EXPECT_EQ(now.scheduled, 0);
    EXPECT_EQ(now.running, 1);
    EXPECT_EQ(now.dead, 1);
    EXPECT_EQ(now.succeeded, 1);
    EXPECT_EQ(now.cancelled, 1);
    must(store_.fold_counts());
  }
}

}  // namespace
}  // namespace faultline::testing

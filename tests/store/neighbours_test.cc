// What others do meanwhile: transactions that are left open, settings that change, rows that nobody can
// handle. Whoever has nothing to do with it goes on.

#include <gmock/gmock.h>

#include "store/fixture.h"
#include "store/invariants.h"

namespace faultline::testing {
namespace {

using ::testing::IsEmpty;

class NeighboursTest : public StoreTest {
 protected:
  NeighboursTest() : other_(database_.connect()) {}
  void TearDown() override { EXPECT_THAT(broken_invariants(sql_), IsEmpty()); }

  /// Begins a transaction of somebody else's and leaves it open.
  void leave_open(std::string_view text) { must(other_.exec_script("BEGIN; " + std::string{text}, soon())); }
  void end_it() { must(other_.exec_script("ROLLBACK", soon())); }

  pg::Connection other_;
};

TEST_F(NeighboursTest, rows_that_somebody_holds_cost_no_other_lease_anything_and_are_not_lost) {
  // Held one after the other for as long as a verb waits, they would take longer than the call may.
  constexpr std::size_t kHeld = 15;
  Store impatient = open_store({.call_timeout = ms{10'000}});
  enqueue_many(kHeld + 1);
  auto jobs = claim("A", kHeld + 1);
  std::ranges::sort(jobs, {}, [](const ClaimedJob& job) { return job.lease.job; });
  std::vector<Lease> leases;
  std::string held;
  for (const ClaimedJob& job : jobs) leases.push_back(job.lease);
  for (std::size_t i = 0; i < kHeld; ++i) held += (i == 0 ? "'" : ", '") + leases[i].job.to_string() + "'";
  leave_open("SELECT FROM faultline.jobs WHERE id IN (" + held + ") FOR UPDATE");
  advance(kTtl / 3);

  const auto beats = must(impatient.heartbeat(leases));

  EXPECT_EQ(beats.back().status, Beat::Status::renewed);
  EXPECT_EQ(beats.back().lease_expires_at, must(store_.now()) + kTtl);
  for (std::size_t i = 0; i < kHeld; ++i) EXPECT_EQ(beats[i].status, Beat::Status::unknown);
  end_it();
  for (const Beat& beat : must(impatient.heartbeat(leases))) EXPECT_EQ(beat.status, Beat::Status::renewed);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes"), 0);
}

TEST_F(NeighboursTest, what_cannot_be_written_is_said_not_to_be) {
  EXPECT_TRUE(store_.check_writable().has_value());
  leave_open("LOCK TABLE faultline.ledger IN SHARE MODE");
  const auto locked = store_.check_writable();
  ASSERT_FALSE(locked.has_value());
  EXPECT_EQ(locked.error().code, ErrorCode::locked);
  end_it();
  EXPECT_TRUE(store_.check_writable().has_value());

  // As on a full disk: temporary files find no room.
  script("DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET temp_file_limit = 0', current_database()); END$$");
  Store full = open_store();
  const auto refused = full.check_writable();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
}

TEST_F(NeighboursTest, a_producer_that_holds_a_key_holds_up_no_worker_no_watchdog_and_no_other_producer) {
  must(store_.set_queue("default", {.retention = ms{0}, .key_retention = ms{0}}));
  for (const char* key : {"finished", "cancelled", "expired"}) {
    must(store_.enqueue({.kind = "test", .idempotency_key = key}));
  }
  const auto jobs = claim("A", 3);
  leave_open(
      "SELECT faultline.enqueue('default', 'test', 'null', idempotency_key => 'finished');"
      "SELECT faultline.enqueue('default', 'test', 'null', idempotency_key => 'cancelled');"
      "SELECT faultline.enqueue('default', 'test', 'null', idempotency_key => 'expired');"
      "SELECT faultline.enqueue('default', 'test', 'null', idempotency_key => 'new')");

  // All while that transaction is open: a wait would end in an error.
  EXPECT_TRUE(complete(jobs[0].lease).committed());
  EXPECT_EQ(cancel(jobs[1].lease.job), CancelStatus::requested);
  EXPECT_TRUE(settle(jobs[1].lease, Outcome::cancel("as asked")).committed());
  advance(kTtl);
  EXPECT_EQ(sweep().size(), 1U);
  must(store_.prune());
  EXPECT_EQ(must(store_.enqueue({.kind = "test", .idempotency_key = "another"})).status,
            Submission::Status::created);
  EXPECT_EQ(must(store_.enqueue({.kind = "test"})).status, Submission::Status::created);

  // The one who wants the very same new key is told so, and nothing of his batch is added.
  const std::vector<NewJob> batch{{.kind = "test"}, {.kind = "test", .idempotency_key = "new"}};
  const auto before = counts().available;
  const auto busy = store_.enqueue(batch);
  ASSERT_FALSE(busy.has_value());
  EXPECT_EQ(busy.error().code, ErrorCode::locked);
  EXPECT_THAT(busy.error().describe(), ::testing::HasSubstr("still open"));
  EXPECT_EQ(counts().available, before);
  end_it();
  EXPECT_EQ(must(store_.enqueue(batch)).at(1).status, Submission::Status::created);
}

TEST_F(NeighboursTest, one_row_that_somebody_holds_keeps_no_other_lease_from_being_renewed_or_settled) {
  enqueue_many(5);
  std::vector<Lease> leases;
  std::vector<Settlement> settlements;
  for (const ClaimedJob& each : claim("A", 5)) {
    leases.push_back(each.lease);
    settlements.push_back({.lease = each.lease, .outcome = Outcome::success()});
  }
  Store patient = open_store({.call_timeout = ms{5'000}});
  leave_open("SELECT faultline.cancel('" + leases[2].job.to_string() + "')");

  const auto beats = must(patient.heartbeat(leases));
  const auto verdicts = must(patient.settle(settlements));

  for (std::size_t i = 0; i < leases.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(beats[i].status, i == 2 ? Beat::Status::unknown : Beat::Status::renewed);
    EXPECT_EQ(verdicts[i].status, i == 2 ? Verdict::Status::unknown : Verdict::Status::committed);
  }
  end_it();
  EXPECT_TRUE(complete(leases[2]).committed());
}

TEST_F(NeighboursTest, who_keeps_the_turn_at_a_queue_with_a_cap_keeps_nobody_from_settling) {
  must(store_.set_queue("capped", {.running_max = 3}));
  enqueue_many(5, {.queue = "capped"});
  const auto jobs = claim("A", 1, "capped");
  leave_open("SELECT faultline.claim('capped', 'B')");

  const Settlement done{.lease = jobs[0].lease, .outcome = Outcome::success()};
  const auto next = must(store_.exchange({&done, 1}, {.queue = "capped", .worker = "A"}));

  EXPECT_TRUE(next.verdicts.at(0).committed());
  EXPECT_THAT(next.claimed, IsEmpty());
  EXPECT_EQ(job(jobs[0].lease.job).state, JobState::succeeded);
  end_it();
  EXPECT_EQ(claim("A", 5, "capped").size(), 3U);
}

TEST_F(NeighboursTest, a_claim_that_finds_the_table_locked_says_so_and_takes_nothing_afterwards) {
  must(store_.set_queue("capped", {.running_max = 3}));
  for (const std::string queue : {"default", "capped"}) enqueue({.queue = queue});
  leave_open("LOCK TABLE faultline.jobs IN ACCESS EXCLUSIVE MODE");

  for (const std::string queue : {"default", "capped"}) {
    const auto claimed = store_.claim({.queue = queue, .worker = "A"});
    ASSERT_FALSE(claimed) << queue;
    EXPECT_EQ(claimed.error().code, ErrorCode::locked) << queue;
  }

  end_it();
  for (const std::string queue : {"default", "capped"}) {
    EXPECT_EQ(counts(queue).running, 0) << queue;
    EXPECT_EQ(claim("A", 2, queue).size(), 1U) << queue;
  }
}

TEST_F(NeighboursTest, a_ttl_that_is_lowered_holds_for_the_next_claim_and_for_no_lease_that_was_granted) {
  enqueue_many(2);
  const ClaimedJob before = claim_one("A");
  must(store_.set_queue("default", {.lease_ttl = ms{1'000}}));
  const ClaimedJob after = claim_one("A");
  EXPECT_EQ(before.lease_ttl, kTtl);
  EXPECT_EQ(after.lease_ttl, ms{1'000});

  // Its worker beats every third of the TTL that it was given.
  advance(kTtl / 3);
  EXPECT_EQ(heartbeat(before.lease).lease_expires_at, must(store_.now()) + kTtl);
  advance(kTtl * 2 / 3);

  EXPECT_TRUE(complete(before.lease).committed());
  EXPECT_EQ(settle(after.lease, Outcome::success()).stale.reason, StaleReason::lease_expired);
}

TEST_F(NeighboursTest, a_job_that_a_sweep_cannot_handle_is_told_of_and_keeps_no_other_from_being_recovered) {
  enqueue_many(3);
  const auto jobs = claim("A", 3);
  // Its end cannot be written down: somebody has put a row there already.
  const JobId poison = jobs[1].lease.job;
  script(
      "INSERT INTO faultline.ledger (bucket, job_id, token, attempt, outcome, state, requeues, queue) VALUES "
      "(0, '" +
      poison.to_string() + "', 1, 1, 'failed', 'available', 0, 'default')");
  advance(kTtl);

  const SweepReport first = must(store_.expire_leases());
  EXPECT_EQ(first.expired.size(), 2U);
  ASSERT_EQ(first.problems.size(), 1U);
  EXPECT_EQ(first.problems[0].job, poison);
  EXPECT_EQ(first.problems[0].queue, "default");
  EXPECT_THAT(first.problems[0].message, ::testing::HasSubstr("ledger_pkey"));

  // It is not in the way of the next ones, comes up again later, and ends when what was wrong is mended.
  EXPECT_THAT(must(store_.expire_leases()).problems, IsEmpty());
  advance(ms{60'000});
  EXPECT_EQ(must(store_.expire_leases()).problems.size(), 1U);
  script("DELETE FROM faultline.ledger WHERE job_id = '" + poison.to_string() + "'");
  advance(ms{60'000});
  EXPECT_EQ(must(store_.expire_leases()).expired.size(), 1U);
}

TEST_F(NeighboursTest, the_evidence_names_the_late_writers_own_expiry_and_the_ledger_every_attempts) {
  must(store_.set_queue("default", {.backoff_base = ms{0}}));
  const JobId id = enqueue();
  const ClaimedJob a = claim_one("A");
  const DatabaseTime a_expires = job(id).lease_expires_at.value();
  advance(kTtl + ms{5'000});
  sweep();
  const ClaimedJob b = claim_one("B");
  const DatabaseTime b_expires = job(id).lease_expires_at.value();

  EXPECT_EQ(settle(a.lease, Outcome::success()).status, Verdict::Status::stale);
  EXPECT_TRUE(complete(b.lease).committed());

  const JobHistory whole = history(id);
  ASSERT_EQ(whole.attempts.size(), 2U);
  EXPECT_EQ(whole.attempts[0].lease_expires_at, a_expires);
  EXPECT_EQ(whole.attempts[1].lease_expires_at, b_expires);
  ASSERT_EQ(whole.stale_writes.size(), 1U);
  EXPECT_EQ(whole.stale_writes[0].lease_expired_at, a_expires);
}

TEST_F(NeighboursTest, a_second_once_of_a_key_in_the_same_attempt_is_told_that_it_is_not_the_first) {
  enqueue();
  const Lease lease = claim_one("A").lease;
  const EffectKey first{.lease = lease, .key = "charge", .call = Uuid::random()};
  const EffectKey second{.lease = lease, .key = "charge", .call = Uuid::random()};

  EXPECT_EQ(must(store_.begin_effects({&first, 1})).at(0).status, Effect::Status::begun);
  EXPECT_EQ(must(store_.begin_effects({&second, 1})).at(0).status, Effect::Status::unknown);
  EXPECT_EQ(must(store_.begin_effects({&first, 1})).at(0).status, Effect::Status::begun);
}

TEST_F(NeighboursTest, a_key_outlives_its_job_by_the_queues_setting_even_if_the_job_is_retired_first) {
  must(store_.set_queue("default", {.retention = ms{1'000}, .key_retention = ms{60'000}}));
  const NewJob job{.kind = "test", .idempotency_key = "k"};
  const JobId first = must(store_.enqueue(job)).job;
  complete(claim_one("A").lease);

  advance(ms{2'000});
  EXPECT_EQ(must(store_.prune()).jobs, 1U);
  EXPECT_EQ(must(store_.enqueue(job)).job, first);
  EXPECT_EQ(must(store_.enqueue(job)).status, Submission::Status::existing);

  advance(ms{60'000});
  const Submission again = must(store_.enqueue(job));
  EXPECT_EQ(again.status, Submission::Status::created);
  EXPECT_NE(again.job, first);
}

}  // namespace
}  // namespace faultline::testing

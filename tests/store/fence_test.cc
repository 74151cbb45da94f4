// The fence itself: what makes one claim unlike every other, at its edges.

#include <limits>
#include <set>

#include "store/fixture.h"

namespace faultline::testing {
namespace {

constexpr std::int64_t kLastToken = std::numeric_limits<std::int64_t>::max();

class FenceTest : public StoreTest {
 protected:
  std::string quoted(JobId job) const { return "'" + job.to_string() + "'"; }

  void set_token(JobId job, std::int64_t token) {
    script("UPDATE faultline.jobs SET token = " + std::to_string(token) +
           " WHERE bucket = 0 AND id = " + quoted(job));
  }
  /// As after a failover to a standby that had not yet got the last claim.
  void forget_claim(JobId job) {
    script(
        "UPDATE faultline.jobs SET token = token - 1, attempt = attempt - 1, state = 'available', worker = "
        "NULL,"
        " lease_id = NULL, lease_expires_at = NULL, claimed_at = NULL WHERE bucket = 0 AND id = " +
        quoted(job));
    script(
        "DELETE FROM faultline.grants; INSERT INTO faultline.tallies (bucket, queue, available, running)"
        " VALUES (0, 'default', 1, -1)");
  }
  /// The SQLSTATE of a script that must fail; empty if it does not.
  std::string failure_of(const std::string& text) {
    auto done = sql_.exec_script(text, soon());
    return done ? std::string{} : done.error().sqlstate;
  }
  /// A job that was claimed with the last token there is.
  Lease last_token_lease(NewJob job = {}) {
    const JobId id = enqueue(std::move(job));
    set_token(id, kLastToken - 1);
    const Lease lease = claim_one("A").lease;
    EXPECT_EQ(lease.job, id);
    EXPECT_EQ(lease.token.value, kLastToken);
    return lease;
  }
};

TEST_F(FenceTest, nobody_fills_the_evidence_with_writes_that_he_makes_up) {
  enqueue();
  const Lease held = claim_one("A").lease;
  for (int i = 0; i < 150; ++i) {
    Lease made_up = held;
    made_up.lease_id = Uuid::random();
    made_up.worker = "liar";
    EXPECT_EQ(settle(made_up, Outcome::success("stolen")).status, Verdict::Status::stale);
  }
  EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes"), 100);

  // It tells of this job enough, and of others as before.
  enqueue();
  Lease late = claim_one("A").lease;
  late.token.value += 1;
  EXPECT_EQ(settle(late, Outcome::success("late")).status, Verdict::Status::stale);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes"), 101);
  EXPECT_TRUE(complete(held).committed());
}

TEST_F(FenceTest, a_worker_that_claims_a_job_twice_is_two_holders_and_the_first_is_refused) {
  const JobId id = enqueue({.backoff_base = ms{0}});
  const Lease first = claim_one("W").lease;
  advance(kTtl);
  sweep();
  const Lease second = claim_one("W").lease;
  ASSERT_EQ(first.worker, second.worker);
  ASSERT_NE(first.lease_id, second.lease_id);

  EXPECT_EQ(heartbeat(first).status, Beat::Status::lost);
  const Verdict late = settle(first, Outcome::success("first life"));

  EXPECT_EQ(late.status, Verdict::Status::stale);
  EXPECT_EQ(late.stale.reason, StaleReason::token_mismatch);
  EXPECT_EQ(late.stale.current_worker, "W");
  EXPECT_TRUE(settle(second, Outcome::success("second life")).committed());
  EXPECT_EQ(job(id).result, "second life");
  const JobHistory whole = history(id);
  ASSERT_EQ(whole.stale_writes.size(), 2U);
  EXPECT_EQ(whole.stale_writes[1].token, first.token);
  EXPECT_EQ(whole.stale_writes[1].current_token, second.token);
}

TEST_F(FenceTest, a_token_that_a_failover_gave_out_twice_is_told_apart_by_the_lease_id) {
  const JobId id = enqueue();
  const Lease old_holder = claim_one("A").lease;
  forget_claim(id);
  const Lease new_holder = claim_one("B").lease;
  ASSERT_EQ(old_holder.token, new_holder.token);

  for (const Outcome& outcome : {Outcome::success("by A"), Outcome::failure("by A"), Outcome::bury("by A"),
                                 Outcome::snooze(ms{1}), Outcome::release(), Outcome::cancel("by A")}) {
    const Verdict late = settle(old_holder, outcome);
    EXPECT_EQ(late.status, Verdict::Status::stale);
    EXPECT_EQ(late.stale.reason, StaleReason::token_mismatch);
  }
  EXPECT_EQ(heartbeat(old_holder).status, Beat::Status::lost);

  EXPECT_EQ(heartbeat(new_holder).status, Beat::Status::renewed);
  EXPECT_TRUE(settle(new_holder, Outcome::success("by B")).committed());
  EXPECT_EQ(job(id).result, "by B");
  // The same holds when the job is in the ledger.
  EXPECT_EQ(settle(old_holder, Outcome::success("by A")).stale.reason, StaleReason::token_mismatch);
  EXPECT_EQ(must(store_.resolve({&old_holder, 1}))[0], std::nullopt);
  EXPECT_EQ(must(store_.resolve({&new_holder, 1}))[0], Outcome::Kind::succeeded);
}

TEST_F(FenceTest, the_right_lease_id_under_a_wrong_token_is_refused) {
  const JobId id = enqueue();
  const Lease good = claim_one("A").lease;
  for (const std::int64_t token : {good.token.value + 1, kLastToken}) {
    Lease forged = good;
    forged.token.value = token;
    EXPECT_EQ(complete(forged).stale.reason, StaleReason::token_mismatch);
    EXPECT_EQ(heartbeat(forged).status, Beat::Status::lost);
  }
  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_TRUE(complete(good).committed());
}

TEST_F(FenceTest, the_token_of_a_job_only_ever_grows) {
  const JobId id = enqueue({.attempts_max = 100, .backoff_base = ms{0}});
  std::int64_t last = 0;
  for (const Outcome& outcome : {Outcome::snooze(ms{0}), Outcome::release(), Outcome::failure("again", ms{0}),
                                 Outcome::failure("again"), Outcome::bury("enough"), Outcome::success()}) {
    const Lease lease = claim_one("A").lease;
    EXPECT_GT(lease.token.value, last);
    EXPECT_TRUE(settle(lease, outcome).committed());
    EXPECT_EQ(job(id).token, lease.token);
    last = lease.token.value;
    if (job(id).state == JobState::dead) {
      EXPECT_EQ(requeue(id), RequeueStatus::requeued);
      EXPECT_EQ(job(id).token.value, ++last);
    }
  }
  requeue(id);
  EXPECT_EQ(job(id).token.value, last + 1);
  const Lease lease = claim_one("A").lease;
  EXPECT_EQ(lease.token.value, last + 2);
  heartbeat(lease);
  advance(kTtl);
  sweep();
  EXPECT_EQ(job(id).token, lease.token);
  EXPECT_EQ(cancel(id), CancelStatus::cancelled);
  EXPECT_EQ(job(id).token.value, lease.token.value + 1);
}

TEST_F(FenceTest, the_last_token_is_given_out_and_whatever_ends_its_attempt_there_is_no_next) {
  for (const Outcome& outcome :
       {Outcome::failure("again"), Outcome::snooze(ms{0}), Outcome::release(), Outcome::bury("enough")}) {
    SCOPED_TRACE(to_string(outcome.kind));
    const Lease lease = last_token_lease({.attempts_max = 100});

    EXPECT_TRUE(settle(lease, outcome).committed());

    EXPECT_EQ(job(lease.job).state, JobState::dead);
    EXPECT_EQ(job(lease.job).token.value, kLastToken);
    EXPECT_EQ(requeue(lease.job), RequeueStatus::token_exhausted);
    EXPECT_EQ(cancel(lease.job), CancelStatus::token_exhausted);
    EXPECT_EQ(job(lease.job).state, JobState::dead);
    EXPECT_EQ(job(lease.job).token.value, kLastToken);
  }
  advance(std::chrono::hours{1});
  EXPECT_TRUE(claim("A", 10).empty());
}

TEST_F(FenceTest, a_lease_with_the_last_token_that_runs_out_buries_its_job) {
  const Lease lease = last_token_lease({.attempts_max = 100});
  advance(kTtl);

  EXPECT_EQ(sweep().size(), 1U);

  EXPECT_EQ(job(lease.job).state, JobState::dead);
  EXPECT_EQ(complete(lease).stale.reason, StaleReason::lease_expired);
}

TEST_F(FenceTest, a_job_can_finish_with_the_last_token_and_is_never_requeued) {
  const Lease lease = last_token_lease();
  EXPECT_EQ(heartbeat(lease).status, Beat::Status::renewed);
  EXPECT_TRUE(complete(lease).committed());

  EXPECT_EQ(requeue(lease.job), RequeueStatus::token_exhausted);
  EXPECT_EQ(job(lease.job).state, JobState::succeeded);
  EXPECT_EQ(counts().succeeded, 1);
  EXPECT_EQ(counts().available, 0);
}

TEST_F(FenceTest, a_requeue_needs_a_token_for_itself_and_one_for_the_claim) {
  const JobId id = enqueue();
  settle(claim_one("A").lease, Outcome::bury("no use"));
  set_token(id, kLastToken - 1);
  EXPECT_EQ(requeue(id), RequeueStatus::token_exhausted);

  set_token(id, kLastToken - 2);
  EXPECT_EQ(requeue(id), RequeueStatus::requeued);

  EXPECT_EQ(claim_one("A").lease.token.value, kLastToken);
}

TEST_F(FenceTest, a_job_at_the_end_of_its_tokens_does_not_stop_its_queue) {
  const JobId exhausted = enqueue({.priority = 0});
  set_token(exhausted, kLastToken - 1);
  const std::vector<JobId> others = enqueue_many(3);

  EXPECT_TRUE(settle(claim_one("A").lease, Outcome::failure("again", ms{0})).committed());

  std::set<JobId> claimed;
  for (const ClaimedJob& each : claim("A", 10)) claimed.insert(each.lease.job);
  EXPECT_EQ(claimed, (std::set<JobId>{others.begin(), others.end()}));
}

TEST_F(FenceTest, the_ledger_takes_one_row_per_token_of_a_job) {
  const JobId id = enqueue();
  complete(claim_one("A").lease);

  const std::string again =
      "INSERT INTO faultline.ledger (bucket, job_id, token, attempt, outcome, state, requeues, queue)"
      " VALUES (0, " +
      quoted(id) + ", 1, 1, 'failed', 'available', 0, 'default')";

  EXPECT_EQ(failure_of(again), "23505");
}

TEST_F(FenceTest, the_ledger_takes_one_end_per_requeue_of_a_job) {
  const JobId id = enqueue();
  complete(claim_one("A").lease);
  const auto second_end = [&](std::string_view state, int requeues, int token) {
    return "INSERT INTO faultline.ledger (bucket, job_id, token, attempt, outcome, state, requeues, queue) "
           "VALUES (0, " +
           quoted(id) + ", " + std::to_string(token) + ", 1, '" + std::string{state} + "', '" +
           std::string{state} + "', " + std::to_string(requeues) + ", 'default')";
  };

  EXPECT_EQ(failure_of(second_end("succeeded", 0, 2)), "23505");
  EXPECT_EQ(failure_of(second_end("cancelled", 0, 2)), "23505");
  EXPECT_EQ(failure_of(second_end("succeeded", 1, 2)), "");
}

TEST_F(FenceTest, a_running_row_without_a_whole_lease_cannot_be_stored) {
  const JobId id = enqueue();
  claim_one("A");
  for (const std::string_view part :
       {"lease_id = NULL", "lease_expires_at = NULL", "worker = NULL", "claimed_at = NULL"}) {
    EXPECT_EQ(failure_of("UPDATE faultline.jobs SET " + std::string{part} + " WHERE id = " + quoted(id)),
              "23514")
        << part;
  }
  for (const std::string_view state : {"available", "held", "dead", "succeeded", "cancelled"}) {
    EXPECT_EQ(
        failure_of("UPDATE faultline.jobs SET state = '" + std::string{state} + "' WHERE id = " + quoted(id)),
        "23514")
        << state;
  }
}

TEST_F(FenceTest, a_row_that_nobody_runs_cannot_carry_a_lease) {
  const JobId id = enqueue();
  for (const std::string_view part : {"lease_id = gen_random_uuid()", "lease_expires_at = now()",
                                      "worker = 'A'", "claimed_at = now()", "state = 'running'"}) {
    EXPECT_EQ(failure_of("UPDATE faultline.jobs SET " + std::string{part} + " WHERE id = " + quoted(id)),
              "23514")
        << part;
  }
}

TEST_F(FenceTest, ten_thousand_expiries_are_worked_off_in_bounded_sweeps) {
  enqueue_many(10'000);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(claim("A", 100).size(), 100U);
  advance(kTtl);

  std::set<JobId> expired;
  int sweeps = 0;
  for (bool more = true; more; ++sweeps) {
    const SweepReport report = must(store_.expire_leases(1'000));
    EXPECT_LE(report.expired.size(), 1'000U);
    for (const ExpiredLease& lease : report.expired) EXPECT_TRUE(expired.insert(lease.job).second);
    more = report.more;
  }

  EXPECT_EQ(expired.size(), 10'000U);
  EXPECT_EQ(sweeps, 11);
  EXPECT_EQ(counts().running, 0);
  EXPECT_EQ(counts().available + counts().retrying, 10'000);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger WHERE outcome = 'expired'"), 10'000);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.grants"), 0);
}

TEST_F(FenceTest, a_claim_larger_than_a_sweep_is_worked_off_in_parts) {
  enqueue_many(100);
  ASSERT_EQ(claim("A", 100).size(), 100U);
  advance(kTtl);

  std::set<JobId> expired;
  for (bool more = true; more;) {
    const SweepReport report = must(store_.expire_leases(30));
    EXPECT_LE(report.expired.size(), 30U);
    for (const ExpiredLease& lease : report.expired) EXPECT_TRUE(expired.insert(lease.job).second);
    more = report.more;
  }

  EXPECT_EQ(expired.size(), 100U);
  EXPECT_EQ(counts().running, 0);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.grants"), 0);
}

TEST_F(FenceTest, a_sweep_leaves_the_renewed_leases_of_a_claim_and_comes_back_for_them) {
  enqueue_many(3);
  const auto claimed = claim("A", 3);
  advance(ms{20'000});
  heartbeat(claimed[1].lease);
  advance(ms{10'000});

  EXPECT_EQ(sweep().size(), 2U);
  EXPECT_EQ(job(claimed[1].lease.job).state, JobState::running);
  EXPECT_TRUE(sweep().empty());
  advance(ms{20'000});

  const auto rest = sweep();
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].job, claimed[1].lease.job);
}

TEST_F(FenceTest, a_cancel_says_what_became_of_each_job) {
  const JobId waiting = enqueue();
  const JobId scheduled = enqueue({.delay = ms{1'000}});
  const JobId running = enqueue({.priority = 0});
  claim_one("A");
  const JobId ended = enqueue({.priority = 0});
  complete(claim_one("A").lease);
  const JobId dead = enqueue({.priority = 0});
  settle(claim_one("A").lease, Outcome::bury("no use"));
  const JobId unknown{Uuid{}};
  JobId elsewhere = waiting;
  elsewhere.value.bytes[14] = 0x7F;
  JobId nowhere = waiting;
  nowhere.value.bytes[14] = 0xFF;  // a negative bucket
  const std::vector jobs{waiting, scheduled, running, ended, dead, unknown, elsewhere, nowhere, waiting};

  using enum CancelStatus;
  EXPECT_EQ(must(store_.cancel(jobs, "operator", "not wanted")),
            (std::vector{cancelled, cancelled, requested, finished, cancelled, not_found, not_found,
                         not_found, cancelled}));
  EXPECT_EQ(must(store_.cancel(jobs, "operator", "not wanted")),
            (std::vector{finished, finished, requested, finished, finished, not_found, not_found, not_found,
                         finished}));
  EXPECT_EQ(counts().cancelled, 3);
  EXPECT_EQ(counts().running, 1);
  EXPECT_EQ(counts().succeeded, 1);
  EXPECT_EQ(counts().dead + counts().available + counts().scheduled, 0);
}

TEST_F(FenceTest, a_requeue_says_what_became_of_each_job) {
  const JobId held = enqueue({.delivery = Delivery::hold});
  claim_one("A");
  advance(kTtl);
  sweep();
  const JobId dead = enqueue();
  settle(claim_one("A").lease, Outcome::bury("no use"));
  const JobId succeeded = enqueue();
  complete(claim_one("A").lease);
  const JobId cancelled = enqueue();
  cancel(cancelled);
  const JobId running = enqueue();
  claim_one("A");
  const JobId waiting = enqueue({.delay = ms{1'000}});
  const JobId unknown{Uuid{}};
  JobId elsewhere = waiting;
  elsewhere.value.bytes[14] = 0x7F;
  const std::vector jobs{held, dead, succeeded, cancelled, running, waiting, unknown, elsewhere, succeeded};

  using enum RequeueStatus;
  EXPECT_EQ(must(store_.requeue(jobs, "operator")), (std::vector{requeued, requeued, requeued, requeued, live,
                                                                 live, not_found, not_found, requeued}));
  EXPECT_EQ(must(store_.requeue(jobs, "operator")),
            (std::vector{live, live, live, live, live, live, not_found, not_found, live}));

  // Each is counted once, however often it stood in the batch.
  EXPECT_EQ(counts().available, 4);
  EXPECT_EQ(counts().scheduled, 1);
  EXPECT_EQ(counts().running, 1);
  EXPECT_EQ(counts().held + counts().dead + counts().succeeded + counts().cancelled, 0);
  for (const JobId id : {held, dead, succeeded, cancelled}) {
    const JobHistory whole = history(id);
    EXPECT_EQ(whole.attempts.back().outcome, "requeued");
    EXPECT_EQ(whole.attempts.back().worker, "operator");
    EXPECT_EQ(whole.job.requeues, 1);
    EXPECT_EQ(whole.job.attempt, 0);
  }
}

}  // namespace
}  // namespace faultline::testing

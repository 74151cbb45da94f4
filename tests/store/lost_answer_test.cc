// The connection is cut where it hurts: after the server has committed and before anybody was told, or before
// the server got the request. What the caller is told must be true, and nothing may happen twice.

#include <functional>
#include <set>
#include <thread>

#include "pg/wire_proxy.h"
#include "store/fixture.h"
#include "store/unreachable.h"
#include "support/process.h"

namespace faultline::testing {
namespace {

/// `far_` reaches the database through a wire that can be cut; `store_` and `sql_` reach it directly.
class LostAnswerTest : public StoreTest {
 protected:
  LostAnswerTest() : proxy_(database_.dsn()), far_(open_far(std::chrono::milliseconds{30'000})) { warm_up(); }

  Store open_far(std::chrono::milliseconds call_timeout) {
    return must(Store::open({.database = proxy_.dsn(), .connections_max = 1, .call_timeout = call_timeout}));
  }
  /// Opens what the pool opens when it is first used, so that the next message is the call's own.
  void warm_up() { must(far_.now()); }

  enum class Lost { answer, request };
  void lose(Lost what, char message = 'S', int nth = 1) {
    what == Lost::answer ? proxy_.cut_after(message, nth) : proxy_.cut_before(message, nth);
  }

  Verdict settle_far(const Lease& lease, Outcome outcome) {
    const Settlement settlement{.lease = lease, .outcome = std::move(outcome)};
    return must(far_.settle({&settlement, 1})).at(0);
  }

  std::int64_t ledger_rows() { return number("SELECT count(*) FROM faultline.ledger"); }
  std::int64_t evidence_rows() { return number("SELECT count(*) FROM faultline.stale_writes"); }
  std::int64_t live_jobs() { return number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"); }

  WireProxy proxy_;
  Store far_;
};

TEST_F(LostAnswerTest, a_settlement_whose_answer_or_request_is_lost_is_committed_once_without_evidence) {
  const std::vector<Outcome> outcomes{Outcome::success("r"), Outcome::failure("f", ms{60'000}),
                                      Outcome::bury("b"),    Outcome::snooze(ms{60'000}),
                                      Outcome::release(),    Outcome::cancel("c")};
  for (const Lost lost : {Lost::answer, Lost::request}) {
    for (const Outcome& outcome : outcomes) {
      SCOPED_TRACE(std::string{to_string(outcome.kind)} + (lost == Lost::answer ? ", answer" : ", request"));
      const JobId id = enqueue();
      const Lease lease = claim_one("A").lease;
      const int cuts_before = proxy_.cuts();
      lose(lost);

      EXPECT_TRUE(settle_far(lease, outcome).committed());

      EXPECT_EQ(proxy_.cuts(), cuts_before + 1);
      const JobHistory whole = history(id);
      ASSERT_EQ(whole.attempts.size(), 1U);
      EXPECT_EQ(whole.attempts[0].outcome, to_string(outcome.kind));
      EXPECT_EQ(whole.attempts[0].token, lease.token);
      EXPECT_TRUE(whole.stale_writes.empty());
      cancel(id);
    }
  }
}

TEST_F(LostAnswerTest, a_first_sending_that_its_repeat_has_overtaken_is_no_stale_write) {
  const std::vector<Outcome> outcomes{Outcome::success("r"), Outcome::failure("f", ms{60'000}),
                                      Outcome::bury("b"),    Outcome::snooze(ms{60'000}),
                                      Outcome::release(),    Outcome::cancel("c")};
  for (const Outcome& outcome : outcomes) {
    SCOPED_TRACE(to_string(outcome.kind));
    const JobId id = enqueue();
    const Settlement settlement{.lease = claim_one("A").lease, .outcome = outcome};
    ASSERT_TRUE(must(store_.settle({&settlement, 1})).at(0).committed());

    EXPECT_TRUE(must(store_.settle({&settlement, 1})).at(0).committed());

    EXPECT_EQ(history(id).attempts.size(), 1U);
    EXPECT_EQ(evidence_rows(), 0);
    cancel(id);
  }
}

TEST_F(LostAnswerTest, another_outcome_after_a_repeated_one_is_a_stale_write) {
  enqueue();
  const Settlement done{.lease = claim_one("A").lease, .outcome = Outcome::success("r")};
  ASSERT_TRUE(must(store_.settle({&done, 1})).at(0).committed());
  const Settlement other{.lease = done.lease, .outcome = Outcome::failure("f")};

  EXPECT_EQ(must(store_.settle({&other, 1})).at(0).stale.reason, StaleReason::already_settled);

  EXPECT_EQ(evidence_rows(), 1);
}

TEST_F(LostAnswerTest, two_hundred_lost_answers_settle_two_hundred_jobs_once_each) {
  constexpr int kJobs = 200;
  enqueue_many(kJobs);
  for (int i = 0; i < kJobs; ++i) {
    const Lease lease = claim_one("A").lease;
    lose(i % 2 == 0 ? Lost::answer : Lost::request);
    ASSERT_TRUE(settle_far(lease, Outcome::success(std::to_string(i))).committed()) << i;
  }
  EXPECT_EQ(proxy_.cuts(), kJobs);
  EXPECT_EQ(ledger_rows(), kJobs);
  EXPECT_EQ(
      number("SELECT count(DISTINCT job_id) FROM faultline.ledger WHERE outcome = 'succeeded' AND token = 1"),
      kJobs);
  EXPECT_EQ(evidence_rows(), 0);
  EXPECT_EQ(live_jobs(), 0);
  EXPECT_EQ(counts().succeeded, kJobs);
  EXPECT_EQ(counts().running, 0);
}

TEST_F(LostAnswerTest, a_batch_with_stale_leases_whose_answer_is_lost_is_told_apart) {
  enqueue_many(4);
  std::vector<Settlement> settlements;
  for (const ClaimedJob& claimed : claim("A", 4)) settlements.push_back({.lease = claimed.lease});
  settle(settlements[1].lease, Outcome::bury("before"));
  settlements[3].lease.lease_id = Uuid::random();
  lose(Lost::answer);

  const std::vector<Verdict> verdicts = must(far_.settle(settlements));

  EXPECT_TRUE(verdicts[0].committed());
  EXPECT_EQ(verdicts[1].stale.reason, StaleReason::already_settled);
  EXPECT_TRUE(verdicts[2].committed());
  EXPECT_EQ(verdicts[3].stale.reason, StaleReason::token_mismatch);
  EXPECT_EQ(ledger_rows(), 3);
  // Both sendings arrived, and what was refused was refused twice.
  EXPECT_EQ(evidence_rows(), 4);
}

TEST_F(LostAnswerTest, an_exchange_whose_answer_is_lost_settles_once_and_loses_no_job) {
  must(far_.enqueue(std::vector<NewJob>(3, NewJob{.kind = "k"})));  // from now on it knows the queue
  const Settlement done{.lease = claim_one("A").lease};
  lose(Lost::answer);

  const Store::Exchange next = must(far_.exchange({&done, 1}, {.worker = "A"}));

  EXPECT_TRUE(next.verdicts.at(0).committed());
  ASSERT_EQ(next.claimed.size(), 1U);
  EXPECT_EQ(ledger_rows(), 1);
  EXPECT_EQ(evidence_rows(), 0);
  // One job was claimed by the answer that was lost: it is nobody's, and comes back when its lease runs out.
  EXPECT_EQ(counts().running, 2);
  must(store_.heartbeat({&next.claimed[0].lease, 1}, ms{100'000}));
  advance(kTtl);
  EXPECT_EQ(sweep().size(), 1U);
  EXPECT_TRUE(complete(next.claimed[0].lease).committed());
}

TEST_F(LostAnswerTest, an_enqueue_whose_answer_or_request_is_lost_adds_its_jobs_once) {
  for (const Lost lost : {Lost::answer, Lost::request}) {
    for (const bool keyed : {false, true}) {
      const std::int64_t before = live_jobs();
      std::vector<NewJob> batch(3, NewJob{.kind = "k"});
      if (keyed) batch[1].idempotency_key = lost == Lost::answer ? "a" : "b";
      must(far_.enqueue({.kind = "the queue is known from now on"}));
      lose(lost);

      const std::vector<Submission> answers = must(far_.enqueue(batch));

      EXPECT_EQ(live_jobs(), before + 4);
      for (const Submission& answer : answers) {
        EXPECT_EQ(answer.status, Submission::Status::created);
        EXPECT_EQ(job(answer.job).state, JobState::available);
      }
      EXPECT_EQ(counts().available, live_jobs());
    }
  }
}

TEST_F(LostAnswerTest, a_large_batch_of_several_calls_is_added_once) {
  constexpr std::int64_t kJobs = 2'600;
  must(far_.enqueue({.kind = "the queue is known from now on"}));
  std::int64_t expected = 1;
  for (const Lost lost : {Lost::answer, Lost::request}) {
    SCOPED_TRACE(lost == Lost::answer ? "answer" : "request");
    lose(lost);

    const auto answers = must(far_.enqueue(std::vector<NewJob>(kJobs, NewJob{.kind = "k"})));

    expected += kJobs;
    EXPECT_EQ(live_jobs(), expected);
    EXPECT_EQ(counts().available, expected);
    std::set<JobId> ids;
    for (const Submission& answer : answers) ids.insert(answer.job);
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(kJobs));
  }
  EXPECT_EQ(proxy_.cuts(), 2);
}

TEST_F(LostAnswerTest, a_stream_whose_commit_is_cut_off_is_there_whole_or_not_at_all) {
  for (const Lost lost : {Lost::answer, Lost::request}) {
    must(far_.now());
    const std::int64_t before = live_jobs();
    int left = 2'600;
    const auto next = [&]() -> std::optional<NewJob> {
      // The last message of the stream is its COMMIT.
      if (left == 1) lose(lost, 'S', 2);
      return left-- > 0 ? std::optional{NewJob{.kind = "k"}} : std::nullopt;
    };

    EXPECT_EQ(far_.enqueue_bulk(next).error().code, ErrorCode::outcome_unknown);

    // A request whose last message is missing may have been carried out all the same.
    const std::int64_t added = live_jobs() - before;
    EXPECT_TRUE(added == 2'600 || (lost == Lost::request && added == 0)) << added;
  }
}

/// The second statement that adds jobs waits until the test lets it go on.
class LateRetryTest : public LostAnswerTest {
 protected:
  LateRetryTest() {
    script(
        "CREATE SEQUENCE public.inserts;"
        "CREATE FUNCTION wait_from_the_second_on() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS "
        "$$ BEGIN"
        "  IF nextval('public.inserts') > 1 THEN PERFORM pg_advisory_lock(1); PERFORM pg_advisory_unlock(1); "
        "END IF;"
        "  RETURN NULL; END $$;"
        "CREATE TRIGGER wait BEFORE INSERT ON faultline.jobs FOR EACH STATEMENT"
        "  EXECUTE FUNCTION wait_from_the_second_on()");
  }

  /// Cuts the nth Sync of an enqueue, and has all jobs that it added run and finished before it is sent
  /// again. Returns how many these were.
  std::size_t finish_before_the_retry(std::size_t jobs, int nth) {
    script("SELECT setval('public.inserts', 1, false); SELECT pg_advisory_lock(1)");
    lose(Lost::answer, 'S', nth);
    std::atomic<bool> answered = false;
    std::vector<Submission> answers;
    std::jthread submitter{[&] {
      answers = must(far_.enqueue(std::vector<NewJob>(jobs, NewJob{.kind = "k"})));
      answered = true;
    }};
    EXPECT_TRUE(eventually([&] {
      return answered ||
             number(
                 "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database ="
                 " (SELECT oid FROM pg_database WHERE datname = current_database())") == 1;
    }));
    std::vector<Settlement> done;
    if (!answered) {
      for (const ClaimedJob& claimed : claim("A", 1'000)) done.push_back({.lease = claimed.lease});
    }
    for (const Verdict& verdict : must(store_.settle(done))) EXPECT_TRUE(verdict.committed());
    script("SELECT pg_advisory_unlock(1)");
    submitter.join();

    EXPECT_EQ(answers.size(), jobs);
    for (const Submission& answer : answers) {
      EXPECT_EQ(job(answer.job).state, done.empty() ? JobState::available : JobState::succeeded);
    }
    return done.size();
  }
};

TEST_F(LateRetryTest, a_job_that_ran_and_finished_before_the_enqueue_was_sent_again_does_not_run_twice) {
  must(far_.claim({.worker = "A"}));
  must(far_.enqueue({.kind = "the queue is known from now on"}));
  complete(claim_one("A").lease);

  EXPECT_EQ(finish_before_the_retry(3, 1), 3U);
  EXPECT_EQ(finish_before_the_retry(600, 1), 600U);

  EXPECT_EQ(live_jobs(), 0);
  EXPECT_EQ(ledger_rows(), 604);
  EXPECT_EQ(counts().available, 0);
  EXPECT_EQ(counts().succeeded, 604);
}

TEST_F(LostAnswerTest, a_claim_whose_answer_is_lost_leaves_its_job_to_nobody_until_the_lease_runs_out) {
  const JobId id = enqueue();
  lose(Lost::answer);

  EXPECT_TRUE(must(far_.claim({.worker = "A"})).empty());

  EXPECT_EQ(job(id).state, JobState::running);
  EXPECT_EQ(job(id).token, FenceToken{1});
  advance(kTtl);
  EXPECT_EQ(sweep().size(), 1U);
  advance(ms{60'000});
  const ClaimedJob again = claim_one("B");
  EXPECT_EQ(again.lease.job, id);
  EXPECT_EQ(again.lease.token, FenceToken{2});
  EXPECT_TRUE(complete(again.lease).committed());
}

TEST_F(LostAnswerTest, a_claim_whose_request_is_lost_is_made_again) {
  const JobId id = enqueue();
  lose(Lost::request);

  // Until the server has noticed that the first claim is gone, its rows are passed over.
  std::vector<ClaimedJob> claimed;
  EXPECT_TRUE(eventually([&] { return !(claimed = must(far_.claim({.worker = "A"}))).empty(); }));

  ASSERT_EQ(claimed.size(), 1U);
  EXPECT_EQ(claimed[0].lease.job, id);
  EXPECT_EQ(claimed[0].lease.token, FenceToken{1});
  EXPECT_TRUE(complete(claimed[0].lease).committed());
}

TEST_F(LostAnswerTest, heartbeat_progress_and_check_are_repeated_without_harm) {
  enqueue();
  const Lease lease = claim_one("A").lease;
  must(far_.heartbeat({&lease, 1}));
  const ProgressReport report{.lease = lease, .fraction = 0.5};
  for (const Lost lost : {Lost::answer, Lost::request}) {
    advance(ms{1'000});
    lose(lost);
    const Beat beat = must(far_.heartbeat({&lease, 1})).at(0);
    EXPECT_EQ(beat.status, Beat::Status::renewed);
    EXPECT_EQ(beat.lease_expires_at, must(store_.now()) + kTtl);
    lose(lost);
    EXPECT_TRUE(must(far_.progress({&report, 1})).at(0).committed());
    lose(lost);
    EXPECT_TRUE(must(far_.check({&lease, 1})).at(0).committed());
  }
  EXPECT_EQ(proxy_.cuts(), 6);
  EXPECT_EQ(job(lease.job).token, FenceToken{1});
  EXPECT_EQ(evidence_rows(), 0);
}

TEST_F(LostAnswerTest, an_effect_whose_answer_is_lost_is_begun_and_recorded_by_the_one_that_asked) {
  enqueue();
  const Lease lease = claim_one("A").lease;
  for (const Lost lost : {Lost::answer, Lost::request}) {
    const EffectKey key{.lease = lease, .key = lost == Lost::answer ? "a" : "b"};
    lose(lost);
    EXPECT_EQ(must(far_.begin_effects({&key, 1})).at(0).status, Effect::Status::begun);
    const EffectResult result{.lease = lease, .key = key.key, .result = "receipt"};
    lose(lost);
    EXPECT_EQ(must(far_.record_effects({&result, 1})).at(0).result, "receipt");
  }
  EXPECT_EQ(number("SELECT count(*) FROM faultline.effects"), 2);
}

TEST_F(LostAnswerTest, a_cancel_and_a_requeue_whose_answer_is_lost_are_done_once) {
  const JobId id = enqueue();
  complete(claim_one("A").lease);
  lose(Lost::answer);
  static_cast<void>(must(far_.requeue({&id, 1}, "operator")));
  EXPECT_EQ(job(id).requeues, 1);
  EXPECT_EQ(counts().available, 1);
  lose(Lost::answer);
  static_cast<void>(must(far_.cancel({&id, 1}, "operator", "not wanted")));
  EXPECT_EQ(job(id).state, JobState::cancelled);
  EXPECT_EQ(counts().cancelled, 1);
  EXPECT_EQ(ledger_rows(), 3);
}

class UnknownTest : public LostAnswerTest {
 protected:
  UnknownTest() {
    far_ = open_far(ms{2'000});
    warm_up();
  }
};

TEST_F(UnknownTest, a_settlement_that_cannot_be_resolved_is_unknown_and_the_ledger_knows) {
  for (const Lost lost : {Lost::answer, Lost::request}) {
    SCOPED_TRACE(lost == Lost::answer ? "answer" : "request");
    enqueue();
    const Lease lease = claim_one("A").lease;
    const std::int64_t rows_before = ledger_rows();
    {
      const Unreachable unreachable{proxy_};
      lose(lost);
      EXPECT_EQ(settle_far(lease, Outcome::success("r")).status, Verdict::Status::unknown);
    }
    const bool happened = lost == Lost::answer;
    EXPECT_EQ(must(store_.resolve({&lease, 1}))[0],
              happened ? std::optional{Outcome::Kind::succeeded} : std::nullopt);

    // Whoever sends it again does no harm, and learns the same.
    const Verdict again = settle_far(lease, Outcome::success("again"));

    EXPECT_EQ(again.committed(), !happened);
    if (happened) {
      EXPECT_EQ(again.stale.reason, StaleReason::already_settled);
    }
    EXPECT_EQ(ledger_rows(), rows_before + 1);
    EXPECT_EQ(job(lease.job).result, happened ? "r" : "again");
    warm_up();
  }
}

TEST_F(UnknownTest, an_enqueue_that_cannot_be_resolved_says_so) {
  must(far_.enqueue({.kind = "the queue is known from now on"}));
  {
    const Unreachable unreachable{proxy_};
    lose(Lost::answer);
    EXPECT_EQ(far_.enqueue({.kind = "k"}).error().code, ErrorCode::outcome_unknown);
  }
  EXPECT_EQ(live_jobs(), 2);
}

TEST_F(UnknownTest, a_call_that_never_reached_the_database_says_that_nothing_happened) {
  enqueue();
  const Settlement done{.lease = claim_one("A").lease};
  const Unreachable unreachable{proxy_};
  // The idle connection is gone as well.
  script(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
      " WHERE datname = current_database() AND application_name = 'faultline' AND pid <> pg_backend_pid()");

  EXPECT_EQ(far_.settle({&done, 1}).error().code, ErrorCode::unavailable);
  EXPECT_EQ(far_.enqueue({.kind = "k"}).error().code, ErrorCode::unavailable);

  EXPECT_EQ(job(done.lease.job).state, JobState::running);
}

TEST_F(UnknownTest, what_was_committed_is_told_although_the_rest_of_the_batch_could_not_be_judged) {
  enqueue_many(2);
  std::vector<Settlement> settlements;
  for (const ClaimedJob& claimed : claim("A", 2)) settlements.push_back({.lease = claimed.lease});
  settlements[1].lease.lease_id = Uuid::random();
  // Whoever holds the row keeps its lease from being judged.
  script("BEGIN; SELECT FROM faultline.jobs WHERE id = '" + settlements[1].lease.job.to_string() +
         "' FOR UPDATE");

  const std::vector<Verdict> verdicts = must(far_.settle(settlements));

  script("ROLLBACK");
  EXPECT_TRUE(verdicts[0].committed());
  EXPECT_EQ(verdicts[1].status, Verdict::Status::unknown);
  EXPECT_EQ(job(settlements[0].lease.job).state, JobState::succeeded);
  EXPECT_EQ(job(settlements[1].lease.job).state, JobState::running);
}

}  // namespace
}  // namespace faultline::testing

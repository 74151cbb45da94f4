// The auditor: silent on a database where work goes on, and loud about every single promise that is broken by
// hand.

#include "audit/audit.h"

#include <atomic>
#include <future>

#include <gmock/gmock.h>

#include "audit/leases.h"
#include "faultline/worker.h"
#include "store/fixture.h"
#include "support/process.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

audit::Report audit_of(pg::Connection& connection, std::size_t examples_max = 10) {
  return must(audit::check(connection, examples_max, soon()));
}

/// The broken promises by name, each with its first example.
std::vector<std::string> broken(const audit::Report& report) {
  std::vector<std::string> names;
  for (const audit::Check& check : report.checks) {
    if (check.violations > 0)
      names.push_back(check.name + ": " + check.examples.at(0).row + ": " + check.examples.at(0).detail);
  }
  return names;
}

// ---- Healthy

TEST(AuditTest, a_busy_database_breaks_no_promise_at_any_moment) {
  const TestDatabase database;
  auto sql = database.connect();
  auto store = must(Store::open({.database = database.dsn()}));
  must(store.set_queue("capped", {.running_max = 2}));
  Worker worker{{.database = database.dsn(),
                 .queues = {{.queue = "default"}, {.queue = "capped"}},
                 .slots = 4,
                 .log = [](const Event&) {}}};
  std::atomic<int> runs{0};
  worker.handle("test", [&](Context& context) {
    switch (++runs % 7) {
      case 0:
        throw std::runtime_error("not this time");
      case 1:
        return Outcome::snooze(std::chrono::milliseconds{1});
      case 2:
        return Outcome::release();
      case 3:
        return Outcome::bury("never again");
      case 4:
        static_cast<void>(context.once("mail", [] { return std::string{"1"}; }));
        return Outcome::success();
      default:
        return Outcome::success("1");
    }
  });
  must(worker.start());

  constexpr int kRounds = 12;
  std::vector<JobId> ids;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<NewJob> jobs;
    for (int i = 0; i < 20; ++i) {
      NewJob job{.queue = i % 2 == 0 ? "default" : "capped",
                 .kind = "test",
                 .backoff_base = std::chrono::milliseconds{1}};
      if (i % 5 == 0) job.idempotency_key = std::to_string(round) + "-" + std::to_string(i);
      if (i % 7 == 0) job.delay = std::chrono::seconds{3'600};
      jobs.push_back(std::move(job));
    }
    for (const Submission& submission : must(store.enqueue(jobs))) ids.push_back(submission.job);
    const std::vector<JobId> some{ids.end() - 7, ids.end() - 4};
    must(store.cancel(some, "operator", "not wanted"));
    must(store.requeue(some, "operator"));
    must(store.requeue(ids, "operator"));
    if (round % 4 == 3) must(store.fold_counts());

    EXPECT_THAT(broken(audit_of(sql)), IsEmpty()) << "in round " << round;
  }
  EXPECT_TRUE(eventually([&] { return runs > 100; }));
  EXPECT_THAT(broken(audit_of(sql)), IsEmpty());
  worker.drain();
  EXPECT_THAT(broken(audit_of(sql)), IsEmpty());
}

TEST(AuditTest, a_new_database_is_in_order_and_the_connection_is_left_as_it_was) {
  const TestDatabase database;
  auto sql = database.connect();

  const auto report = audit_of(sql);

  EXPECT_EQ(report.violations(), 0);
  EXPECT_EQ(report.checks.size(), audit::check_names().size());
  EXPECT_GT(report.checks.size(), 20U);
  EXPECT_TRUE(sql.idle());
  EXPECT_EQ(query_text(sql, "SHOW statement_timeout"), "0");
  EXPECT_EQ(query_text(sql, "SHOW transaction_read_only"), "off");
}

TEST(AuditTest, the_least_role_may_audit_and_a_stranger_is_told_which_role_he_lacks) {
  const TestDatabase database;
  auto sql = database.connect();
  const std::string login = "auditor_" + database.name();
  must(sql.exec_script("CREATE ROLE " + login + " LOGIN", soon()));
  {
    auto stranger = connect(database.dsn_as(login));
    const auto refused = audit::check(stranger, 1, soon());
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().describe(), HasSubstr("permission denied"));
  }
  must(sql.exec_script("GRANT faultline_reader TO " + login, soon()));
  {
    auto reader = connect(database.dsn_as(login));
    EXPECT_EQ(audit_of(reader).violations(), 0);
  }
  must(sql.exec_script("DROP ROLE " + login, soon()));
}

TEST(AuditTest, a_database_without_the_schema_is_refused_with_what_to_do) {
  const TestDatabase database{Template::empty};
  auto sql = database.connect();
  const auto refused = audit::check(sql, 1, soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::wrong_schema);
  EXPECT_THAT(refused.error().hint, HasSubstr("faultline migrate"));
}

TEST(AuditTest, an_audit_that_takes_too_long_ends_in_time_and_says_so) {
  const TestDatabase database;
  auto sql = database.connect();
  auto blocker = database.connect();
  must(blocker.begin(soon()));
  must(blocker.exec_script("LOCK TABLE faultline.ledger IN ACCESS EXCLUSIVE MODE", soon()));

  const auto late = audit::check(sql, 1, std::chrono::steady_clock::now() + std::chrono::milliseconds{500});

  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timed_out) << late.error().describe();
  blocker.rollback(soon());
}

TEST(AuditTest, some_checks_can_be_asked_for_by_name) {
  const TestDatabase database;
  auto sql = database.connect();

  const auto report = must(
      audit::check(sql, 1, soon(), std::vector<std::string>{"tallies_are_the_counts", "no_job_is_lost"}));
  ASSERT_THAT(report.checks, SizeIs(2));
  EXPECT_EQ(report.checks[0].name, "no_job_is_lost");
  EXPECT_EQ(report.checks[1].name, "tallies_are_the_counts");

  const auto refused = audit::check(sql, 1, soon(), std::vector<std::string>{"no_such_check"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(refused.error().hint, HasSubstr("no_job_is_lost"));
}

TEST(AuditTest, all_of_it_is_about_one_moment) {
  const TestDatabase database;
  auto sql = database.connect();
  auto auditor = database.connect();
  auto blocker = database.connect();
  const int auditor_pid = auditor.backend_pid();
  must(blocker.begin(soon()));
  must(blocker.exec_script("LOCK TABLE faultline.effects IN ACCESS EXCLUSIVE MODE", soon()));
  auto report = std::async(std::launch::async, [&] { return audit_of(auditor); });
  const auto waits = [&] {
    return query_text(sql, "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND pid = " +
                               std::to_string(auditor_pid)) == "1";
  };
  EXPECT_TRUE(eventually(waits));

  // What comes while the auditor is under way is not seen by the checks that are still to come.
  constexpr std::string_view kBreak =
      "INSERT INTO faultline.idempotency_keys (bucket, queue, key, job_id, fingerprint)"
      " VALUES (0, 'default', 'k', gen_random_uuid(), '')";
  must(sql.exec_script(kBreak, soon()));
  blocker.rollback(soon());

  EXPECT_THAT(broken(report.get()), IsEmpty());
  EXPECT_THAT(broken(audit_of(sql)), ElementsAre(HasSubstr("keys_follow_jobs: k in queue default")));
}

// ---- Broken

/// A database with one job of each sort: waiting, running, dead, succeeded after a retry, requeued after a
/// success.
class BrokenTest : public StoreTest {
 protected:
  BrokenTest() {
    must(store_.set_queue("mails", {.lease_ttl = kTtl}));
    advance(std::chrono::hours{1});
    waiting_ = enqueue({.queue = "mails", .run_max = std::chrono::hours{1}});
    running_ = claim_one("w-running", "mails").lease;
    must(store_.begin_effects(std::vector<EffectKey>{{.lease = running_, .key = "send"}}));
    waiting_ = enqueue({.queue = "mails", .idempotency_key = "k-1"});
    dead_ = enqueue();
    settle(claim_one("w").lease, Outcome::bury("broken"));
    retried_ = enqueue({.backoff_base = ms{0}});
    settle(claim_one("w").lease, Outcome::failure("once"));
    stale_ = claim_one("w").lease;
    complete(stale_);
    requeued_ = enqueue();
    complete(claim_one("w").lease);
    requeue(requeued_);
    script("ALTER TABLE faultline.jobs DROP CONSTRAINT running_has_a_lease_and_nothing_else_has");
  }

  /// Breaks something by hand; then exactly this promise is broken, and by this row.
  void expect_broken(const std::string& sql, const std::string& check, const std::string& row,
                     const std::string& detail) {
    EXPECT_THAT(broken(audit_of(sql_)), IsEmpty()) << "before anything was broken";
    script(sql);
    const audit::Report report = audit_of(sql_);
    EXPECT_THAT(
        report.checks,
        Contains(AllOf(Field(&audit::Check::name, check), Field(&audit::Check::violations, 1),
                       Field(&audit::Check::examples,
                             ElementsAre(AllOf(Field(&audit::Violation::row, HasSubstr(row)),
                                               Field(&audit::Violation::detail, HasSubstr(detail))))))))
        << ::testing::PrintToString(broken(report));
  }
  static std::string where_id(JobId id) { return " WHERE id = '" + id.to_string() + "'"; }
  static std::string where_job(JobId id) { return " WHERE job_id = '" + id.to_string() + "'"; }

  Lease running_, stale_;
  JobId waiting_, dead_, retried_, requeued_;
};

TEST_F(BrokenTest, a_lost_job) {
  expect_broken("DELETE FROM faultline.jobs" + where_id(dead_), "no_job_is_lost", dead_.to_string(),
                "nowhere");
}

TEST_F(BrokenTest, a_second_end) {
  expect_broken(
      "DROP INDEX faultline.ledger_finished;"
      "CREATE TEMP TABLE copied AS SELECT * FROM faultline.ledger" +
          where_job(retried_) +
          " AND token = 2;"
          "UPDATE copied SET token = 3; INSERT INTO faultline.ledger SELECT * FROM copied",
      "one_end_per_requeue", retried_.to_string(), "finished 2 times");
}

TEST_F(BrokenTest, a_job_that_is_live_and_finished) {
  expect_broken(
      "INSERT INTO faultline.jobs (bucket, id, token, queue, kind, payload)"
      " VALUES (0, '" +
          retried_.to_string() + "', 2, 'default', 'test', '')",
      "live_is_not_finished", retried_.to_string(), "succeeded");
}

TEST_F(BrokenTest, an_act_on_a_finished_job) {
  expect_broken(
      "INSERT INTO faultline.ledger (bucket, job_id, token, attempt, outcome, state, requeues, queue,"
      " lease_id, started_at) VALUES (0, '" +
          retried_.to_string() +
          "', 3, 3, 'failed', 'available', 0, 'default', gen_random_uuid(), faultline.clock())",
      "finished_is_final", retried_.to_string(), "token 2 had finished it");
}

TEST_F(BrokenTest, a_requeue_that_nobody_recorded) {
  expect_broken("UPDATE faultline.jobs SET requeues = 5" + where_id(requeued_), "requeues_on_record",
                requeued_.to_string(), "with 5 requeues");
}

TEST_F(BrokenTest, a_requeue_in_the_ledger_that_skips_one) {
  expect_broken("UPDATE faultline.ledger SET requeues = 7" + where_job(dead_) +
                    "; UPDATE faultline.jobs SET requeues = 7" + where_id(dead_),
                "requeues_on_record", dead_.to_string(), "buried with 7 requeues");
}

TEST_F(BrokenTest, a_refused_lease_that_commits) {
  expect_broken(
      "INSERT INTO faultline.stale_writes (bucket, job_id, at, verb, reason, token, lease_id, worker)"
      " SELECT 0, l.job_id, l.ended_at - interval '1 second', 'settle', 'lease_expired', l.token, l.lease_id,"
      " 'w-late' FROM faultline.ledger l" +
          where_job(retried_) + " AND outcome = 'succeeded'",
      "refused_stays_refused", retried_.to_string(), "w-late was refused");
}

TEST_F(BrokenTest, a_token_that_ended_twice) {
  expect_broken(
      "ALTER TABLE faultline.ledger DROP CONSTRAINT ledger_pkey;"
      "CREATE TEMP TABLE copied AS SELECT * FROM faultline.ledger" +
          where_job(dead_) +
          ";"
          "INSERT INTO faultline.ledger SELECT * FROM copied",
      "one_row_per_token", dead_.to_string(), "token 1 ended 2 times");
}

TEST_F(BrokenTest, a_gap_in_the_ledger) {
  expect_broken("DELETE FROM faultline.ledger" + where_job(retried_) + " AND token = 1", "ledger_has_no_gap",
                retried_.to_string(), "token 0 is followed by token 2");
}

TEST_F(BrokenTest, a_token_behind_the_ledger) {
  expect_broken("UPDATE faultline.jobs SET token = 0" + where_id(dead_), "token_follows_ledger",
                dead_.to_string(), "token 0, and the last in the ledger is 1");
}

TEST_F(BrokenTest, a_job_that_is_not_where_its_last_attempt_left_it) {
  expect_broken("UPDATE faultline.jobs SET state = 'held'" + where_id(dead_), "state_follows_ledger",
                dead_.to_string(), "it is held, and the ledger left it dead");
}

TEST_F(BrokenTest, an_outcome_that_leads_elsewhere) {
  expect_broken("UPDATE faultline.ledger SET outcome = 'snoozed', lease_id = NULL" + where_job(dead_),
                "ledger_row_is_whole", dead_.to_string(), "lease none");
}

TEST_F(BrokenTest, a_job_that_was_claimed_while_it_ran) {
  expect_broken(
      "UPDATE faultline.jobs SET token = token + 1, lease_id = gen_random_uuid()" + where_id(running_.job),
      "token_follows_ledger", running_.job.to_string(), "token 2, and the last in the ledger is 0");
}

TEST_F(BrokenTest, a_running_job_without_a_lease) {
  expect_broken("UPDATE faultline.jobs SET worker = NULL" + where_id(running_.job), "running_has_a_lease",
                running_.job.to_string(), "worker none");
}

TEST_F(BrokenTest, a_waiting_job_with_a_lease) {
  expect_broken("UPDATE faultline.jobs SET lease_id = gen_random_uuid()" + where_id(waiting_),
                "running_has_a_lease", waiting_.to_string(), "it is available");
}

TEST_F(BrokenTest, a_waiting_job_without_a_token_left) {
  expect_broken("UPDATE faultline.jobs SET token = 9223372036854775807" + where_id(waiting_),
                "running_has_a_lease", waiting_.to_string(), "it is available");
}

TEST_F(BrokenTest, a_lease_that_nobody_watches) {
  expect_broken("DELETE FROM faultline.grants WHERE lease_id = '" + running_.lease_id.to_string() + "'",
                "lease_is_watched", running_.job.to_string(), "w-running");
}

TEST_F(BrokenTest, a_lease_that_is_watched_too_late) {
  expect_broken("UPDATE faultline.grants SET check_at = check_at + interval '1 hour' WHERE lease_id = '" +
                    running_.lease_id.to_string() + "'",
                "lease_is_watched", running_.job.to_string(), "no watchdog");
}

TEST_F(BrokenTest, a_lease_that_outlives_the_run_time) {
  expect_broken(
      "UPDATE faultline.jobs SET lease_expires_at = claimed_at + interval '2 hours'" + where_id(running_.job),
      "lease_within_run_max", running_.job.to_string(), "3600000 ms at most");
}

TEST_F(BrokenTest, a_cancellation_that_waits_for_nobody) {
  expect_broken("UPDATE faultline.jobs SET cancel_requested_at = faultline.clock()" + where_id(waiting_),
                "cancel_of_running", waiting_.to_string(), "it is available");
}

TEST_F(BrokenTest, too_many_attempts) {
  expect_broken("UPDATE faultline.jobs SET attempt = 21" + where_id(running_.job), "attempts_within_max",
                running_.job.to_string(), "attempt 21 of 20");
}

TEST_F(BrokenTest, a_queue_above_its_cap) {
  expect_broken("UPDATE faultline.queues SET running_max = 0 WHERE name = 'mails'", "running_within_cap",
                "mails", "1 jobs run, and its cap is 0");
}

TEST_F(BrokenTest, a_cap_or_a_limit_that_was_lowered_is_in_order_however_long_ago) {
  settle(claim_one("w", "mails").lease, Outcome::failure("once", ms{0}));
  EXPECT_EQ(claim_one("w", "mails").attempt, 2);
  must(store_.set_queue("mails", {.running_max = 0, .attempts_max = 1}));
  EXPECT_THAT(broken(audit_of(sql_)), IsEmpty());
  advance(std::chrono::hours{1});
  EXPECT_THAT(broken(audit_of(sql_)), IsEmpty());
}

// ---- Clocks

TEST_F(BrokenTest, a_clock_that_was_set_back_breaks_nothing) {
  const auto back = [&] { advance(-std::chrono::minutes{20}); };
  // In the life of one job: it fails, is claimed again, succeeds, is requeued, and a late writer is refused.
  const JobId job = enqueue({.backoff_base = ms{0}});
  back();
  script("UPDATE faultline.jobs SET run_at = faultline.clock()" + where_id(job));
  Lease first;
  EXPECT_TRUE(eventually([&] {
    for (const ClaimedJob& claimed : claim("w-back", 10))
      if (claimed.lease.job == job) first = claimed.lease;
    return first.job == job;
  }));
  back();
  EXPECT_TRUE(complete(first).committed());
  back();
  requeue(job);
  EXPECT_EQ(heartbeat(first).status, Beat::Status::lost);
  back();
  // Queues: a cap and a limit are lowered.
  must(store_.set_queue("mails", {.running_max = 0, .attempts_max = 1}));
  back();
  cancel(waiting_);
  EXPECT_THAT(broken(audit_of(sql_)), IsEmpty());

  // And all that was ever recorded, the later the earlier.
  script(
      "UPDATE faultline.ledger SET started_at = started_at - token * interval '1 day',"
      "                            ended_at = ended_at - token * interval '2 days';"
      "UPDATE faultline.jobs SET claimed_at = claimed_at - interval '9 days', created_at = created_at + "
      "interval '9 days' WHERE queue <> '' AND state = 'running' AND run_max_ms IS NULL;"
      "UPDATE faultline.stale_writes SET at = at - interval '9 days';"
      "UPDATE faultline.queues SET updated_at = created_at - interval '9 days' WHERE name = 'mails'");
  EXPECT_THAT(broken(audit_of(sql_)), IsEmpty());
}

TEST_F(BrokenTest, a_counter_that_is_wrong) {
  expect_broken("INSERT INTO faultline.tallies (bucket, queue, succeeded) VALUES (0, 'mails', 3)",
                "tallies_are_the_counts", "mails", "0 jobs are succeeded, and its counter says 3");
}

TEST_F(BrokenTest, a_job_without_its_queue) {
  expect_broken(
      "DELETE FROM faultline.queues WHERE name = 'mails';"
      "DELETE FROM faultline.jobs" +
          where_id(running_.job),
      "job_has_a_queue", waiting_.to_string(), "no queue mails");
}

TEST_F(BrokenTest, a_job_in_another_bucket_than_its_id_names) {
  expect_broken(
      "UPDATE faultline.jobs SET id = overlay(id::text PLACING '0005' FROM 33)::uuid" + where_id(waiting_),
      "job_in_its_bucket", "0005", "names bucket 5");
}

TEST_F(BrokenTest, an_effect_without_a_lease) {
  expect_broken("UPDATE faultline.effects SET lease_id = gen_random_uuid()", "effects_have_a_lease",
                running_.job.to_string(), "effect send");
}

TEST_F(BrokenTest, a_key_that_expires_though_its_job_is_on_record) {
  expect_broken("UPDATE faultline.idempotency_keys SET expires_at = faultline.clock()", "keys_follow_jobs",
                "k-1 in queue mails", "is on record");
}

TEST_F(BrokenTest, a_key_that_never_expires_though_its_job_is_gone) {
  expect_broken(
      "INSERT INTO faultline.idempotency_keys (bucket, queue, key, job_id, fingerprint) VALUES"
      " (0, 'mails', 'k-2', gen_random_uuid(), '')",
      "keys_follow_jobs", "k-2 in queue mails", "not on record");
}

/// A column that somebody has changed by hand, and the check that tells.
struct Corruption {
  std::string name;
  std::string check;
  std::string sql;
};

TEST_F(BrokenTest, whatever_column_is_changed_by_hand_is_told) {
  const JobId unknown = enqueue({.priority = 0});
  const Lease lost = claim_one("w").lease;
  ASSERT_EQ(lost.job, unknown);
  for (const std::string key : {"charge", "mail"}) {
    const EffectKey effect{.lease = lost, .key = key};
    must(store_.begin_effects({&effect, 1}));
  }
  settle(lost, Outcome::failure("timeout", std::chrono::hours{1}));
  for (const std::string key : {"charge", "mail"})
    must(store_.decide_effect({.job = unknown, .key = key, .happened = key == "mail", .reason = "asked"},
                              "anna"));
  EXPECT_EQ(heartbeat(stale_).status, Beat::Status::lost);
  must(store_.check({&stale_, 1}));
  ASSERT_THAT(broken(audit_of(sql_)), IsEmpty());
  const std::vector<std::string> tables{"jobs",   "ledger",           "effects",      "effect_decisions",
                                        "grants", "idempotency_keys", "stale_writes", "tallies",
                                        "queues", "retention"};
  script("CREATE SCHEMA saved");
  for (const std::string& table : tables)
    script("CREATE TABLE saved." + table + " AS TABLE faultline." + table);

  const std::string jobs = "UPDATE faultline.jobs SET ", ledger = "UPDATE faultline.ledger SET ",
                    effects = "UPDATE faultline.effects SET ",
                    decisions = "UPDATE faultline.effect_decisions SET ",
                    keys = "UPDATE faultline.idempotency_keys SET ",
                    evidence = "UPDATE faultline.stale_writes SET ";
  const std::string waiting = where_id(waiting_), running = where_id(running_.job), dead = where_id(dead_),
                    tried = where_id(unknown);
  const std::string succeeded = where_job(retried_) + " AND token = 2",
                    failed = where_job(retried_) + " AND token = 1",
                    requeued = where_job(requeued_) + " AND outcome = 'requeued'";
  const std::vector<Corruption> corruptions{
      {"jobs.priority", "job_row_is_sound", jobs + "priority = 11" + waiting},
      {"jobs.priority below", "job_row_is_sound", jobs + "priority = -1" + waiting},
      {"jobs.attempt up", "attempt_follows_ledger", jobs + "attempt = 3" + tried},
      {"jobs.attempt down", "attempt_follows_ledger", jobs + "attempt = 0" + tried},
      {"jobs.attempt of a new one", "attempt_follows_ledger", jobs + "attempt = 1" + waiting},
      {"jobs.attempt of a running one", "attempt_follows_ledger", jobs + "attempt = 2" + running},
      {"jobs.token", "token_follows_ledger", jobs + "token = 9" + dead},
      {"jobs.token below", "job_row_is_sound", jobs + "token = -1" + waiting},
      {"jobs.run_at of a waiting one", "job_row_is_sound", jobs + "run_at = 'infinity'" + waiting},
      {"jobs.run_at of a dead one", "job_row_is_sound", jobs + "run_at = faultline.clock()" + dead},
      {"jobs.created_at", "job_row_is_sound", jobs + "created_at = '-infinity'" + waiting},
      {"jobs.claimed_at", "job_row_is_sound", jobs + "claimed_at = lease_expires_at" + running},
      {"jobs.lease_expires_at", "job_row_is_sound",
       jobs + "lease_expires_at = '3000-01-01', run_max_ms = NULL" + running},
      {"jobs.lease_expires_at for ever", "job_row_is_sound",
       jobs + "lease_expires_at = 'infinity', run_max_ms = NULL" + running},
      {"jobs.lease_id", "lease_is_watched", jobs + "lease_id = gen_random_uuid()" + running},
      {"jobs.state", "job_row_is_sound", jobs + "state = 'held', run_at = 'infinity'" + waiting},
      {"jobs.delayed", "tallies_are_the_counts", jobs + "delayed = true" + waiting},
      {"jobs.delayed of a dead one", "job_row_is_sound", jobs + "delayed = true" + dead},
      {"jobs.requeues", "requeues_on_record", jobs + "requeues = 1" + tried},
      {"jobs.attempts_max", "job_row_is_sound", jobs + "attempts_max = 0" + waiting},
      {"jobs.lease_ttl_ms", "job_row_is_sound", jobs + "lease_ttl_ms = -5" + waiting},
      {"jobs.run_max_ms", "job_row_is_sound", jobs + "run_max_ms = 0" + waiting},
      {"jobs.backoff_base_ms", "job_row_is_sound", jobs + "backoff_base_ms = -1" + waiting},
      {"jobs.backoff_max_ms", "job_row_is_sound", jobs + "backoff_max_ms = -1" + waiting},
      {"jobs.granted_ttl_ms", "job_row_is_sound", jobs + "granted_ttl_ms = NULL" + running},
      {"jobs.granted_ttl_ms of nobody", "job_row_is_sound", jobs + "granted_ttl_ms = 1000" + waiting},
      {"jobs.died_at", "job_row_is_sound", jobs + "died_at = NULL" + dead},
      {"jobs.died_at of a living one", "job_row_is_sound", jobs + "died_at = faultline.clock()" + waiting},
      {"jobs.cancel_reason", "job_row_is_sound", jobs + "cancel_reason = 'why'" + running},
      {"jobs.cancel_call_id", "job_row_is_sound", jobs + "cancel_call_id = gen_random_uuid()" + running},
      {"jobs.queue", "tallies_are_the_counts", jobs + "queue = 'default'" + waiting},
      {"jobs.kind", "job_row_is_sound", jobs + "kind = ''" + waiting},
      {"jobs.payload", "job_row_is_sound", jobs + "payload = ''" + waiting},
      {"jobs.idempotency_key", "job_has_its_key", jobs + "idempotency_key = 'another'" + waiting},
      {"jobs.idempotency_key gone", "keys_follow_jobs", keys + "key = 'another'"},
      {"jobs.traceparent", "job_row_is_sound", jobs + "traceparent = 'x'" + waiting},
      {"jobs.progress", "job_row_is_sound", jobs + "progress = 7" + running},
      {"ledger.attempt", "history_is_a_chain", ledger + "attempt = 5" + succeeded},
      {"ledger.attempt of the first", "history_is_a_chain", ledger + "attempt = 0" + failed},
      {"ledger.outcome", "ledger_row_is_whole", ledger + "outcome = 'buried'" + failed},
      {"ledger.outcome of the last", "ledger_row_is_whole", ledger + "outcome = 'failed'" + succeeded},
      {"ledger.token", "ledger_has_no_gap", ledger + "token = 4" + succeeded},
      {"ledger.lease_id", "ledger_row_is_whole", ledger + "lease_id = NULL" + succeeded},
      {"ledger.lease_id of an act", "ledger_row_is_whole",
       ledger + "lease_id = gen_random_uuid()" + requeued},
      {"ledger.started_at", "ledger_row_is_whole", ledger + "started_at = NULL" + failed},
      {"ledger.started_at of an act", "ledger_row_is_whole",
       ledger + "started_at = faultline.clock()" + requeued},
      {"ledger.lease_expires_at", "ledger_row_is_whole", ledger + "lease_expires_at = NULL" + failed},
      {"ledger.ended_at", "ledger_row_is_whole", ledger + "ended_at = 'infinity'" + failed},
      {"ledger.state", "ledger_row_is_whole", ledger + "state = 'held'" + failed},
      {"ledger.requeues", "requeues_on_record", ledger + "requeues = 3" + failed},
      {"ledger.queue", "history_is_a_chain", ledger + "queue = 'mails'" + failed},
      {"ledger.worker", "ledger_row_is_whole", ledger + "worker = NULL" + failed},
      {"ledger.result", "ledger_row_is_whole", ledger + "result = '1'" + failed},
      {"ledger.priority", "ledger_row_is_whole", ledger + "priority = NULL" + succeeded},
      {"ledger.delivery", "ledger_row_is_whole", ledger + "delivery = NULL" + succeeded},
      {"ledger.encoding", "ledger_row_is_whole", ledger + "encoding = NULL" + succeeded},
      {"ledger.created_at", "ledger_row_is_whole", ledger + "created_at = NULL" + succeeded},
      {"ledger.run_at", "ledger_row_is_whole", ledger + "run_at = NULL" + succeeded},
      {"ledger.kind", "ledger_row_is_whole", ledger + "kind = NULL" + succeeded},
      {"ledger.kind of no end", "ledger_row_is_whole", ledger + "kind = 'k'" + failed},
      {"ledger.payload", "ledger_row_is_whole", ledger + "payload = NULL" + succeeded},
      {"effects.token", "effects_have_a_lease", effects + "token = 7 WHERE key = 'send'"},
      {"effects.recorded_at", "effect_row_is_sound", effects + "recorded_at = NULL WHERE key = 'mail'"},
      {"effects.forgotten_at", "effect_row_is_sound", effects + "forgotten_at = NULL WHERE key = 'charge'"},
      {"effects.forgotten_at of a recorded one", "effect_row_is_sound",
       effects + "forgotten_at = faultline.clock() WHERE key = 'mail'"},
      {"effects.result", "effect_row_is_sound", effects + "result = '1' WHERE key = 'send'"},
      {"effects gone", "effect_row_is_sound", "DELETE FROM faultline.effects WHERE key = 'mail'"},
      {"decisions.happened", "effect_row_is_sound", decisions + "happened = false WHERE key = 'mail'"},
      {"decisions.token", "effect_row_is_sound", decisions + "token = 9 WHERE key = 'mail'"},
      {"keys.queue", "keys_follow_jobs", keys + "queue = 'default'"},
      {"keys.job_id", "keys_follow_jobs", keys + "job_id = '" + dead_.to_string() + "'"},
      {"keys.fingerprint", "keys_follow_jobs", keys + "fingerprint = ''"},
      {"keys gone", "job_has_its_key", "DELETE FROM faultline.idempotency_keys"},
      {"evidence.job_id", "evidence_has_a_job", evidence + "job_id = gen_random_uuid()"},
      {"evidence.current_token", "evidence_has_a_job", evidence + "current_token = 99"},
      {"grants.job_ids", "lease_is_watched", "UPDATE faultline.grants SET job_ids = '{}'"},
      {"grants.check_at", "lease_is_watched", "UPDATE faultline.grants SET check_at = 'infinity'"},
      {"queues gone, with finished jobs", "job_has_a_queue",
       "DELETE FROM faultline.queues WHERE name = 'default'"},
      {"retention gone", "bucket_is_whole", "DELETE FROM faultline.retention"},
      {"ballast gone", "bucket_is_whole", "DELETE FROM faultline.jobs WHERE queue = ''"},
      {"ballast to run", "bucket_is_whole", jobs + "run_at = faultline.clock() WHERE queue = ''"},
      {"tallies.retrying", "tallies_are_the_counts",
       "INSERT INTO faultline.tallies (bucket, queue, retrying) VALUES (0, 'mails', 1)"},
      {"tallies.failures", "tallies_are_the_counts",
       "INSERT INTO faultline.tallies (bucket, queue, failures) VALUES (0, 'mails', -9)"},
  };
  for (const Corruption& corruption : corruptions) {
    SCOPED_TRACE(corruption.name);
    script(corruption.sql);
    const audit::Report report = audit_of(sql_, 1);
    EXPECT_THAT(report.checks, Contains(AllOf(Field(&audit::Check::name, corruption.check),
                                              Field(&audit::Check::violations, ::testing::Gt(0)))))
        << ::testing::PrintToString(broken(report));
    for (const std::string& table : tables)
      script("DELETE FROM faultline." + table + "; INSERT INTO faultline." + table +
             " OVERRIDING SYSTEM VALUE SELECT * FROM saved." + table);
  }
  EXPECT_THAT(broken(audit_of(sql_)), IsEmpty()) << "all is as it was";
}

TEST_F(BrokenTest, all_are_counted_and_as_many_named_as_were_asked_for) {
  enqueue_many(5);
  script("UPDATE faultline.jobs SET cancel_requested_at = faultline.clock() WHERE queue = 'default'");
  for (const std::size_t examples : {std::size_t{0}, std::size_t{3}, std::size_t{100}}) {
    const auto report = audit_of(sql_, examples);
    const auto check = std::ranges::find(report.checks, "cancel_of_running", &audit::Check::name);
    EXPECT_EQ(check->violations, 7);
    EXPECT_THAT(check->examples, SizeIs(std::min<std::size_t>(examples, 7)));
    EXPECT_EQ(report.violations(), 7);
  }
}

// ---- Who runs what

TEST_F(BrokenTest, running_jobs_are_told_by_worker_with_the_lease_that_ends_first) {
  advance(std::chrono::seconds{1});
  enqueue_many(2);
  claim("w-later", 2);

  const auto workers = must(audit::leases_by_worker(sql_, 10, soon()));

  ASSERT_THAT(workers, SizeIs(2));
  EXPECT_EQ(workers[0].worker, "w-running");
  EXPECT_THAT(workers[0].queues, ElementsAre("mails"));
  EXPECT_EQ(workers[1].worker, "w-later");
  EXPECT_EQ(workers[1].running, 2);
  EXPECT_EQ(workers[1].first_expiry - workers[1].oldest_claim, kTtl);
}

}  // namespace
}  // namespace faultline::testing

// The fenced transaction: a handler's own writes and its job's settlement commit together or not at all.

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include <gmock/gmock.h>
#include <libpq-fe.h>

#include "pg/wire_proxy.h"
#include "store/fixture.h"
#include "store/unreachable.h"
#include "support/pgbouncer.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;

class TransactionTest : public StoreTest {
 protected:
  TransactionTest() {
    script(
        "CREATE TABLE accounts (name text PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0));"
        "INSERT INTO accounts VALUES ('a', 100), ('b', 0);"
        "CREATE TABLE transfers (job uuid, note text)");
  }

  Lease lease() {
    enqueue();
    return claim_one("A").lease;
  }
  static void transfer(Transaction& tx, const Lease& lease) {
    tx.exec("UPDATE accounts SET balance = balance - $1 WHERE name = 'a'", {10});
    tx.exec("UPDATE accounts SET balance = balance + $1 WHERE name = 'b'", {10});
    tx.exec("INSERT INTO transfers VALUES ($1, $2)", {lease.job, "transfer"});
  }
  Verdict transact(const Lease& lease) {
    return must(store_.transact(lease, [&](Transaction& tx) {
      transfer(tx, lease);
      return Outcome::success("done");
    }));
  }
  std::int64_t transfers() { return number("SELECT count(*) FROM transfers"); }
  std::int64_t balance_of_b() { return number("SELECT balance FROM accounts WHERE name = 'b'"); }
  std::int64_t ledger_rows() { return number("SELECT count(*) FROM faultline.ledger"); }
  void expect_nothing_written() {
    EXPECT_EQ(transfers(), 0);
    EXPECT_EQ(balance_of_b(), 0);
  }
  void expect_stale(const Verdict& verdict, StaleReason reason) {
    EXPECT_EQ(verdict.status, Verdict::Status::stale);
    EXPECT_EQ(to_string(verdict.stale.reason), to_string(reason));
  }
};

// ---- Values and rows

TEST_F(TransactionTest, ids_tokens_moments_and_durations_go_in_and_come_back) {
  using namespace std::chrono_literals;
  const Lease mine = lease();
  const auto moment = std::chrono::sys_days{2031y / 1 / 2} + 3h + 4us;
  EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                const Rows rows = tx.exec(
                    "SELECT $1::uuid AS job, $2::uuid AS lease, $3::bigint AS token, $4::timestamptz = "
                    "$5::timestamptz AS same,"
                    " extract(epoch FROM $6::interval)::float8 AS seconds, $4::timestamptz AT TIME ZONE "
                    "'UTC' AS moment,"
                    " $7::bigint AS none",
                    {mine.job, mine.lease_id, mine.token, moment, DatabaseClock::from_sys(moment), 90'500ms,
                     std::optional<FenceToken>{}});
                EXPECT_EQ(rows[0].get<JobId>("job"), mine.job);
                EXPECT_EQ(rows[0].get<Uuid>("lease"), mine.lease_id);
                EXPECT_EQ(rows[0].get<FenceToken>("token"), mine.token);
                EXPECT_TRUE(rows[0].get<bool>("same"));
                EXPECT_EQ(rows[0].get<double>("seconds"), 90.5);
                EXPECT_EQ(rows[0].text("moment"), "2031-01-02 03:00:00.000004");
                EXPECT_EQ(rows[0].get<std::optional<FenceToken>>("none"), std::nullopt);
                EXPECT_EQ(rows[0].get<std::optional<FenceToken>>("token"), mine.token);
                return Outcome::success();
              })).committed());
}

TEST_F(TransactionTest, rows_are_read_one_after_another_and_columns_by_their_names) {
  const Lease mine = lease();
  EXPECT_TRUE(
      must(store_.transact(mine, [&](Transaction& tx) {
        std::vector<std::pair<int, std::string>> read;
        for (const Row row : tx.exec("SELECT n, 'row ' || n AS name FROM generate_series(1, 3) AS n"))
          read.emplace_back(row.get<int>("n"), row.get<std::string>(1));
        EXPECT_EQ(read, (std::vector<std::pair<int, std::string>>{{1, "row 1"}, {2, "row 2"}, {3, "row 3"}}));
        const Rows rows = tx.exec("SELECT 1 AS n");
        EXPECT_EQ(rows.column("n"), 0U);
        EXPECT_THROW(static_cast<void>(rows.column("nn")), std::out_of_range);
        EXPECT_THROW(static_cast<void>(rows[1]), std::out_of_range);
        EXPECT_THROW(static_cast<void>(rows[0].get<Uuid>("n")), std::invalid_argument);
        EXPECT_EQ(std::ranges::distance(tx.exec("SELECT 1 WHERE false")), 0);
        return Outcome::success();
      })).committed());
}

TEST_F(TransactionTest, a_key_that_is_another_jobs_is_thrown) {
  const JobId owner = must(store_.enqueue({.kind = "next", .idempotency_key = "k"})).job;
  const Lease mine = lease();
  const auto add = [&](const std::function<void(Transaction&)>& body) {
    try {
      (void)store_.transact(mine, [&](Transaction& tx) {
        body(tx);
        return Outcome::success();
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const SqlError& error) {
      EXPECT_EQ(error.sqlstate(), "FL409");
      EXPECT_THAT(error.what(), HasSubstr(owner.to_string()));
    }
  };
  const NewJob other{.kind = "other", .idempotency_key = "k"};
  add([&](Transaction& tx) { tx.enqueue(other); });
  add([&](Transaction& tx) { tx.enqueue({{.kind = "plain"}, other}); });
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'plain'"), 0);
}

// ---- Together

TEST_F(TransactionTest, the_bodys_writes_and_the_settlement_commit_together) {
  const Lease mine = lease();

  EXPECT_TRUE(transact(mine).committed());

  EXPECT_EQ(balance_of_b(), 10);
  EXPECT_EQ(transfers(), 1);
  EXPECT_EQ(job(mine.job).state, JobState::succeeded);
  EXPECT_EQ(job(mine.job).result, "done");
  EXPECT_EQ(number("SELECT count(DISTINCT xmin::text) FROM (SELECT xmin FROM transfers UNION ALL"
                   " SELECT xmin FROM faultline.ledger) AS rows"),
            1);
  EXPECT_TRUE(history(mine.job).stale_writes.empty());
}

TEST_F(TransactionTest, every_outcome_that_the_body_returns_is_the_attempts) {
  const std::vector<std::pair<Outcome, JobState>> outcomes{
      {Outcome::success(), JobState::succeeded},   {Outcome::failure("f", ms{60'000}), JobState::scheduled},
      {Outcome::bury("b"), JobState::dead},        {Outcome::snooze(ms{60'000}), JobState::scheduled},
      {Outcome::cancel("c"), JobState::cancelled}, {Outcome::release(), JobState::available},
  };
  std::int64_t rows = 0;
  for (const auto& [outcome, state] : outcomes) {
    const Lease mine = lease();
    EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                  transfer(tx, mine);
                  return outcome;
                })).committed());
    EXPECT_EQ(job(mine.job).state, state) << to_string(outcome.kind);
    EXPECT_EQ(history(mine.job).attempts.at(0).outcome, to_string(outcome.kind));
    EXPECT_EQ(transfers(), ++rows);
  }
}

TEST_F(TransactionTest, jobs_that_the_body_adds_exist_if_and_only_if_it_commits) {
  const Lease mine = lease();
  JobId follower;
  EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                follower = tx.enqueue({.kind = "next", .priority = 9}).job;
                const std::vector<NewJob> more{{.kind = "next", .priority = 9},
                                               {.kind = "next", .idempotency_key = "k"}};
                EXPECT_EQ(tx.enqueue(more).size(), 2U);
                EXPECT_FALSE(must(store_.job(follower)).has_value()) << "nobody sees it before the commit";
                return Outcome::success();
              })).committed());
  EXPECT_EQ(job(follower).state, JobState::available);
  EXPECT_EQ(counts().available, 3);

  const Lease late = claim_one("A").lease;
  advance(kTtl);
  static_cast<void>(
      must(store_.transact(late, [&](Transaction&) -> Outcome { throw std::logic_error("not reached"); })));
  EXPECT_THROW(static_cast<void>(store_.transact(lease(),
                                                 [&](Transaction& tx) -> Outcome {
                                                   tx.enqueue({.kind = "undone"});
                                                   throw std::runtime_error("undo");
                                                 })),
               std::runtime_error);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'undone'"), 0);
}

TEST_F(TransactionTest, a_job_that_is_not_valid_is_refused_and_the_transaction_goes_on) {
  const Lease mine = lease();
  EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                EXPECT_THROW(tx.enqueue({.kind = ""}), std::invalid_argument);
                EXPECT_THROW(tx.enqueue({.queue = "nowhere", .kind = "k"}), std::invalid_argument);
                transfer(tx, mine);
                return Outcome::success();
              })).committed());
  EXPECT_EQ(transfers(), 1);
}

// ---- Or not at all

TEST_F(TransactionTest, a_lease_that_has_expired_is_refused_before_the_body_runs) {
  const Lease mine = lease();
  advance(kTtl);
  bool ran = false;

  const Verdict verdict = must(store_.transact(mine, [&](Transaction&) {
    ran = true;
    return Outcome::success();
  }));

  expect_stale(verdict, StaleReason::lease_expired);
  EXPECT_FALSE(ran);
  ASSERT_EQ(history(mine.job).stale_writes.size(), 1U);
  EXPECT_EQ(history(mine.job).stale_writes[0].verb, "complete");
}

TEST_F(TransactionTest, writes_of_a_body_whose_lease_expires_meanwhile_are_rolled_back) {
  const Lease mine = lease();

  const Verdict verdict = must(store_.transact(mine, [&](Transaction& tx) {
    transfer(tx, mine);
    advance(kTtl);
    return Outcome::failure("too late");
  }));

  expect_stale(verdict, StaleReason::lease_expired);
  expect_nothing_written();
  EXPECT_EQ(ledger_rows(), 0);
  ASSERT_EQ(history(mine.job).stale_writes.size(), 1U);
  EXPECT_EQ(history(mine.job).stale_writes[0].verb, "fail");
}

TEST_F(TransactionTest, writes_of_a_body_whose_job_another_worker_finished_meanwhile_are_rolled_back) {
  must(store_.set_queue("default", {.backoff_base = ms{0}}));
  const Lease mine = lease();

  const Verdict verdict = must(store_.transact(mine, [&](Transaction& tx) {
    transfer(tx, mine);
    advance(kTtl);
    EXPECT_EQ(sweep().size(), 1U);
    const Lease successor = claim_one("B").lease;
    EXPECT_EQ(successor.token, FenceToken{2});
    EXPECT_TRUE(settle(successor, Outcome::success("by B")).committed());
    return Outcome::success("by A");
  }));

  expect_stale(verdict, StaleReason::token_mismatch);
  EXPECT_EQ(verdict.stale.current_token, FenceToken{2});
  expect_nothing_written();
  EXPECT_EQ(job(mine.job).result, "by B");
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger WHERE outcome = 'succeeded'"), 1);
  EXPECT_EQ(history(mine.job).stale_writes.size(), 1U);
}

TEST_F(TransactionTest, a_reissued_token_with_another_lease_id_commits_nothing) {
  Lease reissued = lease();
  reissued.lease_id = Uuid::random();
  expect_stale(transact(reissued), StaleReason::token_mismatch);
  expect_nothing_written();
}

TEST_F(TransactionTest, an_expiry_that_falls_into_a_wait_for_the_jobs_row_rolls_the_body_back) {
  const Lease mine = lease();
  std::atomic<bool> body_done = false;
  Verdict verdict;
  script("BEGIN; SELECT FROM faultline.jobs WHERE id = '" + mine.job.to_string() + "' FOR UPDATE");
  std::jthread worker{[&] {
    verdict = must(store_.transact(mine, [&](Transaction& tx) {
      transfer(tx, mine);
      body_done = true;
      return Outcome::success();
    }));
  }};
  auto watcher = database_.connect();
  ASSERT_TRUE(eventually([&] {
    return body_done && query_text(watcher,
                                   "SELECT count(*)::text FROM pg_stat_activity WHERE datname = "
                                   "current_database() AND wait_event_type = 'Lock'") == "1";
  }));

  advance(kTtl);
  script("COMMIT");
  worker.join();

  expect_stale(verdict, StaleReason::lease_expired);
  expect_nothing_written();
  EXPECT_EQ(ledger_rows(), 0);
}

TEST_F(TransactionTest, a_job_that_is_to_be_cancelled_cannot_succeed_and_ends_as_cancelled) {
  const Lease mine = lease();

  const Verdict verdict = must(store_.transact(mine, [&](Transaction& tx) {
    transfer(tx, mine);
    EXPECT_EQ(cancel(mine.job), CancelStatus::requested);
    return Outcome::success();
  }));

  expect_stale(verdict, StaleReason::cancelled);
  expect_nothing_written();
  EXPECT_EQ(job(mine.job).state, JobState::cancelled);
}

TEST_F(TransactionTest, a_body_may_undo_things_and_carry_out_a_cancellation) {
  const Lease mine = lease();
  EXPECT_EQ(cancel(mine.job), CancelStatus::requested);

  EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                transfer(tx, mine);
                return Outcome::cancel("as asked");
              })).committed());

  EXPECT_EQ(transfers(), 1);
  EXPECT_EQ(job(mine.job).state, JobState::cancelled);
}

TEST_F(TransactionTest, an_exception_of_the_body_rolls_back_and_flies_on) {
  const Lease mine = lease();
  struct Odd {
    int number;
  };
  try {
    static_cast<void>(store_.transact(mine, [&](Transaction& tx) -> Outcome {
      transfer(tx, mine);
      throw Odd{7};
    }));
    FAIL() << "nothing was thrown";
  } catch (const Odd& odd) {
    EXPECT_EQ(odd.number, 7);
  }
  expect_nothing_written();
  EXPECT_EQ(job(mine.job).state, JobState::running);
  EXPECT_TRUE(transact(mine).committed()) << "the attempt goes on";
}

TEST_F(TransactionTest, an_outcome_that_is_not_valid_commits_nothing) {
  const Lease mine = lease();
  Store small = open_store({.payload_bytes_max = 10});
  const auto verdict = small.transact(mine, [&](Transaction& tx) {
    transfer(tx, mine);
    return Outcome::success("more than ten bytes");
  });
  EXPECT_EQ(verdict.error().code, ErrorCode::payload_too_large);
  expect_nothing_written();
  EXPECT_EQ(job(mine.job).state, JobState::running);
}

// ---- Errors of the body's SQL

TEST_F(TransactionTest, a_refused_statement_throws_with_its_sqlstate_and_rolls_everything_back) {
  const Lease mine = lease();
  try {
    static_cast<void>(store_.transact(mine, [&](Transaction& tx) {
      transfer(tx, mine);
      tx.exec("UPDATE accounts SET balance = -1");
      return Outcome::success();
    }));
    FAIL() << "nothing was thrown";
  } catch (const SqlError& error) {
    EXPECT_EQ(error.sqlstate(), "23514");
    EXPECT_THAT(error.what(), HasSubstr("balance"));
  }
  expect_nothing_written();
}

TEST_F(TransactionTest, a_body_that_swallows_a_refused_statement_is_told_and_settles_nothing) {
  const Lease mine = lease();
  const auto verdict = store_.transact(mine, [&](Transaction& tx) {
    transfer(tx, mine);
    EXPECT_THROW(tx.exec("SELECT 1 / 0"), SqlError);
    EXPECT_THROW(tx.exec("SELECT 1"), SqlError);
    return Outcome::success();
  });
  ASSERT_FALSE(verdict.has_value());
  EXPECT_EQ(verdict.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(verdict.error().message, HasSubstr("division by zero"));
  expect_nothing_written();
  EXPECT_EQ(job(mine.job).state, JobState::running);
}

TEST_F(TransactionTest, a_savepoint_saves_the_transaction_from_a_refused_statement) {
  const Lease mine = lease();
  EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                transfer(tx, mine);
                tx.exec("SAVEPOINT before");
                EXPECT_THROW(tx.exec("INSERT INTO accounts VALUES ('a', 1)"), SqlError);
                tx.exec("ROLLBACK TO SAVEPOINT before");
                tx.exec("ROLLBACK WORK TO before");
                return Outcome::success();
              })).committed());
  EXPECT_EQ(transfers(), 1);
}

TEST_F(TransactionTest, a_deferred_constraint_that_fails_at_the_commit_throws_and_settles_nothing) {
  script("ALTER TABLE transfers ADD UNIQUE (note) DEFERRABLE INITIALLY DEFERRED");
  const Lease mine = lease();
  try {
    static_cast<void>(store_.transact(mine, [&](Transaction& tx) {
      transfer(tx, mine);
      transfer(tx, mine);
      return Outcome::success();
    }));
    FAIL() << "nothing was thrown";
  } catch (const SqlError& error) {
    EXPECT_EQ(error.sqlstate(), "23505");
  }
  expect_nothing_written();
  EXPECT_EQ(job(mine.job).state, JobState::running);
}

// ---- The transaction is the store's to end

TEST_F(TransactionTest, statements_that_end_the_transaction_are_refused_and_it_stays_fenced) {
  const Lease mine = lease();
  const std::vector<std::string> endings{"COMMIT",        "commit and chain",
                                         " END;",         "ROLLBACK",
                                         "rollback work", "ABORT",
                                         "-- x\nCOMMIT",  "/* a /* b */ */ COMMIT",
                                         ";COMMIT",       "PREPARE TRANSACTION 'x'"};
  const Verdict verdict = must(store_.transact(mine, [&](Transaction& tx) {
    transfer(tx, mine);
    for (const std::string& ending : endings) EXPECT_THROW(tx.exec(ending), SqlError) << ending;
    advance(kTtl);
    return Outcome::success();
  }));
  expect_stale(verdict, StaleReason::lease_expired);
  expect_nothing_written();
}

TEST_F(TransactionTest, a_body_that_ends_the_transaction_behind_the_stores_back_settles_nothing) {
  for (const std::string ending : {"COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN",
                                   "COMMIT; BEGIN; INSERT INTO transfers VALUES (NULL, 'second')"}) {
    SCOPED_TRACE(ending);
    script("TRUNCATE transfers");
    const Lease mine = lease();

    const auto verdict = store_.transact(mine, [&](Transaction& tx) {
      transfer(tx, mine);
      PQclear(PQexec(tx.native_handle(), ending.c_str()));
      return Outcome::success();
    });

    ASSERT_FALSE(verdict.has_value());
    EXPECT_EQ(verdict.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(verdict.error().message, HasSubstr("ended its transaction"));
    EXPECT_EQ(job(mine.job).state, JobState::running);
    EXPECT_EQ(number("SELECT count(*) FROM transfers WHERE note = 'second'"), 0);
    EXPECT_TRUE(transact(mine).committed()) << "the attempt goes on";
  }
}

TEST_F(TransactionTest, nothing_is_run_outside_of_the_transaction) {
  const Lease mine = lease();
  EXPECT_THROW(static_cast<void>(store_.transact(mine,
                                                 [&](Transaction& tx) {
                                                   PQclear(PQexec(tx.native_handle(), "ROLLBACK"));
                                                   transfer(tx, mine);
                                                   return Outcome::success();
                                                 })),
               SqlError);
  expect_nothing_written();
}

TEST_F(TransactionTest, a_connection_that_is_left_in_the_middle_of_a_statement_is_not_used_again) {
  Store one = open_store({.transactions_max = 1});
  const Lease mine = lease();
  const auto verdict = one.transact(mine, [&](Transaction& tx) {
    PQsendQuery(tx.native_handle(), "SELECT 1");
    return Outcome::success();
  });
  EXPECT_FALSE(verdict.has_value());
  EXPECT_TRUE(must(one.transact(mine, [](Transaction&) { return Outcome::success(); })).committed());
}

TEST_F(TransactionTest, libpq_code_works_in_the_same_transaction) {
  const Lease mine = lease();
  EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                auto* raw = tx.native_handle();
                PQclear(PQexec(raw, "INSERT INTO transfers VALUES (NULL, 'by libpq')"));
                EXPECT_EQ(tx.exec("SELECT count(*) FROM transfers").get<int>(0, 0), 1);
                return Outcome::success();
              })).committed());
  EXPECT_EQ(transfers(), 1);
}

// ---- Again from the beginning

TEST_F(TransactionTest, a_body_that_is_the_victim_of_a_deadlock_runs_again_and_has_its_effects_once) {
  const Lease mine = lease();
  auto watcher = database_.connect();
  // A waiting session looks for a deadlock once. The other one waits first and never looks: the body is the
  // victim.
  script("SET deadlock_timeout = '1h'; BEGIN; UPDATE accounts SET balance = balance WHERE name = 'b'");
  std::jthread other;
  int runs = 0;

  const Verdict verdict = must(store_.transact(mine, [&](Transaction& tx) {
    tx.exec("SET LOCAL deadlock_timeout = '10ms'");
    tx.exec("UPDATE accounts SET balance = balance WHERE name = 'a'");
    if (++runs == 1) {
      other = std::jthread{[&] { script("UPDATE accounts SET balance = balance WHERE name = 'a'; COMMIT"); }};
      EXPECT_TRUE(eventually([&] {
        return query_text(watcher,
                          "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database()"
                          " AND wait_event_type = 'Lock'") == "1";
      }));
    }
    transfer(tx, mine);
    return Outcome::success();
  }));
  other.join();

  EXPECT_TRUE(verdict.committed());
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(balance_of_b(), 10);
  EXPECT_EQ(transfers(), 1);
  EXPECT_EQ(ledger_rows(), 1);
}

TEST_F(TransactionTest, a_body_whose_connection_is_ended_runs_again_although_it_wrapped_the_error) {
  const Lease mine = lease();
  int runs = 0;
  EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                transfer(tx, mine);
                if (++runs == 1) {
                  script("SELECT pg_terminate_backend(" +
                         std::string{*tx.exec("SELECT pg_backend_pid()").text(0, 0)} + ", 10000)");
                }
                try {
                  tx.exec("SELECT 1");
                } catch (const SqlError& error) {
                  throw std::runtime_error(error.what());
                }
                return Outcome::success();
              })).committed());
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(balance_of_b(), 10);
  EXPECT_EQ(transfers(), 1);
}

TEST_F(TransactionTest, a_body_that_deallocates_prepared_statements_does_no_harm) {
  for (int i = 0; i < 3; ++i) {
    const Lease mine = lease();
    EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                  tx.exec("DEALLOCATE ALL");
                  transfer(tx, mine);
                  return Outcome::success();
                })).committed());
  }
  EXPECT_EQ(transfers(), 3);
}

TEST_F(TransactionTest, a_database_that_keeps_failing_is_given_up_with_the_bodys_exception) {
  Store hasty = open_store({.call_timeout = ms{2'000}});
  const Lease mine = lease();
  int runs = 0;
  EXPECT_THROW(static_cast<void>(hasty.transact(mine,
                                                [&](Transaction& tx) {
                                                  ++runs;
                                                  tx.exec("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$");
                                                  return Outcome::success();
                                                })),
               SqlError);
  EXPECT_GT(runs, 1);
  EXPECT_EQ(job(mine.job).state, JobState::running);
}

// ---- Beside it

TEST_F(TransactionTest, heartbeats_and_progress_pass_while_a_body_runs) {
  const Lease mine = lease();
  EXPECT_TRUE(must(store_.transact(mine, [&](Transaction& tx) {
                transfer(tx, mine);
                advance(kTtl - ms{1});
                EXPECT_EQ(heartbeat(mine).status, Beat::Status::renewed);
                const ProgressReport half{.lease = mine, .fraction = 0.5};
                EXPECT_TRUE(must(store_.progress({&half, 1})).at(0).committed());
                advance(kTtl - ms{1});
                return Outcome::success();
              })).committed());
  EXPECT_EQ(transfers(), 1);
}

TEST_F(TransactionTest, the_body_is_planned_as_the_database_says_and_the_settlement_as_the_store_says) {
  script(
      "CREATE TABLE public.seen (seqscan text, plan_mode text, durable text);"
      "CREATE FUNCTION note_settings() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen "
      "VALUES ("
      " current_setting('enable_seqscan'), current_setting('plan_cache_mode'),"
      " current_setting('synchronous_commit')); RETURN NULL; END $$;"
      "CREATE TRIGGER note BEFORE DELETE ON faultline.jobs FOR EACH STATEMENT EXECUTE FUNCTION "
      "note_settings()");
  Store one = open_store({.transactions_max = 1});
  for (int i = 0; i < 2; ++i) {
    const Lease mine = lease();
    EXPECT_TRUE(must(one.transact(mine, [&](Transaction& tx) {
                  EXPECT_EQ(tx.exec("SHOW enable_seqscan").get<std::string>(0, 0), "on");
                  EXPECT_EQ(tx.exec("SHOW plan_cache_mode").get<std::string>(0, 0), "auto");
                  EXPECT_EQ(tx.exec("SHOW transaction_isolation").get<std::string>(0, 0), "read committed");
                  tx.exec("SET LOCAL synchronous_commit = off");
                  return Outcome::success();
                })).committed());
  }
  EXPECT_EQ(number("SELECT count(*) FROM seen WHERE seqscan = 'off' AND plan_mode = 'force_generic_plan'"
                   " AND durable = 'on'"),
            2);
}

TEST_F(TransactionTest, transactions_at_once_are_bounded_and_take_turns) {
  Store store = open_store({.transactions_max = 2});
  enqueue_many(8);
  const auto jobs = claim("A", 8);
  std::atomic<int> now = 0;
  std::atomic<int> most = 0;
  {
    std::vector<std::jthread> workers;
    for (const ClaimedJob& each : jobs) {
      workers.emplace_back([&] {
        EXPECT_TRUE(must(store.transact(each.lease, [&](Transaction& tx) {
                      const int running = ++now;
                      int seen = most;
                      while (running > seen && !most.compare_exchange_weak(seen, running)) {
                      }
                      transfer(tx, each.lease);
                      --now;
                      return Outcome::success();
                    })).committed());
      });
    }
  }
  EXPECT_LE(most, 2);
  EXPECT_EQ(transfers(), 8);
  EXPECT_EQ(balance_of_b(), 80);
}

TEST_F(TransactionTest, what_a_transaction_gives_back_is_found_at_once) {
  enqueue_many(3);
  const Lease first = claim_one("A").lease;
  EXPECT_TRUE(must(store_.transact(first, [](Transaction&) { return Outcome::release(); })).committed());
  EXPECT_EQ(claim_one("A").lease.job, first.job);
}

// ---- Values

TEST_F(TransactionTest, values_go_there_and_come_back) {
  const Lease mine = lease();
  const std::string unicode = "Zoë 🦀 'quoted' \\ \n";
  static_cast<void>(must(store_.transact(mine, [&](Transaction& tx) {
    const Rows rows = tx.exec(
        "SELECT $1::text, $2::bigint, $3::float8, $4::boolean, $5::text, $6::uuid, $7::int, $8::smallint, "
        "$9::numeric",
        {unicode, std::numeric_limits<std::int64_t>::min(), 0.1, true, nullptr, mine.job,
         std::optional<int>{}, std::optional<short>{short{-3}}, 1e300});
    EXPECT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows.columns(), 9U);
    EXPECT_EQ(rows.get<std::string>(0, 0), unicode);
    EXPECT_EQ(rows.get<std::int64_t>(0, 1), std::numeric_limits<std::int64_t>::min());
    EXPECT_EQ(rows.get<double>(0, 2), 0.1);
    EXPECT_TRUE(rows.get<bool>(0, 3));
    EXPECT_EQ(rows.text(0, 4), std::nullopt);
    EXPECT_EQ(rows.get<std::string>(0, 5), mine.job.to_string());
    EXPECT_EQ(rows.text(0, 6), std::nullopt);
    EXPECT_EQ(rows.get<int>(0, 7), -3);
    EXPECT_EQ(rows.get<double>(0, 8), 1e300);
    EXPECT_THROW(static_cast<void>(rows.get<std::string>(0, 4)), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(rows.get<int>(0, 0)), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(rows.get<std::int16_t>(0, 1)), std::invalid_argument);
    EXPECT_THROW(static_cast<void>(rows.text(1, 0)), std::out_of_range);
    EXPECT_THROW(static_cast<void>(rows.text(0, 9)), std::out_of_range);

    const Rows special = tx.exec("SELECT $1::float8, $2::float8, $3::float8 = 'NaN'",
                                 {std::numeric_limits<double>::infinity(), -0.0, std::nan("")});
    EXPECT_EQ(special.get<double>(0, 0), std::numeric_limits<double>::infinity());
    EXPECT_TRUE(std::signbit(special.get<double>(0, 1)));
    EXPECT_TRUE(special.get<bool>(0, 2));

    EXPECT_THROW(tx.exec("SELECT $1", {std::string_view{"a\0b", 3}}), std::invalid_argument);
    const std::vector<SqlParam> many(1'000, SqlParam{1});
    std::string sum = "SELECT 0";
    for (std::size_t i = 1; i <= many.size(); ++i) sum += " + $" + std::to_string(i) + "::int";
    EXPECT_EQ(tx.exec(sum, many).get<int>(0, 0), 1'000);
    return Outcome::success();
  })));
}

TEST_F(TransactionTest, many_rows_come_back_and_outlive_the_transaction) {
  const Lease mine = lease();
  Rows rows;
  EXPECT_EQ(rows.size(), 0U);
  static_cast<void>(must(store_.transact(mine, [&](Transaction& tx) {
    rows = tx.exec("SELECT i, repeat('x', 50) FROM generate_series(1, 20000) AS i");
    EXPECT_EQ(
        tx.exec("INSERT INTO transfers SELECT NULL, i::text FROM generate_series(1, 7) AS i").affected(), 7U);
    EXPECT_TRUE(tx.exec("DELETE FROM transfers WHERE false").empty());
    return Outcome::success();
  })));
  ASSERT_EQ(rows.size(), 20'000U);
  EXPECT_EQ(rows.get<int>(19'999, 0), 20'000);
}

TEST_F(TransactionTest, a_copy_is_refused) {
  const Lease mine = lease();
  EXPECT_THROW(static_cast<void>(store_.transact(mine,
                                                 [&](Transaction& tx) {
                                                   tx.exec("COPY transfers FROM STDIN");
                                                   return Outcome::success();
                                                 })),
               SqlError);
  EXPECT_TRUE(transact(mine).committed());
}

TEST_F(TransactionTest, a_lease_that_no_claim_gave_is_refused) {
  EXPECT_EQ(store_.transact({}, [](Transaction&) { return Outcome::success(); }).error().code,
            ErrorCode::invalid_argument);
}

// ---- Lost answers

class LostTransactionTest : public TransactionTest {
 protected:
  Store open_far(ms call_timeout = ms{30'000}) {
    return must(Store::open({.database = proxy_.dsn(),
                             .application_name = "far",
                             .transactions_max = 1,
                             .call_timeout = call_timeout}));
  }
  /// What a job's transfer does beside counting how often it was run.
  Verdict transact_far(Store& far, const Lease& lease, int& runs) {
    return must(far.transact(lease, [&](Transaction& tx) {
      ++runs;
      transfer(tx, lease);
      return Outcome::success("r");
    }));
  }

  WireProxy proxy_{database_.dsn()};
};

TEST_F(LostTransactionTest, a_transaction_that_is_cut_anywhere_happens_once) {
  Store far = open_far();
  script("UPDATE accounts SET balance = 10000 WHERE name = 'a'");
  int expected = 0;
  const auto survive = [&](const std::function<void()>& arm) {
    const Lease mine = lease();
    // Opens the connection, if the last cut has left none.
    EXPECT_THROW(static_cast<void>(far.transact(mine, [](Transaction&) -> Outcome { throw 0; })), int);
    arm();
    int runs = 0;

    EXPECT_TRUE(transact_far(far, mine, runs).committed());

    EXPECT_EQ(transfers(), ++expected);
    EXPECT_EQ(number("SELECT count(*) FROM transfers WHERE job = '" + mine.job.to_string() + "'"), 1);
    EXPECT_EQ(ledger_rows(), expected);
    proxy_.cut_after('S', 1'000'000);  // what was not reached is called off
    return runs;
  };
  for (int round = 0; round < 5; ++round) {
    // BEGIN, three statements, the settlement, COMMIT: each is done, and its answer lost.
    for (int nth = 1; nth <= 6; ++nth) {
      SCOPED_TRACE("answer " + std::to_string(nth));
      const int runs = survive([&] { proxy_.cut_after('S', nth); });
      EXPECT_EQ(runs, nth == 1 || nth == 6 ? 1 : 2);
    }
    // The parts of these messages that never arrive; the last is the COMMIT itself.
    for (int nth = 1; nth <= 9; ++nth) {
      SCOPED_TRACE("request " + std::to_string(nth));
      survive([&] { proxy_.cut_before('P', nth); });
    }
  }
  EXPECT_GE(proxy_.cuts(), 5 * (6 + 8));
  EXPECT_EQ(balance_of_b(), 10 * expected);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes"), 0);
}

TEST_F(LostTransactionTest, a_commit_whose_fate_cannot_be_asked_for_is_unknown_and_the_ledger_knows) {
  Store far = open_far(ms{3'000});
  for (const bool arrives : {true, false}) {
    SCOPED_TRACE(arrives ? "answer" : "request");
    const std::int64_t before = transfers();
    const Lease mine = lease();
    Verdict verdict;
    {
      std::optional<Unreachable> unreachable;
      verdict = must(far.transact(mine, [&](Transaction& tx) {
        transfer(tx, mine);
        unreachable.emplace(proxy_);
        // Only the transaction's own connection is left.
        script(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'far' AND state = 'idle'");
        // The settlement is sent first: the transaction's number, the statement that settles.
        arrives ? proxy_.cut_after('S', 2) : proxy_.cut_before('P', 3);
        return Outcome::success("r");
      }));
    }

    EXPECT_EQ(verdict.status, Verdict::Status::unknown);
    ASSERT_TRUE(eventually([&] { return arrives == (transfers() == before + 1); }));
    EXPECT_EQ(must(store_.resolve({&mine, 1}))[0],
              arrives ? std::optional{Outcome::Kind::succeeded} : std::nullopt);

    const Verdict again = transact(mine);

    EXPECT_EQ(again.committed(), !arrives);
    EXPECT_EQ(transfers(), before + 1);
  }
}

// ---- Through a pooler

class PooledTransactionTest : public TransactionTest {
 protected:
  PgBouncer bouncer_{database_.dsn()};
  Store pooled_{must(Store::open({.database = bouncer_.dsn()}))};
};

TEST_F(PooledTransactionTest, it_commits_together_and_rolls_back_together) {
  const Lease mine = lease();
  must(pooled_.enqueue({.kind = "the queue is known from now on"}));
  EXPECT_TRUE(must(pooled_.transact(mine, [&](Transaction& tx) {
                transfer(tx, mine);
                tx.enqueue({.kind = "next"});
                EXPECT_EQ(tx.exec("SHOW enable_seqscan").get<std::string>(0, 0), "on");
                EXPECT_EQ(tx.exec("SHOW idle_in_transaction_session_timeout").get<std::string>(0, 0), "1min");
                return Outcome::success();
              })).committed());
  EXPECT_EQ(transfers(), 1);
  EXPECT_EQ(job(mine.job).state, JobState::succeeded);

  const Lease late = claim_one("A").lease;
  expect_stale(must(pooled_.transact(late,
                                     [&](Transaction& tx) {
                                       transfer(tx, late);
                                       advance(kTtl);
                                       return Outcome::success();
                                     })),
               StaleReason::lease_expired);
  EXPECT_EQ(transfers(), 1);
}

}  // namespace
}  // namespace faultline::testing

// Submitting: the same key is the same job, whoever submits it and however often, and jobs come into being
// with the transaction that adds them, or not at all.

#include <barrier>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <libpq-fe.h>

#include "base/canonical_json.h"
#include "base/json_check.h"
#include "schema/migrator.h"
#include "store/fixture.h"
#include "store/ids.h"

namespace faultline::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Status = Submission::Status;

constexpr auto kTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

class IdempotencyTest : public StoreTest {
 protected:
  static NewJob keyed(std::string key, std::string payload = "1") {
    return {.kind = "k", .payload = std::move(payload), .idempotency_key = std::move(key)};
  }
  Submission submit(const NewJob& job) { return must(store_.enqueue(job)); }
  std::int64_t jobs() { return number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"); }

  /// What concurrent submitters are told, each in a thread and on a connection of its own.
  std::vector<Submission> submit_at_once(const std::vector<NewJob>& new_jobs) {
    Store store = open_store({.connections_max = new_jobs.size()});
    std::barrier together{static_cast<std::ptrdiff_t>(new_jobs.size())};
    std::vector<Submission> answers(new_jobs.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < new_jobs.size(); ++i) {
        threads.emplace_back([&, i] {
          together.arrive_and_wait();
          answers[i] = must(store.enqueue(new_jobs[i]));
        });
      }
    }
    return answers;
  }
};

TEST_F(IdempotencyTest, the_same_key_and_payload_is_the_job_that_is_there) {
  const Submission first = submit(keyed("a"));
  EXPECT_EQ(first.status, Status::created);
  for (int i = 0; i < 3; ++i) {
    const Submission again = submit(keyed("a"));
    EXPECT_EQ(again.status, Status::existing);
    EXPECT_EQ(again.job, first.job);
  }
  EXPECT_EQ(jobs(), 1);
  EXPECT_EQ(counts().available, 1);
  EXPECT_EQ(job(first.job).idempotency_key, "a");
}

TEST_F(IdempotencyTest, another_payload_kind_or_encoding_under_the_same_key_is_a_conflict_and_adds_nothing) {
  const Submission first = submit(keyed("a"));
  NewJob other_kind = keyed("a");
  other_kind.kind = "other";
  NewJob other_encoding = keyed("a");
  other_encoding.encoding = Encoding::bytes;
  // Kind and payload must not run into one another.
  NewJob shifted = keyed("a", "j1");
  shifted.encoding = Encoding::bytes;

  for (const NewJob& other : {keyed("a", "2"), keyed("a", "1.0"), other_kind, other_encoding, shifted}) {
    const Submission refused = submit(other);
    EXPECT_EQ(refused.status, Status::conflict);
    EXPECT_EQ(refused.job, first.job);
  }
  EXPECT_EQ(jobs(), 1);
  EXPECT_EQ(counts().available, 1);
  EXPECT_EQ(job(first.job).payload, "1");
}

TEST_F(IdempotencyTest, options_are_not_part_of_what_must_be_the_same) {
  const Submission first = submit(keyed("a"));
  NewJob urgent = keyed("a");
  urgent.priority = 0;
  urgent.delay = ms{60'000};

  EXPECT_EQ(submit(urgent).status, Status::existing);

  EXPECT_EQ(job(first.job).priority, 5);
}

TEST_F(IdempotencyTest, a_key_belongs_to_its_queue) {
  must(store_.set_queue("other", {}));
  const Submission here = submit(keyed("a"));
  NewJob there = keyed("a", "2");
  there.queue = "other";

  const Submission other = submit(there);

  EXPECT_EQ(other.status, Status::created);
  EXPECT_NE(other.job, here.job);
  EXPECT_EQ(submit(there).job, other.job);
}

TEST_F(IdempotencyTest, a_key_that_stands_several_times_in_one_batch_is_one_job) {
  const std::vector<NewJob> batch{keyed("a"),      keyed("b"),    keyed("a"),
                                  keyed("a", "2"), {.kind = "k"}, keyed("b")};

  const std::vector<Submission> answers = must(store_.enqueue(batch));

  EXPECT_EQ(answers[0].status, Status::created);
  EXPECT_EQ(answers[1].status, Status::created);
  EXPECT_EQ(answers[2].status, Status::existing);
  EXPECT_EQ(answers[3].status, Status::conflict);
  EXPECT_EQ(answers[4].status, Status::created);
  EXPECT_EQ(answers[5].status, Status::existing);
  EXPECT_EQ(answers[2].job, answers[0].job);
  EXPECT_EQ(answers[3].job, answers[0].job);
  EXPECT_EQ(answers[5].job, answers[1].job);
  EXPECT_EQ(jobs(), 3);
  EXPECT_EQ(job(answers[0].job).payload, "1");
}

TEST_F(IdempotencyTest, each_of_a_batch_is_compared_with_the_job_that_has_the_key) {
  const Submission first = submit(keyed("a", "1"));
  const std::vector<NewJob> batch{keyed("a", "2"), keyed("a", "1"), keyed("a", "2"), keyed("new"),
                                  keyed("new", "2")};

  const std::vector<Submission> answers = must(store_.enqueue(batch));

  EXPECT_EQ(answers[0].status, Status::conflict);
  EXPECT_EQ(answers[1].status, Status::existing);
  EXPECT_EQ(answers[2].status, Status::conflict);
  EXPECT_EQ(answers[3].status, Status::created);
  EXPECT_EQ(answers[4].status, Status::conflict);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(answers[i].job, first.job);
  EXPECT_EQ(jobs(), 2);
}

TEST_F(IdempotencyTest, eight_that_submit_the_same_key_at_once_get_one_job) {
  for (int round = 0; round < 5; ++round) {
    const std::vector<Submission> answers =
        submit_at_once(std::vector<NewJob>(8, keyed("round " + std::to_string(round))));
    EXPECT_EQ(std::ranges::count(answers, Status::created, &Submission::status), 1);
    EXPECT_EQ(std::ranges::count(answers, Status::existing, &Submission::status), 7);
    for (const Submission& answer : answers) EXPECT_EQ(answer.job, answers[0].job);
    EXPECT_EQ(jobs(), round + 1);
    EXPECT_EQ(counts().available, round + 1);
  }
}

TEST_F(IdempotencyTest, of_eight_different_payloads_under_one_key_one_gets_it) {
  std::vector<NewJob> different;
  for (int i = 0; i < 8; ++i) different.push_back(keyed("a", std::to_string(i)));

  const std::vector<Submission> answers = submit_at_once(different);

  EXPECT_EQ(std::ranges::count(answers, Status::created, &Submission::status), 1);
  EXPECT_EQ(std::ranges::count(answers, Status::conflict, &Submission::status), 7);
  EXPECT_EQ(jobs(), 1);
}

TEST_F(IdempotencyTest, a_key_stays_as_long_as_its_job_lives_and_its_retention_after_it) {
  must(store_.set_queue("default", {.key_retention = ms{1'000}}));
  const Submission first = submit(keyed("a"));
  advance(std::chrono::hours{24 * 365});
  must(store_.prune());
  EXPECT_EQ(submit(keyed("a")).job, first.job);
  complete(claim_one("A").lease);
  advance(ms{999});
  EXPECT_EQ(submit(keyed("a")).status, Status::existing);
  EXPECT_EQ(submit(keyed("a", "2")).status, Status::conflict);
  advance(ms{1});

  // Free whether or not somebody has swept it up.
  const Submission second = submit(keyed("a", "2"));

  EXPECT_EQ(second.status, Status::created);
  EXPECT_NE(second.job, first.job);
  EXPECT_EQ(submit(keyed("a", "2")).job, second.job);
}

TEST_F(IdempotencyTest, however_a_job_ends_its_key_ends_some_time_after_it) {
  must(store_.set_queue("default", {.key_retention = ms{1'000}}));
  const auto end_in_each_way = std::to_array<std::function<void(JobId)>>({
      [&](JobId) { complete(claim_one("A").lease); },
      [&](JobId) { settle(claim_one("A").lease, Outcome::cancel("enough")); },
      [&](JobId id) { cancel(id); },
      [&](JobId id) {
        claim_one("A");
        cancel(id);
        advance(kTtl);
        sweep();
      },
      [&](JobId id) {
        const Lease lease = claim_one("A").lease;
        cancel(id);
        complete(lease);
      },
      [&](JobId id) {
        settle(claim_one("A").lease, Outcome::bury("no use"));
        cancel(id);
      },
  });
  for (std::size_t way = 0; way < end_in_each_way.size(); ++way) {
    SCOPED_TRACE(way);
    const Submission first = submit(keyed("a"));
    EXPECT_EQ(first.status, Status::created);
    end_in_each_way[way](first.job);
    EXPECT_EQ(submit(keyed("a")).job, first.job);
    advance(ms{1'000});
  }
}

TEST_F(IdempotencyTest, a_dead_job_keeps_its_key) {
  must(store_.set_queue("default", {.key_retention = ms{0}}));
  const Submission first = submit(keyed("a"));
  settle(claim_one("A").lease, Outcome::bury("no use"));
  advance(std::chrono::hours{24});

  EXPECT_EQ(submit(keyed("a")).job, first.job);
}

TEST_F(IdempotencyTest, a_requeue_revives_the_key) {
  must(store_.set_queue("default", {.key_retention = ms{1'000}}));
  const Submission first = submit(keyed("a"));
  complete(claim_one("A").lease);
  EXPECT_EQ(requeue(first.job), RequeueStatus::requeued);
  advance(std::chrono::hours{1});
  must(store_.prune());

  EXPECT_EQ(submit(keyed("a")).status, Status::existing);

  complete(claim_one("A").lease);
  advance(ms{1'000});
  EXPECT_EQ(submit(keyed("a")).status, Status::created);
}

TEST_F(IdempotencyTest, a_requeued_job_does_not_take_a_key_back_that_another_job_has_got) {
  must(store_.set_queue("default", {.key_retention = ms{1'000}}));
  const Submission first = submit(keyed("a"));
  complete(claim_one("A").lease);
  advance(ms{1'000});
  const Submission second = submit(keyed("a"));
  ASSERT_EQ(second.status, Status::created);

  EXPECT_EQ(requeue(first.job), RequeueStatus::requeued);
  EXPECT_EQ(submit(keyed("a")).job, second.job);
  EXPECT_EQ(cancel(first.job), CancelStatus::cancelled);
  advance(ms{1'000});

  EXPECT_EQ(submit(keyed("a")).job, second.job);
}

// Many jobs at once.

TEST_F(IdempotencyTest, two_thousand_jobs_in_one_batch_get_an_id_each_and_all_can_be_claimed) {
  const std::vector<JobId> ids = enqueue_many(2'000);

  const std::set<JobId> unique{ids.begin(), ids.end()};
  EXPECT_EQ(unique.size(), 2'000U);
  EXPECT_TRUE(std::ranges::is_sorted(ids));
  EXPECT_EQ(counts().available, 2'000);
  std::set<JobId> claimed;
  for (int i = 0; i < 2; ++i) {
    for (const ClaimedJob& each : claim("A", 1'000)) claimed.insert(each.lease.job);
  }
  EXPECT_EQ(claimed, unique);
}

TEST_F(IdempotencyTest, a_large_batch_with_options_and_keys_is_added_whole) {
  std::vector<NewJob> batch;
  for (int i = 0; i < 2'500; ++i) {
    batch.push_back({.kind = "k",
                     .payload = std::to_string(i),
                     .priority = i % 10,
                     .attempts_max = 3,
                     .tags = {"t" + std::to_string(i)}});
    if (i % 2 == 0) batch.back().idempotency_key = "key " + std::to_string(i);
    if (i < 1'000) batch.back().traceparent = kTraceparent;
  }
  const std::vector<Submission> answers = must(store_.enqueue(batch));
  ASSERT_EQ(answers.size(), 2'500U);
  EXPECT_THAT(std::span{answers}, Each(::testing::Field(&Submission::status, Status::created)));
  for (const std::size_t i : {0U, 1U, 999U, 1'000U, 2'499U}) {
    const Job added = job(answers[i].job);
    EXPECT_EQ(added.payload, std::to_string(i));
    EXPECT_EQ(added.tags, (std::vector{"t" + std::to_string(i)}));
    EXPECT_EQ(added.attempts_max, 3);
    EXPECT_EQ(added.traceparent.value_or(""), i < 1'000 ? kTraceparent : "");
  }
  const std::vector<Submission> again = must(store_.enqueue(batch));
  for (std::size_t i = 0; i < 2'500; i += 2) EXPECT_EQ(again[i].job, answers[i].job);
  EXPECT_EQ(jobs(), 2'500 + 1'250);
}

TEST_F(IdempotencyTest, traces_arrive_by_copy_too_and_are_kept_by_every_end_and_a_requeue) {
  std::vector<NewJob> batch(600, {.kind = "k"});
  batch[300].traceparent = kTraceparent;
  const std::vector<Submission> answers = must(store_.enqueue(batch));
  const JobId id = answers[300].job;
  EXPECT_EQ(job(id).traceparent, kTraceparent);
  EXPECT_EQ(job(answers[299].job).traceparent, std::nullopt);
  EXPECT_EQ(job(answers[301].job).traceparent, std::nullopt);

  EXPECT_EQ(must(store_.cancel({&id, 1}, "operator", "")).front(), CancelStatus::cancelled);
  EXPECT_EQ(job(id).traceparent, kTraceparent);
  EXPECT_EQ(must(store_.requeue({&id, 1}, "operator")).front(), RequeueStatus::requeued);
  EXPECT_EQ(job(id).traceparent, kTraceparent);
}

TEST_F(IdempotencyTest, a_bulk_enqueue_takes_a_stream) {
  int given = 0;
  const auto stream = [&]() -> std::optional<NewJob> {
    if (given == 5'000) return std::nullopt;
    return NewJob{.kind = "k", .payload = std::to_string(given++)};
  };
  EXPECT_EQ(must(store_.enqueue_bulk(stream)), 5'000U);
  EXPECT_EQ(jobs(), 5'000);
  EXPECT_EQ(counts().available, 5'000);
  EXPECT_EQ(claim_one("A").payload, "0");
}

TEST_F(IdempotencyTest, a_bulk_enqueue_that_meets_a_bad_job_leaves_nothing) {
  const std::vector<std::pair<NewJob, std::string>> bad{
      {{.kind = ""}, "kind"},
      {{.queue = "nowhere", .kind = "k"}, "nowhere"},
      {{.kind = "k", .payload = "{"}, "JSON"},
      {keyed("a"), "idempotency key"},
  };
  for (const auto& [job, says] : bad) {
    int given = 0;
    const auto refused = store_.enqueue_bulk([&]() -> std::optional<NewJob> {
      if (++given > 30'000) return std::nullopt;
      return given == 20'000 ? job : NewJob{.kind = "k", .payload = std::string(100, '1')};
    });
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("job 19999 of the stream"));
    EXPECT_THAT(refused.error().message, HasSubstr(says));
    EXPECT_EQ(jobs(), 0);
    EXPECT_EQ(counts().available, 0);
  }
  enqueue();
  EXPECT_EQ(jobs(), 1);
}

TEST_F(IdempotencyTest, a_source_that_throws_ends_a_bulk_enqueue_and_leaves_nothing) {
  Store single = open_store({.connections_max = 1});
  int given = 0;
  const auto source = [&]() -> std::optional<NewJob> {
    if (++given == 1'000) throw std::logic_error("the source broke");
    return NewJob{.kind = "k"};
  };
  EXPECT_THROW(static_cast<void>(single.enqueue_bulk(source)), std::logic_error);
  EXPECT_EQ(jobs(), 0);
  EXPECT_TRUE(single.enqueue({.kind = "k"}).has_value());
  EXPECT_EQ(jobs(), 1);
}

// Inside the caller's transaction.

class EnqueueInTest : public IdempotencyTest {
 protected:
  EnqueueInTest() : raw_(PQconnectdb(database_.dsn().c_str()), &PQfinish) {
    if (PQstatus(raw_.get()) != CONNECTION_OK) throw std::runtime_error(PQerrorMessage(raw_.get()));
    run("CREATE TABLE orders (id int)");
  }
  void run(const char* sql) {
    const std::unique_ptr<PGresult, decltype(&PQclear)> done{PQexec(raw_.get(), sql), &PQclear};
    const ExecStatusType status = PQresultStatus(done.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
      throw std::runtime_error(PQerrorMessage(raw_.get()));
  }
  std::vector<Submission> enqueue_in(const std::vector<NewJob>& new_jobs) {
    return must(store_.enqueue_in(raw_.get(), new_jobs));
  }
  std::int64_t orders() { return number("SELECT count(*) FROM orders"); }

  std::unique_ptr<PGconn, decltype(&PQfinish)> raw_;
};

TEST_F(EnqueueInTest, the_jobs_are_there_when_the_callers_transaction_commits_and_not_before) {
  run("BEGIN");
  run("INSERT INTO orders VALUES (1)");
  const std::vector<Submission> answers = enqueue_in({{.kind = "k"}, keyed("a"), keyed("a")});
  EXPECT_EQ(answers[1].status, Status::created);
  EXPECT_EQ(answers[2].status, Status::existing);
  run("INSERT INTO orders VALUES (2)");
  EXPECT_EQ(jobs(), 0);
  EXPECT_TRUE(claim("A").empty());

  run("COMMIT");

  EXPECT_EQ(jobs(), 2);
  EXPECT_EQ(orders(), 2);
  EXPECT_EQ(counts().available, 2);
  EXPECT_EQ(job(answers[0].job).state, JobState::available);
}

TEST_F(EnqueueInTest, a_rollback_takes_jobs_and_keys_back) {
  run("BEGIN");
  run("INSERT INTO orders VALUES (1)");
  enqueue_in({{.kind = "k"}, keyed("a")});
  run("ROLLBACK");

  EXPECT_EQ(jobs(), 0);
  EXPECT_EQ(orders(), 0);
  EXPECT_EQ(counts().available, 0);
  EXPECT_EQ(submit(keyed("a", "2")).status, Status::created);
}

TEST_F(EnqueueInTest, a_refused_job_leaves_the_callers_transaction_as_it_was) {
  run("BEGIN");
  run("INSERT INTO orders VALUES (1)");
  const std::vector<NewJob> bad{{.kind = "k"}, {.kind = "k", .payload = "{"}};
  EXPECT_EQ(store_.enqueue_in(raw_.get(), bad).error().code, ErrorCode::payload_invalid);
  const std::vector<NewJob> nowhere{{.queue = "nowhere", .kind = "k"}};
  EXPECT_EQ(store_.enqueue_in(raw_.get(), nowhere).error().code, ErrorCode::unknown_queue);
  EXPECT_EQ(PQtransactionStatus(raw_.get()), PQTRANS_INTRANS);
  run("COMMIT");

  EXPECT_EQ(orders(), 1);
  EXPECT_EQ(jobs(), 0);
}

TEST_F(EnqueueInTest, a_thousand_jobs_and_more_go_into_one_transaction) {
  run("BEGIN");
  const std::vector<Submission> answers = enqueue_in(std::vector<NewJob>(2'500, NewJob{.kind = "k"}));
  EXPECT_EQ(answers.size(), 2'500U);
  run("SAVEPOINT s");
  enqueue_in({{.kind = "k"}});
  run("ROLLBACK TO s");
  run("COMMIT");

  EXPECT_EQ(jobs(), 2'500);
}

TEST_F(EnqueueInTest, an_existing_key_is_found_from_inside_a_transaction) {
  const Submission first = submit(keyed("a"));
  run("BEGIN");
  const std::vector<Submission> answers = enqueue_in({keyed("a"), keyed("b")});
  run("COMMIT");
  EXPECT_EQ(answers[0].status, Status::existing);
  EXPECT_EQ(answers[0].job, first.job);
  EXPECT_EQ(answers[1].status, Status::created);
}

// Producers that speak only SQL.

class SqlProducerTest : public IdempotencyTest {
 protected:
  /// The SQLSTATE of faultline.enqueue(…); empty if the job was taken.
  std::string failure_of(const std::string& arguments) {
    auto done = sql_.exec({"", "SELECT faultline.enqueue(" + arguments + ")"}, {}, soon());
    if (done) return {};
    EXPECT_FALSE(done.error().message.empty());
    return done.error().sqlstate;
  }
  JobId sql_enqueue(const std::string& arguments) {
    return JobId{
        must(sql_.exec({"", "SELECT faultline.enqueue(" + arguments + ")"}, {}, soon())).get<Uuid>(0, 0)};
  }
};

TEST_F(SqlProducerTest, a_job_from_sql_runs_like_any_other) {
  const JobId id = sql_enqueue("'default', 'mail', '{\"to\": 7}'");

  const ClaimedJob claimed = claim_one("A");

  EXPECT_EQ(claimed.lease.job, id);
  EXPECT_EQ(claimed.kind, "mail");
  EXPECT_EQ(claimed.payload, "{\"to\": 7}");
  EXPECT_EQ(claimed.encoding, Encoding::json);
  EXPECT_EQ(claimed.priority, 5);
  EXPECT_EQ(counts().running, 1);
  EXPECT_TRUE(complete(claimed.lease).committed());
  EXPECT_EQ(counts().succeeded, 1);
}

TEST_F(SqlProducerTest, every_option_arrives) {
  const JobId id = sql_enqueue(
      "queue => 'default', kind => 'k', payload => '[]', priority => 2, delay => '1 minute', idempotency_key "
      "=> 'a',"
      " attempts_max => 7, lease_ttl => '90 s', run_max => '1 hour', tags => '{x,y}', delivery => 'hold',"
      " traceparent => '" +
      std::string{kTraceparent} + "'");
  const Job added = job(id);
  EXPECT_EQ(added.state, JobState::scheduled);
  EXPECT_EQ(added.priority, 2);
  EXPECT_EQ(added.run_at, must(store_.now()) + std::chrono::minutes{1});
  EXPECT_EQ(added.idempotency_key, "a");
  EXPECT_EQ(added.attempts_max, 7);
  EXPECT_EQ(added.lease_ttl, ms{90'000});
  EXPECT_EQ(added.run_max, ms{3'600'000});
  EXPECT_EQ(added.tags, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(added.delivery, Delivery::hold);
  EXPECT_EQ(added.traceparent, kTraceparent);

  const JobId at = sql_enqueue("'default', 'k', '1', run_at => '2031-01-01 00:00:00+00'");
  EXPECT_EQ(to_string(job(at).run_at), "2031-01-01T00:00:00.000000Z");
}

TEST_F(SqlProducerTest, what_the_store_would_refuse_is_refused_here_too) {
  const std::vector<std::string> bad{
      "'default', NULL, '1'",
      "'default', '', '1'",
      "'default', repeat('x', 129), '1'",
      "'default', E'a\\nb', '1'",
      "'default', 'k', NULL",
      "'default', 'k', to_jsonb(repeat('x', 1048576))",
      "'default', 'k', '1', priority => -1",
      "'default', 'k', '1', priority => 10",
      "'default', 'k', '1', priority => NULL",
      "'default', 'k', '1', run_at => now(), delay => '1 s'",
      "'default', 'k', '1', run_at => 'infinity'",
      "'default', 'k', '1', run_at => '-infinity'",
      "'default', 'k', '1', run_at => '294276-01-01'",
      "'default', 'k', '1', delay => '-1 s'",
      "'default', 'k', '1', delay => '100000000 days'",
      "'default', 'k', '1', attempts_max => 0",
      "'default', 'k', '1', attempts_max => -5",
      "'default', 'k', '1', lease_ttl => '99 ms'",
      "'default', 'k', '1', lease_ttl => '-1 s'",
      "'default', 'k', '1', lease_ttl => '25 h'",
      "'default', 'k', '1', run_max => '1 ms'",
      "'default', 'k', '1', run_max => '366 days'",
      "'default', 'k', '1', delivery => 'twice'",
      "'default', 'k', '1', delivery => NULL",
      "'default', 'k', '1', idempotency_key => ''",
      "'default', 'k', '1', idempotency_key => repeat('x', 257)",
      "'default', 'k', '1', idempotency_key => E'a\\tb'",
      "'default', 'k', '1', tags => ARRAY[NULL]::text[]",
      "'default', 'k', '1', tags => '{{a,b},{c,d}}'",
      "'default', 'k', '1', tags => ARRAY['']",
      "'default', 'k', '1', tags => ARRAY[repeat('x', 129)]",
      "'default', 'k', '1', tags => array_fill('t'::text, ARRAY[33])",
      "'default', 'k', '1', traceparent => ''",
      "'default', 'k', '1', traceparent => '00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01'",
      "'default', 'k', '1', traceparent => '00-00000000000000000000000000000000-b7ad6b7169203331-01'",
      "'default', 'k', '1', traceparent => '00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01'",
      "'default', 'k', '1', traceparent => '01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'",
  };
  for (const std::string& arguments : bad) EXPECT_EQ(failure_of(arguments), "FL400") << arguments;
  EXPECT_EQ(failure_of("'nowhere', 'k', '1'"), "FL404");
  EXPECT_EQ(failure_of("NULL, 'k', '1'"), "FL404");
  EXPECT_EQ(failure_of("'', 'k', '1'"), "FL404");
  EXPECT_EQ(jobs(), 0);
  EXPECT_EQ(counts().available, 0);
}

TEST_F(SqlProducerTest, a_key_finds_its_job_and_another_payload_is_a_conflict) {
  const JobId first = sql_enqueue("'default', 'k', '1', idempotency_key => 'a'");
  EXPECT_EQ(sql_enqueue("'default', 'k', '1', idempotency_key => 'a'"), first);
  EXPECT_EQ(failure_of("'default', 'k', '2', idempotency_key => 'a'"), "FL409");
  EXPECT_EQ(failure_of("'default', 'other', '1', idempotency_key => 'a'"), "FL409");
  EXPECT_EQ(jobs(), 1);
  EXPECT_EQ(counts().available, 1);
}

TEST_F(SqlProducerTest, the_job_is_there_if_and_only_if_its_transaction_commits) {
  script("BEGIN; SELECT faultline.enqueue('default', 'k', '1', idempotency_key => 'a'); ROLLBACK");
  EXPECT_EQ(jobs(), 0);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.idempotency_keys"), 0);
  script("BEGIN; SELECT faultline.enqueue('default', 'k', '1', idempotency_key => 'a')");
  EXPECT_TRUE(claim("A").empty());
  script("COMMIT");
  EXPECT_EQ(claim("A").size(), 1U);
}

TEST_F(SqlProducerTest, a_key_is_one_whoever_takes_it_first) {
  const JobId from_sql = sql_enqueue("'default', 'k', '{\"a\": 1}', idempotency_key => 'sql first'");
  const Submission same = submit(keyed("sql first", "{\"a\": 1}"));
  EXPECT_EQ(same.status, Status::existing);
  EXPECT_EQ(same.job, from_sql);
  EXPECT_EQ(submit(keyed("sql first", "{\"a\": 2}")).status, Status::conflict);

  const Submission from_store = submit(keyed("store first", "[1, 2]"));
  EXPECT_EQ(sql_enqueue("'default', 'k', '[1,2]', idempotency_key => 'store first'"), from_store.job);
  EXPECT_EQ(failure_of("'default', 'k', '[1,3]', idempotency_key => 'store first'"), "FL409");
  EXPECT_EQ(jobs(), 2);
}

TEST_F(SqlProducerTest, the_same_json_in_another_spelling_is_the_same_job) {
  // As C++, JavaScript, Python and a person write them.
  const std::vector<std::vector<std::string>> same{
      {R"({"to":"a","n":[1,2]})", R"({"to": "a", "n": [1, 2]})", R"({"n":[1,2],"to":"a"})",
       "{\n\t\"to\" : \"a\",\r\n \"n\":[ 1 , 2 ] } "},
      {R"("caf\u00e9 \ud83d\ude00 \/")", "\"caf\u00e9 \U0001F600 /\""},
      {R"("\u000a\u0022\u005c\u001f")", R"("\n\"\\\u001F")"},
      {"100", "1e2", "1E+2", "10.0e1"},
      {"0.0000001", "1e-7", "1e-07"},
      {"0", "-0", "0e5"},
      {R"({"b":1,"aa":{},"a":[]})", R"({ "a" : [ ] , "aa" : { } , "b" : 1 })"},
      {"true", " true "},
  };
  for (std::size_t i = 0; i < same.size(); ++i) {
    for (const bool sql_first : {true, false}) {
      const std::string key = std::to_string(i) + (sql_first ? " sql" : " store");
      const auto by_sql = [&](const std::string& text) {
        return sql_enqueue("'default', 'k', $json$" + text + "$json$, idempotency_key => '" + key + "'");
      };
      const JobId first = sql_first ? by_sql(same[i][0]) : submit(keyed(key, same[i][0])).job;
      for (const std::string& text : same[i]) {
        const Submission again = submit(keyed(key, text));
        EXPECT_EQ(again.status, Status::existing) << text;
        EXPECT_EQ(again.job, first) << text;
        EXPECT_EQ(by_sql(text), first) << text;
      }
    }
  }
}

TEST_F(SqlProducerTest, what_may_mean_something_else_is_another_payload) {
  const std::vector<std::pair<std::string, std::string>> different{
      {"1", "1.0"},
      {"1", "\"1\""},
      {"[1,2]", "[2,1]"},
      {"\"a b\"", "\"a  b\""},
      {"\"a\"", "\"A\""},
      {"null", "\"null\""},
      {"{}", "[]"},
      // Which of two members of one name is meant, each reader says for itself.
      {R"({"a":1,"a":2})", R"({"a":2})"},
      {R"({"a":1,"a":2})", R"({"a":2,"a":1})"},
      {"12345678901234567890", "12345678901234567891"},
      {"0.1", "0.10"},
      {R"("\u0000")", R"("")"},
      {"1e400", "1e401"},
  };
  for (std::size_t i = 0; i < different.size(); ++i) {
    const std::string key = std::to_string(i);
    const Submission first = submit(keyed(key, different[i].first));
    EXPECT_EQ(submit(keyed(key, different[i].first)).status, Status::existing) << different[i].first;
    const Submission refused = submit(keyed(key, different[i].second));
    EXPECT_EQ(refused.status, Status::conflict) << different[i].second;
    EXPECT_EQ(refused.job, first.job);
  }
}

TEST_F(SqlProducerTest, deep_json_costs_neither_stack_nor_patience) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"bb":"]}\"","a":)";
  deep += "[ 1]" + std::string(100'000, '}');
  const std::string form = canonical_json(deep);
  EXPECT_TRUE(form.starts_with(R"({"a": {"a": )")) << "ordered on top";
  EXPECT_THAT(form, HasSubstr("[ 1]")) << "as it was written below";
  EXPECT_FALSE(find_json_problem(bytes_of(form), 100'001));
}

TEST_F(SqlProducerTest, json_has_the_form_that_the_database_gives_it) {
  constexpr unsigned kSeed = 20'260'102;
  std::mt19937 random{kSeed};
  const auto pick = [&](std::size_t size) {
    return std::uniform_int_distribution<std::size_t>{0, size - 1}(random);
  };
  const auto any_of = [&](const std::vector<std::string>& texts) { return texts[pick(texts.size())]; };
  const auto space = [&] { return any_of({"", "", " ", "\n", "\t ", "\r\n"}); };
  const auto string = [&] {
    std::string text = "\"";
    for (std::size_t n = pick(5); n > 0; --n) {
      text += any_of({"a", "b", "Z", " ", "\u00e9", "\U0001F600", "\x7f", R"(\n)", R"(\/)", R"(\\)", R"(\")",
                      R"(\b)", R"(\u0041)", R"(\u00E9)", R"(\u001f)", R"(\ud83d\uDE00)", R"(\uffff)",
                      R"(\u0009)"});
    }
    return text + "\"";
  };
  const auto number = [&] {
    return any_of({"", "-"}) + any_of({"0", "1", "10", "907", "12345678901234567890123"}) +
           any_of({"", "", ".0", ".5", ".050", ".00"}) +
           any_of({"", "", "e0", "E2", "e+3", "e-5", "e64", "E-064"});
  };
  const std::function<std::string(int)> value = [&](int depth) -> std::string {
    const std::size_t kind = pick(depth > 0 ? 6 : 4);
    if (kind == 0) return string();
    if (kind <= 2) return number();
    if (kind == 3) return any_of({"true", "false", "null"});
    std::string text{kind == 4 ? "[" : "{"};
    std::set<std::string> names;
    for (std::size_t n = pick(5), i = 0; i < n; ++i) {
      std::string item = space() + value(depth - 1) + space();
      if (kind == 5) {
        std::string name = string();
        // The database forgets all but the last of two members that have one name, in whatever spelling.
        if (!names.insert(canonical_json(name)).second) continue;
        item = space() + std::move(name) + space() + ":" + item;
      }
      text += (text.size() > 1 ? "," : space()) + item;
    }
    return text + (text.size() > 1 ? "" : space()) + (kind == 4 ? "]" : "}");
  };
  for (int round = 0; round < 100; ++round) {
    std::vector<std::string> texts;
    for (int i = 0; i < 50; ++i) texts.push_back(space() + value(4) + space());
    pg::Params params;
    params.add_array(pg::Type::text, texts, [](const std::string& text) { return std::string_view{text}; });
    const auto forms = must(sql_.exec(
        {.name = "forms",
         .sql = "SELECT t::jsonb::text FROM unnest($1::text[]) WITH ORDINALITY AS u(t, n) ORDER BY n"},
        params, soon()));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      ASSERT_FALSE(find_json_problem(bytes_of(texts[i]), 128)) << texts[i];
      EXPECT_EQ(canonical_json(texts[i]), forms.get<std::string>(static_cast<int>(i), 0)) << texts[i];
    }
  }
}

TEST_F(SqlProducerTest, an_expired_key_is_free_here_too) {
  must(store_.set_queue("default", {.key_retention = ms{1'000}}));
  const JobId first = sql_enqueue("'default', 'k', '1', idempotency_key => 'a'");
  complete(claim_one("A").lease);
  EXPECT_EQ(sql_enqueue("'default', 'k', '1', idempotency_key => 'a'"), first);
  advance(ms{1'000});
  EXPECT_NE(sql_enqueue("'default', 'k', '2', idempotency_key => 'a'"), first);
}

TEST(BucketedProducerTest, a_key_has_one_bucket_on_which_sql_and_the_store_agree) {
  TestDatabase database{Template::empty};
  pg::Connection sql = database.connect();
  must(schema::migrate(sql, {.buckets = 4}, soon()));
  Store store = must(Store::open({.database = database.dsn()}));
  std::set<std::int16_t> used;
  for (int i = 0; i < 40; ++i) {
    const std::string key = "key \u00e9 ' " + std::to_string(i);
    const JobId from_sql{
        must(sql.exec({"", "SELECT faultline.enqueue('default', 'k', '1', idempotency_key => $1)"},
                      pg::Params{}.add(key), soon()))
            .get<Uuid>(0, 0)};
    const Submission same = must(store.enqueue({.kind = "k", .payload = "1", .idempotency_key = key}));
    EXPECT_EQ(same.status, Status::existing);
    EXPECT_EQ(same.job, from_sql);
    EXPECT_EQ(from_sql.bucket(), store::bucket_of_key("default", key, 4));
    used.insert(from_sql.bucket());
  }
  EXPECT_EQ(used.size(), 4U);
  std::size_t claimed = 0;
  while (claimed < 40) {
    const auto jobs = must(store.claim({.worker = "A", .limit = 7}));
    ASSERT_FALSE(jobs.empty());
    claimed += jobs.size();
  }
  EXPECT_TRUE(must(store.claim({.worker = "A"})).empty());
}

TEST(BucketedProducerTest, a_batch_over_all_buckets_is_added_whole_or_not_at_all) {
  TestDatabase database{Template::empty};
  pg::Connection sql = database.connect();
  must(schema::migrate(sql, {.buckets = 4}, soon()));
  Store store = must(Store::open({.database = database.dsn()}));
  std::vector<NewJob> batch;
  for (int i = 0; i < 100; ++i) batch.push_back({.kind = "k", .idempotency_key = std::to_string(i)});
  batch.push_back({.kind = ""});
  EXPECT_FALSE(store.enqueue(batch).has_value());
  EXPECT_EQ(must(store.counts("default")).at(0).available, 0);
  batch.pop_back();

  const std::vector<Submission> answers = must(store.enqueue(batch));

  EXPECT_EQ(must(store.counts("default")).at(0).available, 100);
  EXPECT_EQ(must(store.enqueue(batch))[57].job, answers[57].job);
}

}  // namespace
}  // namespace faultline::testing

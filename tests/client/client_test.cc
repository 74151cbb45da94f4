// What a producer does: adds jobs, also inside its own transaction, looks at them, and operates queues.

#include "faultline/client.h"

#include <concepts>
#include <memory>
#include <sstream>

#include <gmock/gmock.h>
#include <libpq-fe.h>

#include "store/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;
using Status = Submission::Status;

class ClientTest : public StoreTest {
 protected:
  ClientTest() : client_(must(Client::open({.database = database_.dsn(), .name = "ops"}))) {}

  template <class T>
  void expect_error(const Expected<T>& result, ErrorCode code, const std::string& says) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(to_string(result.error().code), to_string(code)) << result.error().describe();
    EXPECT_THAT(result.error().message, HasSubstr(says));
    EXPECT_FALSE(result.error().hint.empty());
  }
  std::int64_t jobs() { return number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"); }

  Client client_;
};

TEST_F(ClientTest, a_job_keeps_every_option_it_was_added_with) {
  must(client_.set_queue("mails", {}));
  const Submission added = must(client_.enqueue(NewJob{.queue = "mails",
                                                       .kind = "welcome",
                                                       .payload = R"({"user": 7})",
                                                       .priority = 2,
                                                       .delay = ms{60'000},
                                                       .idempotency_key = "welcome-7",
                                                       .attempts_max = 3,
                                                       .lease_ttl = ms{5'000},
                                                       .run_max = ms{90'000},
                                                       .backoff_base = ms{250},
                                                       .backoff_max = ms{4'000},
                                                       .delivery = Delivery::hold,
                                                       .tags = {"vip", "eu"}}));
  EXPECT_EQ(added.status, Status::created);

  const Job found = must(client_.get(added.job)).value();
  EXPECT_EQ(found.id, added.job);
  EXPECT_EQ(found.queue, "mails");
  EXPECT_EQ(found.kind, "welcome");
  EXPECT_EQ(found.payload, R"({"user": 7})");
  EXPECT_EQ(found.encoding, Encoding::json);
  EXPECT_EQ(found.state, JobState::scheduled);
  EXPECT_EQ(found.priority, 2);
  EXPECT_EQ(found.run_at - found.created_at, ms{60'000});
  EXPECT_EQ(found.idempotency_key, "welcome-7");
  EXPECT_EQ(found.attempts_max, 3);
  EXPECT_EQ(found.lease_ttl, ms{5'000});
  EXPECT_EQ(found.run_max, ms{90'000});
  EXPECT_EQ(found.delivery, Delivery::hold);
  EXPECT_THAT(found.tags, ElementsAre("vip", "eu"));
  EXPECT_EQ(
      number("SELECT backoff_base_ms * 10000 + backoff_max_ms FROM faultline.jobs WHERE queue = 'mails'"),
      2'504'000);

  EXPECT_THAT(claim("A", 1, "mails"), IsEmpty());
  advance(ms{60'000});
  const ClaimedJob claimed = claim_one("A", "mails");
  EXPECT_EQ(claimed.lease.job, added.job);
  EXPECT_EQ(claimed.lease_ttl, ms{5'000});
  EXPECT_EQ(claimed.run_max, ms{90'000});
}

TEST_F(ClientTest, a_job_for_a_moment_of_database_time_runs_then) {
  const DatabaseTime at = must(store_.now()) + ms{5'000};
  const JobId id = must(client_.enqueue(NewJob{.kind = "k", .run_at = at})).job;
  EXPECT_EQ(must(client_.get(id))->run_at, at);
  EXPECT_THAT(claim("A"), IsEmpty());
  advance(ms{5'000});
  EXPECT_EQ(claim_one("A").lease.job, id);
}

TEST_F(ClientTest, bytes_come_back_as_they_went_in) {
  const std::string bytes{"\x00\xff\x01 raw", 7};
  const JobId id =
      must(client_.enqueue(NewJob{.kind = "k", .payload = bytes, .encoding = Encoding::bytes})).job;
  EXPECT_EQ(must(client_.get(id))->payload, bytes);
  EXPECT_EQ(claim_one("A").payload, bytes);
}

TEST_F(ClientTest, many_jobs_are_added_in_their_order_or_none_is) {
  std::vector<NewJob> batch;
  for (int i = 0; i < 50; ++i) batch.push_back({.kind = "k" + std::to_string(i)});
  const std::vector<Submission> added = must(client_.enqueue(batch));
  ASSERT_EQ(added.size(), 50U);
  EXPECT_EQ(must(client_.get(added[17].job))->kind, "k17");

  batch[30].kind.clear();
  expect_error(client_.enqueue(batch), ErrorCode::invalid_argument, "job 30 of the batch");
  EXPECT_EQ(jobs(), 50);
}

TEST_F(ClientTest, a_source_of_jobs_is_read_to_its_end) {
  int left = 2'000;
  const auto next = [&]() -> std::optional<NewJob> {
    if (left == 0) return std::nullopt;
    return NewJob{.kind = "k", .payload = std::to_string(left--)};
  };
  EXPECT_EQ(must(client_.enqueue_bulk(next)), 2'000U);
  EXPECT_EQ(must(client_.counts("default")).at(0).available, 2'000);
}

TEST_F(ClientTest, a_key_names_one_job_and_another_payload_under_it_is_a_conflict) {
  const NewJob once{.kind = "k", .payload = "1", .idempotency_key = "a"};
  NewJob other = once;
  other.payload = "2";
  const Submission first = must(client_.enqueue(once));
  const Submission again = must(client_.enqueue(once));
  const auto conflict = client_.enqueue(other);
  EXPECT_EQ(again.status, Status::existing);
  EXPECT_EQ(again.job, first.job);
  expect_error(conflict, ErrorCode::conflict, first.job.to_string());
  EXPECT_EQ(conflict.error().job, first.job);
  EXPECT_EQ(jobs(), 1);
}

TEST_F(ClientTest, a_batch_in_which_a_key_is_another_jobs_adds_nothing) {
  const JobId owner = must(client_.enqueue({.kind = "k", .payload = "1", .idempotency_key = "a"})).job;
  const NewJob same{.kind = "k", .payload = "1", .idempotency_key = "a"};
  const NewJob other{.kind = "k", .payload = "2", .idempotency_key = "a"};

  const auto refused =
      client_.enqueue({{.kind = "plain"}, {.kind = "k", .idempotency_key = "new"}, same, other});
  expect_error(refused, ErrorCode::conflict, "another kind or payload");
  const auto alone = client_.enqueue({{.kind = "plain"}, {.kind = "k", .idempotency_key = "new"}, other});
  expect_error(alone, ErrorCode::conflict, owner.to_string());
  EXPECT_EQ(alone.error().job, owner);
  EXPECT_EQ(jobs(), 1);

  const std::vector<Submission> added =
      must(client_.enqueue({{.kind = "plain"}, {.kind = "k", .idempotency_key = "new"}, same}));
  EXPECT_EQ(added.at(1).status, Status::created);
  EXPECT_EQ(added.at(2).status, Status::existing);
  EXPECT_EQ(jobs(), 3);
}

TEST_F(ClientTest, jobs_in_braces_are_several_and_fields_in_braces_are_one) {
  const auto two = client_.enqueue({{.kind = "x"}, {.kind = "y"}});
  static_assert(std::same_as<decltype(two), const Expected<std::vector<Submission>>>);
  ASSERT_EQ(must(two).size(), 2U);
  EXPECT_EQ(must(client_.get(must(two)[1].job))->kind, "y");
  const auto one = client_.enqueue({.kind = "z"});
  static_assert(std::same_as<decltype(one), const Expected<Submission>>);
  EXPECT_EQ(must(client_.get(must(one).job))->kind, "z");
}

TEST_F(ClientTest, a_job_runs_at_a_moment_of_the_calendar) {
  using namespace std::chrono_literals;
  const auto new_year = std::chrono::sys_days{2031y / 1 / 1};
  const JobId id = must(client_.enqueue({.kind = "k", .run_at = DatabaseClock::from_sys(new_year + 8h)})).job;
  const Client& reader = client_;
  const DatabaseTime run_at = must(reader.get(id))->run_at;
  EXPECT_EQ(to_string(run_at), "2031-01-01T08:00:00.000000Z");
  EXPECT_EQ(DatabaseClock::to_sys(run_at), new_year + 8h);
}

TEST_F(ClientTest, ids_states_and_errors_can_be_written_out_and_ids_read_again) {
  const JobId id = must(client_.enqueue({.kind = "k"})).job;
  std::ostringstream out;
  out << id << ' ' << must(client_.get(id))->state << ' ' << FenceToken{7} << ' '
      << client_.enqueue(NewJob{}).error();
  EXPECT_THAT(out.str(), StartsWith(id.to_string() + " available 7 "));
  EXPECT_THAT(out.str(), HasSubstr("kind is empty"));
  EXPECT_EQ(JobId::parse(id.to_string()), id);
  EXPECT_EQ(JobId::parse("no id"), std::nullopt);
}

template <class Connection>
concept CanCarryJobs = requires(Client& client, Connection connection, const NewJob& job) {
  client.enqueue_in(connection, job);
};
static_assert(CanCarryJobs<PGconn*>);
static_assert(!CanCarryJobs<void*> && !CanCarryJobs<int*> && !CanCarryJobs<Client*>);

TEST_F(ClientTest, bad_input_is_refused_with_words_for_a_person) {
  expect_error(client_.enqueue(NewJob{}), ErrorCode::invalid_argument, "kind is empty");
  expect_error(client_.enqueue(NewJob{.kind = "k", .payload = "{"}), ErrorCode::payload_invalid,
               "not valid JSON");
  expect_error(client_.enqueue(NewJob{.kind = "k", .priority = 10}), ErrorCode::invalid_argument, "priority");
  expect_error(client_.enqueue(NewJob{.queue = "nowhere", .kind = "k"}), ErrorCode::unknown_queue, "nowhere");
  expect_error(client_.pause("nowhere"), ErrorCode::unknown_queue, "nowhere");
  expect_error(client_.resume("nowhere"), ErrorCode::unknown_queue, "nowhere");
  expect_error(client_.list({.limit = 0}), ErrorCode::invalid_argument, "limit");
  expect_error(client_.set_queue("q", {.attempts_max = 0}), ErrorCode::invalid_argument, "attempts_max");
  expect_error(Client::open({.database = database_.dsn(), .name = ""}), ErrorCode::invalid_argument,
               "client's name");
  EXPECT_EQ(jobs(), 0);
}

TEST_F(ClientTest, a_database_that_is_away_or_has_no_schema_is_refused_when_it_is_opened) {
  expect_error(Client::open({.database = "host=/nonexistent dbname=app", .call_timeout = ms{1'000}}),
               ErrorCode::unavailable, "");
  const TestDatabase empty{Template::empty};
  const auto refused = Client::open({.database = empty.dsn()});
  expect_error(refused, ErrorCode::wrong_schema, "");
  EXPECT_THAT(refused.error().hint, HasSubstr("faultline migrate"));
}

TEST_F(ClientTest, an_id_that_names_no_job_is_not_found) {
  const JobId nobody = JobId{Uuid::random()};
  EXPECT_EQ(must(client_.get(nobody)), std::nullopt);
  EXPECT_FALSE(must(client_.history(nobody)).has_value());
  EXPECT_EQ(must(client_.cancel(nobody, "why")), CancelStatus::not_found);
  EXPECT_EQ(must(client_.requeue(nobody)), RequeueStatus::not_found);
}

TEST_F(ClientTest, a_history_has_attempts_refused_writes_and_effects) {
  const JobId id = enqueue({.backoff_base = ms{0}});
  const Lease first = claim_one("A").lease;
  const EffectKey step{.lease = first, .key = "step"};
  must(store_.begin_effects({&step, 1}));
  advance(kTtl);
  ASSERT_EQ(sweep().size(), 1U);
  settle(claim_one("B").lease, Outcome::success("done"));
  EXPECT_FALSE(complete(first).committed());

  const JobHistory whole = must(client_.history(id)).value();
  EXPECT_EQ(whole.job.state, JobState::succeeded);
  EXPECT_EQ(whole.job.result, "done");
  ASSERT_EQ(whole.attempts.size(), 2U);
  EXPECT_EQ(whole.attempts[0].outcome, "expired");
  EXPECT_EQ(whole.attempts[1].outcome, "succeeded");
  ASSERT_EQ(whole.stale_writes.size(), 1U);
  EXPECT_EQ(whole.stale_writes[0].worker, "A");
  ASSERT_EQ(whole.effects.size(), 1U);
  EXPECT_EQ(whole.effects[0].key, "step");
  EXPECT_FALSE(whole.effects[0].recorded_at.has_value());
}

TEST_F(ClientTest, jobs_are_listed_newest_first_page_by_page) {
  const std::vector<JobId> ids = enqueue_many(5);
  const std::vector<JobSummary> page = must(client_.list({.queue = "default", .limit = 2})).jobs;
  ASSERT_EQ(page.size(), 2U);
  EXPECT_EQ(page[0].id, ids[4]);
  EXPECT_EQ(page[1].id, ids[3]);
  const std::vector<JobSummary> rest = must(client_.list({.before = page[1].id})).jobs;
  ASSERT_EQ(rest.size(), 3U);
  EXPECT_EQ(rest[2].id, ids[0]);
}

TEST_F(ClientTest, who_cancels_and_requeues_is_on_record_by_the_clients_name) {
  const JobId id = enqueue();
  EXPECT_EQ(must(client_.cancel(id, "not wanted")), CancelStatus::cancelled);
  EXPECT_EQ(must(client_.cancel(id, "again")), CancelStatus::finished);
  EXPECT_EQ(must(client_.get(id))->state, JobState::cancelled);
  EXPECT_EQ(must(client_.requeue(id)), RequeueStatus::requeued);
  EXPECT_EQ(must(client_.requeue(id)), RequeueStatus::live);
  EXPECT_EQ(must(client_.get(id))->state, JobState::available);

  const JobHistory whole = must(client_.history(id)).value();
  ASSERT_EQ(whole.attempts.size(), 2U);
  EXPECT_EQ(whole.attempts[0].outcome, "cancelled");
  EXPECT_EQ(whole.attempts[0].worker, "ops");
  EXPECT_EQ(whole.attempts[0].error, "not wanted");
  EXPECT_EQ(whole.attempts[1].outcome, "requeued");
  EXPECT_EQ(whole.attempts[1].worker, "ops");
}

TEST_F(ClientTest, a_call_that_is_sent_again_is_told_the_same) {
  const JobId id = enqueue();
  const Uuid cancel = Uuid::random();
  const Uuid requeue = Uuid::random();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(must(client_.cancel(id, "why", cancel)), CancelStatus::cancelled);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(must(client_.requeue(id, requeue)), RequeueStatus::requeued);
  EXPECT_EQ(must(client_.history(id)).value().attempts.size(), 2U);
}

TEST_F(ClientTest, several_jobs_are_cancelled_and_requeued_in_their_order) {
  const JobId waiting = enqueue();
  const JobId running = enqueue({.priority = 0});
  ASSERT_EQ(claim_one("A").lease.job, running);
  const JobId nobody = JobId{Uuid::random()};
  EXPECT_THAT(must(client_.cancel(std::vector{waiting, nobody, running}, "stop")),
              ElementsAre(CancelStatus::cancelled, CancelStatus::not_found, CancelStatus::requested));
  EXPECT_THAT(must(client_.requeue(std::vector{running, waiting, nobody})),
              ElementsAre(RequeueStatus::live, RequeueStatus::requeued, RequeueStatus::not_found));
}

TEST_F(ClientTest, a_paused_queue_gives_nothing_until_it_is_resumed) {
  must(client_.set_queue("q", {.running_max = 3, .attempts_max = 7}));
  const JobId id = enqueue({.queue = "q"});
  must(client_.pause("q"));
  EXPECT_THAT(claim("A", 1, "q"), IsEmpty());
  must(client_.resume("q"));
  EXPECT_EQ(claim_one("A", "q").lease.job, id);

  const std::vector<Queue> all = must(client_.queues());
  std::vector<std::string> names;
  for (const Queue& queue : all) names.push_back(queue.name);
  EXPECT_THAT(names, UnorderedElementsAre("default", "q"));
  const auto& q = *std::ranges::find(all, "q", &Queue::name);
  EXPECT_FALSE(q.paused);
  EXPECT_EQ(q.running_max, 3);
  EXPECT_EQ(q.attempts_max, 7);
  EXPECT_EQ(must(client_.counts("q")).at(0).running, 1);
  EXPECT_EQ(must(client_.counts()).size(), 2U);
}

// Inside the caller's transaction.

class ClientTransactionTest : public ClientTest {
 protected:
  ClientTransactionTest() : own_(PQconnectdb(database_.dsn().c_str()), &PQfinish) {
    run("CREATE TABLE orders (id int)");
  }
  void run(const char* sql) {
    const std::unique_ptr<PGresult, decltype(&PQclear)> done{PQexec(own_.get(), sql), &PQclear};
    if (PQresultStatus(done.get()) != PGRES_COMMAND_OK) throw std::runtime_error(PQerrorMessage(own_.get()));
  }
  std::int64_t orders() { return number("SELECT count(*) FROM orders"); }

  std::unique_ptr<PGconn, decltype(&PQfinish)> own_;
};

TEST_F(ClientTransactionTest, the_jobs_are_there_when_it_commits_and_not_before) {
  run("BEGIN");
  run("INSERT INTO orders VALUES (1)");
  const Submission one = must(client_.enqueue_in(own_.get(), NewJob{.kind = "one"}));
  const std::vector<NewJob> more(3, NewJob{.kind = "more"});
  const std::vector<Submission> many = must(client_.enqueue_in(own_.get(), more));
  EXPECT_EQ(must(client_.get(one.job)), std::nullopt);
  EXPECT_EQ(jobs(), 0);

  run("COMMIT");

  EXPECT_EQ(must(client_.get(one.job))->kind, "one");
  EXPECT_EQ(must(client_.get(many.at(2).job))->kind, "more");
  EXPECT_EQ(jobs(), 4);
  EXPECT_EQ(orders(), 1);
}

TEST_F(ClientTransactionTest, a_rollback_takes_them_back) {
  run("BEGIN");
  run("INSERT INTO orders VALUES (1)");
  const Submission added = must(client_.enqueue_in(own_.get(), NewJob{.kind = "k", .idempotency_key = "a"}));
  run("ROLLBACK");
  EXPECT_EQ(must(client_.get(added.job)), std::nullopt);
  EXPECT_EQ(orders(), 0);
  EXPECT_EQ(must(client_.enqueue(NewJob{.kind = "k", .payload = "2", .idempotency_key = "a"})).status,
            Status::created);
}

TEST_F(ClientTransactionTest, a_refused_job_leaves_it_as_it_was) {
  run("BEGIN");
  run("INSERT INTO orders VALUES (1)");
  expect_error(client_.enqueue_in(own_.get(), NewJob{.kind = "k", .payload = "{"}),
               ErrorCode::payload_invalid, "not valid JSON");
  run("COMMIT");
  EXPECT_EQ(orders(), 1);
  EXPECT_EQ(jobs(), 0);
}

TEST_F(ClientTransactionTest, a_conflict_cannot_be_overlooked) {
  const JobId owner = must(client_.enqueue({.kind = "k", .payload = "1", .idempotency_key = "a"})).job;
  const NewJob other{.kind = "k", .payload = "2", .idempotency_key = "a"};
  run("BEGIN");
  run("INSERT INTO orders VALUES (1)");
  const auto one = client_.enqueue_in(own_.get(), other);
  expect_error(one, ErrorCode::conflict, owner.to_string());
  const auto batch = client_.enqueue_in(own_.get(), {{.kind = "plain"}, other});
  expect_error(batch, ErrorCode::conflict, owner.to_string());
  EXPECT_EQ(batch.error().job, owner);
  // Whoever does not look: of half a batch nothing is committed.
  run("COMMIT");
  EXPECT_EQ(orders(), 0);
  EXPECT_EQ(jobs(), 1);
}

TEST_F(ClientTransactionTest, a_connection_without_one_is_refused) {
  expect_error(client_.enqueue_in(own_.get(), NewJob{.kind = "k"}), ErrorCode::invalid_argument,
               "no open transaction");
  expect_error(client_.enqueue_in(nullptr, NewJob{.kind = "k"}), ErrorCode::invalid_argument,
               "no open transaction");
  EXPECT_EQ(jobs(), 0);
}

}  // namespace
}  // namespace faultline::testing

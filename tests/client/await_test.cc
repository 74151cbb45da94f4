// Waiting for a job's end: every end there is, the caller's time, and a database that goes away meanwhile.

#include <csignal>
#include <future>

#include <gmock/gmock.h>

#include "faultline/client.h"
#include "pg/wire_proxy.h"
#include "private_pg/private_postgres.h"
#include "schema/migrator.h"
#include "store/fixture.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ms = std::chrono::milliseconds;

constexpr ms kLong{120'000};
constexpr ms kNoTime{0};
/// The time of a call where the database is away for longer, and long enough for calls that must succeed.
constexpr ms kCall{2'000};

class AwaitTest : public StoreTest {
 protected:
  AwaitTest() : client_(must(Client::open({.database = database_.dsn(), .name = "awaiter"}))) {}

  /// An `await` in a thread of its own that has looked at least once.
  std::future<Expected<std::vector<Job>>> begin_await(std::vector<JobId> ids, ms timeout = kLong) {
    auto waiting = std::async(std::launch::async,
                              [this, ids = std::move(ids), timeout] { return client_.await(ids, timeout); });
    EXPECT_TRUE(eventually([this] { return looks() > 0; }));
    return waiting;
  }
  /// Connections on which an `await` has looked.
  std::int64_t looks() {
    return number(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE '%awaiter%' AND query LIKE '%shown_state%'");
  }

  Client client_;
};

TEST_F(AwaitTest, a_job_that_has_ended_comes_back_without_any_time_to_wait) {
  const JobId good = enqueue();
  settle(claim_one("A").lease, Outcome::success("42"));
  const JobId dead = enqueue();
  settle(claim_one("A").lease, Outcome::bury("broken"));
  const JobId cancelled = enqueue();
  cancel(cancelled);

  const Job done = must(client_.await(good, kNoTime));
  EXPECT_EQ(done.id, good);
  EXPECT_EQ(done.state, JobState::succeeded);
  EXPECT_EQ(done.result, "42");
  const Job buried = must(client_.await(dead, kNoTime));
  EXPECT_EQ(buried.state, JobState::dead);
  EXPECT_EQ(buried.last_error, "broken");
  const Job gone = must(client_.await(cancelled, ms{-1}));
  EXPECT_EQ(gone.state, JobState::cancelled);
  EXPECT_EQ(gone.last_error, "not wanted");
}

TEST_F(AwaitTest, a_job_that_goes_on_times_out_and_is_left_alone) {
  const JobId waiting = enqueue();
  const JobId running = enqueue({.priority = 0});
  claim_one("A");
  const JobId scheduled = enqueue({.delay = ms{60'000}});
  for (const JobId id : {waiting, running, scheduled}) {
    for (const ms timeout : {kNoTime, ms{30}}) {
      const auto late = client_.await(id, timeout);
      ASSERT_FALSE(late.has_value());
      EXPECT_EQ(late.error().code, ErrorCode::timed_out);
      EXPECT_THAT(late.error().message, HasSubstr(id.to_string()));
    }
  }
  EXPECT_EQ(job(running).state, JobState::running);
}

TEST_F(AwaitTest, an_end_that_comes_meanwhile_is_seen) {
  struct Case {
    Outcome outcome;
    JobState state;
  };
  for (const auto& [outcome, state] :
       {Case{Outcome::success("sent"), JobState::succeeded}, Case{Outcome::bury("broken"), JobState::dead},
        Case{Outcome::cancel("no more"), JobState::cancelled}}) {
    SCOPED_TRACE(to_string(state));
    const JobId id = enqueue();
    const Lease lease = claim_one("A").lease;
    auto waiting = begin_await({id});
    EXPECT_TRUE(settle(lease, outcome).committed());
    const Job ended = must(waiting.get()).at(0);
    EXPECT_EQ(ended.state, state);
    EXPECT_EQ(ended.result, outcome.result);
    EXPECT_EQ(ended.last_error, outcome.error);
  }
}

TEST_F(AwaitTest, a_retry_is_waited_for_and_so_is_a_held_job) {
  const JobId id = enqueue({.backoff_base = ms{0}, .delivery = Delivery::hold});
  const Lease first = claim_one("A").lease;
  auto waiting = begin_await({id});
  settle(first, Outcome::failure("not yet"));
  claim_one("A");
  advance(kTtl);
  ASSERT_EQ(sweep().size(), 1U);
  ASSERT_EQ(job(id).state, JobState::held);
  const auto held = client_.await(id, ms{20});
  ASSERT_FALSE(held.has_value());
  EXPECT_EQ(held.error().code, ErrorCode::timed_out);

  ASSERT_EQ(requeue(id), RequeueStatus::requeued);
  settle(claim_one("B").lease, Outcome::success("at last"));
  EXPECT_EQ(must(waiting.get()).at(0).result, "at last");
}

TEST_F(AwaitTest, many_jobs_come_back_in_their_order_when_the_last_has_ended) {
  const std::vector<JobId> ids = enqueue_many(40);
  std::vector<ClaimedJob> claimed = claim("A", 40);
  ASSERT_EQ(claimed.size(), 40U);
  std::vector<JobId> wanted{ids.rbegin(), ids.rend()};
  wanted.push_back(ids[0]);
  auto waiting = begin_await(wanted);
  for (const ClaimedJob& one : claimed) settle(one.lease, Outcome::success(one.lease.job.to_string()));

  const std::vector<Job> ended = must(waiting.get());
  ASSERT_EQ(ended.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(ended[i].id, wanted[i]);
    EXPECT_EQ(ended[i].result, wanted[i].to_string());
  }
}

TEST_F(AwaitTest, one_job_that_goes_on_is_enough_to_time_out) {
  const JobId first = enqueue();
  settle(claim_one("A").lease, Outcome::success());
  const JobId second = enqueue();
  const auto late = client_.await(std::vector{first, second}, ms{20});
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, ErrorCode::timed_out);
  EXPECT_THAT(late.error().message, HasSubstr(second.to_string()));
}

TEST_F(AwaitTest, no_jobs_have_all_ended) {
  EXPECT_TRUE(must(client_.await(std::vector<JobId>{}, kNoTime)).empty());
}

TEST_F(AwaitTest, an_unknown_job_is_an_error_at_once) {
  const JobId nobody = JobId{Uuid::random()};
  const JobId ballast{Uuid::parse("00000000-0000-7000-8000-000000010000").value()};
  for (const JobId id : {nobody, ballast}) {
    const auto refused = client_.await(std::vector{enqueue(), id}, ms{std::chrono::hours{1}});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(refused.error().message, HasSubstr("there is no job " + id.to_string()));
  }
}

TEST_F(AwaitTest, a_lost_connection_is_made_again) {
  const JobId id = enqueue();
  const Lease lease = claim_one("A").lease;
  auto waiting = begin_await({id});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(eventually([this] { return looks() > 0; }));
    // It may be connecting at this very moment.
    ASSERT_TRUE(eventually([this] {
      return number(
                 "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                 " WHERE datname = current_database() AND application_name LIKE '%awaiter%'") > 0;
    }));
  }
  settle(lease, Outcome::success("still there"));
  EXPECT_EQ(must(waiting.get()).at(0).result, "still there");
}

TEST_F(AwaitTest, a_database_that_does_not_answer_is_unavailable_and_is_waited_for) {
  WireProxy proxy{database_.dsn()};
  Client far = must(Client::open({.database = proxy.dsn(), .name = "awaiter", .call_timeout = kCall}));
  const JobId id = enqueue();
  const Lease lease = claim_one("A").lease;
  ASSERT_EQ(far.await(id, kNoTime).error().code, ErrorCode::timed_out);
  auto waiting = std::async(std::launch::async, [&] { return far.await(id, kLong); });
  proxy.stall();

  // A look whose answer did not come has left nothing behind that could be unknown.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(far.await(id, kNoTime).error().code, ErrorCode::unavailable);
  settle(lease, Outcome::success("after the silence"));
  proxy.resume();

  EXPECT_EQ(must(waiting.get()).result, "after the silence");
}

TEST(AwaitRestartTest, a_database_that_restarts_is_waited_for_beyond_the_time_of_a_call) {
  const ScratchDir scratch;
  PrivatePostgresOptions options;
  options.data_dir = scratch / "data";
  options.durable = false;
  PrivatePostgres server = start_provided_server(options);
  {
    pg::Connection connection = connect(server.dsn());
    must(schema::migrate(connection, {}, soon()));
  }
  const JobId id = must(must(Store::open({.database = server.dsn()})).enqueue(NewJob{.kind = "k"})).job;
  Client client = must(Client::open({.database = server.dsn(), .name = "awaiter", .call_timeout = kCall}));
  auto waiting = std::async(std::launch::async, [&] { return client.await(id, kLong); });
  {
    pg::Connection connection = connect(server.dsn());
    ASSERT_TRUE(eventually([&] {
      return query_text(connection,
                        "SELECT count(*)::text FROM pg_stat_activity WHERE application_name LIKE '%awaiter%'"
                        " AND query LIKE '%shown_state%'") != "0";
    }));
  }

  ::kill(server.postmaster_pid(), SIGQUIT);
  ASSERT_TRUE(eventually([&] { return server.postmaster_pid() == 0; }));
  // It gives up when the time of a call is over, so the other one has gone on for longer.
  const auto looked = client.await(id, kNoTime);
  ASSERT_FALSE(looked.has_value());
  EXPECT_EQ(looked.error().code, ErrorCode::unavailable);
  must(server.ensure_running());

  Store store = must(Store::open({.database = server.dsn()}));
  const std::vector<ClaimedJob> claimed = must(store.claim({.worker = "A"}));
  ASSERT_EQ(claimed.size(), 1U);
  const Settlement done{.lease = claimed[0].lease, .outcome = Outcome::success("after the restart")};
  must(store.settle({&done, 1}));
  EXPECT_EQ(must(waiting.get()).result, "after the restart");
}

}  // namespace
}  // namespace faultline::testing

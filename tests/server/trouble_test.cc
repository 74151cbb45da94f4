// What becomes of a server, and of the jobs behind it, when things go wrong. All with real processes.

#include <atomic>
#include <fstream>
#include <memory>
#include <set>
#include <thread>

#include "faultline/store.h"
#include "faultline/worker.h"
#include "schema/migrator.h"
#include "serve_process.h"

namespace faultline::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

const nlohmann::json kJob = {{"kind", "k"}};

/// A durable PostgreSQL of this test's own, with the schema in it, that can be killed.
class OwnPostgres {
 public:
  OwnPostgres() : server_(start_provided_server({.data_dir = scratch_ / "data"})) {
    pg::Connection connection = connect(server_.dsn());
    must(schema::migrate(connection, {}, soon()));
  }
  [[nodiscard]] const std::string& dsn() const { return server_.dsn(); }
  void kill() {
    ::kill(server_.postmaster_pid(), SIGQUIT);
    if (!eventually([&] { return server_.postmaster_pid() == 0; }))
      throw std::runtime_error("it did not die");
  }
  void revive() { must(server_.ensure_running()); }

 private:
  ScratchDir scratch_;
  PrivatePostgres server_;
};

std::int64_t resident_kib(pid_t pid) {
  std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
  for (std::string word; status >> word;) {
    if (word != "VmRSS:") continue;
    std::int64_t kib = 0;
    status >> kib;
    return kib;
  }
  throw std::runtime_error("no VmRSS");
}

TEST(ServerTroubleTest, a_database_that_is_not_there_yet_is_waited_for) {
  OwnPostgres postgres;
  postgres.kill();
  ServeProcess server{postgres.dsn()};
  server.wait_until_it_serves();
  EXPECT_EQ(http_get(server.http_port(), "/health").status, 200);
  EXPECT_EQ(http_get(server.http_port(), "/ready").status, 503);
  const HttpResponse refused = http_post(server.http_port(), "/v1/jobs", kJob);
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_NE(refused.header("retry-after"), "");
  EXPECT_EQ(refused.json().value("code", ""), "unavailable");

  postgres.revive();

  server.wait_until_ready();
  EXPECT_EQ(http_post(server.http_port(), "/v1/jobs", kJob).status, 201);
}

TEST(ServerTroubleTest, what_was_acknowledged_is_there_after_the_database_was_killed_midway) {
  OwnPostgres postgres;
  ServeProcess server{postgres.dsn()};
  server.wait_until_ready();
  std::atomic<bool> over{false};
  std::atomic<int> sent{0};
  std::mutex mutex;
  std::vector<std::string> acknowledged;
  std::set<int> statuses;
  std::vector<std::jthread> producers;
  for (int i = 0; i < 4; ++i) {
    producers.emplace_back([&] {
      while (!over) {
        const std::string key = "key-" + std::to_string(++sent);
        const HttpResponse answer =
            http_post(server.http_port(), "/v1/jobs", {{"kind", "k"}, {"idempotency_key", key}});
        const std::lock_guard lock{mutex};
        statuses.insert(answer.status);
        if (answer.status == 201) acknowledged.push_back(answer.json().at("job_id"));
      }
    });
  }
  const auto acknowledged_so_far = [&] {
    const std::lock_guard lock{mutex};
    return acknowledged.size();
  };
  ASSERT_TRUE(eventually([&] { return acknowledged_so_far() > 50; }));

  postgres.kill();
  ASSERT_TRUE(eventually([&] { return http_post(server.http_port(), "/v1/jobs", kJob).status == 503; }));
  const std::size_t before = acknowledged_so_far();
  postgres.revive();
  ASSERT_TRUE(eventually([&] { return acknowledged_so_far() > before + 50; })) << server.process().err();
  over = true;
  producers.clear();

  EXPECT_THAT(statuses, ::testing::IsSubsetOf({201, 503, 500}));
  Store store = must(Store::open({.database = postgres.dsn()}));
  std::vector<JobId> ids;
  for (const std::string& id : acknowledged) ids.push_back({*Uuid::parse(id)});
  std::set<JobId> distinct{ids.begin(), ids.end()};
  EXPECT_EQ(distinct.size(), ids.size());
  const auto states = must(store.states(ids));
  EXPECT_THAT(states, Each(::testing::Eq(JobState::available)));
}

/// Remote workers on two replicas, one of which is ended in the middle, one way or another.
class ReplicaTest : public ::testing::Test {
 protected:
  static constexpr int kJobs = 400;

  void SetUp() override {
    store_.emplace(must(Store::open({.database = database_.dsn()})));
    must(store_->set_queue("default", {.lease_ttl = 5s}));
  }

  std::vector<JobId> add_jobs() {
    std::vector<JobId> ids;
    for (const Submission& added : must(store_->enqueue(std::vector<NewJob>(kJobs, NewJob{.kind = "k"}))))
      ids.push_back(added.job);
    return ids;
  }

  /// A worker of both replicas, in this process.
  std::unique_ptr<Worker> worker_on(const std::string& servers, const std::string& name) {
    auto worker = std::make_unique<Worker>(
        Worker::connect(servers, {.name = name, .slots = 2, .log = [](const Event&) {}}));
    worker->handle("k", [this](Context&) {
      std::this_thread::sleep_for(5ms);
      ++executed_;
    });
    must(worker->start());
    return worker;
  }

  void all_are_committed_once(const std::vector<JobId>& ids) {
    ASSERT_TRUE(eventually([&] {
      const auto states = must(store_->states(ids));
      return std::ranges::all_of(states, [](const auto& state) { return state == JobState::succeeded; });
    }));
    auto connection = database_.connect();
    EXPECT_EQ(
        query_text(connection, "SELECT count(*)::text FROM faultline.ledger WHERE outcome = 'succeeded'"),
        std::to_string(kJobs));
  }

  TestDatabase database_;
  std::optional<Store> store_;
  std::atomic<int> executed_{0};
};

TEST_F(ReplicaTest, one_that_is_killed_while_it_streams_loses_nothing) {
  ServeProcess one{database_.dsn()};
  ServeProcess other{database_.dsn()};
  one.wait_until_ready();
  other.wait_until_ready();
  const std::string addresses = one.url() + "," + other.url().substr(std::string{"faultline://"}.size());
  const auto ids = add_jobs();
  const auto a = worker_on(addresses, "A");
  const auto b = worker_on(addresses, "B");
  ASSERT_TRUE(eventually([&] { return executed_ > kJobs / 10; }));

  one.process().send(SIGKILL);

  all_are_committed_once(ids);
}

TEST_F(ReplicaTest, one_that_is_told_to_stop_says_that_it_is_not_ready_first_and_hands_its_streams_on) {
  ServeProcess one{database_.dsn(), {"--drain-delay", "3s"}};
  ServeProcess other{database_.dsn()};
  one.wait_until_ready();
  other.wait_until_ready();
  const std::string addresses = one.url() + "," + other.url().substr(std::string{"faultline://"}.size());
  const auto ids = add_jobs();
  const auto a = worker_on(addresses, "A");
  const auto b = worker_on(addresses, "B");
  ASSERT_TRUE(eventually([&] { return executed_ > kJobs / 10; }));

  one.process().send(SIGTERM);

  // Not ready any more, and yet it answers: for the time that a load balancer needs to notice.
  ASSERT_TRUE(eventually([&] { return http_get(one.http_port(), "/ready").status != 200; }));
  EXPECT_EQ(http_post(one.http_port(), "/v1/jobs", {{"kind", "k"}, {"delay_ms", 3'600'000}}).status, 201);
  EXPECT_EQ(one.process().wait().exit_code, 0);
  all_are_committed_once(ids);
  auto connection = database_.connect();
  EXPECT_EQ(query_text(connection, "SELECT count(*)::text FROM faultline.stale_writes"), "0");
}

TEST(ServerTroubleTest, too_much_is_refused_at_once_and_memory_stays_flat) {
  const TestDatabase database;
  ServeProcess server{database.dsn(), {"--waiting-max", "100"}};
  server.wait_until_ready();
  const std::string padding(25'000, 'x');
  // Made once: what is measured is the server.
  const std::string batch = nlohmann::json(20, {{"kind", "k"}, {"payload", padding}}).dump();
  const auto post = [&] {
    return http(server.http_port(), {.method = "POST",
                                     .target = "/v1/jobs",
                                     .body = batch,
                                     .headers = {{"Content-Type", "application/json"}}})
        .status;
  };
  ASSERT_EQ(post(), 201);

  // The database answers, and adds nothing. Not by a lock of the table, for which it would not be ready.
  pg::Connection locker = database.connect();
  must(locker.exec_script(
      "CREATE FUNCTION faultline.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
      " PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;"
      "CREATE TRIGGER wait BEFORE INSERT ON faultline.jobs EXECUTE FUNCTION faultline.wait();"
      "SELECT pg_advisory_lock(1)",
      soon()));
  // 100 items wait; everything else must be refused, however much comes.
  std::atomic<bool> over{false};
  std::atomic<int> refused{0};
  std::vector<std::jthread> producers;
  for (int i = 0; i < 16; ++i) {
    producers.emplace_back([&] {
      while (!over) {
        if (post() == 429) ++refused;
      }
    });
  }
  // Also when this test fails: they are waited for.
  const std::unique_ptr<std::atomic<bool>, void (*)(std::atomic<bool>*)> end{
      &over, [](std::atomic<bool>* flag) { *flag = true; }};
  ASSERT_TRUE(eventually([&] { return refused > 50; }));
  const std::int64_t early = resident_kib(server.process().pid());
  ASSERT_TRUE(eventually([&] { return refused > 300; }));
  const std::int64_t late = resident_kib(server.process().pid());
  over = true;
  must(locker.exec_script("SELECT pg_advisory_unlock(1)", soon()));
  producers.clear();

  // The refused requests in between were 125 MB.
  EXPECT_LT(late, early + 50 * 1'024);
  ASSERT_TRUE(eventually([&] { return post() == 201; }));
}

TEST(ServerTroubleTest, a_second_signal_cuts_the_wait_short) {
  const TestDatabase database;
  ServeProcess server{database.dsn(), {"--drain-delay", "10m"}};
  server.wait_until_ready();
  server.process().send(SIGTERM);
  ASSERT_TRUE(eventually([&] { return http_get(server.http_port(), "/ready").status == 503; }));

  const ProcessResult result = server.terminate();

  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace faultline::testing

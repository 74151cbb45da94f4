// Servers that die, stop, stall or lose their answers: nothing is lost, and nothing counts twice.

#include <atomic>
#include <csignal>
#include <map>

#include <gmock/gmock.h>

#include "remote/fixture.h"
#include "remote/tcp_proxy.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;

/// A server in a process of its own.
class ServerProcess {
 public:
  explicit ServerProcess(const std::string& database, std::uint16_t port = 0)
      : process_({.argv = {SERVER_PROCESS, database, std::to_string(port)}}) {
    if (!eventually([&] { return !process_.running() || process_.out().contains('\n'); }))
      throw std::runtime_error("the server does not start");
    if (!process_.running()) throw std::runtime_error(process_.err());
    port_ = static_cast<std::uint16_t>(std::stoi(process_.out().substr(std::string{"port "}.size())));
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url() const { return "faultline://127.0.0.1:" + std::to_string(port_); }
  void kill() {
    process_.send(SIGKILL);
    process_.wait();
  }

 private:
  ChildProcess process_;
  std::uint16_t port_ = 0;
};

class RemoteTroubleTest : public RemoteTest {
 protected:
  /// Each job was committed once, and nobody's write was refused as one that came twice.
  void expect_all_succeeded_once(std::int64_t jobs) {
    EXPECT_EQ(counts().succeeded, jobs);
    EXPECT_EQ(successes(), jobs);
    EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes WHERE reason = 'already_settled'"), 0);
  }
};

TEST_F(RemoteTroubleTest, a_worker_survives_that_its_server_is_killed_and_comes_back) {
  set_ttl(ms{20'000});
  std::optional<ServerProcess> server{std::in_place, database_.dsn()};
  const std::uint16_t port = server->port();
  constexpr std::int64_t kJobs = 300;
  (void)enqueue_many(kJobs);
  std::atomic<int> ran{0};
  Gate half;
  LinkedOptions made = remote(server->url());
  made.log_from = Severity::info;
  Worker worker = make_worker(made);
  worker.handle("test", [&](Context&) {
    if (++ran > kJobs / 2) half.pass();
  });
  must(worker.start());
  ASSERT_TRUE(half.reached_by(4));
  server->kill();
  // These end, and their results find no server.
  half.open();
  ASSERT_TRUE(eventually([&] { return events_.count("server_lost") > 0; }));
  server.emplace(database_.dsn(), port);
  // What the dead server had claimed and not sent comes back when its lease has run out.
  ASSERT_TRUE(sweeping_until([&] { return counts().succeeded == kJobs; }));
  EXPECT_TRUE(eventually([&] { return events_.count("server_back") > 0; }));
  EXPECT_EQ(worker.drain().unsettled, 0U);
  expect_all_succeeded_once(kJobs);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(RemoteTroubleTest, results_whose_answer_was_lost_are_sent_again_and_count_once) {
  LocalServer server{database_.dsn()};
  TcpProxy proxy{server.port()};
  const auto ids = enqueue_many(2);
  Gate gate;
  Worker worker = make_worker(remote(proxy.url()));
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(2));
  proxy.lose_answers();
  gate.open();
  ASSERT_TRUE(eventually([&] { return counts().succeeded == 2; }));
  EXPECT_EQ(worker.stats().settled, 0U);
  proxy.lose_no_answers();
  proxy.cut();
  EXPECT_TRUE(eventually([&] { return worker.stats().settled == 2; }));
  EXPECT_EQ(worker.drain().unsettled, 0U);
  expect_all_succeeded_once(2);
  EXPECT_EQ(evidence(), 0);
  for (const JobId id : ids) EXPECT_THAT(outcomes(id), ElementsAre("succeeded"));
}

TEST_F(RemoteTroubleTest, a_result_that_arrives_after_its_repeat_is_no_stale_write) {
  set_ttl(ms{60'000});  // no heartbeat is held back and comes late, too
  LocalServer server{database_.dsn()};
  TcpProxy proxy{server.port()};
  const JobId id = enqueue();
  Gate gate;
  Worker worker = make_worker(remote(proxy.url()));
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  proxy.hold_requests();
  gate.open();
  ASSERT_TRUE(eventually([&] { return proxy.holds(id.to_string()); }));
  proxy.cut_clients();
  ASSERT_TRUE(eventually([&] { return worker.stats().settled == 1; }));
  ASSERT_EQ(server.counted("faultline_jobs_settled_total"), 1U);

  proxy.deliver_late();

  ASSERT_TRUE(eventually([&] { return proxy.answered_nobody(id.to_string()); }));
  EXPECT_EQ(server.counted("faultline_jobs_settled_total"), 1U);
  EXPECT_EQ(server.counted("faultline_stale_writes_blocked_total"), 0U);
  expect_all_succeeded_once(1);
  EXPECT_EQ(evidence(), 0);
  EXPECT_THAT(outcomes(id), ElementsAre("succeeded"));
}

TEST_F(RemoteTroubleTest, connections_that_are_cut_again_and_again_lose_nothing) {
  set_ttl(ms{3'000});
  LocalServer server{database_.dsn()};
  TcpProxy proxy{server.port()};
  constexpr std::int64_t kJobs = 600;
  (void)enqueue_many(kJobs, {.backoff_base = ms{0}});
  LinkedOptions made = remote(proxy.url());
  made.log_from = Severity::info;
  Worker worker = make_worker(made);
  std::atomic<int> ran{0};
  worker.handle("test", [&](Context&) {
    // No oftener than that: on a machine so busy that jobs lose their leases and run again, it must end, too.
    if (const int now = ++ran; now % 50 == 0 && now <= kJobs) proxy.cut();
  });
  must(worker.start());
  // What was on its way to the worker comes back when its lease has run out.
  ASSERT_TRUE(sweeping_until([&] { return counts().succeeded == kJobs; }));
  EXPECT_EQ(worker.drain().unsettled, 0U);
  expect_all_succeeded_once(kJobs);
}

TEST_F(RemoteTroubleTest, a_stream_that_brought_jobs_was_a_good_one_and_the_next_one_does_not_wait) {
  set_ttl(ms{3'000});
  LocalServer server{database_.dsn()};
  TcpProxy proxy{server.port()};
  constexpr std::int64_t kJobs = 60;
  (void)enqueue_many(kJobs, {.backoff_base = ms{0}});
  LinkedOptions made = remote(proxy.url());
  made.slots = 1;
  made.prefetch_max = 0;
  Worker worker = make_worker(made);
  worker.handle("test", [&](Context&) { proxy.cut(); });
  must(worker.start());
  // With longer and longer waits between streams there would not be enough time.
  EXPECT_TRUE(sweeping_until([&] { return counts().succeeded == kJobs; }));
  EXPECT_EQ(worker.drain().unsettled, 0U);
  expect_all_succeeded_once(kJobs);
}

TEST_F(RemoteTroubleTest, once_goes_on_when_the_server_is_back) {
  std::optional<ServerProcess> server{std::in_place, database_.dsn()};
  const std::uint16_t port = server->port();
  const JobId id = enqueue({.attempts_max = 1});
  Gate gate;
  std::atomic<int> done{0};
  Worker worker = make_worker(remote(server->url()));
  worker.handle("test", [&](Context& ctx) {
    gate.pass();
    static_cast<void>(ctx.once("effect", [&] {
      ++done;
      return std::string{"done"};
    }));
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  server->kill();
  gate.open();
  server.emplace(database_.dsn(), port);
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(RemoteTroubleTest, an_effect_that_was_begun_without_an_answer_is_begun_all_the_same) {
  LocalServer server{database_.dsn()};
  TcpProxy proxy{server.port()};
  const JobId id = enqueue({.attempts_max = 1});
  Gate gate;
  Worker worker = make_worker(remote(proxy.url()));
  worker.handle("test", [&](Context& ctx) {
    gate.pass();
    static_cast<void>(ctx.once("effect", [] { return std::string{"done"}; }));
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  proxy.lose_answers();
  gate.open();
  ASSERT_TRUE(eventually([&] { return number("SELECT count(*) FROM faultline.effects") == 1; }));
  proxy.lose_no_answers();
  proxy.cut();
  EXPECT_TRUE(reaches(id, JobState::succeeded));
}

TEST_F(RemoteTroubleTest, what_another_call_of_the_same_attempt_announced_may_have_happened) {
  const LocalServer server{database_.dsn()};
  const JobId id = enqueue({.attempts_max = 1});
  Worker worker = make_worker(remote(server.url()));
  worker.handle("test", [](Context& ctx) {
    try {
      static_cast<void>(ctx.once("effect", []() -> std::string { throw std::runtime_error("a timeout"); }));
    } catch (const std::runtime_error&) {
    }
    // It throws NotDone, and takes back what it announced itself: nothing.
    try {
      static_cast<void>(ctx.once("effect", []() -> std::string { throw NotDone{"refused"}; }, run_again));
    } catch (const NotDone&) {
    }
    static_cast<void>(ctx.once("effect", [] { return std::string{"twice"}; }));
  });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::dead));
  EXPECT_THAT(job(id).last_error.value_or(""), ::testing::HasSubstr("never recorded"));
}

TEST_F(RemoteTroubleTest, a_server_that_stops_sends_its_workers_to_another_one_and_nothing_is_lost) {
  set_ttl(ms{60'000});
  std::optional<LocalServer> first{std::in_place, database_.dsn()};
  LocalServer second{database_.dsn()};
  std::int64_t jobs = 400;
  (void)enqueue_many(400);
  std::atomic<int> ran{0};
  Gate half;
  LinkedOptions made = remote(first->url() + ",127.0.0.1:" + std::to_string(second.port()));
  made.log_from = Severity::info;
  Worker worker = make_worker(made);
  worker.handle("test", [&](Context&) {
    if (++ran > 200) half.pass();
  });
  must(worker.start());
  ASSERT_TRUE(half.reached_by(4));
  EXPECT_EQ(second.counted("faultline_lease_acquisitions_total"), 0U);
  first->drain();
  half.open();
  ASSERT_TRUE(eventually([&] {
    (void)enqueue();
    ++jobs;
    return second.counted("faultline_lease_acquisitions_total") > 0;
  }));
  // Nobody ends leases here: a job that was lost on the way would stay lost.
  ASSERT_TRUE(eventually([&] { return counts().succeeded == jobs; }));
  first.reset();
  EXPECT_EQ(worker.drain().unsettled, 0U);
  expect_all_succeeded_once(jobs);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(RemoteTroubleTest, behind_a_balancer_the_next_connection_leads_to_the_other_replica) {
  std::optional<LocalServer> first{std::in_place, database_.dsn()};
  LocalServer second{database_.dsn()};
  TcpProxy balancer{first->port()};
  const JobId before = enqueue();
  Worker worker = make_worker(remote(balancer.url()));
  worker.handle("test", [](Context&) {});
  must(worker.start());
  ASSERT_TRUE(reaches(before, JobState::succeeded));
  balancer.lead_to(second.port());
  first->drain();
  std::vector<JobId> after;
  ASSERT_TRUE(eventually([&] {
    after.push_back(enqueue());
    return second.counted("faultline_lease_acquisitions_total") > 0;
  }));
  for (const JobId id : after) EXPECT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(evidence(), 0);
}

TEST_F(RemoteTroubleTest,
       handlers_are_stopped_by_their_own_clock_when_the_server_is_gone_for_longer_than_the_lease) {
  set_ttl(ms{2'000});
  LocalServer server{database_.dsn()};
  TcpProxy proxy{server.port()};
  const JobId id = enqueue({.attempts_max = 5, .backoff_base = ms{0}});
  Gate stalled;
  Gate late;
  std::atomic<StopReason> reason{StopReason::none};
  std::atomic<bool> fenced{false};
  LinkedOptions one = remote(proxy.url());
  one.slots = 1;
  Worker worker = make_worker(one);
  worker.handle("test", [&](Context& ctx) {
    stalled.pass();
    reason = wait_for_stop(ctx);
    late.pass();
    try {
      ctx.check_fence();
    } catch (const LeaseLost&) {
      fenced = true;
      throw;
    }
  });
  must(worker.start());
  ASSERT_TRUE(stalled.reached_by(1));
  proxy.stall();
  stalled.open();
  ASSERT_TRUE(eventually([&] { return reason == StopReason::lease_lost; }));
  Lease rival;
  ASSERT_TRUE(sweeping_until([&] {
    auto claimed = must(store_.claim({.worker = "rival"}));
    if (claimed.empty()) return false;
    rival = claimed.front().lease;
    return true;
  }));
  EXPECT_TRUE(settle(rival, Outcome::success("\"rival\"")).committed());
  // Now it comes back, and says something that nobody wants to hear any more.
  proxy.resume();
  proxy.cut();
  late.open();
  ASSERT_TRUE(eventually([&] { return fenced.load(); }));
  worker.drain();
  EXPECT_EQ(job(id).result, "\"rival\"");
  EXPECT_GE(evidence(), 1);
  EXPECT_EQ(successes(), 1);
}

TEST_F(RemoteTroubleTest, a_deadline_is_never_later_than_the_lease_however_long_the_job_was_on_its_way) {
  LocalServer server{database_.dsn()};
  TcpProxy proxy{server.port()};
  Worker worker = make_worker(remote(proxy.url()));
  std::atomic<std::int64_t> own_ms{0};
  std::atomic<std::int64_t> databases_ms{0};
  worker.handle("test", [&](Context& ctx) {
    databases_ms = number(
        "SELECT (extract(epoch FROM lease_expires_at - faultline.clock()) * 1000)::bigint FROM "
        "faultline.jobs "
        "WHERE state = 'running' AND queue <> ''");
    // Asked later, so what is left by this clock must be less.
    own_ms = std::chrono::duration_cast<ms>(ctx.deadline() - std::chrono::steady_clock::now()).count();
  });
  must(worker.start());
  ASSERT_TRUE(eventually([&] { return server.service().counters().consumers == 1; }));
  // The credit has arrived; now what the server sends does not.
  const JobId first = enqueue();
  ASSERT_TRUE(reaches(first, JobState::succeeded));
  proxy.stall();
  const JobId id = enqueue();
  ASSERT_TRUE(reaches(id, JobState::running));
  const auto until = std::chrono::steady_clock::now() + ms{3'000};
  ASSERT_TRUE(eventually([&] { return std::chrono::steady_clock::now() > until; }));
  proxy.resume();
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_GT(own_ms, 0);
  EXPECT_LE(own_ms, databases_ms);
}

TEST_F(RemoteTroubleTest, a_worker_outlives_a_database_that_is_away_behind_the_server) {
  LocalServer server{database_.dsn()};
  const JobId before = enqueue();
  Worker worker = make_worker(remote(server.url()));
  worker.handle("test", [](Context&) {});
  must(worker.start());
  ASSERT_TRUE(reaches(before, JobState::succeeded));
  script(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
      "pg_backend_pid() AND application_name LIKE 'faultline serve%'");
  const JobId after = enqueue();
  EXPECT_TRUE(reaches(after, JobState::succeeded));
}

}  // namespace
}  // namespace faultline::testing

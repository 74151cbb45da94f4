#include <gmock/gmock.h>

#include "metrics/samples.h"
#include "support/http_client.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class WorkerMetricsTest : public WorkerTest {
 protected:
  [[nodiscard]] WorkerOptions with_endpoint() {
    WorkerOptions made = options();
    made.metrics_listen = "127.0.0.1:0";
    made.watchdog = false;
    return made;
  }
  [[nodiscard]] static std::string settled_as(const std::string& kind, const std::string& outcome) {
    return "faultline_jobs_settled_total{kind=\"" + kind + "\",outcome=\"" + outcome +
           "\",queue=\"default\"}";
  }
};

TEST_F(WorkerMetricsTest, every_outcome_of_its_jobs_is_counted) {
  Worker worker{with_endpoint()};
  worker.handle("good", [](Context&) { return Outcome::success("\"canary-result\""); });
  worker.handle("bad", [](Context&) -> Outcome { throw Fail{"canary-error"}; });
  worker.handle("buried", [](Context&) -> Outcome { throw Bury{"canary-error"}; });
  worker.handle("fenced", [](Context& ctx) { ctx.commit([](Transaction&) {}); });
  must(worker.start());
  enqueue_many(20, {.kind = "good", .payload = "\"canary-payload\""});
  enqueue({.kind = "bad", .attempts_max = 1});
  enqueue({.kind = "buried"});
  enqueue({.kind = "fenced"});
  ASSERT_TRUE(
      eventually([&] { return sum_of(worker.metrics(), "faultline_execution_seconds_count") == 23; }));
  ASSERT_TRUE(
      eventually([&] { return sum_of(worker.metrics(), "faultline_lease_held_seconds_count") == 23; }));

  const HttpResponse answer = http_get(worker.metrics_port(), "/metrics");
  ASSERT_EQ(answer.status, 200);
  const std::string& text = answer.body;
  EXPECT_EQ(lint(text), "");
  EXPECT_EQ(sample(text, settled_as("good", "succeeded")), 20);
  EXPECT_EQ(sample(text, settled_as("bad", "failed")), 1);
  EXPECT_EQ(sample(text, settled_as("buried", "buried")), 1);
  EXPECT_EQ(sample(text, settled_as("fenced", "succeeded")), 1);
  EXPECT_EQ(sample(text, R"(faultline_jobs_dead_total{cause="failed",queue="default"})"), 1);
  EXPECT_EQ(sample(text, R"(faultline_jobs_dead_total{cause="buried",queue="default"})"), 1);
  EXPECT_EQ(sample(text, R"(faultline_lease_acquisitions_total{queue="default"})"), 23);
  EXPECT_EQ(sum_of(text, "faultline_queue_wait_seconds_count"), 23);
  EXPECT_EQ(sample(text, "faultline_worker_slots"), 4);
  EXPECT_EQ(sample(text, "faultline_worker_connected"), 1);
  EXPECT_EQ(sum_of(text, "faultline_stale_writes_blocked_total"), 0);
  EXPECT_THAT(text, Not(HasSubstr("canary")));
}

TEST_F(WorkerMetricsTest, a_late_write_is_counted_as_refused_and_its_lease_as_lost) {
  Gate gate;
  WorkerOptions made = with_endpoint();
  made.slots = 1;
  Worker worker{made};
  worker.handle("test", [&](Context& ctx) {
    gate.pass();
    ctx.check_fence();
  });
  must(worker.start());
  const JobId id = enqueue();
  ASSERT_TRUE(gate.reached_by(1));
  static_cast<void>(take_over(id));
  gate.open();
  ASSERT_TRUE(
      eventually([&] { return sum_of(worker.metrics(), "faultline_stale_writes_blocked_total") >= 1; }));
  const std::string text = worker.metrics();
  EXPECT_EQ(sample(text, R"(faultline_stale_writes_blocked_total{reason="token_mismatch",verb="check"})"), 1);
  EXPECT_TRUE(eventually(
      [&] { return sample(worker.metrics(), R"(faultline_lease_losses_total{queue="default"})") == 1; }));
  EXPECT_TRUE(eventually([&] {
    return sum_of(worker.metrics(), "faultline_stale_writes_blocked_total") ==
           static_cast<double>(evidence());
  }));
  EXPECT_EQ(sum_of(worker.metrics(), "faultline_jobs_settled_total"), 0);
}

TEST_F(WorkerMetricsTest, its_watchdog_and_its_renewals_are_counted) {
  set_ttl(1500ms);
  Gate gate;
  Worker worker{options()};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  enqueue();
  EXPECT_TRUE(eventually(
      [&] { return sample(worker.metrics(), R"(faultline_lease_renewals_total{queue="default"})") >= 1; }));
  EXPECT_TRUE(eventually([&] { return sample(worker.metrics(), "faultline_watchdog_ticks_total") >= 1; }));
  gate.open();
  EXPECT_EQ(worker.metrics_port(), 0);
}

TEST_F(WorkerMetricsTest, a_worker_that_cannot_serve_its_metrics_does_not_start) {
  Worker first{with_endpoint()};
  first.handle("test", [](Context&) {});
  must(first.start());
  WorkerOptions made = with_endpoint();
  made.metrics_listen = "127.0.0.1:" + std::to_string(first.metrics_port());
  Worker second{made};
  second.handle("test", [](Context&) {});
  const auto started = second.start();
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("metrics cannot be served"));
}

}  // namespace
}  // namespace faultline::testing

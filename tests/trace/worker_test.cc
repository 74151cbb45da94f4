// What a real worker on a real database exports of its executions.

#include <atomic>

#include <gmock/gmock.h>

#include "collector.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class TracedWorkerTest : public WorkerTest {
 protected:
  [[nodiscard]] WorkerOptions traced(std::string name = "w") {
    WorkerOptions made = options(std::move(name));
    made.otlp_endpoint = collector_.endpoint();
    return made;
  }

  Collector collector_;
};

TEST_F(TracedWorkerTest, an_execution_is_a_child_of_what_its_job_belongs_to) {
  const JobId id = enqueue({.payload = R"("the-canary")", .traceparent = kTraceparent});
  std::string downstream;
  Worker worker{traced()};
  worker.handle("test", [&](Context& ctx) {
    downstream = ctx.traceparent();
    return "a result";
  });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  worker.drain();

  const std::vector<Json> spans = collector_.spans();
  ASSERT_EQ(spans.size(), 1U);
  const Json& span = spans.front();
  EXPECT_EQ(span.at("traceId"), kTraceId);
  EXPECT_EQ(span.at("parentSpanId"), kParentId);
  EXPECT_EQ(traceparent_of(span), downstream);
  EXPECT_EQ(span["name"], "execute test");
  EXPECT_EQ(span["kind"], 5);
  EXPECT_FALSE(span.contains("status"));
  EXPECT_EQ(attribute(span, "faultline.job.id"), id.to_string());
  EXPECT_EQ(attribute(span, "faultline.token"), "1");
  EXPECT_EQ(attribute(span, "faultline.attempt"), "1");
  EXPECT_EQ(attribute(span, "faultline.queue"), "default");
  EXPECT_EQ(attribute(span, "faultline.kind"), "test");
  EXPECT_EQ(attribute(span, "faultline.worker"), "w");
  EXPECT_EQ(attribute(span, "faultline.outcome"), "succeeded");
  EXPECT_NE(attribute(span, "faultline.queue_wait_ms"), "");
  EXPECT_THAT(collector_.everything(), Not(HasSubstr("canary")));
  EXPECT_THAT(collector_.everything(), Not(HasSubstr("a result")));
}

TEST_F(TracedWorkerTest, every_attempt_has_a_span_of_its_own) {
  const JobId id = enqueue({.backoff_base = ms{1}, .traceparent = kTraceparent});
  Worker worker{traced()};
  worker.handle("test", [](Context& ctx) {
    if (ctx.attempt() == 1) throw std::runtime_error("not yet");
  });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  worker.drain();

  const std::vector<Json> spans = collector_.spans();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(attribute(spans[0], "faultline.outcome"), "failed");
  EXPECT_EQ(spans[0].at("status"), Json::parse(R"({"code": 2, "message": "not yet"})"));
  EXPECT_EQ(attribute(spans[1], "faultline.outcome"), "succeeded");
  EXPECT_EQ(attribute(spans[1], "faultline.attempt"), "2");
  EXPECT_EQ(attribute(spans[1], "faultline.token"), "2");
  EXPECT_NE(spans[0].at("spanId"), spans[1].at("spanId"));
  for (const Json& span : spans) EXPECT_EQ(span.at("parentSpanId"), kParentId);
}

TEST_F(TracedWorkerTest, the_span_of_a_stale_worker_says_so) {
  const JobId id = enqueue({.traceparent = kTraceparent});
  Gate gate;
  WorkerOptions made = traced();
  made.slots = 1;
  made.watchdog = false;
  Worker worker{made};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  const Lease next = take_over(id);
  gate.open();

  const std::vector<Json> spans = collector_.wait_for_spans(1);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(attribute(spans[0], "faultline.token"), "1");
  EXPECT_EQ(attribute(spans[0], "faultline.outcome"), "stale");
  EXPECT_EQ(spans[0].at("status")["code"], 2);
  EXPECT_THAT(spans[0].at("status")["message"].get<std::string>(), HasSubstr("stale"));
  const Json& blocked = spans[0].at("events").back();
  EXPECT_EQ(blocked["name"], "stale_write_blocked");
  EXPECT_EQ(attribute(blocked, "faultline.current_token"), std::to_string(next.token.value));
  EXPECT_EQ(attribute(blocked, "faultline.current_worker"), "rival");
  EXPECT_TRUE(settle(next, Outcome::success()).committed());
}

TEST_F(TracedWorkerTest, the_span_of_a_fenced_transaction_says_what_became_of_it) {
  script("CREATE TABLE done (id text)");
  const JobId good = enqueue({.traceparent = kTraceparent});
  Worker worker{traced()};
  worker.handle("test", [&](Context& ctx) {
    ctx.commit([&](Transaction& tx) { tx.exec("INSERT INTO done VALUES ('x')"); });
  });
  must(worker.start());
  ASSERT_TRUE(reaches(good, JobState::succeeded));
  worker.drain();

  const std::vector<Json> spans = collector_.spans();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(attribute(spans[0], "faultline.outcome"), "succeeded");
}

TEST_F(TracedWorkerTest, a_job_without_a_trace_begins_one_and_one_that_is_not_sampled_is_left_alone) {
  const JobId alone = enqueue();
  const JobId unsampled = enqueue({.kind = "quiet", .traceparent = kNotSampled});
  std::string downstream;
  Worker worker{traced()};
  worker.handle("test", [](Context&) {});
  worker.handle("quiet", [&](Context& ctx) { downstream = ctx.traceparent(); });
  must(worker.start());
  ASSERT_TRUE(reaches(alone, JobState::succeeded));
  ASSERT_TRUE(reaches(unsampled, JobState::succeeded));
  worker.drain();

  const std::vector<Json> spans = collector_.spans();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_FALSE(spans[0].contains("parentSpanId"));
  EXPECT_EQ(attribute(spans[0], "faultline.job.id"), alone.to_string());
  EXPECT_EQ(downstream, kNotSampled);
}

TEST_F(TracedWorkerTest, a_job_without_a_trace_is_not_exported_when_none_are_chosen) {
  const JobId alone = enqueue();
  const JobId in_a_trace = enqueue({.traceparent = kTraceparent});
  WorkerOptions made = traced();
  made.otlp_sample_ratio = 0;
  Worker worker{made};
  worker.handle("test", [](Context& ctx) { return ctx.traceparent(); });
  must(worker.start());
  ASSERT_TRUE(reaches(alone, JobState::succeeded));
  ASSERT_TRUE(reaches(in_a_trace, JobState::succeeded));
  worker.drain();

  EXPECT_EQ(job(alone).result, "");
  ASSERT_EQ(collector_.spans().size(), 1U);
  EXPECT_EQ(attribute(collector_.spans()[0], "faultline.job.id"), in_a_trace.to_string());
}

TEST_F(TracedWorkerTest, without_an_endpoint_the_handler_has_the_traceparent_of_its_job) {
  const JobId id = enqueue({.traceparent = kTraceparent});
  const JobId none = enqueue();
  Worker worker{options()};
  worker.handle("test", [](Context& ctx) { return ctx.traceparent(); });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  ASSERT_TRUE(reaches(none, JobState::succeeded));
  EXPECT_EQ(job(id).result, kTraceparent);
  EXPECT_EQ(job(none).result, "");
}

TEST_F(TracedWorkerTest, jobs_go_on_when_the_collector_is_down) {
  WorkerOptions made = options();
  {
    const Collector gone;
    made.otlp_endpoint = gone.endpoint();
  }
  const std::vector<JobId> ids = enqueue_many(50, {.traceparent = kTraceparent});
  Worker worker{made};
  worker.handle("test", [](Context&) {});
  must(worker.start());
  EXPECT_TRUE(eventually([&] { return successes() == 50; }));
  worker.drain();

  std::size_t dropped = 0;
  for (const Event& event : events_.of("spans_dropped")) dropped += std::stoul(event.fields.front().second);
  EXPECT_EQ(dropped, 50U);
}

TEST_F(TracedWorkerTest, an_endpoint_that_cannot_be_used_is_told_at_the_start) {
  WorkerOptions made = options();
  made.otlp_endpoint = "grpc://collector:4317";
  Worker worker{made};
  worker.handle("test", [](Context&) {});
  const auto started = worker.start();
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(started.error().message, HasSubstr("grpc://collector:4317"));
}

}  // namespace
}  // namespace faultline::testing

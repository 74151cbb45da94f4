// What a real server on a real database makes of traces, from the request to the execution.

#include "server/server.h"

#include <gmock/gmock.h>

#include "collector.h"
#include "support/http_client.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TracedServerTest : public WorkerTest {
 protected:
  void start(double sample_ratio = 1) {
    server_ = must(server::Server::start({.database = database_.dsn(),
                                          .listen = HostPort{"127.0.0.1", 0},
                                          .grpc = std::nullopt,
                                          .otlp_endpoint = collector_.endpoint(),
                                          .otlp_sample_ratio = sample_ratio},
                                         events_.sink()));
    ASSERT_TRUE(eventually([&] { return http_get(server_->http_port(), "/ready").status == 200; }));
  }
  Json post(const Json& body, const std::string& traceparent = {}) {
    std::map<std::string, std::string> headers;
    if (!traceparent.empty()) headers.emplace("traceparent", traceparent);
    const HttpResponse answer = http_post(server_->http_port(), "/v1/jobs", body, headers);
    EXPECT_LT(answer.status, 300) << answer.body;
    return answer.json();
  }
  std::string traceparent_in_answer(const std::string& id) {
    const Json job = http_get(server_->http_port(), "/v1/jobs/" + id).json();
    return job["job"].value("traceparent", "");
  }
  void work() {
    WorkerOptions made = options();
    made.otlp_endpoint = collector_.endpoint();
    Worker worker{made};
    worker.handle("test", [](Context&) {});
    must(worker.start());
    EXPECT_TRUE(eventually([&] { return counts().available + counts().running == 0; }));
    worker.drain();
  }

  Collector collector_;
  std::unique_ptr<server::Server> server_;
};

TEST_F(TracedServerTest, a_trace_goes_from_the_request_through_the_enqueue_to_the_execution) {
  start();
  const std::string id = post({{"kind", "test"}, {"payload", "the-canary"}}, kTraceparent)["job_id"];
  const std::string stored = traceparent_in_answer(id);
  work();
  EXPECT_EQ(traceparent_in_answer(id), stored) << "also when it is finished";
  server_->drain();

  const std::vector<Json> spans = collector_.wait_for_spans(2);
  ASSERT_EQ(spans.size(), 2U);
  const bool enqueue_first = spans[0]["kind"] == 4;
  const Json& enqueue = spans[enqueue_first ? 0 : 1];
  const Json& execution = spans[enqueue_first ? 1 : 0];
  EXPECT_EQ(enqueue["kind"], 4);
  EXPECT_EQ(enqueue["name"], "enqueue test");
  EXPECT_EQ(enqueue.at("traceId"), kTraceId);
  EXPECT_EQ(enqueue.at("parentSpanId"), kParentId);
  EXPECT_EQ(traceparent_of(enqueue), stored);
  EXPECT_EQ(attribute(enqueue, "faultline.job.id"), id);
  EXPECT_EQ(execution["kind"], 5);
  EXPECT_EQ(execution.at("traceId"), kTraceId);
  EXPECT_EQ(execution.at("parentSpanId"), enqueue.at("spanId"));
  EXPECT_THAT(collector_.everything(), Not(HasSubstr("canary")));
}

TEST_F(TracedServerTest, the_header_is_for_jobs_that_name_no_trace_and_counts_only_when_it_is_right) {
  start();
  const std::string own = "00-11111111111111111111111111111111-2222222222222222-00";
  const Json batch =
      post(Json::array({{{"kind", "test"}}, {{"kind", "test"}, {"traceparent", own}}}), kTraceparent);
  EXPECT_THAT(traceparent_in_answer(batch["submissions"][0]["job_id"]), HasSubstr(kTraceId));
  EXPECT_EQ(traceparent_in_answer(batch["submissions"][1]["job_id"]), own) << "not sampled, so left as it is";

  const std::string ignored = post({{"kind", "test"}}, "00-nonsense")["job_id"];
  EXPECT_THAT(traceparent_in_answer(ignored), Not(HasSubstr("nonsense")));
  const HttpResponse refused =
      http_post(server_->http_port(), "/v1/jobs", {{"kind", "test"}, {"traceparent", "00-nonsense"}});
  EXPECT_EQ(refused.status, 422);
  EXPECT_THAT(refused.body, HasSubstr("traceparent"));
}

TEST_F(TracedServerTest, a_job_that_was_there_already_has_no_second_span) {
  start();
  const Json job{{"kind", "test"}, {"idempotency_key", "once"}};
  const std::string id = post(job, kTraceparent)["job_id"];
  const std::string stored = traceparent_in_answer(id);
  EXPECT_EQ(post(job, kTraceparent)["job_id"], id);
  EXPECT_EQ(traceparent_in_answer(id), stored);
  server_->drain();

  ASSERT_EQ(collector_.spans().size(), 1U);
  EXPECT_EQ(traceparent_of(collector_.spans()[0]), stored);
}

TEST_F(TracedServerTest, a_worker_keeps_to_what_the_server_has_chosen) {
  start(0);
  const std::string id = post({{"kind", "test"}})["job_id"];
  EXPECT_THAT(traceparent_in_answer(id), ::testing::EndsWith("-00"));
  work();
  server_->drain();
  EXPECT_TRUE(collector_.spans().empty());
}

TEST_F(TracedServerTest, a_refused_write_is_told_by_the_server_with_job_token_and_worker) {
  start();
  const std::string id = post({{"kind", "test"}})["job_id"];
  const Json claimed = http_post(server_->http_port(), "/v1/claim", {{"worker", "late"}}).json();
  const Json lease = claimed["jobs"].at(0)["lease"];
  take_over(JobId{Uuid::parse(id).value()});
  const HttpResponse answer =
      http_post(server_->http_port(), "/v1/settle",
                {{"results", Json::array({{{"lease", lease}, {"outcome", "succeeded"}}})}});
  EXPECT_EQ(answer.json()["verdicts"].at(0)["status"], "stale") << answer.body;

  ASSERT_EQ(events_.count("stale_write_blocked"), 1U);
  const Event told = events_.of("stale_write_blocked").front();
  EXPECT_EQ(told.job->to_string(), id);
  EXPECT_EQ(told.token, FenceToken{1});
  EXPECT_EQ(told.worker, "late");
}

}  // namespace
}  // namespace faultline::testing

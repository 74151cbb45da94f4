#include <gtest/gtest.h>

#include "http/decode.h"
#include "http/message.h"
#include "http/router.h"

namespace faultline::http {
namespace {

constexpr Limits kLimits{.batch_max = 3, .depth_max = 16};

std::string refusal(std::string_view body) {
  const auto jobs = decode_jobs(body, false, kLimits);
  if (jobs) return "(accepted)";
  return std::string{to_string(jobs.error().code)} + ": " + jobs.error().message;
}

TEST(DecodeJobs, takes_every_option) {
  const auto jobs = decode_jobs(R"( { "queue" : "q", "kind":"k", "payload" : {"a": [1, 2.50, "x\u0041"] } ,
    "priority":0, "delay_ms":5, "idempotency_key":"key", "attempts_max":2, "lease_ttl_ms":1000, "run_max_ms":2000,
    "backoff_base_ms":3, "backoff_max_ms":4, "delivery":"hold", "tags":["a","b"], "traceparent":"t" } )",
                                false, kLimits);
  ASSERT_TRUE(jobs) << jobs.error().message;
  EXPECT_FALSE(jobs->batch);
  const NewJob& job = jobs->jobs.at(0);
  EXPECT_EQ(job.queue, "q");
  EXPECT_EQ(job.payload, R"({"a": [1, 2.50, "x\u0041"] })") << "the bytes that came";
  EXPECT_EQ(job.encoding, Encoding::json);
  EXPECT_EQ(job.priority, 0);
  EXPECT_EQ(job.delay, std::chrono::milliseconds{5});
  EXPECT_EQ(job.idempotency_key, "key");
  EXPECT_EQ(job.attempts_max, 2);
  EXPECT_EQ(job.lease_ttl, std::chrono::milliseconds{1000});
  EXPECT_EQ(job.run_max, std::chrono::milliseconds{2000});
  EXPECT_EQ(job.backoff_base, std::chrono::milliseconds{3});
  EXPECT_EQ(job.backoff_max, std::chrono::milliseconds{4});
  EXPECT_EQ(job.delivery, Delivery::hold);
  EXPECT_EQ(job.tags, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(job.traceparent, "t");
}

TEST(DecodeJobs, takes_null_for_not_given_and_as_a_payload) {
  const auto jobs =
      decode_jobs(R"([{"kind":"k","queue":null,"delay_ms":null,"payload":null}])", false, kLimits);
  ASSERT_TRUE(jobs) << jobs.error().message;
  EXPECT_TRUE(jobs->batch);
  EXPECT_EQ(jobs->jobs.at(0).queue, "default");
  EXPECT_EQ(jobs->jobs.at(0).payload, "null");
}

TEST(DecodeJobs, takes_bytes_as_base64) {
  const auto jobs = decode_jobs(R"({"kind":"k","payload_base64":"AP8="})", false, kLimits);
  ASSERT_TRUE(jobs) << jobs.error().message;
  EXPECT_EQ(jobs->jobs.at(0).payload, std::string("\0\xff", 2));
  EXPECT_EQ(jobs->jobs.at(0).encoding, Encoding::bytes);
}

TEST(DecodeJobs, names_the_field_that_is_wrong) {
  EXPECT_EQ(refusal(R"({"queue":"q"})"), "invalid: kind: it is missing");
  EXPECT_EQ(refusal(R"({"kind":7})"), "invalid: kind: a string is expected");
  EXPECT_EQ(refusal(R"([{"kind":"k"},{"kind":"k","delay_ms":"1"}])"),
            "invalid: [1].delay_ms: a whole number of at most 64 bits is expected");
  EXPECT_EQ(refusal(R"([{"kind":"k","tags":["a",1]}])"), "invalid: [0].tags[1]: a string is expected");
  EXPECT_EQ(refusal(R"({"kind":"k","prioritty":1})"),
            "invalid: there is no field \"prioritty\"; did you mean \"priority\"?");
  EXPECT_EQ(refusal(R"({"kind":"k","kind":"l"})"), "invalid: kind: it is given twice");
  EXPECT_EQ(refusal(R"({"kind":"k","\u006bind":"l"})"), "invalid: kind: it is given twice");
  EXPECT_EQ(refusal(R"({"kind":"k","priority":5000000000})"),
            "invalid: priority: the number is out of bounds");
  EXPECT_EQ(refusal(R"({"kind":"k","delivery":"twice"})"),
            "invalid: delivery: one of at_least_once, at_most_once, hold is expected");
  EXPECT_EQ(refusal(R"({"kind":"k","payload":1,"payload_base64":""})"),
            "invalid: both payload and payload_base64 are given; give one of them");
  EXPECT_EQ(refusal("7"), "invalid: an object is expected");
  EXPECT_EQ(refusal(R"([1])"), "invalid: [0]: an object is expected");
}

TEST(DecodeJobs, tells_malformed_from_wrong) {
  EXPECT_EQ(refusal(R"({"kind")"), "malformed: the body is not valid JSON: at byte 7, a colon was expected");
  EXPECT_TRUE(refusal("[[[[[[[[[[[[[[[[[[1").starts_with("malformed: "));
  EXPECT_TRUE(refusal("{\"kind\":\"\xff\"}").starts_with("malformed: "));
  EXPECT_TRUE(refusal(R"([{"kind":"k"},{"kind":"k"},{"kind":"k"},{"kind":"k"}])").starts_with("too_large: "));
}

TEST(DecodeJobs, reads_ndjson_line_by_line) {
  const auto jobs = decode_jobs("{\"kind\":\"a\"}\r\n\n  {\"kind\":\"b\"}", true, kLimits);
  ASSERT_TRUE(jobs) << jobs.error().message;
  EXPECT_TRUE(jobs->batch);
  EXPECT_EQ(jobs->jobs.size(), 2U);
  const auto broken = decode_jobs("{\"kind\":\"a\"}\n{\"kind\"\n", true, kLimits);
  ASSERT_FALSE(broken);
  EXPECT_TRUE(broken.error().message.starts_with("line 2 is not valid JSON")) << broken.error().message;
  const auto wrong = decode_jobs("{\"kind\":\"a\"}\n{}\n", true, kLimits);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, "[1].kind: it is missing");
}

TEST(DecodeSelection, wants_ids_or_a_filter) {
  EXPECT_FALSE(decode_selection("{}", true, kLimits));
  EXPECT_FALSE(decode_selection(R"({"ids":[],"filter":{}, "dry_run":true, "extra":1})", true, kLimits));
  EXPECT_FALSE(
      decode_selection(R"({"ids":["019b0000-0000-7000-8000-000000000000"],"filter":{}})", true, kLimits));
  EXPECT_FALSE(
      decode_selection(R"({"ids":["019b0000-0000-7000-8000-000000000000"],"dry_run":true})", true, kLimits));
  EXPECT_FALSE(decode_selection(R"({"filter":{},"reason":"x"})", false, kLimits));
  const auto good =
      decode_selection(R"({"filter":{"queue":"q","state":"dead"},"dry_run":true})", false, kLimits);
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->selection.filter->state, JobState::dead);
}

TEST(AcceptEncoding, is_read_with_its_weights) {
  EXPECT_TRUE(accepts_gzip("deflate, gzip;q=0.5"));
  EXPECT_TRUE(accepts_gzip("*"));
  EXPECT_FALSE(accepts_gzip("gzip;q=0"));
  EXPECT_FALSE(accepts_gzip("gzip;q=0.000, br"));
  EXPECT_FALSE(accepts_gzip(""));
}

TEST(Query, is_strict) {
  constexpr std::array<std::string_view, 2> kKnown{"queue", "limit"};
  const auto good = parse_query("queue=a%20b+c&&limit=", kKnown);
  ASSERT_TRUE(good);
  EXPECT_EQ(good->at(0), (std::pair<std::string, std::string>{"queue", "a b c"}));
  EXPECT_FALSE(parse_query("queue=%2", kKnown));
  EXPECT_FALSE(parse_query("queue=a&queue=b", kKnown));
  const auto unknown = parse_query("quueue=a", kKnown);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "there is no field \"quueue\"; did you mean \"queue\"?");
}

}  // namespace
}  // namespace faultline::http

#include "base/traceparent.h"

#include <set>

#include <gtest/gtest.h>

#include "trace/ids.h"

namespace faultline::testing {
namespace {

const std::string kGood = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceparentTest, is_written_as_it_was_read) {
  for (const std::string& text : {kGood, kGood.substr(0, 53) + "00", kGood.substr(0, 53) + "ff"}) {
    const auto context = TraceContext::parse(text);
    ASSERT_TRUE(context) << text;
    EXPECT_EQ(context->to_string(), text);
    EXPECT_EQ(context->sampled(), text.back() != '0');
    EXPECT_EQ(TraceContext::parse_header(text), context);
    EXPECT_EQ(trace_id_of(text), "0af7651916cd43dd8448eb211c80319c");
  }
  EXPECT_EQ(trace_id_of(std::nullopt), "");
}

TEST(TraceparentTest, is_refused_when_it_is_none) {
  std::set<std::string> bad{"",          "00",        "00-",       kGood + "0",
                            kGood + "-", kGood + " ", " " + kGood, "x" + kGood.substr(1)};
  for (std::size_t length = 0; length < kGood.size(); ++length) bad.insert(kGood.substr(0, length));
  // Every character, made one that cannot stand there.
  for (std::size_t at = 0; at < kGood.size(); ++at) {
    for (const char c : {'A', 'g', ' ', '\0', '\xff', kGood[at] == '-' ? '0' : '-'}) {
      std::string text = kGood;
      text[at] = c;
      bad.insert(text);
    }
  }
  bad.insert("00-00000000000000000000000000000000-b7ad6b7169203331-01");
  bad.insert("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01");
  for (const std::string& text : bad) {
    EXPECT_FALSE(TraceContext::parse(text)) << text;
    EXPECT_FALSE(TraceContext::parse_header(text)) << text;
  }
}

TEST(TraceparentTest, of_a_later_version_is_understood_in_a_header_alone) {
  const std::string later = "cc" + kGood.substr(2);
  for (const std::string& text : {later, later + "-what-comes-next"}) {
    EXPECT_FALSE(TraceContext::parse(text));
    const auto context = TraceContext::parse_header(text);
    ASSERT_TRUE(context) << text;
    EXPECT_EQ(context->to_string(), kGood);
  }
  EXPECT_FALSE(TraceContext::parse_header(later + "more"));
  EXPECT_FALSE(TraceContext::parse_header("ff" + kGood.substr(2)));
}

TEST(TraceIdsTest, are_unlike_one_another) {
  std::set<TraceId> traces;
  std::set<SpanId> spans;
  for (int i = 0; i < 1'000; ++i) {
    traces.insert(trace::new_trace_id());
    spans.insert(trace::new_span_id());
  }
  EXPECT_EQ(traces.size(), 1'000U);
  EXPECT_EQ(spans.size(), 1'000U);
}

TEST(TraceIdsTest, a_chance_is_never_always_or_in_between) {
  int some = 0;
  for (int i = 0; i < 1'000; ++i) {
    EXPECT_FALSE(trace::chance(0));
    EXPECT_TRUE(trace::chance(1));
    some += trace::chance(0.5) ? 1 : 0;
  }
  EXPECT_GT(some, 300);
  EXPECT_LT(some, 700);
}

}  // namespace
}  // namespace faultline::testing

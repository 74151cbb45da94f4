#include "base/json_text.h"

#include <gtest/gtest.h>

#include "base/rfc3339.h"

namespace faultline {
namespace {

TEST(Rfc3339, reads_offsets_and_fractions) {
  const auto text = [](std::string_view in) {
    const auto time = parse_rfc3339(in);
    return time ? to_string(*time) : "(refused)";
  };
  EXPECT_EQ(text("2030-01-31T12:00:00Z"), "2030-01-31T12:00:00.000000Z");
  EXPECT_EQ(text("2030-01-31t12:00:00.1234567z"), "2030-01-31T12:00:00.123456Z");
  EXPECT_EQ(text("2030-01-31T12:00:00+02:30"), "2030-01-31T09:30:00.000000Z");
  EXPECT_EQ(text("2030-01-31T12:00:00-01:00"), "2030-01-31T13:00:00.000000Z");
  for (const std::string_view bad :
       {"", "2030-01-31", "2030-02-30T12:00:00Z", "2030-01-31T24:00:00Z", "2030-01-31T12:00:00",
        "2030-01-31T12:00:00.Z", "2030-01-31T12:00:00Zx", "30-01-31T12:00:00Z", "2030-01-31T12:00:00+25:00",
        "1969-12-31T23:59:59Z"}) {
    EXPECT_EQ(text(bad), "(refused)") << bad;
  }
}

TEST(Base64, goes_there_and_back) {
  for (const std::string_view bytes : {"", "f", "fo", "foo", "foob", "fooba", "foobar"}) {
    EXPECT_EQ(parse_base64(base64(bytes)), bytes);
  }
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  for (const std::string_view bad : {"Zg", "Zg=", "Z===", "====", "Zm9v!mFy", "Zg==Zg=="}) {
    EXPECT_FALSE(parse_base64(bad)) << bad;
  }
}

TEST(JsonWriter, escapes_and_repairs_text) {
  JsonWriter out;
  out.begin_object().key("a\"b").string("x\n\x01\\ \xC3\xA4 \xff!").key("n").integer(-1).end_object();
  EXPECT_EQ(out.take(), "{\"a\\\"b\":\"x\\n\\u0001\\\\ \xC3\xA4 \xEF\xBF\xBD!\",\"n\":-1}");
}

TEST(Json, unescapes_strings) {
  EXPECT_EQ(Json{R"("a\n\u00e4\ud83d\ude00\/\"")"}.string(), "a\n\xC3\xA4\xF0\x9F\x98\x80/\"");
}

}  // namespace
}  // namespace faultline

#include "base/utf8.h"

#include <gtest/gtest.h>

namespace faultline {
namespace {

using namespace std::string_literals;

TEST(Utf8Test, finds_the_first_byte_that_is_not_utf8) {
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("plain \u00e9\u20ac\U0010FFFF \0"s), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2U);
  EXPECT_EQ(find_invalid_utf8("\xc3"), 0U);
  EXPECT_EQ(find_invalid_utf8("a\xed\xa0\x80"), 1U);
  EXPECT_EQ(find_invalid_utf8("\xf4\x90\x80\x80"), 0U);
  EXPECT_EQ(find_invalid_utf8("\u20ac\xe2\x82"), 3U);
}

TEST(Utf8Test, repairs_every_bad_byte_and_leaves_the_rest) {
  EXPECT_EQ(repaired_utf8("caf\u00e9"), "caf\u00e9");
  EXPECT_EQ(repaired_utf8("caf\xe9 au lait"), "caf\uFFFD au lait");
  EXPECT_EQ(repaired_utf8("\xe2\x82"), "\uFFFD\uFFFD");
  EXPECT_EQ(repaired_utf8(""), "");
}

TEST(Utf8Test, writes_code_points_of_every_length) {
  std::string text;
  for (const char32_t code : {U'a', U'\u00e9', U'\u20ac', U'\U0010FFFF'}) append_utf8(text, code);
  EXPECT_EQ(text, "a\u00e9\u20ac\U0010FFFF");
}

TEST(Utf8Test, counts_and_cuts_at_characters) {
  const std::string text = "a\u00e9\u20acz";
  EXPECT_EQ(characters_of(text), 4U);
  EXPECT_EQ(first_characters(text, 3), "a\u00e9\u20ac");
  EXPECT_EQ(first_characters(text, 0), "");
  EXPECT_EQ(first_characters(text, 9), text);
  EXPECT_EQ(first_bytes(text, 2), "a") << "\u00e9 has two bytes";
  EXPECT_EQ(first_bytes(text, 3), "a\u00e9");
  EXPECT_EQ(first_bytes(text, 100), text);
}

}  // namespace
}  // namespace faultline

// The JSON checker against a table of texts, and against two other readers of JSON.

#include "base/json_check.h"

#include <random>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "support/database.h"

namespace faultline {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;

bool is_json(std::string_view text, std::size_t depth_max = 128) {
  return !find_json_problem(bytes_of(text), depth_max).has_value();
}

const std::vector<std::string>& valid_texts() {
  static const std::vector<std::string> texts{
      "null",
      "true",
      "false",
      "0",
      "-0",
      "1",
      "-1",
      "10",
      "1.5",
      "0.0",
      "1e1",
      "1E+10",
      "1e-10",
      "-0.1e5",
      "123456789012345678901234567890",
      "1e308",
      R"("")",
      R"("a")",
      R"(" ")",
      R"("\"\\\/\b\f\n\r\t")",
      R"("\u0041")",
      R"("\u00e9\uABCD")",
      R"("\ud83d\ude00")",
      R"("\uD83D\uDE00")",
      "\"\u00e9\u20ac\U0001F600\"",
      "\"\x7f\"",
      "\"\u2028\"",
      "\"\uFFFE\"",
      "[]",
      "{}",
      "[ ]",
      "{ }",
      "[1]",
      "[1,2]",
      "[[],{}]",
      R"({"a":1})",
      R"({"a":1,"b":[2,{"c":null}]})",
      R"({"":0})",
      R"({"a":1,"a":2})",
      " \t\r\n1 \t\r\n",
      "[ 1 , 2 ]",
      R"( { "a" : 1 , "b" : 2 } )",
      "[[[[[[[[[[1]]]]]]]]]]",
      R"(["\\"])",
      R"(["\""])",
  };
  return texts;
}

const std::vector<std::string>& invalid_texts() {
  static const std::vector<std::string> texts{
      "",
      " ",
      "nul",
      "nulll",
      "True",
      "NULL",
      "undefined",
      "NaN",
      "Infinity",
      "-Infinity",
      "-",
      "+1",
      "01",
      "-01",
      "1.",
      ".5",
      "1.e1",
      "1e",
      "1e+",
      "0x10",
      "1_000",
      "1 2",
      "1,2",
      "\"",
      "\"a",
      "'a'",
      "a",
      R"("\a")",
      R"("\x41")",
      R"("\u")",
      R"("\u12")",
      R"("\u12g4")",
      R"("\U0041")",
      "\"\\",
      "\"\\\"",
      "\"\n\"",
      "\"\t\"",
      "\"\x01\"",
      "\"\x1f\"",
      "[",
      "]",
      "{",
      "}",
      "[1",
      "[1,",
      "[,1]",
      "[1,]",
      "[1,,2]",
      "[1 2]",
      "[1}",
      "{]",
      "{\"a\"}",
      "{\"a\":}",
      "{\"a\":1",
      "{\"a\":1,}",
      "{,}",
      "{a:1}",
      "{1:1}",
      "{'a':1}",
      "{\"a\" 1}",
      "{\"a\"::1}",
      "{\"a\":1 \"b\":2}",
      "[]]",
      "{}}",
      "[[]",
      "// x\n1",
      "/* x */ 1",
      "1 // x",
      "\xEF\xBB\xBF"
      "1",
      "\xA0"
      "1",
      "\v1",
      "\f1",
      "[\"a\",\n4\n,1,",
      "{\"a\":true} \"x\"",
      // Half of a surrogate pair.
      R"("\ud800")",
      R"("\udc00")",
      R"("\ud800\ud800")",
      R"("\ud800x")",
      R"("\udc00\ud800")",
      R"("\ud800\n")",
  };
  return texts;
}

/// These have bytes that PostgreSQL does not even take as text.
const std::vector<std::string>& invalid_bytes() {
  static const std::vector<std::string> texts{
      "\0"s,
      "1\0"s,
      "\"\0\""s,
      "\"a\0b\""s,
      "\"\x80\"",
      "\"\xff\"",
      "\"\xc0\xaf\"",
      "\"\xc1\xbf\"",
      "\"\xe0\x80\xaf\"",
      "\"\xf0\x80\x80\xaf\"",
      "\"\xed\xa0\x80\"",
      "\"\xed\xbf\xbf\"",
      "\"\xf4\x90\x80\x80\"",
      "\"\xf5\x80\x80\x80\"",
      "\"\xc3\"",
      "\"\xe2\x82\"",
      "\"\xf0\x9f\x98\"",
      "\xff",
      "[\xff]",
      "{\"\xff\":1}",
      "\"\xc3",
      "\"\xe9t\xe9\"",
  };
  return texts;
}

TEST(JsonCheckTest, takes_every_valid_text) {
  for (const std::string& text : valid_texts()) {
    const auto problem = find_json_problem(bytes_of(text), 128);
    EXPECT_FALSE(problem.has_value()) << text << ": " << (problem ? problem->what : "");
  }
}

TEST(JsonCheckTest, refuses_every_invalid_text_with_words_and_a_place_inside_it) {
  for (const auto* texts : {&invalid_texts(), &invalid_bytes()}) {
    for (const std::string& text : *texts) {
      const auto problem = find_json_problem(bytes_of(text), 128);
      ASSERT_TRUE(problem.has_value()) << ::testing::PrintToString(text);
      EXPECT_FALSE(problem->what.empty());
      EXPECT_LE(problem->offset, text.size());
    }
  }
}

TEST(JsonCheckTest, names_the_byte_at_which_it_shows) {
  const auto offset = [](std::string_view text) {
    return find_json_problem(bytes_of(text), 128).value().offset;
  };
  EXPECT_EQ(offset("[1, x]"), 4U);
  EXPECT_EQ(offset("\"ab\xff\""), 3U);
  EXPECT_EQ(offset("{\"a\" 1}"), 5U);
  EXPECT_EQ(offset("12 34"), 3U);
  EXPECT_EQ(offset(""), 0U);
}

TEST(JsonCheckTest, counts_depth_by_what_is_open_at_once) {
  EXPECT_TRUE(is_json("[[]]", 2));
  EXPECT_FALSE(is_json("[[[]]]", 2));
  EXPECT_TRUE(is_json("[[],[],{}]", 2));
  EXPECT_FALSE(is_json("{\"a\":[{}]}", 2));
  EXPECT_TRUE(is_json("1", 0));
  EXPECT_FALSE(is_json("[]", 0));
}

TEST(JsonCheckTest, a_depth_bomb_costs_neither_stack_nor_patience) {
  const std::string bomb(100'000, '[');
  EXPECT_EQ(find_json_problem(bytes_of(bomb), 128)->what, "it is nested too deep");
  EXPECT_TRUE(is_json(bomb + std::string(100'000, ']'), 100'000));
}

/// nlohmann skips a byte order mark, which RFC 8259 allows and does not ask for, and ends at a NUL.
bool is_read_otherwise(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") || text.find('\0') != std::string_view::npos;
}

TEST(JsonCheckTest, agrees_with_another_reader_on_every_text) {
  for (const auto* texts : {&valid_texts(), &invalid_texts(), &invalid_bytes()}) {
    for (const std::string& text : *texts) {
      if (is_read_otherwise(text)) continue;
      EXPECT_EQ(is_json(text), nlohmann::json::accept(text)) << ::testing::PrintToString(text);
    }
  }
}

TEST(JsonCheckTest, agrees_with_another_reader_on_texts_with_random_damage) {
  constexpr unsigned kSeed = 20'260'101;
  std::mt19937 random{kSeed};
  constexpr std::string_view alphabet = "{}[]\",:\\u0dD8c1eE+-. \ntrfalsn\xc3\xa9\xff\x01\0"sv;
  const auto pick = [&](std::size_t size) {
    return std::uniform_int_distribution<std::size_t>{0, size - 1}(random);
  };
  for (int round = 0; round < 50'000; ++round) {
    std::string text = valid_texts()[pick(valid_texts().size())];
    for (std::size_t damage = 1 + pick(3); damage > 0 && !text.empty(); --damage) {
      const std::size_t at = pick(text.size());
      switch (pick(3)) {
        case 0:
          text[at] = alphabet[pick(alphabet.size())];
          break;
        case 1:
          text.insert(at, 1, alphabet[pick(alphabet.size())]);
          break;
        default:
          text.erase(at, 1);
      }
    }
    if (is_read_otherwise(text)) continue;
    // nlohmann refuses numbers that no double holds; they are JSON all the same.
    if (is_json(text) && text.find_first_of("eE") != std::string::npos) continue;
    ASSERT_EQ(is_json(text), nlohmann::json::accept(text))
        << ::testing::PrintToString(text) << " seed " << kSeed;
  }
}

TEST(JsonCheckTest, agrees_with_the_database_on_every_text_that_it_takes_as_text) {
  testing::TestDatabase database{testing::Template::empty};
  pg::Connection sql = database.connect();
  // jsonb, because json does not look at what escapes stand for.
  const auto accepted = [&](const std::string& text) {
    return sql.exec({"", "SELECT $1::text::jsonb"}, pg::Params{}.add(text), testing::soon()).has_value();
  };
  for (const std::string& text : valid_texts()) EXPECT_TRUE(accepted(text)) << text;
  for (const std::string& text : invalid_texts())
    EXPECT_FALSE(accepted(text)) << ::testing::PrintToString(text);
  for (const std::string& text : invalid_bytes())
    EXPECT_FALSE(accepted(text)) << ::testing::PrintToString(text);
}

}  // namespace
}  // namespace faultline

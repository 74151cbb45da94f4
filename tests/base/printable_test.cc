#include "base/printable.h"

#include <gtest/gtest.h>

namespace faultline::testing {
namespace {

TEST(PrintableTest, what_plays_tricks_with_a_terminal_becomes_a_question_mark) {
  EXPECT_EQ(printable("plain, with umlauts: \u00fc and \u65e5\u672c"),
            "plain, with umlauts: \u00fc and \u65e5\u672c");
  EXPECT_EQ(printable("a\x1b[2Jb\nc\td\x7f"), "a?[2Jb?c?d?");
  // CSI as one character of C1: terminals take it for ESC [.
  EXPECT_EQ(printable("a\u009b2Jb\u0080\u009f\u00a0"), "a?2Jb??\u00a0");
  for (const std::string trick : {"\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d",
                                  "\u202e", "\u2066", "\u2067", "\u2068", "\u2069", "\u2028", "\u2029"})
    EXPECT_EQ(printable("x" + trick + "y"), "x?y");
  EXPECT_EQ(printable("\u202f\u2065\u206a\u200d"), "\u202f\u2065\u206a\u200d") << "their neighbours stay";
  EXPECT_EQ(printable("\x9b\xff ok \xc3"), "?? ok ?");
  EXPECT_EQ(printable(""), "");
}

TEST(PrintableTest, lines_keep_their_breaks_and_colours_and_nothing_else) {
  EXPECT_EQ(printable_lines("a\n\tb\x1b[1;31mred\x1b[0m"), "a\n\tb\x1b[1;31mred\x1b[0m");
  EXPECT_EQ(printable_lines("a\x1b[2Jb\x1b]0;title\x07 c\r\x1b["), "a?[2Jb?]0;title? c??[");
  EXPECT_EQ(printable_lines("a\u009b31mb\u202e"), "a?31mb?");
}

TEST(PrintableTest, json_says_the_same_in_escapes) {
  EXPECT_EQ(printable_json("{\"a\":\"\u009bx\u202e\x7f\u00fc\\n\"}\n"),
            "{\"a\":\"\\u009bx\\u202e\\u007f\u00fc\\n\"}\n");
  EXPECT_EQ(printable_json("\"\xff\""), "\"\\ufffd\"");
}

}  // namespace
}  // namespace faultline::testing

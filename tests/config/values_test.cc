// Durations and sizes as people write them.

#include "config/values.h"

#include <gmock/gmock.h>

#include "base/edit_distance.h"
#include "config/settings.h"

namespace faultline::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(DurationTest, is_a_whole_number_with_a_unit) {
  const std::vector<std::pair<std::string, std::chrono::milliseconds>> cases{
      {"0s", 0ms}, {"250ms", 250ms}, {"10s", 10s}, {"2m", 2min}, {"1h", 1h}, {"90d", std::chrono::days{90}},
      {"007s", 7s}};
  for (const auto& [text, duration] : cases) EXPECT_EQ(config::parse_duration(text), duration) << text;
  for (const std::string text :
       {"", "s", "10", "-1s", "+1s", "1.5s", "1 s", " 1s", "1s ", "1S", "1h30m", "1w", "0x1s", "ms",
        "99999999999999999999s", "9223372036854775807s", "18446744073709551615ms"})
    EXPECT_EQ(config::parse_duration(text), std::nullopt) << text;
}

TEST(SizeTest, is_a_number_of_bytes_or_one_with_a_binary_unit) {
  const std::vector<std::pair<std::string, std::size_t>> cases{
      {"0", 0}, {"1000", 1'000}, {"64KiB", 65'536}, {"16MiB", 16'777'216}, {"1GiB", 1'073'741'824}};
  for (const auto& [text, size] : cases) EXPECT_EQ(config::parse_size(text), size) << text;
  for (const std::string text : {"", "KiB", "12q", "-1", "1.5MiB", "1 MiB", "16MB", "16mib", "1e3",
                                 "18446744073709551616", "99999999999GiB"})
    EXPECT_EQ(config::parse_size(text), std::nullopt) << text;
}

TEST(WrittenTest, durations_and_sizes_are_written_as_they_can_be_read) {
  for (const auto duration :
       {0ms, 1ms, 999ms, 1'000ms, 1'500ms, 60'000ms, 90'000ms, 3'600'000ms, 86'400'000ms})
    EXPECT_EQ(config::parse_duration(config::write_duration(duration)), duration);
  for (const std::size_t size : {0U, 1U, 1'000U, 1'024U, 1'536U, 1'048'576U, 1'073'741'824U})
    EXPECT_EQ(config::parse_size(config::write_size(size)), size);
  EXPECT_EQ(config::write_duration(90s), "90s");
  EXPECT_EQ(config::write_size(16'777'216), "16MiB");
}

TEST(QuotedTest, a_value_is_shown_without_passwords_in_one_line_and_not_at_length) {
  EXPECT_EQ(config::quoted("12q"), "\"12q\"");
  EXPECT_THAT(config::quoted("postgresql://joe:hunter2@h/db"), Not(HasSubstr("hunter2")));
  EXPECT_EQ(config::quoted("a\nb"), "\"a b\"");
  EXPECT_LT(config::quoted(std::string(10'000, 'x')).size(), 100U);
}

TEST(NearestTest, a_slip_of_the_finger_is_recognised_and_something_else_is_not) {
  const std::vector<std::string> known{"listen", "grpc", "http_body_max", "http_header_max"};
  EXPECT_EQ(nearest("listne", known), "listen");
  EXPECT_EQ(nearest("lisen", known), "listen");
  EXPECT_EQ(nearest("http_bdoy_max", known), "http_body_max");
  EXPECT_EQ(nearest("http-header-max", known), "http_header_max");
  EXPECT_EQ(nearest("colour", known), std::nullopt);
  EXPECT_EQ(nearest("", known), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'l'), known), std::nullopt);
  EXPECT_EQ(edit_distance("abcd", "abdc"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace faultline::testing

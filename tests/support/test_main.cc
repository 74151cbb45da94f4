#include <cstdlib>
#include <regex>
#include <string>

#include <gmock/gmock.h>

namespace {

// $TEST_CASES, a regular expression, picks cases by name among those that the command line names.
void pick_cases() {
  const char* wanted = std::getenv("TEST_CASES");
  if (wanted == nullptr || *wanted == '\0') return;
  const std::regex expression{wanted, std::regex::extended};
  const std::string asked = GTEST_FLAG_GET(filter);
  const std::string suite_asked = asked.ends_with(".*") ? asked.substr(0, asked.size() - 2) : "";
  std::string picked;
  const auto& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const auto& suite = *all.GetTestSuite(s);
    if (!suite_asked.empty() && suite_asked != "*" && suite_asked != suite.name()) continue;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string name = std::string{suite.name()} + "." + suite.GetTestInfo(t)->name();
      if (std::regex_search(name, expression)) picked += name + ":";
    }
  }
  GTEST_FLAG_SET(filter, picked);
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  pick_cases();
  return RUN_ALL_TESTS();
}

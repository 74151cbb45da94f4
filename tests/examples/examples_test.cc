// The examples are run as a reader would run them; the documentation quotes what they print.

#include <gtest/gtest.h>

#include "support/database.h"
#include "support/process.h"

namespace faultline::testing {
namespace {

TEST(ExamplesTest, the_lease_race_prints_what_the_readme_says) {
  const TestDatabase database;

  const ProcessResult race = run_process({.argv = {EXAMPLE_LEASE_RACE, database.dsn()}});

  EXPECT_EQ(race.err, "");
  EXPECT_EQ(race.out,
            "A claims the job with token 1, and stalls\n"
            "the watchdog ends A's lease\n"
            "B claims it with token 2, and commits\n"
            "A comes back: refused, token_mismatch, the current token is 2\n"
            "the job succeeded: sent by B, with 2 attempts and 1 stale write on record\n");
  EXPECT_EQ(race.exit_code, 0);
}

TEST(ExamplesTest, an_example_without_its_argument_says_how_it_is_used) {
  const ProcessResult race = run_process({.argv = {EXAMPLE_LEASE_RACE}});

  EXPECT_EQ(race.exit_code, 2);
  EXPECT_NE(race.err.find("usage:"), std::string::npos);
}

}  // namespace
}  // namespace faultline::testing

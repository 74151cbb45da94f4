// The examples are run as a reader would run them. What each prints is in examples/output/, where the
// documentation quotes it from.

#include <csignal>

#include <gmock/gmock.h>

#include "support/database.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

std::string program(const std::string& example) { return EXAMPLES_DIR "/example_" + example; }

std::string expected_output(const std::string& example) {
  return read_file(FAULTLINE_SOURCE_DIR "/examples/output/" + example + ".txt");
}

class ExamplesTest : public ::testing::TestWithParam<const char*> {
 protected:
  TestDatabase database_;
};

TEST_P(ExamplesTest, prints_what_the_documentation_says_and_exits_by_itself) {
  const ProcessResult result = run_process({.argv = {program(GetParam()), database_.dsn()}});

  EXPECT_EQ(result.out, expected_output(GetParam())) << result.err;
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(result.out.empty());
}

TEST_P(ExamplesTest, leaves_no_job_behind_that_would_still_run) {
  ASSERT_EQ(run_process({.argv = {program(GetParam()), database_.dsn()}}).exit_code, 0);

  pg::Connection connection = database_.connect();
  EXPECT_EQ(query_text(connection,
                       "SELECT count(*)::text FROM faultline.jobs WHERE queue <> '' AND state <> 'dead'"),
            "0");
}

TEST_P(ExamplesTest, takes_the_database_from_the_environment_too) {
  const ProcessResult result =
      run_process({.argv = {program(GetParam())}, .environment = {{"DATABASE_URL", database_.dsn()}}});

  EXPECT_EQ(result.out, expected_output(GetParam())) << result.err;
}

TEST_P(ExamplesTest, without_a_database_says_how_it_is_used) {
  const ProcessResult result =
      run_process({.argv = {program(GetParam())}, .environment = {{"DATABASE_URL", std::nullopt}}});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, ::testing::HasSubstr("usage:"));
}

INSTANTIATE_TEST_SUITE_P(Each, ExamplesTest,
                         ::testing::Values("hello", "transactional_enqueue", "bank_transfer", "once_http",
                                           "snooze_and_retry", "lease_race"),
                         [](const auto& example) { return std::string{example.param}; });

TEST(GracefulShutdownTest, lets_go_of_its_jobs_when_it_is_told_to_end) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const TestDatabase database;
    ChildProcess example{{.argv = {program("graceful_shutdown"), database.dsn()}}};
    ASSERT_TRUE(eventually([&] { return example.out().ends_with('\n'); })) << example.err();

    example.send(signal);

    const ProcessResult result = example.wait();
    EXPECT_EQ(result.out, expected_output("graceful_shutdown")) << result.err;
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

TEST(ExampleErrorsTest, a_database_without_a_schema_is_told_what_to_do) {
  const TestDatabase empty{Template::empty};

  const ProcessResult result = run_process({.argv = {program("hello"), empty.dsn()}});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, ::testing::HasSubstr("faultline migrate"));
}

}  // namespace
}  // namespace faultline::testing

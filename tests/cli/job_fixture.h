#pragma once

#include "program.h"
#include "store/fixture.h"

namespace faultline::testing {

/// Runs the program on the database of a store test, as the operator "joe".
class JobCommandTest : public StoreTest {
 protected:
  [[nodiscard]] ProcessOptions program(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--database", database_.dsn()});
    return faultline_program(std::move(arguments), {{"USER", "joe"}});
  }
  ProcessResult run(std::vector<std::string> arguments, std::string input = {}) {
    ProcessOptions options = program(std::move(arguments));
    options.input = std::move(input);
    return run_process(options);
  }
  nlohmann::json run_json(std::vector<std::string> arguments, int exit_code = 0) {
    arguments.emplace_back("--json");
    const auto result = run(std::move(arguments));
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    return one_object(exit_code == 0 || !result.out.empty() ? result.out : result.err);
  }
  /// A job that was buried.
  JobId dead_job(NewJob job = {}) {
    const JobId id = enqueue(job);
    settle(claim_one("A", job.queue).lease, Outcome::bury("no such address"));
    return id;
  }
};

}  // namespace faultline::testing

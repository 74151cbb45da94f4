#pragma once

#include <gmock/gmock.h>

#include "faultline/store.h"
#include "program.h"
#include "store/fixture.h"

namespace faultline::testing {

/// A store whose database the program looks at.
class InspectTest : public StoreTest {
 protected:
  [[nodiscard]] ProcessOptions program(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--database", database_.dsn()});
    return faultline_program(std::move(arguments));
  }
  [[nodiscard]] ProcessResult run(std::vector<std::string> arguments) const {
    return run_process(program(std::move(arguments)));
  }

  /// Has a write refused: a worker's lease runs out, another takes the job, and the first one comes back.
  /// Then the other one finishes it.
  StaleWrite refuse_a_write(const std::string& worker, const std::string& queue = "default") {
    const JobId id = enqueue({.queue = queue, .priority = 0, .backoff_base = ms{0}});
    const Lease lease = claim_one(worker, queue).lease;
    advance(kTtl + ms{1});
    sweep();
    const Lease next = claim_one("successor", queue).lease;
    EXPECT_EQ(next.job, id);
    EXPECT_FALSE(complete(lease).committed());
    EXPECT_TRUE(complete(next).committed());
    return history(id).stale_writes.at(0);
  }
};

}  // namespace faultline::testing

#include "bench/worker_pool.h"

#include <atomic>

#include "bench/workload.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using WorkerPoolTest = WorkerTest;

TEST_F(WorkerPoolTest, a_job_that_was_given_back_is_waited_for) {
  constexpr std::uint64_t kJobs = 4'000;
  auto client = must(Client::open({.database = database_.dsn()}));
  must(client.enqueue_bulk(bench::bench_jobs(kJobs)));
  Gate middle;
  Gate last;
  std::atomic<std::uint64_t> begun{0};
  bench::WorkerPool pool{database_.dsn(), {.slots = 1}, [&](Context&) {
                           const std::uint64_t now = ++begun;
                           if (now == kJobs / 2) middle.pass();
                           if (now == kJobs) last.pass();
                         }};
  pool.start();
  // What was claimed ahead waits behind this one until it is given back, which is an outcome, too.
  ASSERT_TRUE(middle.reached_by(1));
  ASSERT_TRUE(eventually([&] { return pool.settled() >= kJobs / 2; }));
  middle.open();
  ASSERT_TRUE(last.reached_by(1));
  ASSERT_TRUE(eventually([&] { return pool.settled() >= kJobs; }));
  last.open();

  pool.wait_until_done(client, kJobs);

  EXPECT_EQ(successes(), std::int64_t{kJobs});
  pool.stop();
}

}  // namespace
}  // namespace faultline::testing

#include <atomic>

#include "worker/fixture.h"

namespace faultline::testing {
namespace {

class RunTest : public WorkerTest {};

TEST_F(RunTest, runs_a_job_and_records_its_result) {
  Worker worker{options()};
  worker.handle("greet", [](Context& ctx) { return "hello " + ctx.payload(); });
  must(worker.start());

  const JobId id = enqueue({.kind = "greet", .payload = R"("you")"});

  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(job(id).result, R"(hello "you")");
  EXPECT_EQ(worker.drain().unsettled, 0U);
}

TEST_F(RunTest, works_many_short_jobs_each_once) {
  constexpr std::size_t kJobs = 5'000;
  enqueue_many(kJobs);
  std::atomic<std::size_t> ran{0};
  Worker worker{options()};
  worker.handle("test", [&](Context&) { ++ran; });
  must(worker.start());

  ASSERT_TRUE(eventually([&] { return counts().succeeded == kJobs; }));
  worker.drain();

  EXPECT_EQ(ran, kJobs);
  EXPECT_EQ(worker.stats().settled, kJobs);
  EXPECT_EQ(worker.stats().stale, 0U);
}

}  // namespace
}  // namespace faultline::testing

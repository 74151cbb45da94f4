// What a coordinator decides, without a database and without handlers.

#include "worker/coordinator.h"

#include <string>

#include <gtest/gtest.h>

namespace faultline::worker {
namespace {

TEST(CoordinatorTest, jobs_that_wait_are_given_to_slots_by_the_weights_of_their_queues) {
  constexpr std::size_t kJobs = 60;
  Coordinator coordinator{{.queues = {{.queue = "heavy", .weight = 2}, {.queue = "light", .weight = 1}},
                           .slots = 3,
                           .prefetch_max = 100,
                           .poll_max = std::chrono::hours{1}}};
  std::vector<Coordinator::Work> claims(2);
  for (Coordinator::Work& work : claims) ASSERT_TRUE(coordinator.next_work(work));
  ASSERT_EQ(claims[0].claim.value().queue, "heavy");
  ASSERT_EQ(claims[1].claim.value().queue, "light");
  const std::vector<ClaimedJob> jobs(kJobs, ClaimedJob{.lease_ttl = std::chrono::hours{1}});
  for (const Coordinator::Work& work : claims) coordinator.claimed(*work.claim, jobs, Clock::now());

  // One slot takes all of them, each of which takes a while.
  std::string order;
  Coordinator::ResultBuffer buffer{coordinator};
  while (order.size() < kJobs) {
    std::vector<Attempt*> taken;
    ASSERT_TRUE(coordinator.next_jobs(buffer, taken));
    ASSERT_EQ(taken.size(), 1U);
    order += taken[0]->queue_index == 0 ? 'h' : 'l';
    ASSERT_TRUE(taken[0]->begin() && taken[0]->finish());
    buffer.put({.attempt = taken[0], .owns_outcome = true, .took = std::chrono::milliseconds{20}});
  }

  std::string expected = "h";
  while (expected.size() < kJobs) expected += "lhh";
  EXPECT_EQ(order, expected.substr(0, kJobs));
}

}  // namespace
}  // namespace faultline::worker

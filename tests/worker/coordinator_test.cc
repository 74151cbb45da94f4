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

TEST(CoordinatorTest, a_suspect_runs_alone_and_until_it_is_over_nothing_else_begins_or_is_claimed) {
  Coordinator coordinator{
      {.queues = {{.queue = "default"}}, .slots = 2, .prefetch_max = 0, .poll_max = std::chrono::hours{1}}};
  Coordinator::Work work;
  ASSERT_TRUE(coordinator.next_work(work));
  EXPECT_EQ(work.claim.value().suspects_max, 1U);
  EXPECT_FALSE(work.claim->ahead) << "there is a slot for each";
  const std::vector<ClaimedJob> jobs{{.lease_ttl = std::chrono::hours{1}},
                                     {.lease_ttl = std::chrono::hours{1}, .suspect = true}};
  coordinator.claimed(*work.claim, jobs, Clock::now());

  Coordinator::ResultBuffer buffer{coordinator};
  std::vector<Attempt*> taken;
  ASSERT_TRUE(coordinator.next_jobs(buffer, taken));
  ASSERT_EQ(taken.size(), 1U);
  Attempt& suspect = *taken[0];
  EXPECT_TRUE(suspect.job.suspect);
  EXPECT_TRUE(suspect.begins_on_record());
  ASSERT_TRUE(suspect.begin());
  EXPECT_EQ(suspect.stage(), Stage::alone);
  EXPECT_EQ(coordinator.wants().at(0).limit, 0U);
  EXPECT_EQ(coordinator.stats().waiting, 1U) << "the other one, although a slot is free";

  ASSERT_TRUE(suspect.finish());
  buffer.put({.attempt = &suspect, .owns_outcome = true});
  ASSERT_TRUE(coordinator.next_jobs(buffer, taken));
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_FALSE(taken[0]->job.suspect);
  ASSERT_TRUE(taken[0]->begin());
  EXPECT_EQ(taken[0]->stage(), Stage::running);
}

}  // namespace
}  // namespace faultline::worker

// How far a worker claims ahead, how many jobs a slot takes, and how often an idle queue is looked at.

#include "worker/lane.h"

#include <gtest/gtest.h>

namespace faultline::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class LaneTest : public ::testing::Test {
 protected:
  /// Handlers that take this long, one after the other, in all of four slots.
  void run(Clock::duration took, int jobs) {
    for (int i = 0; i < jobs; ++i) {
      now_ += took / 4;
      lane_.finished(now_, took);
    }
  }
  /// How long the lane waits after a claim that brought this much of what it asked for.
  Clock::duration wait_after(std::size_t asked, std::size_t got) {
    lane_.claim_began();
    lane_.claim_ended(now_, asked, got);
    return lane_.look_at() - now_;
  }

  Clock::time_point now_ = Clock::now();
  Lane lane_{
      {.queue = "q", .concurrency = 4, .weight = 1, .prefetch_max = 2'000, .poll_max = milliseconds{500}}};
};

TEST_F(LaneTest, claims_nothing_ahead_as_long_as_it_knows_nothing) {
  EXPECT_EQ(lane_.ahead(now_), 0U);
  EXPECT_EQ(lane_.chunk(), 1U);
}

TEST_F(LaneTest, claims_short_jobs_far_ahead_and_never_more_than_it_may) {
  run(microseconds{10}, 100'000);
  EXPECT_EQ(lane_.ahead(now_), 2'000U);
  EXPECT_GT(lane_.chunk(), 1U);
}

TEST_F(LaneTest, claims_no_long_job_ahead) {
  run(std::chrono::seconds{1}, 20);
  EXPECT_EQ(lane_.ahead(now_), 0U);
  EXPECT_EQ(lane_.chunk(), 1U);
}

TEST_F(LaneTest, claims_less_ahead_when_jobs_turn_long) {
  run(microseconds{10}, 100'000);
  const std::size_t before = lane_.ahead(now_);
  run(milliseconds{200}, 8);
  EXPECT_LT(lane_.ahead(now_), before / 50);
  EXPECT_EQ(lane_.chunk(), 1U);
}

TEST_F(LaneTest, one_long_job_among_short_ones_ends_the_taking_of_several) {
  run(microseconds{5}, 100'000);
  ASSERT_GT(lane_.chunk(), 1U);
  lane_.finished(now_, milliseconds{50});
  EXPECT_EQ(lane_.chunk(), 1U);
}

TEST_F(LaneTest, forgets_its_speed_after_a_pause) {
  run(microseconds{10}, 100'000);
  now_ += std::chrono::seconds{1};
  EXPECT_EQ(lane_.ahead(now_), 0U);
}

TEST_F(LaneTest, looks_again_at_once_when_it_got_all_it_asked_for) {
  EXPECT_EQ(wait_after(10, 10).count(), 0);
}

TEST_F(LaneTest, waits_longer_and_longer_on_an_idle_queue_up_to_the_limit) {
  Clock::duration last{};
  for (int i = 0; i < 5; ++i) {
    const Clock::duration wait = wait_after(10, 0);
    EXPECT_GT(wait, last);
    last = wait;
  }
  for (int i = 0; i < 20; ++i) last = wait_after(10, 0);
  EXPECT_GE(last, milliseconds{400});
  EXPECT_LE(last, milliseconds{600});
}

TEST_F(LaneTest, a_job_or_an_announcement_makes_it_lively_again) {
  for (int i = 0; i < 20; ++i) static_cast<void>(wait_after(10, 0));
  EXPECT_LT(wait_after(10, 1), milliseconds{5});

  for (int i = 0; i < 20; ++i) static_cast<void>(wait_after(10, 0));
  lane_.announced(now_);
  EXPECT_EQ(lane_.look_at(), now_);
  EXPECT_LT(wait_after(10, 0), milliseconds{5});
}

TEST_F(LaneTest, an_announcement_during_a_claim_is_not_forgotten) {
  lane_.claim_began();
  lane_.announced(now_);
  lane_.claim_ended(now_, 10, 0);
  EXPECT_EQ(lane_.look_at(), now_);
}

TEST_F(LaneTest, a_failed_claim_does_not_make_it_wait) {
  // The board rests; a lane that also did might sleep through the database's return.
  for (int i = 0; i < 20; ++i) static_cast<void>(wait_after(10, 0));
  lane_.claim_failed(now_);
  EXPECT_EQ(lane_.look_at(), now_);
}

}  // namespace
}  // namespace faultline::worker

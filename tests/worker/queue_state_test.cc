// How far a worker claims ahead, how many jobs a slot takes, and how often an idle queue is looked at.

#include "worker/queue_state.h"

#include <gtest/gtest.h>

namespace faultline::worker {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class QueueStateTest : public ::testing::Test {
 protected:
  /// Handlers that take this long, one after the other, in all of four slots.
  void run(Clock::duration took, int jobs) {
    for (int i = 0; i < jobs; ++i) {
      now_ += took / 4;
      queue_.finished(now_, took);
    }
  }
  /// How long the queue waits after a claim that brought this much of what it asked for.
  Clock::duration wait_after(std::size_t asked, std::size_t got) {
    queue_.claim_began();
    queue_.claim_ended(now_, asked, got);
    return queue_.poll_at() - now_;
  }

  Clock::time_point now_ = Clock::now();
  QueueState queue_{
      {.queue = "q", .concurrency = 4, .weight = 1, .prefetch_max = 2'000, .poll_max = milliseconds{500}}};
};

TEST_F(QueueStateTest, claims_nothing_ahead_as_long_as_it_knows_nothing) {
  EXPECT_EQ(queue_.ahead(now_), 0U);
  EXPECT_EQ(queue_.chunk(), 1U);
}

TEST_F(QueueStateTest, claims_short_jobs_far_ahead_and_never_more_than_it_may) {
  run(microseconds{10}, 100'000);
  EXPECT_EQ(queue_.ahead(now_), 2'000U);
  EXPECT_GT(queue_.chunk(), 1U);
}

TEST_F(QueueStateTest, claims_no_long_job_ahead) {
  run(std::chrono::seconds{1}, 20);
  EXPECT_EQ(queue_.ahead(now_), 0U);
  EXPECT_EQ(queue_.chunk(), 1U);
}

TEST_F(QueueStateTest, claims_less_ahead_when_jobs_turn_long) {
  run(microseconds{10}, 100'000);
  const std::size_t before = queue_.ahead(now_);
  run(milliseconds{200}, 8);
  EXPECT_LT(queue_.ahead(now_), before / 50);
  EXPECT_EQ(queue_.chunk(), 1U);
}

TEST_F(QueueStateTest, one_long_job_among_short_ones_ends_the_taking_of_several) {
  run(microseconds{5}, 100'000);
  ASSERT_GT(queue_.chunk(), 1U);
  queue_.finished(now_, milliseconds{50});
  EXPECT_EQ(queue_.chunk(), 1U);
}

TEST_F(QueueStateTest, forgets_its_speed_after_a_pause) {
  run(microseconds{10}, 100'000);
  now_ += std::chrono::seconds{1};
  EXPECT_EQ(queue_.ahead(now_), 0U);
}

TEST_F(QueueStateTest, looks_again_at_once_when_it_got_all_it_asked_for) {
  EXPECT_EQ(wait_after(10, 10).count(), 0);
}

TEST_F(QueueStateTest, waits_longer_and_longer_on_an_idle_queue_up_to_the_limit) {
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

TEST_F(QueueStateTest, a_job_or_an_announcement_makes_it_lively_again) {
  for (int i = 0; i < 20; ++i) static_cast<void>(wait_after(10, 0));
  EXPECT_LT(wait_after(10, 1), milliseconds{5});

  for (int i = 0; i < 20; ++i) static_cast<void>(wait_after(10, 0));
  queue_.announced(now_);
  EXPECT_EQ(queue_.poll_at(), now_);
  EXPECT_LT(wait_after(10, 0), milliseconds{5});
}

TEST_F(QueueStateTest, an_announcement_during_a_claim_is_not_forgotten) {
  queue_.claim_began();
  queue_.announced(now_);
  queue_.claim_ended(now_, 10, 0);
  EXPECT_EQ(queue_.poll_at(), now_);
}

TEST_F(QueueStateTest, a_failed_claim_does_not_make_it_wait) {
  // The coordinator rests; a queue that also did might sleep through the database's return.
  for (int i = 0; i < 20; ++i) static_cast<void>(wait_after(10, 0));
  queue_.claim_failed(now_);
  EXPECT_EQ(queue_.poll_at(), now_);
}

}  // namespace
}  // namespace faultline::worker

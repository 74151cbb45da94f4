// A queue in which everything fails is told from one in which everything is planned.

#include <gmock/gmock.h>

#include "store/fixture.h"
#include "store/invariants.h"

namespace faultline::testing {
namespace {

using ::testing::IsEmpty;

class FailingTest : public StoreTest {
 protected:
  /// Scheduled, retrying, due, running.
  using Waiting = std::array<std::int64_t, 4>;
  Waiting waiting() {
    const QueueCounts now = counts();
    return {now.scheduled, now.retrying, now.available, now.running};
  }
};

TEST_F(FailingTest, jobs_that_wait_for_another_attempt_are_counted_apart_from_planned_ones) {
  enqueue({.delay = std::chrono::hours{1}});
  enqueue_many(3);
  EXPECT_EQ(waiting(), (Waiting{1, 0, 3, 0}));

  for (const ClaimedJob& job : claim("A", 3))
    settle(job.lease, Outcome::failure("no", std::chrono::minutes{1}));

  EXPECT_EQ(waiting(), (Waiting{1, 3, 0, 0}));
  EXPECT_EQ(counts().failures, 3);
  advance(std::chrono::minutes{2});
  EXPECT_EQ(waiting(), (Waiting{1, 0, 3, 0})) << "they are due";
  must(store_.fold_counts());
  EXPECT_EQ(waiting(), (Waiting{1, 0, 3, 0}));
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

TEST_F(FailingTest, every_way_out_of_the_wait_is_counted) {
  const std::vector<JobId> ids = enqueue_many(4);
  for (const ClaimedJob& job : claim("A", 4))
    settle(job.lease, Outcome::failure("no", std::chrono::minutes{1}));
  ASSERT_EQ(waiting(), (Waiting{0, 4, 0, 0}));

  cancel(ids[0]);
  EXPECT_EQ(waiting(), (Waiting{0, 3, 0, 0}));
  advance(std::chrono::minutes{2});
  const std::vector<ClaimedJob> again = claim("B", 2);
  EXPECT_EQ(waiting(), (Waiting{0, 0, 1, 2}));
  settle(again[0].lease, Outcome::snooze(std::chrono::minutes{1}));
  EXPECT_EQ(waiting(), (Waiting{0, 1, 1, 1})) << "it has failed before";
  settle(again[1].lease, Outcome::bury("no"));
  EXPECT_EQ(counts().failures, 5);
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

TEST_F(FailingTest, a_first_snooze_is_planned_and_no_failure) {
  enqueue();
  settle(claim_one("A").lease, Outcome::snooze(std::chrono::minutes{1}));

  EXPECT_EQ(waiting(), (Waiting{1, 0, 0, 0}));
  EXPECT_EQ(counts().failures, 0);
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

TEST_F(FailingTest, an_attempt_that_is_lost_with_its_worker_is_a_failure_too) {
  must(store_.set_queue("default", {.backoff_base = std::chrono::minutes{1}}));
  enqueue();
  claim_one("A");
  advance(kTtl + ms{1});

  ASSERT_EQ(sweep().size(), 1U);

  EXPECT_EQ(waiting(), (Waiting{0, 1, 0, 0}));
  EXPECT_EQ(counts().failures, 1);
  must(store_.fold_counts());
  must(store_.fold_counts());
  EXPECT_EQ(counts().failures, 1) << "what is folded together stays";
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

}  // namespace
}  // namespace faultline::testing

// When claims look from the beginning of a queue, and not after the last job that was found.

#include "store/claim_cursor.h"

#include "fixture.h"

namespace faultline::testing {
namespace {

using store::ClaimCursor;
using Clock = ClaimCursor::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

class ClaimCursorTest : public ::testing::Test {
 protected:
  bool looks_from_the_beginning() { return cursor_.next_scan("queue", 0, now_).from_the_beginning; }
  /// A look from the beginning that came back full and took this long.
  void look(milliseconds took) {
    const auto scan = cursor_.next_scan("queue", 0, now_);
    ASSERT_TRUE(scan.from_the_beginning);
    const auto begun = now_;
    now_ += took;
    std::vector<ClaimedJob> jobs(1);
    jobs[0].run_at = DatabaseTime{seconds{1}};
    EXPECT_FALSE(cursor_.found("queue", 0, scan, jobs, 0, /*full=*/true, begun, now_));
  }

  ClaimCursor cursor_;
  Clock::time_point now_{seconds{1'000}};
};

TEST_F(ClaimCursorTest, a_slow_look_is_made_again_when_it_costs_a_twentieth_of_the_time) {
  look(milliseconds{50});
  now_ += milliseconds{999};
  EXPECT_FALSE(looks_from_the_beginning());
  now_ += milliseconds{1};
  EXPECT_TRUE(looks_from_the_beginning());
}

// A look that met an outage: what it took says nothing about the queue.
TEST_F(ClaimCursorTest, after_a_stall_of_any_length_due_jobs_are_passed_over_for_two_seconds_at_most) {
  look(seconds{6});
  EXPECT_FALSE(looks_from_the_beginning());
  now_ += seconds{2};
  EXPECT_TRUE(looks_from_the_beginning());
}

TEST_F(ClaimCursorTest, after_trouble_the_next_look_is_from_the_beginning) {
  look(seconds{6});
  EXPECT_FALSE(looks_from_the_beginning());
  cursor_.rewind();
  EXPECT_TRUE(looks_from_the_beginning());
}

}  // namespace
}  // namespace faultline::testing

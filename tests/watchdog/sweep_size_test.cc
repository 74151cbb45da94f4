#include "watchdog/sweep_size.h"

#include <gtest/gtest.h>

namespace faultline::watchdog {
namespace {

TEST(SweepSizeTest, gets_smaller_with_every_failure_and_never_nothing) {
  SweepSize size;
  EXPECT_EQ(size.jobs(), SweepSize::kMost);

  size.failed();
  EXPECT_LT(size.jobs(), SweepSize::kMost);
  for (int i = 0; i < 20; ++i) size.failed();

  EXPECT_EQ(size.jobs(), 1U);
}

TEST(SweepSizeTest, grows_again_and_not_beyond_its_bound) {
  SweepSize size;
  for (int i = 0; i < 20; ++i) size.failed();

  size.succeeded();
  EXPECT_EQ(size.jobs(), 2U);
  for (int i = 0; i < 100; ++i) size.succeeded();

  EXPECT_EQ(size.jobs(), SweepSize::kMost);
}

}  // namespace
}  // namespace faultline::watchdog

#include "drills/schedule.h"

#include <set>

#include <gmock/gmock.h>

namespace faultline::drills {
namespace {

constexpr std::size_t kMany = 2'000;

std::vector<Schedule> many_schedules() {
  std::vector<Schedule> schedules;
  for (std::size_t number = 0; number < kMany; ++number)
    schedules.push_back(make_schedule(seed_of_race(1, number)));
  return schedules;
}

TEST(ScheduleTest, the_same_seed_gives_the_same_schedule) {
  for (const Schedule& schedule : many_schedules()) {
    const Schedule again = make_schedule(schedule.seed);
    EXPECT_EQ(describe(again), describe(schedule));
    EXPECT_EQ(again.lease_ttl, schedule.lease_ttl);
    EXPECT_EQ(again.finish, schedule.finish);
  }
}

TEST(ScheduleTest, races_of_one_seed_are_different_races) {
  std::set<std::uint64_t> seeds;
  for (const Schedule& schedule : many_schedules()) seeds.insert(schedule.seed);
  EXPECT_EQ(seeds.size(), kMany);
  EXPECT_NE(seed_of_race(1, 5), seed_of_race(2, 5));
}

TEST(ScheduleTest, every_verb_comes_back_at_every_place_in_chains_of_two_and_three) {
  std::set<std::tuple<Verb, Timing, std::size_t>> seen;
  for (const Schedule& schedule : many_schedules()) {
    for (const Comeback& comeback : schedule.comebacks) {
      for (const Verb verb : comeback.verbs) seen.emplace(verb, comeback.timing, schedule.tenures.size());
    }
  }
  EXPECT_EQ(seen.size(), kVerbs * kTimings * 2);
}

TEST(ScheduleTest, only_workers_that_lost_their_lease_come_back_and_all_of_them_do) {
  for (const Schedule& schedule : many_schedules()) {
    std::set<std::size_t> back;
    for (const Comeback& comeback : schedule.comebacks) {
      back.insert(comeback.worker);
      EXPECT_LT(comeback.worker, schedule.finisher());
      EXPECT_LE(comeback.worker, comeback.tenure);
      EXPECT_LE(comeback.tenure, schedule.finisher());
      EXPECT_FALSE(comeback.verbs.empty());
    }
    EXPECT_EQ(back.size(), schedule.finisher());
  }
}

TEST(ScheduleTest, a_lease_that_nobody_followed_has_expired_and_any_other_has_a_newer_token) {
  const Comeback alone{.worker = 0, .tenure = 0, .timing = Timing::after_sweep};
  const Comeback followed{.worker = 0, .tenure = 1, .timing = Timing::before_sweep};
  const Comeback either{.worker = 0, .tenure = 1, .timing = Timing::against_claim};

  ASSERT_EQ(expected_refusals(alone).size(), 1U);
  EXPECT_EQ(expected_refusals(alone)[0].reason, StaleReason::lease_expired);
  EXPECT_EQ(expected_refusals(alone)[0].holder, std::nullopt);
  ASSERT_EQ(expected_refusals(followed).size(), 1U);
  EXPECT_EQ(expected_refusals(followed)[0].reason, StaleReason::token_mismatch);
  EXPECT_EQ(expected_refusals(followed)[0].holder, 1U);
  ASSERT_EQ(expected_refusals(either).size(), 2U);
  EXPECT_EQ(expected_refusals(either)[0].reason, StaleReason::lease_expired);
  EXPECT_EQ(expected_refusals(either)[1].reason, StaleReason::token_mismatch);
}

}  // namespace
}  // namespace faultline::drills

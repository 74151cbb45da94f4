// What a worker that vanishes costs the jobs that it held: who had begun, who may be to blame, who is tried
// alone.

#include <gmock/gmock.h>

#include "store/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

class SuspectsTest : public StoreTest {
 protected:
  std::vector<ClaimedJob> claim_ahead(std::size_t limit, std::size_t suspects_max = 1) {
    return must(store_.claim({.worker = "A", .limit = limit, .ahead = true, .suspects_max = suspects_max}));
  }
  Beat say(const Lease& lease, Stage stage) {
    return must(store_.heartbeat({&lease, 1}, std::nullopt, {&stage, 1})).front();
  }
  /// The worker vanishes, and the backoff passes.
  std::vector<ExpiredLease> lose() {
    advance(kTtl + ms{1});
    auto expired = sweep();
    advance(std::chrono::hours{2});
    return expired;
  }
  /// A job whose last attempt ended with its worker.
  JobId suspect() {
    const JobId id = enqueue();
    claim_one("A");
    lose();
    return id;
  }
};

TEST_F(SuspectsTest, what_was_claimed_ahead_and_has_not_begun_loses_no_attempt_whatever_its_delivery_class) {
  for (const Delivery delivery : {Delivery::at_least_once, Delivery::at_most_once, Delivery::hold}) {
    const JobId id = enqueue({.attempts_max = 1, .delivery = delivery});
    ASSERT_THAT(claim_ahead(8), SizeIs(1));

    EXPECT_THAT(lose(), ElementsAre(AllOf(::testing::Field(&ExpiredLease::loss, Loss::unbegun),
                                          ::testing::Field(&ExpiredLease::next_state, JobState::available))));

    EXPECT_EQ(job(id).attempt, 0);
    EXPECT_THAT(history(id).attempts.at(0).error.value_or(""), HasSubstr("not known to have begun"));
    EXPECT_TRUE(complete(claim_one("B").lease).committed());
  }
}

TEST_F(SuspectsTest, a_claim_whose_answer_nobody_got_costs_no_job_that_must_not_run_twice_its_life) {
  const JobId once = enqueue({.delivery = Delivery::at_most_once});
  const JobId other = enqueue();
  ASSERT_THAT(must(store_.claim({.worker = "A", .limit = 2, .suspects_max = 1})), SizeIs(2));

  lose();

  EXPECT_EQ(job(once).state, JobState::available);
  EXPECT_EQ(job(once).attempt, 0);
  EXPECT_EQ(job(other).attempt, 1) << "it was claimed for a free slot, and counts as begun";
}

TEST_F(SuspectsTest, what_has_begun_loses_its_attempt_and_says_whether_it_was_alone) {
  for (const auto& [stage, loss, says] : {std::tuple{Stage::running, Loss::shared, "may have run beside"},
                                          std::tuple{Stage::alone, Loss::alone, "ran alone"}}) {
    const JobId id = enqueue({.attempts_max = 1});
    const Lease lease = claim_ahead(8).at(0).lease;
    ASSERT_EQ(say(lease, stage).status, Beat::Status::renewed);
    // It cannot be taken back.
    ASSERT_EQ(say(lease, stage == Stage::alone ? stage : Stage::waiting).status, Beat::Status::renewed);

    EXPECT_THAT(lose(), ElementsAre(AllOf(::testing::Field(&ExpiredLease::loss, loss),
                                          ::testing::Field(&ExpiredLease::next_state, JobState::dead))));

    EXPECT_EQ(job(id).attempt, 1);
    EXPECT_THAT(job(id).last_error.value_or(""), HasSubstr(says));
  }
}

TEST_F(SuspectsTest, who_says_nothing_of_stages_has_begun_with_the_claim) {
  const JobId id = enqueue({.delivery = Delivery::at_most_once});
  claim_one("A");

  EXPECT_THAT(lose(), ElementsAre(::testing::Field(&ExpiredLease::loss, Loss::shared)));

  EXPECT_EQ(job(id).state, JobState::dead);
}

TEST_F(SuspectsTest, a_claim_takes_as_many_suspects_as_it_may_and_the_others_all_the_same) {
  const std::vector<JobId> suspects = enqueue_many(2);
  claim("A", 2);
  lose();
  enqueue_many(3);

  EXPECT_THAT(claim_ahead(8, 0), AllOf(SizeIs(3), Each(::testing::Field(&ClaimedJob::suspect, false))));
  // The others are before the place where the last claim found work, and looked for now and then.
  std::vector<ClaimedJob> one;
  ASSERT_TRUE(eventually([&] { return !(one = claim_ahead(8, 1)).empty(); }));
  ASSERT_THAT(one, ElementsAre(::testing::Field(&ClaimedJob::suspect, true)));
  EXPECT_THAT(claim_ahead(8, 0), SizeIs(0));
  EXPECT_THAT(suspects, UnorderedElementsAre(one.at(0).lease.job, claim_one("anybody").lease.job));
}

TEST_F(SuspectsTest, a_suspect_that_has_not_begun_yet_loses_no_attempt_and_stays_one) {
  const JobId id = suspect();
  ASSERT_EQ(job(id).attempt, 1);
  ASSERT_THAT(must(store_.claim({.worker = "A", .suspects_max = 1})), SizeIs(1));

  EXPECT_THAT(lose(), ElementsAre(::testing::Field(&ExpiredLease::loss, Loss::unbegun)));

  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_TRUE(claim_one("B").suspect);
}

TEST_F(SuspectsTest, an_attempt_that_ends_by_itself_clears_its_job) {
  const JobId id = suspect();
  EXPECT_TRUE(settle(claim_one("B").lease, Outcome::release()).committed());
  ASSERT_TRUE(claim_one("B").suspect) << "it was given back, and proves nothing";
  lose();
  EXPECT_TRUE(settle(claim_one("B").lease, Outcome::failure("by itself")).committed());
  advance(std::chrono::hours{2});

  EXPECT_FALSE(claim_one("B").suspect);
  EXPECT_EQ(job(id).state, JobState::running);
}

}  // namespace
}  // namespace faultline::testing

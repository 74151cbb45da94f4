// An announced effect that certainly did not happen is taken back by the attempt that announced it, and by no
// other.

#include "store/fixture.h"

namespace faultline::testing {
namespace {

class ForgetEffectsTest : public StoreTest {
 protected:
  ForgetEffectsTest() {
    must(store_.set_queue("default", {.backoff_base = ms{0}}));
    enqueue();
  }

  Effect begin(const Lease& lease, std::string key = "charge") {
    const EffectKey item{.lease = lease, .key = std::move(key)};
    return must(store_.begin_effects({&item, 1})).at(0);
  }
  void record(const Lease& lease, std::string key = "charge") {
    const EffectResult item{.lease = lease, .key = std::move(key), .result = "receipt"};
    must(store_.record_effects({&item, 1}));
  }
  Verdict forget(const Lease& lease, std::string key = "charge") {
    const EffectKey item{.lease = lease, .key = std::move(key)};
    return must(store_.forget_effects({&item, 1})).at(0);
  }
  std::int64_t effects() {
    return number("SELECT count(*) FROM faultline.effects WHERE forgotten_at IS NULL");
  }
};

TEST_F(ForgetEffectsTest, an_effect_that_was_taken_back_is_new_again) {
  const Lease mine = claim_one("A").lease;
  EXPECT_EQ(begin(mine).status, Effect::Status::begun);
  EXPECT_EQ(begin(mine, "other").status, Effect::Status::begun);

  EXPECT_TRUE(forget(mine).committed());

  EXPECT_EQ(effects(), 1);
  EXPECT_EQ(begin(mine).status, Effect::Status::begun);
  EXPECT_TRUE(forget(mine, "never begun").committed());
}

TEST_F(ForgetEffectsTest, a_recorded_effect_stays) {
  const Lease mine = claim_one("A").lease;
  begin(mine);
  record(mine);

  EXPECT_TRUE(forget(mine).committed());

  EXPECT_EQ(begin(mine).status, Effect::Status::recorded);
}

TEST_F(ForgetEffectsTest, an_effect_that_an_earlier_attempt_began_stays_unknown) {
  const Lease earlier = claim_one("A").lease;
  begin(earlier);
  settle(earlier, Outcome::failure("f", ms{0}));
  const Lease mine = claim_one("B").lease;
  EXPECT_EQ(begin(mine).status, Effect::Status::unknown);

  EXPECT_TRUE(forget(mine).committed());

  EXPECT_EQ(begin(mine).status, Effect::Status::unknown);
}

TEST_F(ForgetEffectsTest, a_stale_attempt_takes_nothing_back_and_leaves_evidence) {
  const Lease late = claim_one("A").lease;
  begin(late);
  advance(kTtl);

  EXPECT_EQ(forget(late).stale.reason, StaleReason::lease_expired);
  sweep();
  const Lease successor = claim_one("B").lease;
  EXPECT_EQ(forget(late).stale.reason, StaleReason::token_mismatch);

  EXPECT_EQ(effects(), 1);
  EXPECT_EQ(begin(successor).status, Effect::Status::unknown);
  const auto evidence = history(late.job).stale_writes;
  ASSERT_EQ(evidence.size(), 2U);
  EXPECT_EQ(evidence[0].verb, "effect");
}

TEST_F(ForgetEffectsTest, a_batch_answers_each_in_order) {
  const Lease mine = claim_one("A").lease;
  enqueue();
  Lease stale = claim_one("A").lease;
  begin(mine);
  begin(mine, "other");
  begin(stale);
  stale.lease_id = Uuid::random();
  const std::vector<EffectKey> keys{{mine, "charge"}, {stale, "charge"}, {mine, "other"}};

  const auto verdicts = must(store_.forget_effects(keys));

  EXPECT_TRUE(verdicts.at(0).committed());
  EXPECT_EQ(verdicts.at(1).status, Verdict::Status::stale);
  EXPECT_TRUE(verdicts.at(2).committed());
  EXPECT_EQ(effects(), 1);
  const std::vector<EffectKey> twice(2, {mine, "charge"});
  EXPECT_EQ(store_.forget_effects(twice).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace faultline::testing

// Every way in which a lease can be stale, against every verb that carries one: the verb is refused with the
// reason, nothing about the job changes, and one row of evidence says who came with what.

#include <functional>

#include <gmock/gmock.h>

#include "store/fixture.h"

namespace faultline::testing {
namespace {

/// A fenced verb: its name in the evidence, and what it says to a lease. Nothing: the lease was good.
struct Verb {
  std::string label;
  std::string evidence;
  bool settles = false;
  std::function<std::optional<Stale>(Store&, const Lease&)> run;
};

std::optional<Stale> refusal(const Verdict& verdict) {
  EXPECT_NE(verdict.status, Verdict::Status::unknown);
  return verdict.status == Verdict::Status::stale ? std::optional{verdict.stale} : std::nullopt;
}
std::optional<Stale> refusal(const Beat& beat) {
  return beat.status == Beat::Status::lost ? std::optional{beat.stale} : std::nullopt;
}
std::optional<Stale> refusal(const Effect& effect) {
  return effect.status == Effect::Status::stale ? std::optional{effect.stale} : std::nullopt;
}

Verb settling(std::string verb, Outcome outcome) {
  return {
      .label = verb, .evidence = verb, .settles = true, .run = [outcome](Store& store, const Lease& lease) {
        const Settlement settlement{.lease = lease, .outcome = outcome};
        return refusal(must(store.settle({&settlement, 1})).at(0));
      }};
}

std::vector<Verb> all_verbs() {
  using std::chrono::milliseconds;
  std::vector<Verb> verbs{
      settling("complete", Outcome::success("late result")),
      settling("fail", Outcome::failure("late failure")),
      settling("bury", Outcome::bury("late burial")),
      settling("snooze", Outcome::snooze(milliseconds{1'000})),
      settling("release", Outcome::release()),
      settling("cancel", Outcome::cancel("late cancellation")),
  };
  verbs.push_back({"heartbeat", "heartbeat", false, [](Store& store, const Lease& lease) {
                     return refusal(must(store.heartbeat({&lease, 1})).at(0));
                   }});
  verbs.push_back({"extend", "extend", false, [](Store& store, const Lease& lease) {
                     return refusal(must(store.heartbeat({&lease, 1}, milliseconds{60'000})).at(0));
                   }});
  verbs.push_back({"progress", "progress", false, [](Store& store, const Lease& lease) {
                     const ProgressReport report{.lease = lease, .fraction = 0.9, .note = "late"};
                     return refusal(must(store.progress({&report, 1})).at(0));
                   }});
  verbs.push_back({"check", "check", false, [](Store& store, const Lease& lease) {
                     return refusal(must(store.check({&lease, 1})).at(0));
                   }});
  verbs.push_back({"effect_begin", "effect", false, [](Store& store, const Lease& lease) {
                     const EffectKey key{.lease = lease, .key = "late key"};
                     return refusal(must(store.begin_effects({&key, 1})).at(0));
                   }});
  verbs.push_back({"effect_record", "effect", false, [](Store& store, const Lease& lease) {
                     const EffectResult result{.lease = lease, .key = "early key", .result = "late result"};
                     return refusal(must(store.record_effects({&result, 1})).at(0));
                   }});
  verbs.push_back({"exchange", "complete", true, [](Store& store, const Lease& lease) {
                     const Settlement settlement{.lease = lease, .outcome = Outcome::success("late result")};
                     const ClaimRequest nothing{.queue = "empty", .worker = lease.worker};
                     return refusal(must(store.exchange({&settlement, 1}, nothing)).verdicts.at(0));
                   }});
  return verbs;
}

class StaleTest : public StoreTest {
 public:
  /// What the late writer finds.
  struct Scene {
    Lease stale;
    std::optional<FenceToken> token{};
    std::optional<Uuid> lease_id{};
    std::optional<std::string> worker{};
    std::optional<JobState> state{};
  };

 protected:
  StaleTest() { must(store_.set_queue("empty", {})); }

  /// A job in a queue of its own, claimed by A, with an effect that A began and with some progress.
  Lease claimed_by_a(NewJob job = {}) {
    job.queue = "queue " + std::to_string(++scenes_);
    job.backoff_base = ms{0};
    must(store_.set_queue(job.queue, {}));
    enqueue(job);
    const Lease lease = claim_one("A", job.queue).lease;
    const EffectKey key{.lease = lease, .key = "early key"};
    must(store_.begin_effects({&key, 1}));
    const ProgressReport report{.lease = lease, .fraction = 0.1, .note = "begun"};
    must(store_.progress({&report, 1}));
    return lease;
  }
  std::string queue() const { return "queue " + std::to_string(scenes_); }

  /// All that the database knows of a job, and the counts of all queues, as text.
  std::string everything_about(JobId job) {
    const std::string id = "'" + job.to_string() + "'";
    return query_text(
        sql_,
        "SELECT concat_ws(E'\\n',"
        " 'job ' || (SELECT j::text FROM faultline.jobs j WHERE j.bucket = 0 AND j.id = " +
            id +
            "),"
            " 'ledger ' || (SELECT string_agg(l::text, E'\\n' ORDER BY l.token) FROM faultline.ledger l"
            "               WHERE l.bucket = 0 AND l.job_id = " +
            id +
            "),"
            " 'effects ' || (SELECT string_agg(e::text, E'\\n' ORDER BY e.key) FROM faultline.effects e"
            "                WHERE e.bucket = 0 AND e.job_id = " +
            id +
            "),"
            " 'grants ' || (SELECT string_agg(g::text, E'\\n' ORDER BY g.check_at, g.lease_id) FROM "
            "faultline.grants g),"
            " 'keys ' || (SELECT string_agg(k::text, E'\\n' ORDER BY k.queue, k.key) FROM "
            "faultline.idempotency_keys k),"
            " 'counts ' || (SELECT string_agg(t::text, E'\\n' ORDER BY t.queue) FROM ("
            "     SELECT queue, sum(available), sum(running), sum(held), sum(dead), sum(succeeded), "
            "sum(cancelled)"
            "       FROM faultline.tallies GROUP BY queue) t))");
  }

  void expect_evidence(const Verb& verb, StaleReason reason, const Scene& scene) {
    std::vector<StaleWrite> evidence;
    for (const StaleWrite& write : must(store_.stale_writes(1'000))) {
      if (write.job == scene.stale.job) evidence.push_back(write);
    }
    // There is no such job, and so nothing to keep. Or they may have been under way when their own worker
    // settled: refused, and no sign of anything.
    const bool overtaken =
        reason == StaleReason::already_settled && (verb.label == "heartbeat" || verb.label == "progress");
    if (!scene.state || overtaken) {
      EXPECT_TRUE(evidence.empty());
      return;
    }
    ASSERT_EQ(evidence.size(), 1U);
    const StaleWrite& write = evidence.front();
    EXPECT_EQ(write.verb, verb.evidence);
    EXPECT_EQ(write.reason, reason);
    EXPECT_EQ(write.at, must(store_.now()));
    EXPECT_EQ(write.token, scene.stale.token);
    EXPECT_EQ(write.worker, scene.stale.worker);
    EXPECT_EQ(write.current_token, scene.token);
    EXPECT_EQ(write.current_worker, scene.worker);
    // The evidence keeps the stored state: what is scheduled is stored as available.
    EXPECT_EQ(write.current_state,
              scene.state ? std::optional{std::string{to_string(*scene.state)}} : std::nullopt);
    EXPECT_EQ(write.queue, scene.token ? std::optional{queue()} : std::nullopt);
  }

 private:
  int scenes_ = 0;
};

/// A way to become stale: its name, the reason that the writer is given, and how it comes about.
struct Situation {
  std::string name;
  StaleReason reason;
  std::function<StaleTest::Scene(class StaleMatrixTest&)> arrange;
  /// The verb that would say what is on record of this lease already: it is sent twice, and not stale.
  std::string on_record{};
};

void PrintTo(const Situation& situation, std::ostream* out) { *out << situation.name; }

class StaleMatrixTest : public StaleTest, public ::testing::WithParamInterface<Situation> {
 public:
  Scene claimed_by_another() {
    const Lease a = claimed_by_a();
    advance(kTtl);
    sweep();
    const Lease b = claim_one("B", queue()).lease;
    return {.stale = a, .token = b.token, .lease_id = b.lease_id, .worker = "B", .state = JobState::running};
  }
  Scene finished_by_another() {
    Scene scene = claimed_by_another();
    const Lease b{.job = scene.stale.job, .token = *scene.token, .lease_id = *scene.lease_id, .worker = "B"};
    EXPECT_TRUE(settle(b, Outcome::success("by B")).committed());
    scene.state = JobState::succeeded;
    return scene;
  }
  Scene requeued_since() {
    const Lease a = claimed_by_a();
    settle(a, Outcome::bury("no use"));
    EXPECT_EQ(requeue(a.job), RequeueStatus::requeued);
    return {.stale = a, .token = FenceToken{2}, .state = JobState::available};
  }
  Scene unknown_job() {
    Lease lease = claimed_by_a();
    lease.job.value.bytes[0] ^= 0x40U;
    return {.stale = lease};
  }
  Scene ran_out() {
    const Lease a = claimed_by_a();
    advance(kTtl);
    return {.stale = a, .token = a.token, .lease_id = a.lease_id, .worker = "A", .state = JobState::running};
  }
  Scene swept(Delivery delivery, JobState state) {
    const Lease a = claimed_by_a({.delivery = delivery});
    advance(kTtl);
    EXPECT_EQ(sweep().size(), 1U);
    return {.stale = a, .token = a.token, .state = state};
  }
  Scene settled(Outcome outcome, JobState state) {
    const Lease a = claimed_by_a();
    EXPECT_TRUE(settle(a, std::move(outcome)).committed());
    return {.stale = a, .token = a.token, .state = state};
  }
  /// A finished job is in the ledger with the lease that finished it.
  Scene finished(Outcome outcome, JobState state) {
    Scene scene = settled(std::move(outcome), state);
    scene.lease_id = scene.stale.lease_id;
    scene.worker = "A";
    return scene;
  }
  Scene cancelled_by_the_sweep() {
    const Lease a = claimed_by_a();
    cancel(a.job);
    advance(kTtl);
    EXPECT_EQ(sweep().size(), 1U);
    return {
        .stale = a, .token = a.token, .lease_id = a.lease_id, .worker = "A", .state = JobState::cancelled};
  }
  Scene cancelled_after_its_attempt() {
    const Lease a = claimed_by_a();
    settle(a, Outcome::release());
    EXPECT_EQ(cancel(a.job), CancelStatus::cancelled);
    return {.stale = a, .token = FenceToken{2}, .worker = "operator", .state = JobState::cancelled};
  }
};

TEST_P(StaleMatrixTest, refuses_every_verb_changes_nothing_and_keeps_one_row_of_evidence) {
  for (const Verb& verb : all_verbs()) {
    SCOPED_TRACE(verb.label);
    const Scene scene = GetParam().arrange(*this);
    const std::string before = everything_about(scene.stale.job);

    const std::optional<Stale> refused = verb.run(store_, scene.stale);

    if (verb.label == GetParam().on_record) {
      EXPECT_FALSE(refused.has_value());
      EXPECT_EQ(everything_about(scene.stale.job), before);
      EXPECT_THAT(history(scene.stale.job).stale_writes, ::testing::IsEmpty());
      continue;
    }
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->reason, GetParam().reason);
    EXPECT_EQ(refused->current_token, scene.token);
    EXPECT_EQ(refused->current_worker, scene.worker);
    EXPECT_EQ(refused->current_state, scene.state);
    EXPECT_EQ(everything_about(scene.stale.job), before);
    expect_evidence(verb, GetParam().reason, scene);
  }
}

std::vector<Situation> situations() {
  using enum StaleReason;
  using Test = StaleMatrixTest;
  const auto settled = [](std::string name, Outcome outcome, JobState state, std::string on_record = "") {
    return Situation{std::move(name), already_settled, [=](Test& t) { return t.settled(outcome, state); },
                     std::move(on_record)};
  };
  return {
      {"claimed_by_another", token_mismatch, [](Test& t) { return t.claimed_by_another(); }},
      {"finished_by_another", token_mismatch, [](Test& t) { return t.finished_by_another(); }},
      {"requeued_since", token_mismatch, [](Test& t) { return t.requeued_since(); }},
      {"unknown_job", token_mismatch, [](Test& t) { return t.unknown_job(); }},
      {"expired_and_not_swept", lease_expired, [](Test& t) { return t.ran_out(); }},
      {"expired_and_swept", lease_expired,
       [](Test& t) { return t.swept(Delivery::at_least_once, JobState::available); }},
      {"expired_and_buried", lease_expired,
       [](Test& t) { return t.swept(Delivery::at_most_once, JobState::dead); }},
      {"expired_and_held", lease_expired, [](Test& t) { return t.swept(Delivery::hold, JobState::held); }},
      {"completed_before", already_settled,
       [](Test& t) { return t.finished(Outcome::success("first"), JobState::succeeded); }},
      settled("failed_before", Outcome::failure("first"), JobState::available),
      settled("buried_before", Outcome::bury("first"), JobState::dead),
      settled("snoozed_before", Outcome::snooze(std::chrono::milliseconds{60'000}), JobState::available,
              "snooze"),
      settled("released_before", Outcome::release(), JobState::available, "release"),
      {"cancelled_by_its_worker", cancelled,
       [](Test& t) { return t.finished(Outcome::cancel("first"), JobState::cancelled); }},
      {"cancelled_by_the_sweep", cancelled, [](Test& t) { return t.cancelled_by_the_sweep(); }},
      {"cancelled_after_its_attempt", cancelled, [](Test& t) { return t.cancelled_after_its_attempt(); },
       "release"},
  };
}

INSTANTIATE_TEST_SUITE_P(When, StaleMatrixTest, ::testing::ValuesIn(situations()),
                         [](const auto& situation) { return situation.param.name; });

class CancelRequestedTest : public StaleTest {
 protected:
  Scene flagged() {
    const Lease a = claimed_by_a();
    EXPECT_EQ(cancel(a.job), CancelStatus::requested);
    return {.stale = a, .token = a.token, .lease_id = a.lease_id, .worker = "A", .state = JobState::running};
  }
};

TEST_F(CancelRequestedTest, a_settlement_is_refused_with_evidence_and_the_job_ends_as_cancelled) {
  for (const Verb& verb : all_verbs()) {
    if (!verb.settles || verb.label == "cancel") continue;
    SCOPED_TRACE(verb.label);
    const Scene scene = flagged();

    const std::optional<Stale> refused = verb.run(store_, scene.stale);

    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->reason, StaleReason::cancelled);
    EXPECT_EQ(refused->current_token, scene.token);
    EXPECT_EQ(refused->current_worker, "A");
    expect_evidence(verb, StaleReason::cancelled, scene);
    const JobHistory whole = history(scene.stale.job);
    EXPECT_EQ(whole.job.state, JobState::cancelled);
    EXPECT_FALSE(whole.job.result.has_value());
    EXPECT_EQ(whole.job.last_error, "not wanted");
    ASSERT_EQ(whole.attempts.size(), 1U);
    EXPECT_EQ(whole.attempts[0].outcome, "cancelled");
    EXPECT_EQ(whole.attempts[0].token, scene.stale.token);
    EXPECT_EQ(counts(queue()).cancelled, 1);
    EXPECT_EQ(counts(queue()).running, 0);
  }
}

TEST_F(CancelRequestedTest, what_is_not_a_settlement_is_refused_and_the_job_goes_on_winding_up) {
  for (const Verb& verb : all_verbs()) {
    if (verb.settles || verb.label == "heartbeat" || verb.label == "extend") continue;
    SCOPED_TRACE(verb.label);
    const Scene scene = flagged();
    const std::string before = everything_about(scene.stale.job);

    const std::optional<Stale> refused = verb.run(store_, scene.stale);

    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->reason, StaleReason::cancelled);
    EXPECT_EQ(everything_about(scene.stale.job), before);
    expect_evidence(verb, StaleReason::cancelled, scene);
    EXPECT_TRUE(settle(scene.stale, Outcome::cancel("as asked")).committed());
  }
}

TEST_F(CancelRequestedTest, a_heartbeat_delivers_the_request_and_does_not_renew) {
  for (const std::optional<ms> extend : {std::optional<ms>{}, std::optional{ms{60'000}}}) {
    const Scene scene = flagged();
    advance(ms{1'000});
    const std::string before = everything_about(scene.stale.job);

    const Beat beat = must(store_.heartbeat({&scene.stale, 1}, extend)).at(0);

    EXPECT_EQ(beat.status, Beat::Status::cancel_requested);
    EXPECT_EQ(beat.cancel_reason, "not wanted");
    EXPECT_EQ(beat.lease_expires_at, must(store_.now()) - ms{1'000} + kTtl);
    EXPECT_EQ(everything_about(scene.stale.job), before);
    EXPECT_TRUE(must(store_.stale_writes(10)).empty());
  }
}

TEST_F(CancelRequestedTest, an_expired_lease_is_expired_even_if_its_job_is_to_be_cancelled) {
  for (const Verb& verb : all_verbs()) {
    SCOPED_TRACE(verb.label);
    const Scene scene = flagged();
    advance(kTtl);
    const std::string before = everything_about(scene.stale.job);

    const std::optional<Stale> refused = verb.run(store_, scene.stale);

    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->reason, StaleReason::lease_expired);
    EXPECT_EQ(everything_about(scene.stale.job), before);
    expect_evidence(verb, StaleReason::lease_expired, scene);
  }
}

class MixedBatchTest : public StaleTest {
 protected:
  /// Twelve leases, in the order of the answers: every third is good, the rest are stale in turn.
  std::vector<Lease> mixed() {
    std::vector<Lease> leases;
    for (int i = 0; i < 12; ++i) {
      const Lease lease = claimed_by_a({.lease_ttl = i % 3 == 1 ? ms{1'000} : ms{100'000}});
      if (i % 3 == 2) settle(lease, Outcome::release());
      leases.push_back(lease);
    }
    advance(ms{1'000});
    // So that the order of the batch is not the order of the ids.
    std::swap(leases[0], leases[9]);
    std::swap(leases[2], leases[8]);
    return leases;
  }
};

TEST_F(MixedBatchTest, the_good_leases_commit_the_stale_ones_do_not_and_the_answers_keep_the_order) {
  const std::vector<Lease> leases = mixed();
  std::vector<Settlement> settlements;
  for (const Lease& lease : leases)
    settlements.push_back({.lease = lease, .outcome = Outcome::success("done")});
  std::vector<std::string> before;
  for (const Lease& lease : leases) {
    before.push_back(query_text(sql_, "SELECT coalesce((SELECT j::text FROM faultline.jobs j WHERE j.id = '" +
                                          lease.job.to_string() + "'), '')"));
  }

  const std::vector<Verdict> verdicts = must(store_.settle(settlements));

  ASSERT_EQ(verdicts.size(), 12U);
  for (std::size_t i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(verdicts[i].committed(), i % 3 == 0);
    if (i % 3 == 0) {
      EXPECT_EQ(job(leases[i].job).result, "done");
      EXPECT_TRUE(history(leases[i].job).stale_writes.empty());
      continue;
    }
    EXPECT_EQ(verdicts[i].stale.reason,
              i % 3 == 1 ? StaleReason::lease_expired : StaleReason::already_settled);
    EXPECT_EQ(query_text(sql_, "SELECT j::text FROM faultline.jobs j WHERE j.id = '" +
                                   leases[i].job.to_string() + "'"),
              before[i]);
    EXPECT_EQ(history(leases[i].job).stale_writes.size(), 1U);
  }
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger WHERE state = 'succeeded'"), 4);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes"), 8);
}

TEST_F(MixedBatchTest, settlements_of_different_kinds_in_one_batch_each_do_their_own) {
  std::vector<Settlement> settlements;
  const std::vector<Outcome> outcomes{Outcome::success("r"), Outcome::failure("f"),
                                      Outcome::bury("b"),    Outcome::snooze(ms{5'000}),
                                      Outcome::release(),    Outcome::cancel("c")};
  for (int round = 0; round < 2; ++round) {
    for (const Outcome& outcome : outcomes) {
      const Lease lease = claimed_by_a();
      if (round == 1) settle(lease, Outcome::failure("before"));
      settlements.push_back({.lease = lease, .outcome = outcome});
    }
  }
  const std::vector<Verdict> verdicts = must(store_.settle(settlements));

  const std::vector<std::string> expected{"succeeded", "failed",   "buried",
                                          "snoozed",   "released", "cancelled"};
  for (std::size_t i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(verdicts[i].committed(), i < 6);
    const JobHistory whole = history(settlements[i].lease.job);
    ASSERT_EQ(whole.attempts.size(), 1U);
    EXPECT_EQ(whole.attempts[0].outcome, i < 6 ? expected[i] : "failed");
    EXPECT_EQ(whole.stale_writes.size(), i < 6 ? 0U : 1U);
  }
}

TEST_F(MixedBatchTest, a_heartbeat_renews_the_good_leases_and_names_the_lost_ones) {
  const std::vector<Lease> leases = mixed();

  const std::vector<Beat> beats = must(store_.heartbeat(leases));

  for (std::size_t i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(beats[i].status, i % 3 == 0 ? Beat::Status::renewed : Beat::Status::lost);
    if (i % 3 == 0) {
      EXPECT_EQ(beats[i].lease_expires_at, must(store_.now()) + ms{100'000});
      EXPECT_EQ(job(leases[i].job).lease_expires_at, beats[i].lease_expires_at);
    }
  }
}

TEST_F(MixedBatchTest, two_effects_of_one_job_under_two_leases_are_judged_each_by_its_own) {
  const Lease a = claimed_by_a();
  advance(kTtl);
  sweep();
  const Lease b = claim_one("B", queue()).lease;
  const std::vector<EffectKey> keys{{.lease = a, .key = "one"},
                                    {.lease = b, .key = "two"},
                                    {.lease = a, .key = "three"},
                                    {.lease = b, .key = "four"}};

  const std::vector<Effect> effects = must(store_.begin_effects(keys));

  EXPECT_EQ(effects[0].status, Effect::Status::stale);
  EXPECT_EQ(effects[1].status, Effect::Status::begun);
  EXPECT_EQ(effects[2].status, Effect::Status::stale);
  EXPECT_EQ(effects[3].status, Effect::Status::begun);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.effects WHERE key IN ('one', 'three')"), 0);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.effects WHERE key IN ('two', 'four')"), 2);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes WHERE worker = 'A'"), 2);
}

TEST_F(MixedBatchTest, two_stale_leases_of_one_job_each_get_their_own_reason) {
  const Lease a = claimed_by_a();
  advance(kTtl);
  sweep();
  const Lease b = claim_one("B", queue()).lease;
  advance(kTtl);
  for (const bool a_first : {true, false}) {
    const std::vector<EffectKey> keys{{.lease = a_first ? a : b, .key = "one"},
                                      {.lease = a_first ? b : a, .key = "two"}};

    const std::vector<Effect> effects = must(store_.begin_effects(keys));

    EXPECT_EQ(effects[a_first ? 0 : 1].stale.reason, StaleReason::token_mismatch);
    EXPECT_EQ(effects[a_first ? 1 : 0].stale.reason, StaleReason::lease_expired);
  }
}

TEST_F(MixedBatchTest, a_batch_larger_than_one_transaction_is_answered_in_order) {
  enqueue_many(1'500);
  std::vector<Settlement> settlements;
  while (settlements.size() < 1'500) {
    for (const ClaimedJob& claimed : claim("A", 1'000)) settlements.push_back({.lease = claimed.lease});
  }
  for (std::size_t i = 0; i < settlements.size(); i += 100) settlements[i].lease.lease_id = Uuid::random();

  const std::vector<Verdict> verdicts = must(store_.settle(settlements));

  for (std::size_t i = 0; i < verdicts.size(); ++i) EXPECT_EQ(verdicts[i].committed(), i % 100 != 0) << i;
  EXPECT_EQ(counts().succeeded, 1'485);
  EXPECT_EQ(counts().running, 15);
}

}  // namespace
}  // namespace faultline::testing

// What becomes of every verb when its messages are cut off, come late or come twice: the caller is told the
// truth, and the database is as if the message had come once. docs/delivery.md has this as a table.

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <regex>

#include "pg/wire_proxy.h"
#include "store/fixture.h"
#include "store/invariants.h"

namespace faultline::testing {
namespace {

/// A database with a store on a wire that can be troubled (`far`), and one that cannot (`near`).
class Scene : public StoreTest {
 public:
  Scene() { begin(); }
  void TestBody() override {}

  /// Everything as at the beginning, but for the time, which goes on. The database stays: to make one takes
  /// longer than what is tried in it.
  void begin_again() {
    far_.reset();
    proxy_.reset();
    store_ = open_store();  // one that has claimed looks elsewhere for the next job than one that has not
    if (!eventually([&] {
          return number(
                     "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                     "application_name = 'far'") == 0;
        })) {
      throw std::runtime_error("a message is still under way");
    }
    script(
        "DELETE FROM faultline.jobs WHERE queue <> ''; DELETE FROM faultline.ledger;"
        "DELETE FROM faultline.effects; DELETE FROM faultline.effect_decisions;"
        "DELETE FROM faultline.idempotency_keys;"
        "DELETE FROM faultline.stale_writes; DELETE FROM faultline.grants; DELETE FROM faultline.tallies;"
        "DELETE FROM faultline.queues; INSERT INTO faultline.queues (bucket, name) VALUES (0, 'default');"
        "DELETE FROM faultline.retention; INSERT INTO faultline.retention (bucket) VALUES (0)");
    advance(std::chrono::hours{1});
    lease = {};
    id = {};
    n = 0;
    begin();
  }

  [[nodiscard]] Store& near() { return store_; }
  using StoreTest::advance;
  using StoreTest::cancel;
  using StoreTest::claim;
  using StoreTest::claim_one;
  using StoreTest::complete;
  using StoreTest::enqueue;
  using StoreTest::requeue;
  using StoreTest::settle;
  using StoreTest::sweep;

  /// Claims and completes everything that is due.
  void finish_all() {
    advance(ms{3'600'000});
    sweep();
    advance(ms{3'600'000});
    for (const ClaimedJob& job : claim("finisher", 1'000)) EXPECT_TRUE(complete(job.lease).committed());
  }

  /// All that matters, without ids, and with times as seconds since the beginning.
  [[nodiscard]] std::string world() {
    const std::string query = R"sql(
      SELECT concat_ws(E'\n',
        (SELECT string_agg(concat_ws(' ', 'job', j.queue, j.state, j.token, j.attempt, j.requeues, j.cancel_reason,
                                     since(j.lease_expires_at), j.progress, j.last_error), E'\n' ORDER BY j.id)
           FROM faultline.jobs j WHERE j.queue <> ''),
        (SELECT string_agg(concat_ws(' ', 'ledger', l.outcome, l.state, l.token, l.requeues, l.worker, l.error,
                                     convert_from(l.result, 'UTF8')), E'\n' ORDER BY l.job_id, l.token)
           FROM faultline.ledger l),
        (SELECT string_agg(concat_ws(' ', 'effect', e.key, e.token, since(e.recorded_at), since(e.forgotten_at),
                                     convert_from(e.result, 'UTF8')), E'\n' ORDER BY e.job_id, e.key)
           FROM faultline.effects e),
        (SELECT string_agg(concat_ws(' ', 'decision', d.key, d.token, d.happened, d.decided_by, d.reason), E'\n'
                           ORDER BY d.job_id, d.token)
           FROM faultline.effect_decisions d),
        (SELECT string_agg(concat_ws(' ', 'key', k.key, since(k.expires_at)), E'\n' ORDER BY k.key)
           FROM faultline.idempotency_keys k),
        (SELECT string_agg(concat_ws(' ', 'queue', q.name, q.attempts_max, q.deleted_at IS NOT NULL), E'\n' ORDER BY q.name)
           FROM faultline.queues q),
        (SELECT string_agg(concat_ws(' ', 'count', t.queue, t.available, t.running, t.held, t.dead, t.succeeded,
                                     t.cancelled), E'\n' ORDER BY t.queue)
           FROM (SELECT queue, sum(available) AS available, sum(running) AS running, sum(held) AS held,
                        sum(dead) AS dead, sum(succeeded) AS succeeded, sum(cancelled) AS cancelled
                   FROM faultline.tallies GROUP BY queue) AS t))
      )sql";
    const std::regex since{R"(since\(([a-z_.]+)\))"};
    return query_text(sql_, std::regex_replace(query, since, "(extract(epoch FROM $1) - " + began_ + ")"));
  }
  [[nodiscard]] std::int64_t evidence() { return number("SELECT count(*) FROM faultline.stale_writes"); }
  [[nodiscard]] std::vector<std::string> broken() { return broken_invariants(sql_); }

  [[nodiscard]] WireProxy& proxy() { return *proxy_; }
  [[nodiscard]] Store& far() { return *far_; }
  // What `arrange` left for the call.
  Lease lease;
  JobId id;
  int n = 0;

 private:
  void begin() {
    began_ = query_text(sql_, "SELECT extract(epoch FROM faultline.clock())::text");
    must(near().set_queue("default", {.backoff_base = ms{0}, .retention = ms{0}, .key_retention = ms{0}}));
    proxy_.emplace(database_.dsn());
    far_.emplace(
        must(Store::open({.database = proxy_->dsn(), .application_name = "far", .connections_max = 1})));
    must(far().now());
    // The queue is known from here on, and a verb is one message.
    must(far().set_queue("default", {.paused = false}));
  }

  std::string began_;
  std::optional<WireProxy> proxy_;
  std::optional<Store> far_;
};

struct Verb {
  std::string name;
  std::function<void(Scene&)> arrange;
  std::function<std::string(Scene&)> call;  ///< through `far`; what the caller was told
  /// What happens to the job between the answer and the delivery of a message that comes late.
  std::function<void(Scene&)> goes_on;
  /// A message about a lease that comes after its end is a stale write, and on record as one.
  std::int64_t late_evidence = 0;
};

std::ostream& operator<<(std::ostream& out, const Verb& verb) { return out << verb.name; }

std::string said(const Verdict& verdict) {
  if (verdict.status == Verdict::Status::unknown) return "unknown";
  if (!verdict.committed()) return std::string{to_string(verdict.stale.reason)};
  // To the caller it is the first answer, however often the store had to ask.
  return verdict.repeated ? "repeated" : "committed";
}
std::string said(const Effect& effect) {
  return std::to_string(static_cast<int>(effect.status)) + effect.result.value_or("");
}

void claimed(Scene& scene) {
  scene.enqueue();
  scene.lease = scene.claim_one("A").lease;
}
void dead(Scene& scene) {
  claimed(scene);
  scene.settle(scene.lease, Outcome::bury("no use"));
  scene.id = scene.lease.job;
}

Verb settling(std::string name, Outcome outcome) {
  return {.name = std::move(name),
          .arrange = claimed,
          .call =
              [outcome](Scene& scene) {
                const Settlement settlement{.lease = scene.lease, .outcome = outcome};
                return said(must(scene.far().settle({&settlement, 1})).at(0));
              },
          .goes_on = [](Scene& scene) { scene.finish_all(); }};
}

/// A verb on a lease after whose end a late message is refused.
Verb leased(std::string name, std::function<std::string(Scene&)> call, std::int64_t late_evidence = 1) {
  return {.name = std::move(name),
          .arrange = claimed,
          .call = std::move(call),
          .goes_on = [](Scene& scene) { scene.complete(scene.lease); },
          .late_evidence = late_evidence};
}

/// The same, and it may have been under way when its own worker settled, which is no sign of anything.
Verb sign_of_life(std::string name, std::function<std::string(Scene&)> call) {
  return leased(std::move(name), std::move(call), 0);
}

EffectKey effect_of(const Scene& scene, const std::string& key = "charge") {
  EffectKey effect{.lease = scene.lease, .key = key};
  effect.call.bytes[0] = 7;
  return effect;
}

std::vector<Verb> verbs() {
  using std::chrono::milliseconds;
  const auto finish = [](Scene& scene) { scene.finish_all(); };
  const auto nothing = [](Scene&) {};
  std::vector<Verb> all{
      {.name = "enqueue",
       .arrange = nothing,
       .call =
           [](Scene& scene) {
             std::string told;
             for (const Submission& each :
                  must(scene.far().enqueue(std::vector<NewJob>(3, NewJob{.kind = "k"}))))
               told += std::to_string(static_cast<int>(each.status));
             return told;
           },
       .goes_on = finish},
      {.name = "enqueue_many",
       .arrange = nothing,
       .call =
           [](Scene& scene) {
             return std::to_string(
                 must(scene.far().enqueue(std::vector<NewJob>(1'500, NewJob{.kind = "k"}))).size());
           },
       .goes_on =
           [](Scene& scene) {
             scene.finish_all();
             scene.finish_all();
             scene.finish_all();
           }},
      {.name = "enqueue_with_a_key",
       .arrange = [](Scene& scene) { ++scene.n; },
       .call =
           [](Scene& scene) {
             const NewJob job{.kind = "k", .idempotency_key = "key " + std::to_string(scene.n)};
             return std::to_string(static_cast<int>(must(scene.far().enqueue(job)).status));
           },
       .goes_on = finish},
      settling("complete", Outcome::success("r")),
      settling("fail", Outcome::failure("f", milliseconds{1'000})),
      settling("bury", Outcome::bury("b")),
      settling("snooze", Outcome::snooze(milliseconds{1'000})),
      settling("release", Outcome::release()),
      settling("cancel_by_its_worker", Outcome::cancel("c")),
      sign_of_life("heartbeat",
                   [](Scene& scene) {
                     return std::to_string(
                         static_cast<int>(must(scene.far().heartbeat({&scene.lease, 1})).at(0).status));
                   }),
      leased("extend",
             [](Scene& scene) {
               const auto beats = must(scene.far().heartbeat({&scene.lease, 1}, milliseconds{90'000}));
               return std::to_string(static_cast<int>(beats.at(0).status));
             }),
      sign_of_life("progress",
                   [](Scene& scene) {
                     const ProgressReport report{.lease = scene.lease, .fraction = 0.5};
                     return said(must(scene.far().progress({&report, 1})).at(0));
                   }),
      leased("check", [](Scene& scene) { return said(must(scene.far().check({&scene.lease, 1})).at(0)); }),
      leased("begin_an_effect",
             [](Scene& scene) {
               const EffectKey key = effect_of(scene);
               return said(must(scene.far().begin_effects({&key, 1})).at(0));
             }),
      leased("record_an_effect",
             [](Scene& scene) {
               const EffectResult result{.lease = scene.lease, .key = "charge", .result = "receipt"};
               return said(must(scene.far().record_effects({&result, 1})).at(0));
             }),
      leased("forget_an_effect",
             [](Scene& scene) {
               const EffectKey key = effect_of(scene);
               must(scene.near().begin_effects({&key, 1}));
               return said(must(scene.far().forget_effects({&key, 1})).at(0));
             }),
      {.name = "forget_an_effect_that_is_announced_anew",
       .arrange = claimed,
       .call =
           [](Scene& scene) {
             const EffectKey key = effect_of(scene);
             must(scene.near().begin_effects({&key, 1}));
             return said(must(scene.far().forget_effects({&key, 1})).at(0));
           },
       .goes_on =
           [](Scene& scene) {
             const EffectKey again{.lease = scene.lease, .key = "charge"};
             EXPECT_EQ(must(scene.near().begin_effects({&again, 1})).at(0).status, Effect::Status::begun);
           }},
      {.name = "begin_an_effect_that_is_forgotten",
       .arrange = claimed,
       .call =
           [](Scene& scene) {
             const EffectKey key = effect_of(scene);
             return said(must(scene.far().begin_effects({&key, 1})).at(0));
           },
       .goes_on =
           [](Scene& scene) {
             const EffectKey key = effect_of(scene);
             EXPECT_TRUE(must(scene.near().forget_effects({&key, 1})).at(0).committed());
           }},
      {.name = "cancel_a_waiting_job",
       .arrange = [](Scene& scene) { scene.id = scene.enqueue(); },
       .call =
           [](Scene& scene) {
             return std::string{to_string(must(scene.far().cancel({&scene.id, 1}, "operator", "why")).at(0))};
           },
       .goes_on = [](Scene& scene) { EXPECT_EQ(scene.requeue(scene.id), RequeueStatus::requeued); }},
      {.name = "cancel_a_running_job",
       .arrange =
           [](Scene& scene) {
             claimed(scene);
             scene.id = scene.lease.job;
           },
       .call =
           [](Scene& scene) {
             return std::string{to_string(must(scene.far().cancel({&scene.id, 1}, "operator", "why")).at(0))};
           },
       .goes_on =
           [](Scene& scene) {
             EXPECT_TRUE(scene.settle(scene.lease, Outcome::cancel("as asked")).committed());
             EXPECT_EQ(scene.requeue(scene.id), RequeueStatus::requeued);
             scene.claim_one("B");
           }},
      {.name = "requeue_a_dead_job",
       .arrange = dead,
       .call =
           [](Scene& scene) {
             return std::string{to_string(must(scene.far().requeue({&scene.id, 1}, "operator")).at(0))};
           },
       .goes_on = finish},
      {.name = "requeue_a_finished_job",
       .arrange =
           [](Scene& scene) {
             claimed(scene);
             scene.complete(scene.lease);
             scene.id = scene.lease.job;
           },
       .call =
           [](Scene& scene) {
             return std::string{to_string(must(scene.far().requeue({&scene.id, 1}, "operator")).at(0))};
           },
       .goes_on = finish},
      {.name = "purge",
       .arrange = dead,
       .call =
           [](Scene& scene) {
             return std::string{to_string(must(scene.far().purge_dead({&scene.id, 1}, "operator")).at(0))};
           },
       .goes_on = nothing},
      {.name = "decide_about_an_effect",
       .arrange =
           [](Scene& scene) {
             claimed(scene);
             const EffectKey key = effect_of(scene);
             must(scene.near().begin_effects({&key, 1}));
             scene.settle(scene.lease, Outcome::bury("unknown"));
             scene.id = scene.lease.job;
           },
       .call =
           [](Scene& scene) {
             return std::string{to_string(must(scene.far().decide_effect({.job = scene.id,
                                                                          .key = "charge",
                                                                          .happened = false,
                                                                          .reason = "why",
                                                                          .begun_under = scene.lease.token},
                                                                         "operator")))};
           },
       .goes_on =
           [](Scene& scene) {
             // Begun anew, and unknown again: of that the message says nothing.
             EXPECT_EQ(scene.requeue(scene.id), RequeueStatus::requeued);
             scene.lease = scene.claim_one("B").lease;
             const EffectKey again{.lease = scene.lease, .key = "charge"};
             EXPECT_EQ(must(scene.near().begin_effects({&again, 1})).at(0).status, Effect::Status::begun);
             scene.settle(scene.lease, Outcome::bury("unknown again"));
           }},
      {.name = "delete_a_queue",
       .arrange = [](Scene& scene) { must(scene.near().set_queue("doomed", {})); },
       .call =
           [](Scene& scene) {
             return std::string{to_string(must(scene.far().delete_queue("doomed")).status)};
           },
       .goes_on = nothing},
      {.name = "set_a_queue",
       .arrange = nothing,
       .call =
           [](Scene& scene) {
             must(scene.far().set_queue("default", {.attempts_max = 7}));
             return std::string{"done"};
           },
       .goes_on = nothing},
      {.name = "expire",
       .arrange =
           [](Scene& scene) {
             claimed(scene);
             scene.advance(std::chrono::seconds{31});
           },
       .call =
           [](Scene& scene) {
             // The leases that were lost with the first answer are in nobody's report, and in the ledger.
             must(scene.far().expire_leases());
             return std::string{"done"};
           },
       .goes_on = finish},
      {.name = "prune",
       .arrange =
           [](Scene& scene) {
             claimed(scene);
             scene.complete(scene.lease);
             scene.advance(std::chrono::seconds{1});
           },
       .call =
           [](Scene& scene) {
             must(scene.far().prune());
             return std::string{"done"};
           },
       .goes_on = nothing},
      {.name = "fold",
       .arrange = nothing,
       .call =
           [](Scene& scene) {
             must(scene.far().fold_counts());
             return std::string{"done"};
           },
       .goes_on = nothing},
  };
  return all;
}

class SentAgainTest : public ::testing::TestWithParam<Verb> {
 protected:
  static void TearDownTestSuite() { scene_.reset(); }
  /// The one scene of all cases, as at its beginning.
  static Scene& new_scene() {
    if (scene_)
      scene_->begin_again();
    else
      scene_ = std::make_unique<Scene>();
    return *scene_;
  }
  /// A scene in which the verb was called once already, so that its statement is prepared, and is about to be
  /// called again.
  void prepare(Scene& scene) {
    GetParam().arrange(scene);
    GetParam().call(scene);
    GetParam().arrange(scene);
  }

 private:
  static inline std::unique_ptr<Scene> scene_;
};

TEST_P(SentAgainTest, it_is_done_once_and_the_answer_is_true_whatever_is_lost_late_or_doubled) {
  Scene& undisturbed = new_scene();
  prepare(undisturbed);
  const std::string answer = GetParam().call(undisturbed);
  const std::string world = undisturbed.world();

  using Trouble = void (*)(WireProxy&);
  const std::vector<std::pair<std::string, Trouble>> troubles{
      {"cut off before it arrives", [](WireProxy& proxy) { proxy.cut_before('S'); }},
      {"cut off after its commit", [](WireProxy& proxy) { proxy.cut_after('S'); }},
      {"delivered twice", [](WireProxy& proxy) { proxy.deliver_twice(); }},
      {"delivered after it was sent again", [](WireProxy& proxy) { proxy.hold_unit(); }}};
  for (const auto& [name, trouble] : troubles) {
    SCOPED_TRACE(name);
    Scene& scene = new_scene();
    prepare(scene);
    trouble(scene.proxy());

    EXPECT_EQ(GetParam().call(scene), answer);

    EXPECT_TRUE(scene.proxy().cuts() == 1 ||
                eventually([&] { return scene.proxy().second_deliveries() == 1; }));
    EXPECT_EQ(scene.world(), world);
    scene.proxy().deliver_held();
    EXPECT_EQ(scene.world(), world);
    EXPECT_EQ(scene.evidence(), 0);
    EXPECT_THAT(scene.broken(), ::testing::IsEmpty());
  }
}

TEST_P(SentAgainTest, a_message_that_comes_when_all_is_over_changes_nothing) {
  Scene& scene = new_scene();
  prepare(scene);
  scene.proxy().hold_unit();
  GetParam().call(scene);
  ASSERT_EQ(scene.proxy().cuts(), 1);
  GetParam().goes_on(scene);
  const std::string world = scene.world();

  scene.proxy().deliver_held();

  EXPECT_EQ(scene.world(), world);
  EXPECT_EQ(scene.evidence(), GetParam().late_evidence);
  EXPECT_THAT(scene.broken(), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Verbs, SentAgainTest, ::testing::ValuesIn(verbs()),
                         [](const auto& verb) { return verb.param.name; });

// A claim is not done once: each sending is a claim of its own, and what one of them took and nobody was told
// of runs out.

class ClaimSentAgainTest : public ::testing::Test {
 protected:
  ClaimSentAgainTest() {
    for (int i = 0; i < 3; ++i) scene_.enqueue();
    must(scene_.far().claim({.worker = "warm up"}));
  }

  /// Nobody holds a job twice, and all jobs end.
  void expect_all_is_recovered(const std::vector<ClaimedJob>& held) {
    EXPECT_THAT(scene_.broken(), ::testing::IsEmpty());
    for (const ClaimedJob& job : held) EXPECT_TRUE(scene_.complete(job.lease).committed());
    scene_.advance(std::chrono::seconds{31});
    EXPECT_THAT(must(scene_.near().expire_leases()).problems, ::testing::IsEmpty());
    scene_.finish_all();
    EXPECT_EQ(must(scene_.near().counts("default")).at(0).succeeded, 3);
    EXPECT_THAT(scene_.broken(), ::testing::IsEmpty());
  }

  Scene scene_;
};

TEST_F(ClaimSentAgainTest, cut_off_after_its_commit_or_late_or_twice_it_leaves_leases_that_run_out) {
  scene_.proxy().cut_after('S');
  const auto claimed = must(scene_.far().claim({.worker = "A"}));

  ASSERT_EQ(claimed.size(), 1U);
  EXPECT_EQ(must(scene_.near().counts("default")).at(0).running, 3);
  expect_all_is_recovered(claimed);
}

TEST_F(ClaimSentAgainTest, delivered_after_it_was_sent_again_it_takes_a_job_that_nobody_knows_of) {
  scene_.proxy().hold_unit();
  const auto claimed = must(scene_.far().claim({.worker = "A"}));
  scene_.proxy().deliver_held();

  ASSERT_EQ(claimed.size(), 1U);
  EXPECT_EQ(must(scene_.near().counts("default")).at(0).running, 3);
  expect_all_is_recovered(claimed);
}

TEST_F(ClaimSentAgainTest, delivered_twice_under_one_lease_id_both_are_watched) {
  scene_.proxy().deliver_twice();
  const auto claimed = must(scene_.far().claim({.worker = "A"}));
  EXPECT_TRUE(eventually([&] { return scene_.proxy().second_deliveries() == 1; }));

  ASSERT_EQ(claimed.size(), 1U);
  EXPECT_EQ(must(scene_.near().counts("default")).at(0).running, 3);
  // The one that the worker knows of is renewed, the other one is not.
  must(scene_.near().heartbeat({&claimed[0].lease, 1}, std::chrono::milliseconds{90'000}));
  scene_.advance(std::chrono::seconds{31});
  EXPECT_EQ(must(scene_.near().expire_leases()).expired.size(), 2U);
  expect_all_is_recovered(claimed);
}

}  // namespace
}  // namespace faultline::testing

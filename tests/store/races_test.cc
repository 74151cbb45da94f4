// Two calls of the store at once, in every order that matters.
//
// Both sides are whole calls. One is stopped at a gate inside the database, the other is let run until it has
// returned or waits for a lock; then the gate opens, and both answers and the database are looked at. There
// are two gates. At the first a transaction has done all of its work and stands in front of its COMMIT, which
// the test then lets through or turns into a rollback. At the second a statement has its snapshot and has
// not looked at a row yet, so that it sees the past when it goes on.

#include <atomic>
#include <future>
#include <set>

#include <gmock/gmock.h>

#include "store/fixture.h"
#include "store/invariants.h"
#include "support/process.h"

namespace faultline::testing {
namespace {

using ::testing::IsEmpty;
using Status = Verdict::Status;

constexpr std::string_view kGates = R"sql(
  CREATE TABLE faultline.gates (commits boolean NOT NULL, statements boolean NOT NULL, roll_back boolean NOT NULL);
  INSERT INTO faultline.gates VALUES (false, false, false);

  CREATE FUNCTION faultline.stop_before_commit() RETURNS trigger LANGUAGE plpgsql AS $$
  BEGIN
      IF (SELECT g.commits FROM faultline.gates g) THEN
          PERFORM pg_advisory_xact_lock_shared(1);
          IF (SELECT g.roll_back FROM faultline.gates g) THEN
              RAISE EXCEPTION 'rolled back by the test' USING ERRCODE = 'P0001';
          END IF;
      END IF;
      RETURN NULL;
  END $$;
  CREATE CONSTRAINT TRIGGER stop_before_commit AFTER INSERT OR UPDATE OR DELETE ON faultline.jobs
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faultline.stop_before_commit();
  CREATE CONSTRAINT TRIGGER stop_before_commit AFTER INSERT OR UPDATE OR DELETE ON faultline.queues
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faultline.stop_before_commit();
  CREATE CONSTRAINT TRIGGER stop_before_commit AFTER INSERT OR UPDATE OR DELETE ON faultline.effects
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faultline.stop_before_commit();
  CREATE CONSTRAINT TRIGGER stop_before_commit AFTER INSERT OR UPDATE OR DELETE ON faultline.tallies
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION faultline.stop_before_commit();

  CREATE OR REPLACE FUNCTION faultline.clock() RETURNS timestamptz LANGUAGE plpgsql STABLE SET lock_timeout = 0 AS $$
  BEGIN
      IF (SELECT g.statements FROM faultline.gates g) THEN
          PERFORM pg_advisory_xact_lock_shared(2);
      END IF;
      RETURN (SELECT c.at FROM faultline.movable_clock c);
  END $$;

  -- The verbs read the time before their statements begin. Here the statements that find and lock rows read it
  -- themselves, and so can be stopped when they have their snapshot; the time is the same.
  DO $do$
  DECLARE
      hook record;
      text_before text;
      text_after text;
  BEGIN
      FOR hook IN SELECT * FROM (VALUES
          ('claim_jobs', 'j.run_at <= time_now', 'j.run_at <= faultline.clock()'),
          ('settle_jobs', 'j.lease_expires_at > time_now', 'j.lease_expires_at > faultline.clock()'),
          ('settle_jobs', 't.lease_expires_at > time_now', 't.lease_expires_at > faultline.clock()'),
          ('expire_leases', 'g.check_at <= time_now', 'g.check_at <= faultline.clock()'),
          ('prune_jobs', 'l.token = c.token', 'l.token = c.token AND l.ended_at < faultline.clock()')
          ) AS h(name, condition, by_the_clock)
      LOOP
          text_before := pg_get_functiondef(('faultline.' || hook.name)::regproc);
          text_after := replace(text_before, hook.condition, hook.by_the_clock);
          IF text_after = text_before THEN
              RAISE EXCEPTION 'faultline.% does not say: %', hook.name, hook.condition;
          END IF;
          EXECUTE text_after;
      END LOOP;
  END $do$;
)sql";

/// A call of the store in a thread of its own.
template <class T>
class Call {
 public:
  template <class F>
  explicit Call(F call) : answer_(std::async(std::launch::async, std::move(call))) {}

  [[nodiscard]] bool returned() const {
    return answer_.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
  }
  T get() { return answer_.get(); }

 private:
  std::future<T> answer_;
};
template <class F>
Call(F) -> Call<std::invoke_result_t<F>>;

class RacesTest : public StoreTest {
 protected:
  enum class End { commit, roll_back };
  static constexpr std::array kEnds{End::commit, End::roll_back};

  RacesTest() { script(kGates); }
  void TearDown() override { EXPECT_THAT(broken_invariants(sql_), IsEmpty()); }

  /// Runs a call until it stands in front of its COMMIT.
  template <class F>
  auto hold(F call) {
    script("SELECT pg_advisory_lock(1)");
    script("UPDATE faultline.gates SET commits = true, roll_back = false");
    Call held{std::move(call)};
    wait_until_stopped(1, 1);
    script("UPDATE faultline.gates SET commits = false");
    return held;
  }
  /// Lets the held transaction commit, or fail.
  void end(End end) {
    if (end == End::roll_back) script("UPDATE faultline.gates SET roll_back = true");
    script("SELECT pg_advisory_unlock(1)");
  }

  /// Runs calls until each stands in a statement that has its snapshot and goes no further. They must have
  /// been run on the same connection before, or it is their planning that stops, in front of the snapshot.
  template <class F>
  auto stall(F call, std::size_t times = 1) {
    script("SELECT pg_advisory_lock(2)");
    script("UPDATE faultline.gates SET statements = true");
    std::vector<Call<std::invoke_result_t<F, std::size_t>>> calls;
    for (std::size_t i = 0; i < times; ++i) calls.emplace_back([call, i] { return call(i); });
    wait_until_stopped(2, times);
    script("UPDATE faultline.gates SET statements = false");
    return calls;
  }
  void go_on() { script("SELECT pg_advisory_unlock(2)"); }

  /// Starts a call and waits until it has returned or is waiting for a lock of the held one.
  template <class F>
  auto start(F call) {
    Call started{std::move(call)};
    EXPECT_TRUE(eventually([&] { return started.returned() || waiting_on_rows() > 0; }));
    return started;
  }

  std::int64_t waiting_on_rows() {
    return number(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock' AND wait_event <> 'advisory'");
  }

  /// A queue of its own, so that nothing that an earlier round left behind is claimed.
  std::string new_queue(const QueueSettings& settings = {}) {
    std::string name = "race-" + std::to_string(++queues_);
    must(store_.set_queue(name, settings));
    return name;
  }
  Lease new_lease(NewJob job = {}) {
    job.queue = new_queue();
    job.kind = "race";
    must(store_.enqueue(job));
    return claim_one("A", job.queue).lease;
  }

  // Calls to be run in a thread: they give what the store gave.
  auto claiming(std::string queue, std::string worker = "B", std::size_t limit = 1) {
    return [this, queue, worker, limit] {
      return store_.claim({.queue = queue, .worker = worker, .limit = limit});
    };
  }
  auto settling(const Lease& lease, Outcome outcome) {
    return [this, lease, outcome] {
      const Settlement settlement{.lease = lease, .outcome = outcome};
      return first_of(store_.settle({&settlement, 1}));
    };
  }
  auto beating(const Lease& lease) {
    return [this, lease] { return first_of(store_.heartbeat({&lease, 1})); };
  }
  auto reporting(const Lease& lease) {
    return [this, lease] {
      const ProgressReport report{.lease = lease, .fraction = 0.5};
      return first_of(store_.progress({&report, 1}));
    };
  }
  auto beginning(const Lease& lease, std::string key = "effect") {
    return [this, lease, key] {
      const EffectKey effect{.lease = lease, .key = key};
      return first_of(store_.begin_effects({&effect, 1}));
    };
  }
  auto recording(const Lease& lease, std::string result, std::string key = "effect") {
    return [this, lease, key, result] {
      const EffectResult effect{.lease = lease, .key = key, .result = result};
      return first_of(store_.record_effects({&effect, 1}));
    };
  }
  auto cancelling(JobId job) {
    return [this, job] { return first_of(store_.cancel({&job, 1}, "operator", "not wanted")); };
  }
  auto requeueing(JobId job) {
    return [this, job] { return first_of(store_.requeue({&job, 1}, "operator")); };
  }
  auto purging(JobId job) {
    return [this, job] { return first_of(store_.purge_dead({&job, 1}, "operator")); };
  }
  auto sweeping() {
    return [this] { return store_.expire_leases(); };
  }

  std::string outcome_of_last_attempt(JobId id) { return history(id).attempts.back().outcome; }

  static bool is_stale(const Beat& beat) { return beat.status == Beat::Status::lost; }
  static bool is_stale(const Effect& effect) { return effect.status == Effect::Status::stale; }

  static std::vector<Outcome> all_outcomes() {
    return {Outcome::success(), Outcome::failure("it failed"), Outcome::bury("hopeless"),
            Outcome::snooze(ms{5'000}), Outcome::release()};
  }

 private:
  template <class T>
  static Expected<T> first_of(Expected<std::vector<T>> all) {
    if (!all) return std::unexpected(std::move(all.error()));
    return std::move(all->front());
  }
  std::int64_t stopped_at(int gate) {
    return number(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database()) AND objid = " +
        std::to_string(gate));
  }
  void wait_until_stopped(int gate, std::size_t calls) {
    if (eventually([&] { return stopped_at(gate) == static_cast<std::int64_t>(calls); })) return;
    script("SELECT pg_advisory_unlock_all()");
    throw std::runtime_error("a call that should stop at gate " + std::to_string(gate) + " never came there");
  }

  int queues_ = 0;
};

// Claiming.

TEST_F(RacesTest, claim_against_claim_of_one_job_gives_it_to_the_first_and_never_makes_the_second_wait) {
  for (const End how : kEnds) {
    const std::string queue = new_queue();
    const JobId id = enqueue({.queue = queue});
    auto first = hold(claiming(queue, "A"));
    auto second = start(claiming(queue, "B"));
    ASSERT_TRUE(second.returned());
    EXPECT_THAT(must(second.get()), IsEmpty());
    end(how);

    if (how == End::commit) {
      EXPECT_EQ(must(first.get()).at(0).lease.job, id);
      EXPECT_THAT(claim("B", 1, queue), IsEmpty());
      EXPECT_EQ(job(id).worker, "A");
    } else {
      EXPECT_FALSE(first.get());
      EXPECT_EQ(claim_one("B", queue).lease.token, FenceToken{1});
    }
  }
}

TEST_F(RacesTest, claim_against_claim_of_many_jobs_gives_each_job_to_one) {
  const std::string queue = new_queue();
  const std::vector<JobId> ids = enqueue_many(5, {.queue = queue});
  auto first = hold(claiming(queue, "A", 3));
  auto second = start(claiming(queue, "B", 3));
  ASSERT_TRUE(second.returned());
  end(End::commit);

  std::vector<JobId> given;
  for (const ClaimedJob& claimed : must(first.get())) given.push_back(claimed.lease.job);
  for (const ClaimedJob& claimed : must(second.get())) given.push_back(claimed.lease.job);
  EXPECT_THAT(given, ::testing::UnorderedElementsAreArray(ids));
}

TEST_F(RacesTest, a_claim_that_sees_the_past_does_not_take_a_job_that_was_claimed_since) {
  Store other = open_store({.connections_max = 1});
  const std::string queue = new_queue();
  must(other.claim({.queue = queue, .worker = "B"}));
  const JobId id = enqueue({.queue = queue});
  auto second = stall([&](std::size_t) { return other.claim({.queue = queue, .worker = "B"}); });
  const Lease lease = claim_one("A", queue).lease;
  go_on();

  EXPECT_THAT(must(second[0].get()), IsEmpty());
  EXPECT_EQ(job(id).worker, "A");
  EXPECT_TRUE(complete(lease).committed());
}

TEST_F(RacesTest, a_claim_that_sees_the_past_does_not_take_a_job_that_was_put_off_or_finished_since) {
  Store other = open_store({.connections_max = 1});
  for (const Outcome& outcome : {Outcome::snooze(ms{5'000}), Outcome::success(), Outcome::bury("hopeless")}) {
    const std::string queue = new_queue();
    must(other.claim({.queue = queue, .worker = "B"}));
    const JobId id = enqueue({.queue = queue});
    auto second = stall([&](std::size_t) { return other.claim({.queue = queue, .worker = "B"}); });
    EXPECT_TRUE(settle(claim_one("A", queue).lease, outcome).committed());
    go_on();

    EXPECT_THAT(must(second[0].get()), IsEmpty());
    EXPECT_EQ(job(id).token, FenceToken{1});
  }
}

TEST_F(RacesTest, a_claim_takes_no_more_than_its_limit_whatever_plan_the_planner_finds) {
  constexpr std::array kSettings{"enable_hashagg", "enable_sort", "enable_material", "enable_nestloop",
                                 "enable_indexscan"};
  const std::string queue = new_queue();
  const std::string alter = "ALTER DATABASE " + database_.name() + " SET ";
  for (unsigned off = 0; off < 1U << kSettings.size(); ++off) {
    for (std::size_t i = 0; i < kSettings.size(); ++i) {
      script(alter + kSettings[i] + ((off >> i & 1U) != 0 ? " = off" : " = on"));
    }
    Store odd = open_store({.connections_max = 1});
    enqueue_many(10, {.queue = queue});

    EXPECT_EQ(must(odd.claim({.queue = queue, .worker = "A"})).size(), 1U) << "planned with " << off;
    EXPECT_EQ(must(odd.claim({.queue = queue, .worker = "A", .limit = 3})).size(), 3U)
        << "planned with " << off;
  }
  EXPECT_EQ(counts(queue).running, 4 << kSettings.size());
}

TEST_F(RacesTest, eight_claimers_of_a_capped_queue_never_run_more_than_its_cap) {
  constexpr int kCap = 3;
  Store many = open_store({.connections_max = 9});
  for (const End how : kEnds) {
    const std::string queue = new_queue({.running_max = kCap});
    must(many.claim({.queue = queue, .worker = "warm"}));  // it knows of the cap from here on
    enqueue_many(20, {.queue = queue});
    auto first = hold([&] { return many.claim({.queue = queue, .worker = "first", .limit = 2}); });
    std::vector<Call<Expected<std::vector<ClaimedJob>>>> others;
    for (int i = 0; i < 8; ++i) {
      others.emplace_back(
          [&many, queue] { return many.claim({.queue = queue, .worker = "other", .limit = 2}); });
    }
    ASSERT_TRUE(eventually([&] { return waiting_on_rows() == 8; }));
    end(how);

    std::size_t claimed = 0;
    if (auto own = first.get(); own) claimed += own->size();
    for (auto& other : others) claimed += must(other.get()).size();
    EXPECT_EQ(claimed, std::size_t{kCap});
    EXPECT_EQ(counts(queue).running, kCap);
  }
}

TEST_F(RacesTest, claimers_and_settlers_of_a_capped_queue_never_run_more_than_its_cap) {
  constexpr int kCap = 3;
  constexpr std::size_t kJobs = 80;
  const std::string queue = new_queue({.running_max = kCap});
  enqueue_many(kJobs, {.queue = queue});
  Store many = open_store({.connections_max = 8});
  std::atomic<std::size_t> done{0};
  std::atomic<int> in_hand{0};
  std::atomic<int> most{0};
  std::vector<Call<bool>> workers;
  for (int i = 0; i < 8; ++i) {
    workers.emplace_back([&] {
      const Deadline deadline = soon();
      while (done < kJobs && Deadline::clock::now() < deadline) {
        const auto jobs = must(many.claim({.queue = queue, .worker = "w", .limit = 2}));
        // Counted up after the claim and down before the settlement: never more than the database runs.
        const int now = in_hand += static_cast<int>(jobs.size());
        for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {
        }
        in_hand -= static_cast<int>(jobs.size());
        for (const ClaimedJob& claimed : jobs) {
          const Settlement settlement{.lease = claimed.lease, .outcome = Outcome::success()};
          if (must(many.settle({&settlement, 1})).front().committed()) ++done;
        }
      }
      return true;
    });
  }
  for (auto& worker : workers) worker.get();

  EXPECT_EQ(done, kJobs);
  EXPECT_LE(most, kCap);
  EXPECT_EQ(counts(queue).succeeded, static_cast<std::int64_t>(kJobs));
}

TEST_F(RacesTest, pause_against_claim_leaves_no_third_way) {
  for (const bool capped : {false, true}) {
    for (const End how : kEnds) {
      const std::string queue = new_queue({.running_max = capped ? 5 : -1});
      static_cast<void>(claim("A", 1, queue));
      enqueue_many(3, {.queue = queue});
      auto pause = hold([&] { return store_.pause(queue); });
      auto second = start(claiming(queue));
      EXPECT_EQ(second.returned(), !capped);  // claims of a capped queue take the queue's row lock
      end(how);
      EXPECT_EQ(pause.get().has_value(), how == End::commit);

      const bool kept_out = capped && how == End::commit;
      EXPECT_EQ(must(second.get()).size(), kept_out ? 0U : 1U);
      EXPECT_EQ(claim("C", 1, queue).size(), how == End::commit ? 0U : 1U);
    }
  }
}

TEST_F(RacesTest, claim_against_pause_keeps_what_it_claimed) {
  for (const End how : kEnds) {
    const std::string queue = new_queue();
    enqueue_many(3, {.queue = queue});
    auto first = hold(claiming(queue, "A"));
    auto pause = start([&] { return store_.pause(queue); });
    end(how);
    must(pause.get());

    EXPECT_EQ(first.get().has_value(), how == End::commit);
    EXPECT_EQ(counts(queue).running, how == End::commit ? 1 : 0);
    EXPECT_THAT(claim("B", 3, queue), IsEmpty());
  }
}

TEST_F(RacesTest, a_job_whose_transaction_commits_after_the_claims_have_passed_its_place_is_still_found) {
  const std::string queue = new_queue();
  enqueue_many(4, {.queue = queue});
  auto late = hold([&] { return store_.enqueue(NewJob{.queue = queue, .kind = "late"}); });
  advance(ms{1'000});
  enqueue_many(4, {.queue = queue});
  // Full claims, so that the next ones begin behind the last job found.
  std::set<JobId> found;
  for (int i = 0; i < 3; ++i) {
    for (const ClaimedJob& claimed : claim("A", 2, queue)) found.insert(claimed.lease.job);
  }
  ASSERT_EQ(found.size(), 6U);
  end(End::commit);
  const JobId late_id = must(late.get()).job;

  ASSERT_TRUE(eventually([&] {
    for (const ClaimedJob& claimed : claim("A", 2, queue)) found.insert(claimed.lease.job);
    return found.contains(late_id);
  }));
  EXPECT_TRUE(eventually([&] {
    for (const ClaimedJob& claimed : claim("A", 2, queue)) found.insert(claimed.lease.job);
    return found.size() == 9;
  }));
}

TEST_F(RacesTest, jobs_of_a_claim_that_failed_are_found_again_by_claims_that_have_passed_them) {
  const std::string queue = new_queue();
  enqueue_many(8, {.queue = queue});
  auto first = hold(claiming(queue, "A", 2));
  std::set<JobId> found;
  for (int i = 0; i < 2; ++i) {
    for (const ClaimedJob& claimed : claim("B", 2, queue)) found.insert(claimed.lease.job);
  }
  ASSERT_EQ(found.size(), 4U);
  end(End::roll_back);
  EXPECT_FALSE(first.get());

  EXPECT_TRUE(eventually([&] {
    for (const ClaimedJob& claimed : claim("B", 2, queue)) found.insert(claimed.lease.job);
    return found.size() == 8;
  }));
}

// Settling.

TEST_F(RacesTest, settle_against_settle_of_one_lease_lets_one_through) {
  for (const Outcome& mine : all_outcomes()) {
    for (const Outcome& other : all_outcomes()) {
      for (const End how : kEnds) {
        SCOPED_TRACE(std::string{to_string(mine.kind)} + " against " + std::string{to_string(other.kind)});
        const Lease lease = new_lease();
        auto first = hold(settling(lease, mine));
        auto second = start(settling(lease, other));
        EXPECT_FALSE(second.returned());
        end(how);

        const Verdict verdict = must(second.get());
        EXPECT_EQ(first.get().has_value(), how == End::commit);
        // The same twice is a message that was delivered twice.
        const bool same = mine.kind == other.kind;
        EXPECT_EQ(verdict.status, how == End::commit && !same ? Status::stale : Status::committed);
        EXPECT_EQ(verdict.repeated, how == End::commit && same);
        if (how == End::commit && !same) {
          EXPECT_EQ(verdict.stale.reason, StaleReason::already_settled);
        }
        EXPECT_EQ(history(lease.job).attempts.size(), 1U);
        EXPECT_EQ(outcome_of_last_attempt(lease.job), to_string((how == End::commit ? mine : other).kind));
      }
    }
  }
}

TEST_F(RacesTest, a_settlement_that_sees_the_past_is_refused_when_the_job_was_reaped_and_claimed_again) {
  Store late = open_store({.connections_max = 1});
  for (const Outcome& outcome : all_outcomes()) {
    const auto settle_late = [&](const Lease& lease) {
      const Settlement settlement{.lease = lease, .outcome = outcome};
      return must(late.settle({&settlement, 1})).front();
    };
    EXPECT_TRUE(settle_late(new_lease()).committed());
    const Lease a = new_lease({.backoff_base = ms{0}});
    auto write = stall([&](std::size_t) { return settle_late(a); });
    advance(kTtl);
    ASSERT_EQ(sweep().size(), 1U);
    const Lease b = claim_one("B", job(a.job).queue).lease;
    go_on();

    const Verdict verdict = write[0].get();
    EXPECT_EQ(verdict.status, Status::stale);
    EXPECT_EQ(verdict.stale.reason, StaleReason::token_mismatch);
    EXPECT_EQ(verdict.stale.current_worker, "B");
    EXPECT_TRUE(complete(b).committed());
  }
}

TEST_F(RacesTest, settle_against_heartbeat_and_progress_never_revives_an_ended_attempt) {
  for (const Outcome& outcome : all_outcomes()) {
    for (const End how : kEnds) {
      const Lease lease = new_lease();
      auto first = hold(settling(lease, outcome));
      auto beat = start(beating(lease));
      auto report = start(reporting(lease));
      end(how);

      EXPECT_EQ(first.get().has_value(), how == End::commit);
      EXPECT_EQ(must(beat.get()).status, how == End::commit ? Beat::Status::lost : Beat::Status::renewed);
      EXPECT_EQ(must(report.get()).committed(), how == End::roll_back);
    }
  }
}

TEST_F(RacesTest, heartbeat_and_progress_against_settle_do_not_keep_it_out) {
  for (const End how : kEnds) {
    for (const Outcome& outcome : all_outcomes()) {
      const Lease lease = new_lease();
      auto first = hold(beating(lease));
      auto second = start(settling(lease, outcome));
      EXPECT_FALSE(second.returned());
      end(how);
      EXPECT_EQ(first.get().has_value(), how == End::commit);
      EXPECT_TRUE(must(second.get()).committed());

      const Lease another = new_lease();
      auto report = hold(reporting(another));
      auto settlement = start(settling(another, outcome));
      EXPECT_FALSE(settlement.returned());
      end(how);
      EXPECT_EQ(report.get().has_value(), how == End::commit);
      EXPECT_TRUE(must(settlement.get()).committed());
    }
  }
}

// A lease that runs out while its write waits for the row: the write began in time, and must be refused.

TEST_F(RacesTest, a_lease_that_expires_while_its_write_waits_for_the_row_is_refused) {
  pg::Connection blocker = database_.connect();
  const auto refused = [&](std::string_view verb, auto write_of) {
    SCOPED_TRACE(verb);
    const Lease lease = new_lease();
    const std::int64_t evidence = number("SELECT count(*) FROM faultline.stale_writes");
    must(blocker.begin(soon()));
    must(blocker.exec({"", "SELECT FROM faultline.jobs WHERE id = $1 FOR UPDATE"},
                      pg::Params{}.add(lease.job.value), soon()));
    auto write = start(write_of(lease));
    EXPECT_FALSE(write.returned());
    advance(kTtl);
    must(blocker.commit(soon()));

    const Expected<Verdict> verdict = write.get();
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->status, Status::stale);
    EXPECT_EQ(verdict->stale.reason, StaleReason::lease_expired);
    EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes"), evidence + 1);
    EXPECT_EQ(number("SELECT count(*) FROM faultline.effects"), 0);
    EXPECT_EQ(job(lease.job).state, JobState::running);
    EXPECT_EQ(job(lease.job).progress, std::nullopt);
    EXPECT_EQ(sweep().size(), 1U);
    EXPECT_EQ(outcome_of_last_attempt(lease.job), "expired");
  };
  const auto as_verdict = [](auto call) {
    return [call]() -> Expected<Verdict> {
      auto answer = call();
      if (!answer) return std::unexpected(std::move(answer.error()));
      return Verdict{.status = is_stale(*answer) ? Status::stale : Status::committed, .stale = answer->stale};
    };
  };

  for (const Outcome& outcome : all_outcomes()) {
    refused(to_string(outcome.kind), [&](const Lease& lease) { return settling(lease, outcome); });
  }
  refused("cancelled", [&](const Lease& lease) { return settling(lease, Outcome::cancel("no")); });
  refused("heartbeat", [&](const Lease& lease) { return as_verdict(beating(lease)); });
  refused("progress", [&](const Lease& lease) { return reporting(lease); });
  refused("effect begun", [&](const Lease& lease) { return as_verdict(beginning(lease)); });
  refused("effect recorded", [&](const Lease& lease) { return as_verdict(recording(lease, "value")); });
  refused("check", [&](const Lease& lease) {
    return [this, lease]() -> Expected<Verdict> { return must(store_.check({&lease, 1})).front(); };
  });
  refused("exchange", [&](const Lease& lease) {
    return [this, lease]() -> Expected<Verdict> {
      const Settlement settlement{.lease = lease, .outcome = Outcome::success()};
      return must(store_.exchange({&settlement, 1}, {.queue = "default", .worker = "A"})).verdicts.front();
    };
  });
}

TEST_F(RacesTest, of_a_batch_that_waited_only_what_ran_out_meanwhile_is_refused) {
  const Lease brief = new_lease({.lease_ttl = ms{1'000}});
  const Lease steady = new_lease();
  pg::Connection blocker = database_.connect();
  must(blocker.begin(soon()));
  must(blocker.exec({"", "SELECT FROM faultline.jobs WHERE id = $1 FOR UPDATE"},
                    pg::Params{}.add(brief.job.value), soon()));
  auto write = start([&] {
    const std::array settlements{Settlement{.lease = steady, .outcome = Outcome::success()},
                                 Settlement{.lease = brief, .outcome = Outcome::success()}};
    return store_.settle(settlements);
  });
  EXPECT_FALSE(write.returned());
  advance(ms{1'000});
  must(blocker.commit(soon()));

  const std::vector<Verdict> verdicts = must(write.get());
  EXPECT_TRUE(verdicts[0].committed());
  EXPECT_EQ(verdicts[1].status, Status::stale);
  EXPECT_EQ(verdicts[1].stale.reason, StaleReason::lease_expired);
  EXPECT_EQ(job(steady.job).state, JobState::succeeded);
  EXPECT_EQ(job(brief.job).state, JobState::running);
}

// The watchdog.

TEST_F(RacesTest, settle_against_expire_lets_the_settlement_that_was_in_time_through) {
  for (const Outcome& outcome : all_outcomes()) {
    for (const End how : kEnds) {
      const Lease lease = new_lease();
      auto first = hold(settling(lease, outcome));
      advance(kTtl);
      auto watchdog = start(sweeping());
      ASSERT_TRUE(watchdog.returned());
      EXPECT_THAT(must(watchdog.get()).expired, IsEmpty());
      EXPECT_EQ(job(lease.job).state, JobState::running);
      end(how);

      EXPECT_EQ(first.get().has_value(), how == End::commit);
      EXPECT_EQ(sweep().size(), how == End::commit ? 0U : 1U);
      EXPECT_EQ(outcome_of_last_attempt(lease.job), how == End::commit ? to_string(outcome.kind) : "expired");
      EXPECT_EQ(history(lease.job).attempts.size(), 1U);
    }
  }
}

TEST_F(RacesTest, expire_against_settle_refuses_the_settlement_however_the_sweep_ends) {
  for (const Outcome& outcome : all_outcomes()) {
    for (const End how : kEnds) {
      const Lease lease = new_lease();
      advance(kTtl);
      auto watchdog = hold(sweeping());
      auto late = start(settling(lease, outcome));
      end(how);

      EXPECT_EQ(watchdog.get().has_value(), how == End::commit);
      const Verdict verdict = must(late.get());
      EXPECT_EQ(verdict.status, Status::stale);
      EXPECT_EQ(verdict.stale.reason, StaleReason::lease_expired);
      EXPECT_EQ(sweep().size(), how == End::commit ? 0U : 1U);
      EXPECT_EQ(outcome_of_last_attempt(lease.job), "expired");
      EXPECT_EQ(history(lease.job).attempts.size(), 1U);
    }
  }
}

TEST_F(RacesTest, heartbeat_against_expire_keeps_the_lease_if_it_commits) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    advance(kTtl - ms{1});
    auto first = hold(beating(lease));
    advance(ms{1});
    auto watchdog = start(sweeping());
    ASSERT_TRUE(watchdog.returned());
    EXPECT_THAT(must(watchdog.get()).expired, IsEmpty());
    end(how);

    EXPECT_EQ(first.get().has_value(), how == End::commit);
    EXPECT_EQ(sweep().size(), how == End::commit ? 0U : 1U);
    EXPECT_EQ(complete(lease).committed(), how == End::commit);
  }
}

TEST_F(RacesTest, expire_against_heartbeat_renews_nothing) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    advance(kTtl);
    auto watchdog = hold(sweeping());
    auto beat = start(beating(lease));
    end(how);

    EXPECT_EQ(watchdog.get().has_value(), how == End::commit);
    const Beat answer = must(beat.get());
    EXPECT_EQ(answer.status, Beat::Status::lost);
    EXPECT_EQ(answer.stale.reason, StaleReason::lease_expired);
    EXPECT_EQ(sweep().size(), how == End::commit ? 0U : 1U);
  }
}

TEST_F(RacesTest, a_sweep_that_sees_the_past_does_not_reap_a_lease_that_was_renewed_since) {
  Store watchdog = open_store({.connections_max = 1});
  must(watchdog.expire_leases());
  const Lease lease = new_lease();
  advance(kTtl - ms{1});
  auto beat = hold(beating(lease));
  advance(ms{1});
  auto scan = stall([&](std::size_t) { return watchdog.expire_leases(); });
  end(End::commit);
  EXPECT_EQ(must(beat.get()).status, Beat::Status::renewed);
  go_on();

  EXPECT_THAT(must(scan[0].get()).expired, IsEmpty());
  EXPECT_TRUE(complete(lease).committed());
}

TEST_F(RacesTest, a_sweep_that_sees_the_past_does_not_reap_a_job_that_was_settled_or_claimed_since) {
  Store watchdog = open_store({.connections_max = 1});
  must(watchdog.expire_leases());
  for (const Outcome& outcome : all_outcomes()) {
    const Lease a = new_lease();
    auto settlement = hold(settling(a, outcome));
    advance(kTtl);
    auto scan = stall([&](std::size_t) { return watchdog.expire_leases(); });
    end(End::commit);
    EXPECT_TRUE(must(settlement.get()).committed());
    const auto again = claim("B", 1, job(a.job).queue);
    go_on();

    EXPECT_THAT(must(scan[0].get()).expired, IsEmpty());
    if (!again.empty()) {
      EXPECT_TRUE(complete(again[0].lease).committed());
    }
  }
}

TEST_F(RacesTest, eight_watchdogs_at_once_reap_every_expiry_once) {
  constexpr std::size_t kWatchdogs = 8;
  std::vector<Store> watchdogs;
  for (std::size_t i = 0; i < kWatchdogs; ++i) watchdogs.push_back(open_store({.connections_max = 1}));
  for (Store& watchdog : watchdogs) must(watchdog.expire_leases());
  const std::string queue = new_queue();
  const std::vector<JobId> ids = enqueue_many(60, {.queue = queue});
  for (int i = 0; i < 20; ++i) ASSERT_EQ(claim("A", 3, queue).size(), 3U);
  advance(kTtl);

  auto sweeps = stall([&](std::size_t i) { return watchdogs[i].expire_leases(); }, kWatchdogs);
  go_on();

  std::vector<JobId> reaped;
  for (auto& sweep : sweeps) {
    for (const ExpiredLease& expired : must(sweep.get()).expired) reaped.push_back(expired.job);
  }
  for (const ExpiredLease& expired : sweep()) reaped.push_back(expired.job);
  EXPECT_THAT(reaped, ::testing::UnorderedElementsAreArray(ids));
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger WHERE outcome = 'expired'"), 60);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.grants"), 0);
}

TEST_F(RacesTest, expire_against_expire_reaps_once) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    advance(kTtl);
    auto first = hold(sweeping());
    auto second = start(sweeping());
    ASSERT_TRUE(second.returned());
    EXPECT_THAT(must(second.get()).expired, IsEmpty());
    end(how);

    EXPECT_EQ(first.get().has_value(), how == End::commit);
    EXPECT_EQ(sweep().size(), how == End::commit ? 0U : 1U);
    EXPECT_EQ(history(lease.job).attempts.size(), 1U);
  }
}

// Cancelling.

TEST_F(RacesTest, cancel_against_claim_never_runs_what_was_said_to_be_cancelled) {
  for (const End how : kEnds) {
    const std::string queue = new_queue();
    const JobId id = enqueue({.queue = queue});
    auto first = hold(cancelling(id));
    auto second = start(claiming(queue));
    ASSERT_TRUE(second.returned());
    EXPECT_THAT(must(second.get()), IsEmpty());
    end(how);

    EXPECT_EQ(first.get().has_value(), how == End::commit);
    EXPECT_EQ(claim("B", 1, queue).size(), how == End::commit ? 0U : 1U);
    EXPECT_EQ(job(id).state, how == End::commit ? JobState::cancelled : JobState::running);
  }
}

TEST_F(RacesTest, claim_against_cancel_is_told_that_the_job_runs) {
  for (const End how : kEnds) {
    const std::string queue = new_queue();
    const JobId id = enqueue({.queue = queue});
    auto first = hold(claiming(queue, "A"));
    auto second = start(cancelling(id));
    EXPECT_FALSE(second.returned());
    end(how);

    const auto claimed = first.get();
    EXPECT_EQ(must(second.get()), how == End::commit ? CancelStatus::requested : CancelStatus::cancelled);
    if (how == End::roll_back) {
      EXPECT_THAT(claim("B", 1, queue), IsEmpty());
      continue;
    }
    EXPECT_EQ(heartbeat(claimed->front().lease).status, Beat::Status::cancel_requested);
    EXPECT_EQ(complete(claimed->front().lease).stale.reason, StaleReason::cancelled);
    EXPECT_EQ(job(id).state, JobState::cancelled);
  }
}

TEST_F(RacesTest, cancel_against_settle_refuses_the_settlement_and_ends_the_job_as_cancelled) {
  for (const Outcome& outcome : all_outcomes()) {
    for (const End how : kEnds) {
      const Lease lease = new_lease();
      auto first = hold(cancelling(lease.job));
      auto second = start(settling(lease, outcome));
      EXPECT_FALSE(second.returned());
      end(how);

      EXPECT_EQ(first.get().has_value(), how == End::commit);
      const Verdict verdict = must(second.get());
      EXPECT_EQ(verdict.status, how == End::commit ? Status::stale : Status::committed);
      if (how == End::commit) {
        EXPECT_EQ(verdict.stale.reason, StaleReason::cancelled);
      }
      EXPECT_EQ(outcome_of_last_attempt(lease.job),
                how == End::commit ? "cancelled" : to_string(outcome.kind));
    }
  }
}

TEST_F(RacesTest, settle_against_cancel_leaves_one_terminal_state) {
  for (const Outcome& outcome : all_outcomes()) {
    for (const End how : kEnds) {
      const Lease lease = new_lease();
      auto first = hold(settling(lease, outcome));
      auto second = start(cancelling(lease.job));
      EXPECT_FALSE(second.returned());
      end(how);

      EXPECT_EQ(first.get().has_value(), how == End::commit);
      const CancelStatus status = must(second.get());
      if (how == End::roll_back) {
        EXPECT_EQ(status, CancelStatus::requested);
        EXPECT_EQ(heartbeat(lease).status, Beat::Status::cancel_requested);
      } else if (outcome.kind == Outcome::Kind::succeeded) {
        EXPECT_EQ(status, CancelStatus::finished);
        EXPECT_EQ(job(lease.job).state, JobState::succeeded);
      } else {
        EXPECT_EQ(status, CancelStatus::cancelled);
        EXPECT_EQ(job(lease.job).state, JobState::cancelled);
      }
    }
  }
}

TEST_F(RacesTest, cancel_against_heartbeat_tells_the_worker) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    const DatabaseTime expiry = *job(lease.job).lease_expires_at;
    advance(ms{1'000});
    auto first = hold(cancelling(lease.job));
    auto beat = start(beating(lease));
    EXPECT_FALSE(beat.returned());
    end(how);

    EXPECT_EQ(first.get().has_value(), how == End::commit);
    const Beat answer = must(beat.get());
    EXPECT_EQ(answer.status, how == End::commit ? Beat::Status::cancel_requested : Beat::Status::renewed);
    EXPECT_EQ(answer.lease_expires_at, how == End::commit ? expiry : expiry + ms{1'000});
  }
}

TEST_F(RacesTest, cancel_and_expire_end_the_job_in_either_order) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    advance(kTtl);
    auto first = hold(cancelling(lease.job));
    auto watchdog = start(sweeping());
    ASSERT_TRUE(watchdog.returned());
    EXPECT_THAT(must(watchdog.get()).expired, IsEmpty());
    end(how);
    EXPECT_EQ(first.get().has_value(), how == End::commit);
    EXPECT_EQ(sweep().size(), 1U);
    EXPECT_EQ(outcome_of_last_attempt(lease.job), how == End::commit ? "cancelled" : "expired");

    const Lease other = new_lease();
    advance(kTtl);
    auto reaper = hold(sweeping());
    auto second = start(cancelling(other.job));
    EXPECT_FALSE(second.returned());
    end(how);
    EXPECT_EQ(reaper.get().has_value(), how == End::commit);
    EXPECT_EQ(must(second.get()), how == End::commit ? CancelStatus::cancelled : CancelStatus::requested);
    EXPECT_EQ(sweep().size(), how == End::commit ? 0U : 1U);
    EXPECT_EQ(job(other.job).state, JobState::cancelled);
  }
}

// Requeueing.

TEST_F(RacesTest, requeue_against_requeue_of_one_finished_or_dead_job_puts_it_back_once) {
  for (const Outcome& outcome : {Outcome::success(), Outcome::cancel("no"), Outcome::bury("hopeless")}) {
    for (const End how : kEnds) {
      const Lease lease = new_lease();
      EXPECT_TRUE(settle(lease, outcome).committed());
      auto first = hold(requeueing(lease.job));
      auto second = start(requeueing(lease.job));
      EXPECT_FALSE(second.returned());
      end(how);

      EXPECT_EQ(first.get().has_value(), how == End::commit);
      EXPECT_EQ(must(second.get()), how == End::commit ? RequeueStatus::live : RequeueStatus::requeued);
      EXPECT_EQ(job(lease.job).requeues, 1);
      EXPECT_EQ(job(lease.job).token, FenceToken{2});
    }
  }
}

// ---- Submissions that are sent twice

TEST_F(RacesTest, two_sendings_of_one_submission_add_its_jobs_once) {
  const std::string submission =
      "SELECT * FROM faultline.enqueue_jobs(0::smallint, 'default',"
      " '{01900000-0000-7000-8000-000000010000,01900000-0000-7000-8000-000000020000}', '{a,b}', '{1,2}', "
      "NULL,"
      " '{5,5}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)";
  for (const End how : {End::roll_back, End::commit}) {
    pg::Connection first = database_.connect();
    pg::Connection second = database_.connect();
    must(first.exec_script("BEGIN; " + submission, soon()));
    auto again = start([&] { return second.exec_script(submission, soon()); });
    EXPECT_FALSE(again.returned());
    must(first.exec_script(how == End::commit ? "COMMIT" : "ROLLBACK", soon()));

    const auto answer = again.get();
    if (how == End::commit) {
      ASSERT_FALSE(answer.has_value());
      EXPECT_EQ(answer.error().code, pg::Errc::unique_violation);
      must(second.exec_script(submission, soon()));
    } else {
      must(answer);
    }
    EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue = 'default'"), 2);
    EXPECT_EQ(counts("default").available, 2);
    script("DELETE FROM faultline.jobs WHERE queue = 'default'; DELETE FROM faultline.tallies");
  }
}

TEST_F(RacesTest, the_store_sends_again_what_another_sending_was_adding) {
  // As if an earlier sending had committed while this one waited for it.
  script(
      "CREATE SEQUENCE faultline.sendings; GRANT USAGE ON SEQUENCE faultline.sendings TO PUBLIC;"
      "CREATE FUNCTION faultline.was_sent() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
      " IF nextval('faultline.sendings') = 1 THEN RAISE unique_violation; END IF; RETURN NEW; END $$;"
      "CREATE TRIGGER was_sent BEFORE INSERT ON faultline.jobs FOR EACH ROW"
      " EXECUTE FUNCTION faultline.was_sent()");

  must(store_.enqueue({.kind = "race"}));

  EXPECT_EQ(counts("default").available, 1);
}

TEST_F(RacesTest, prune_and_requeue_of_a_finished_job_take_turns) {
  const auto pruning = [this] { return store_.prune(); };
  const auto finish_long_ago = [&](std::string queue) {
    must(store_.enqueue({.queue = queue, .kind = "race"}));
    const Lease lease = claim_one("A", queue).lease;
    EXPECT_TRUE(complete(lease).committed());
    advance(ms{2'000});
    return lease.job;
  };
  const QueueSettings short_lived{.retention = ms{1'000}};
  {
    const JobId id = finish_long_ago(new_queue(short_lived));
    auto back = hold(requeueing(id));
    auto prune = start(pruning);
    EXPECT_TRUE(prune.returned());
    end(End::commit);
    EXPECT_EQ(must(back.get()), RequeueStatus::requeued);
    EXPECT_EQ(must(prune.get()).jobs, 0U);
    EXPECT_EQ(history(id).attempts.size(), 2U);
  }
  {
    const JobId id = finish_long_ago(new_queue(short_lived));
    auto prune = hold(pruning);
    auto back = start(requeueing(id));
    EXPECT_FALSE(back.returned());
    end(End::commit);
    EXPECT_EQ(must(prune.get()).jobs, 1U);
    EXPECT_EQ(must(back.get()), RequeueStatus::not_found);
  }
  {
    // A prune that sees the past does not take a job that was requeued since.
    const JobId id = finish_long_ago(new_queue(short_lived));
    must(store_.prune());
    const JobId next = finish_long_ago(new_queue(short_lived));
    Store other = open_store();
    auto prune = stall([&other](std::size_t) { return other.prune(); });
    EXPECT_EQ(must(requeueing(next)()), RequeueStatus::requeued);
    go_on();
    EXPECT_EQ(must(prune.front().get()).jobs, 0U);
    EXPECT_EQ(job(next).state, JobState::available);
    EXPECT_FALSE(must(store_.job(id)).has_value());
  }
}

TEST_F(RacesTest, a_prune_that_sees_the_past_leaves_a_job_alone_that_was_requeued_and_has_finished_since) {
  const std::string queue = new_queue({.retention = ms{1'000}});
  enqueue({.queue = queue});
  const Lease first = claim_one("A", queue).lease;
  const JobId id = first.job;
  Store other = open_store();
  must(other.prune());
  EXPECT_TRUE(complete(first).committed());
  advance(ms{2'000});
  auto prune = stall([&other](std::size_t) { return other.prune(); });
  EXPECT_EQ(must(requeueing(id)()), RequeueStatus::requeued);
  EXPECT_TRUE(complete(claim_one("B", queue).lease).committed());
  go_on();

  EXPECT_EQ(must(prune.front().get()).jobs, 0U);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_EQ(history(id).attempts.size(), 3U);
  EXPECT_EQ(counts(queue).succeeded, 1);
}

TEST_F(RacesTest, requeue_and_cancel_of_a_dead_job_take_turns) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    EXPECT_TRUE(settle(lease, Outcome::bury("hopeless")).committed());
    auto first = hold(cancelling(lease.job));
    auto second = start(requeueing(lease.job));
    EXPECT_FALSE(second.returned());
    end(how);
    EXPECT_EQ(first.get().has_value(), how == End::commit);
    EXPECT_EQ(must(second.get()), RequeueStatus::requeued);
    EXPECT_EQ(job(lease.job).state, JobState::available);

    const Lease other = new_lease();
    EXPECT_TRUE(settle(other, Outcome::bury("hopeless")).committed());
    auto back = hold(requeueing(other.job));
    auto away = start(cancelling(other.job));
    EXPECT_FALSE(away.returned());
    end(how);
    EXPECT_EQ(back.get().has_value(), how == End::commit);
    EXPECT_EQ(must(away.get()), CancelStatus::cancelled);
    EXPECT_EQ(job(other.job).state, JobState::cancelled);
  }
}

TEST_F(RacesTest, a_requeue_that_waits_for_a_burial_puts_the_job_back) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    auto burial = hold(settling(lease, Outcome::bury("hopeless")));
    auto requeue = start(requeueing(lease.job));
    EXPECT_FALSE(requeue.returned());
    end(how);
    EXPECT_EQ(burial.get().has_value(), how == End::commit);
    EXPECT_EQ(must(requeue.get()), how == End::commit ? RequeueStatus::requeued : RequeueStatus::live);
  }
}

TEST_F(RacesTest, requeue_and_purge_of_a_dead_job_take_turns) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    EXPECT_TRUE(settle(lease, Outcome::bury("hopeless")).committed());
    auto first = hold(purging(lease.job));
    auto second = start(requeueing(lease.job));
    EXPECT_FALSE(second.returned());
    end(how);
    EXPECT_EQ(first.get().has_value(), how == End::commit);
    EXPECT_EQ(must(second.get()), how == End::commit ? RequeueStatus::not_found : RequeueStatus::requeued);

    const Lease other = new_lease();
    EXPECT_TRUE(settle(other, Outcome::bury("hopeless")).committed());
    auto back = hold(requeueing(other.job));
    auto away = start(purging(other.job));
    EXPECT_FALSE(away.returned());
    end(how);
    EXPECT_EQ(back.get().has_value(), how == End::commit);
    EXPECT_EQ(must(away.get()), how == End::commit ? PurgeStatus::not_dead : PurgeStatus::purged);
  }
}

// Producing, effects and counts.

TEST_F(RacesTest, two_producers_with_one_key_make_one_job) {
  for (const bool same_payload : {true, false}) {
    for (const End how : kEnds) {
      const NewJob mine{.queue = new_queue(), .kind = "pay", .payload = "1", .idempotency_key = "order"};
      NewJob theirs = mine;
      if (!same_payload) theirs.payload = "2";
      auto first = hold([&] { return store_.enqueue(mine); });
      auto second = start([&] { return store_.enqueue(theirs); });
      EXPECT_FALSE(second.returned());
      end(how);

      const auto own = first.get();
      const Submission other = must(second.get());
      if (how == End::roll_back) {
        EXPECT_FALSE(own);
        EXPECT_EQ(other.status, Submission::Status::created);
      } else {
        EXPECT_EQ(other.status, same_payload ? Submission::Status::existing : Submission::Status::conflict);
        EXPECT_EQ(other.job, own->job);
      }
      EXPECT_EQ(counts(mine.queue).available, 1);
    }
  }
}

TEST_F(RacesTest, an_effect_begun_twice_at_once_is_new_to_one_only) {
  for (const End how : kEnds) {
    const Lease lease = new_lease();
    auto first = hold(beginning(lease));
    auto second = start(beginning(lease));
    EXPECT_FALSE(second.returned());
    end(how);

    EXPECT_EQ(first.get().has_value(), how == End::commit);
    EXPECT_EQ(must(second.get()).status,
              how == End::commit ? Effect::Status::unknown : Effect::Status::begun);
  }
}

TEST_F(RacesTest, an_effect_recorded_twice_at_once_keeps_the_first_value_and_says_so) {
  for (const bool begun : {false, true}) {
    for (const End how : kEnds) {
      const Lease lease = new_lease();
      if (begun) {
        EXPECT_EQ(must(beginning(lease)()).status, Effect::Status::begun);
      }
      auto first = hold(recording(lease, "first"));
      auto second = start(recording(lease, "second"));
      EXPECT_FALSE(second.returned());
      end(how);

      EXPECT_EQ(first.get().has_value(), how == End::commit);
      EXPECT_EQ(must(second.get()).result, how == End::commit ? "first" : "second");
      EXPECT_EQ(history(lease.job).effects.at(0).result, how == End::commit ? "first" : "second");
    }
  }
}

TEST_F(RacesTest, counts_folded_twice_at_once_stay_the_same) {
  for (const End how : kEnds) {
    const std::string queue = new_queue();
    enqueue_many(3, {.queue = queue});
    static_cast<void>(claim("A", 1, queue));
    auto first = hold([&] { return store_.fold_counts(); });
    auto second = start([&] { return store_.fold_counts(); });
    static_cast<void>(claim("B", 1, queue));
    end(how);

    EXPECT_EQ(first.get().has_value(), how == End::commit);
    must(second.get());
    EXPECT_EQ(counts(queue).running, 2);
    EXPECT_EQ(counts(queue).available, 1);
  }
}

}  // namespace
}  // namespace faultline::testing

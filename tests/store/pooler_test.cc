// The whole store through PgBouncer in transaction mode: no statement may lean on its session.

#include <atomic>
#include <thread>

#include "store/fixture.h"
#include "support/pgbouncer.h"

namespace faultline::testing {
namespace {

class StorePoolerTest : public StoreTest {
 protected:
  PgBouncer bouncer_{database_.dsn()};
  Store pooled_{must(Store::open({.database = bouncer_.dsn() + " application_name=pooled"}))};
};

TEST_F(StorePoolerTest, a_job_lives_its_life_and_a_late_worker_is_refused) {
  const JobId id = must(pooled_.enqueue({.kind = "test", .idempotency_key = "k", .backoff_base = ms{0}})).job;
  EXPECT_EQ(must(pooled_.enqueue({.kind = "test", .idempotency_key = "k"})).job, id);
  const Lease a = must(pooled_.claim({.worker = "A"})).at(0).lease;
  EXPECT_EQ(must(pooled_.heartbeat({&a, 1})).at(0).status, Beat::Status::renewed);
  const EffectKey key{.lease = a, .key = "charge"};
  EXPECT_EQ(must(pooled_.begin_effects({&key, 1})).at(0).status, Effect::Status::begun);
  advance(kTtl);
  EXPECT_EQ(must(pooled_.expire_leases()).expired.size(), 1U);
  const Lease b = must(pooled_.claim({.worker = "B"})).at(0).lease;
  const Settlement by_b{.lease = b};
  EXPECT_TRUE(must(pooled_.settle({&by_b, 1})).at(0).committed());

  const Settlement by_a{.lease = a};
  const Verdict late = must(pooled_.settle({&by_a, 1})).at(0);

  EXPECT_EQ(late.status, Verdict::Status::stale);
  EXPECT_EQ(late.stale.reason, StaleReason::token_mismatch);
  EXPECT_EQ(history(id).stale_writes.size(), 1U);
}

TEST_F(StorePoolerTest, many_workers_on_one_server_connection_finish_every_job_once) {
  constexpr std::size_t jobs = 1'200;
  must(pooled_.enqueue(std::vector<NewJob>(jobs, NewJob{.kind = "test"})));
  std::atomic<std::size_t> done{0};
  {
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < 4; ++worker) {
      workers.emplace_back([&, worker] {
        std::vector<Settlement> pending;
        do {
          const auto next = must(pooled_.exchange(pending, {.worker = std::to_string(worker), .limit = 50}));
          for (const Verdict& verdict : next.verdicts) done += verdict.committed() ? 1 : 0;
          pending.clear();
          for (const ClaimedJob& job : next.claimed) pending.push_back({.lease = job.lease});
        } while (!pending.empty());
      });
    }
  }

  EXPECT_EQ(done, jobs);
  EXPECT_EQ(counts().succeeded, static_cast<std::int64_t>(jobs));
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger"), static_cast<std::int64_t>(jobs));
}

// What a pooler says when its server has gone is neither an answer to the commit nor a reason to end: the
// outcome is not known, and is found out.
TEST_F(StorePoolerTest, backends_that_die_behind_the_pooler_cost_connections_and_nothing_else) {
  constexpr std::size_t jobs = 200;
  must(store_.enqueue(std::vector<NewJob>(jobs, NewJob{.kind = "test", .attempts_max = 1'000})));
  std::jthread killer{[&] {
    auto connection = database_.connect();
    for (int kill = 0; kill < 60; ++kill) {
      static_cast<void>(
          connection.exec_script("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                 " WHERE datname = current_database() AND application_name = 'pooled'",
                                 soon()));
      std::this_thread::sleep_for(ms{15});
    }
  }};
  std::atomic<std::size_t> done{0};
  {
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < 4; ++worker) {
      workers.emplace_back([&, worker] {
        while (done < jobs) {
          const auto claimed = pooled_.claim({.worker = std::to_string(worker), .limit = 5});
          if (!claimed) continue;
          // What an answer that was lost has claimed comes back when its lease has run out.
          if (claimed->empty()) {
            if (worker == 0) advance(kTtl), static_cast<void>(pooled_.expire_leases());
            std::this_thread::sleep_for(ms{5});
            continue;
          }
          std::vector<Settlement> results;
          for (const ClaimedJob& job : *claimed) results.push_back({.lease = job.lease});
          const auto verdicts = pooled_.settle(results);
          if (!verdicts) continue;
          for (const Verdict& verdict : *verdicts) done += verdict.committed() ? 1 : 0;
        }
      });
    }
  }
  EXPECT_EQ(counts().succeeded, static_cast<std::int64_t>(jobs));
  EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes WHERE reason = 'already_settled'"), 0);
}

}  // namespace
}  // namespace faultline::testing

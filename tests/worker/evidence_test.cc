// Evidence of a stale write is there when there was one, and only then: what a worker's own parts send at the
// same time must not be refused because of one another.

#include <random>
#include <thread>

#include "support/movable_clock.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

/// The database's time stands still while a worker lives, so whatever is refused was refused wrongly. The
/// worker's own time goes on: leases are the shortest, and it beats as often as it can.
class EvidenceTest : public WorkerTest {
 protected:
  EvidenceTest() { set_ttl(ms{100}); }

  template <class F>
  void work(std::size_t jobs, const F& handler) {
    enqueue_many(jobs, {.attempts_max = 1'000});
    EXPECT_TRUE(eventually([&] {
      live(jobs, handler);
      end_what_was_dropped();
      return successes() == static_cast<std::int64_t>(jobs);
    }));
    EXPECT_EQ(evidence(), 0) << query_text(
        sql_, "SELECT string_agg(DISTINCT verb || ' ' || reason::text, ', ') FROM faultline.stale_writes");
  }

 private:
  /// A worker's life until all is done, or it has nothing to do.
  template <class F>
  void live(std::size_t jobs, const F& handler) {
    WorkerOptions busy = options();
    busy.slots = 16;
    busy.prefetch_max = 0;
    busy.watchdog = false;
    busy.log_from = Severity::info;
    Worker worker{busy};
    worker.handle("test", handler);
    must(worker.start());
    EXPECT_TRUE(
        eventually([&] { return successes() == static_cast<std::int64_t>(jobs) || is_idle(worker); }));
    worker.drain();
  }

  /// A worker that had no processor for the time of a lease drops jobs unrun, and they wait for their lease
  /// to run out.
  void end_what_was_dropped() {
    clock_.advance(std::chrono::seconds{10});
    must(store_.expire_leases());
    clock_.advance(std::chrono::hours{1});
  }

  MovableClock clock_{database_.dsn()};

 protected:
  /// Most of a handler's life is as long as a beat's way to the database.
  static void a_moment() {
    thread_local std::minstd_rand random{std::random_device{}()};
    if (random() % 4 != 0) std::this_thread::sleep_for(std::chrono::microseconds{random() % 40'000});
  }
};

TEST_F(EvidenceTest, heartbeats_that_race_settlements_leave_none) {
  work(2'000, [](Context&) { a_moment(); });
}

TEST_F(EvidenceTest, progress_that_races_settlements_leaves_none) {
  work(2'000, [](Context& ctx) {
    ctx.progress(0.1);
    a_moment();
    ctx.progress(0.9);
  });
}

}  // namespace
}  // namespace faultline::testing

// An idle worker finds new work: by announcement, by polling, and when an announcement is lost.

#include <atomic>

#include "worker/fixture.h"

namespace faultline::testing {
namespace {

class WakingTest : public WorkerTest {
 protected:
  /// A worker that would look again only in an hour.
  [[nodiscard]] WorkerOptions deaf_but_for_announcements() {
    WorkerOptions made = options();
    made.poll_max = std::chrono::hours{1};
    return made;
  }
  std::int64_t listeners() {
    return number(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'faultline worker % listener' AND query LIKE 'LISTEN%'");
  }
  bool looked_just_now() {
    return number(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
               " AND application_name LIKE 'faultline worker %'"
               " AND state_change > clock_timestamp() - interval '500 milliseconds'") > 0;
  }
  static void handle(Worker& worker) {
    worker.handle("test", [](Context&) {});
  }
};

TEST_F(WakingTest, an_announcement_alone_wakes_an_idle_worker) {
  Worker worker{deaf_but_for_announcements()};
  handle(worker);
  must(worker.start());
  ASSERT_TRUE(eventually([&] { return listeners() == 1; }));

  for (int i = 0; i < 20; ++i) ASSERT_TRUE(reaches(enqueue(), JobState::succeeded));
}

TEST_F(WakingTest, without_listening_polling_finds_new_jobs) {
  WorkerOptions polling = options();
  polling.listen = false;
  polling.poll_max = ms{100};
  Worker worker{polling};
  handle(worker);
  must(worker.start());

  for (int i = 0; i < 5; ++i) ASSERT_TRUE(reaches(enqueue(), JobState::succeeded));
  EXPECT_EQ(listeners(), 0);
}

TEST_F(WakingTest, a_job_for_later_runs_when_its_time_has_come_and_not_before) {
  Worker worker{options()};
  std::atomic<bool> too_early{false};
  worker.handle("test", [&](Context& ctx) { too_early = must(store_.now()) < ctx.job().run_at; });
  must(worker.start());

  const JobId id = enqueue({.delay = ms{700}});

  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_FALSE(too_early);
}

TEST_F(WakingTest, a_failed_job_is_retried_without_an_announcement) {
  Worker worker{options()};
  worker.handle("test", [](Context& ctx) -> Outcome {
    if (ctx.attempt() == 1) return Fail{.error = "once", .retry_in = ms{300}};
    return Outcome::success();
  });
  must(worker.start());

  const JobId id = enqueue();

  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(job(id).attempt, 2);
}

TEST_F(WakingTest, a_listener_that_lost_its_connection_hears_again) {
  Worker worker{deaf_but_for_announcements()};
  handle(worker);
  must(worker.start());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(eventually([&] { return listeners() == 1; }));
    script(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'faultline worker % listener'");
    // Announced to nobody: it looks when it hears again.
    ASSERT_TRUE(reaches(enqueue(), JobState::succeeded));
  }
}

TEST_F(WakingTest, a_queue_that_was_never_idle_long_is_found_by_every_worker) {
  Worker a{deaf_but_for_announcements()};
  Worker b{deaf_but_for_announcements()};
  handle(a);
  handle(b);
  must(a.start());
  must(b.start());
  ASSERT_TRUE(eventually([&] { return listeners() == 2; }));

  for (int i = 0; i < 10; ++i) {
    enqueue_many(50);
    ASSERT_TRUE(eventually([&] { return counts().succeeded == 50 * (i + 1); }));
  }
}

TEST_F(WakingTest, a_database_that_fails_for_a_moment_does_not_put_a_worker_to_sleep) {
  // The claim fails, and nothing is announced afterwards. Without a watchdog, which would tell of it too.
  WorkerOptions alone = deaf_but_for_announcements();
  alone.watchdog = false;
  Worker worker{alone};
  handle(worker);
  must(worker.start());
  ASSERT_TRUE(eventually([&] { return listeners() == 1; }));
  // It looks so seldom by now that it is the listener that finds the database gone.
  ASSERT_TRUE(eventually([&] { return !looked_just_now(); }));
  script("ALTER TABLE faultline.jobs RENAME TO jobs_away");
  script("SELECT pg_notify('faultline_jobs', 'default')");
  ASSERT_TRUE(eventually([&] { return events_.count("database_lost") == 1; }));
  script("ALTER TABLE faultline.jobs_away RENAME TO jobs");

  ASSERT_TRUE(eventually([&] { return events_.count("database_back") == 1; }));
  EXPECT_TRUE(reaches(enqueue(), JobState::succeeded));
}

}  // namespace
}  // namespace faultline::testing

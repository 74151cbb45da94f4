// Leases that run out are ended, once, by whoever looks first; what is past its retention is retired.

#include "faultline/watchdog.h"

#include <atomic>
#include <map>
#include <set>

#include <gmock/gmock.h>

#include "pg/wire_proxy.h"
#include "store/fixture.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Pair;

class WatchdogTest : public StoreTest {
 protected:
  [[nodiscard]] WatchdogOptions options(std::string name = "dog") {
    return {.database = database_.dsn(),
            .tick = ms{20},
            .tidy = ms{50},
            .log = events_.sink(),
            .log_from = Severity::debug,
            .name = std::move(name)};
  }
  [[nodiscard]] Watchdog start(std::string name = "dog") {
    return must(Watchdog::start(options(std::move(name))));
  }

  Events events_;
};

TEST_F(WatchdogTest, ends_expired_leases_and_tells_whose) {
  const JobId id = enqueue();
  claim_one("lost worker");
  const Watchdog watchdog = start();
  advance(kTtl + ms{1});

  ASSERT_TRUE(eventually([&] { return job(id).state != JobState::running; }));
  ASSERT_TRUE(eventually([&] { return events_.count("lease_expired") == 1; }));
  const Event event = events_.of("lease_expired").at(0);
  EXPECT_EQ(event.job, id);
  EXPECT_EQ(event.token, FenceToken{1});
  EXPECT_EQ(event.queue, "default");
  EXPECT_EQ(event.attempt, 1);
  EXPECT_EQ(event.worker, "dog");
  EXPECT_EQ(event.severity, Severity::warning);
  EXPECT_THAT(event.fields, Contains(Pair("lost_by", "lost worker")));
  EXPECT_THAT(event.fields, Contains(Pair("next_state", HasSubstr("available"))));
}

TEST_F(WatchdogTest, a_mass_expiry_is_one_line_with_a_count) {
  enqueue_many(30);
  claim("lost worker", 30);
  advance(kTtl + ms{1});
  const Watchdog watchdog = start();

  ASSERT_TRUE(eventually([&] { return events_.count("lease_expired") == 30; }));
  for (const Event& event : events_.of("lease_expired")) EXPECT_EQ(event.severity, Severity::debug);
  const auto lines = events_.of("leases_expired");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines.at(0).severity, Severity::warning);
  EXPECT_THAT(lines.at(0).fields, Contains(Pair("leases", "30")));
  EXPECT_THAT(lines.at(0).fields, Contains(Pair("lost_by", "lost worker")));
  EXPECT_THAT(lines.at(0).fields, Contains(Pair("shared", "30")));
}

TEST_F(WatchdogTest, tells_of_a_job_that_it_cannot_handle_and_recovers_the_others) {
  const JobId poison = enqueue();
  const JobId good = enqueue();
  claim("lost", 2);
  script(
      "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS"
      " $$ BEGIN RAISE EXCEPTION 'poison'; END $$;"
      "CREATE TRIGGER refuse BEFORE UPDATE ON faultline.jobs FOR EACH ROW WHEN (old.id = '" +
      poison.to_string() + "') EXECUTE FUNCTION public.refuse()");
  std::atomic<std::size_t> counted{0};
  WatchdogOptions counting = options();
  counting.on_sweep = [&](const Sweep& sweep) { counted += sweep.problems.size(); };
  const Watchdog watchdog = must(Watchdog::start(counting));
  advance(kTtl + ms{1});

  ASSERT_TRUE(eventually([&] { return job(good).state != JobState::running; }));
  ASSERT_TRUE(eventually([&] { return events_.count("sweep_problem") == 1; }));
  const Event event = events_.of("sweep_problem").at(0);
  EXPECT_EQ(event.severity, Severity::error);
  EXPECT_EQ(event.job, poison);
  EXPECT_EQ(event.queue, "default");
  EXPECT_THAT(event.fields, Contains(Pair("message", HasSubstr("poison"))));
  EXPECT_EQ(counted, 1U);
  EXPECT_EQ(job(poison).state, JobState::running);

  script("DROP TRIGGER refuse ON faultline.jobs");
  advance(ms{61'000});
  EXPECT_TRUE(eventually([&] { return job(poison).state != JobState::running; }));
}

TEST_F(WatchdogTest, sweeps_at_once_when_it_starts) {
  const JobId id = enqueue();
  claim_one("lost worker");
  advance(kTtl + ms{1});

  WatchdogOptions lazy = options();
  lazy.tick = std::chrono::hours{1};
  const Watchdog watchdog = must(Watchdog::start(lazy));

  EXPECT_TRUE(eventually([&] { return job(id).state != JobState::running; }));
}

TEST_F(WatchdogTest, leaves_good_leases_alone) {
  const JobId good = enqueue();
  claim_one("A");
  const Watchdog watchdog = start();
  const JobId bad = enqueue({.lease_ttl = ms{100}});
  claim_one("B");
  advance(ms{200});

  ASSERT_TRUE(eventually([&] { return job(bad).state != JobState::running; }));
  EXPECT_EQ(job(good).state, JobState::running);
}

TEST_F(WatchdogTest, several_end_each_lease_once) {
  constexpr std::size_t kJobs = 1'000;
  enqueue_many(kJobs);
  for (std::size_t i = 0; i < kJobs; i += 4) claim("lost", 4);
  std::vector<Watchdog> dogs;
  for (const std::string name : {"a", "b", "c", "d"}) dogs.push_back(start(name));

  advance(kTtl + ms{1});

  ASSERT_TRUE(eventually([&] { return counts().running == 0; }));
  ASSERT_TRUE(eventually([&] { return events_.count("lease_expired") >= kJobs; }));
  dogs.clear();
  std::set<JobId> told;
  for (const Event& event : events_.of("lease_expired")) told.insert(event.job.value());
  EXPECT_EQ(told.size(), kJobs);
  EXPECT_EQ(events_.count("lease_expired"), kJobs);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger WHERE outcome = 'expired'"), kJobs);
}

TEST_F(WatchdogTest, retires_what_is_past_its_retention) {
  must(store_.set_queue("default", {.retention = ms{60'000}}));
  enqueue_many(2'500);
  while (number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''") > 0) {
    for (const ClaimedJob& claimed : claim("A", 500)) complete(claimed.lease);
  }
  const Watchdog watchdog = start();
  ASSERT_EQ(counts().succeeded, 2'500);

  advance(ms{61'000});

  EXPECT_TRUE(eventually([&] { return number("SELECT count(*) FROM faultline.ledger") == 0; }));
  EXPECT_TRUE(eventually([&] { return counts().succeeded == 0; }));
}

TEST_F(WatchdogTest, survives_a_database_that_goes_away) {
  WireProxy proxy{database_.dsn()};
  WatchdogOptions far = options();
  far.database = proxy.dsn();
  const Watchdog watchdog = must(Watchdog::start(far));
  // Every statement fails until this is undone.
  script("ALTER TABLE faultline.grants RENAME TO grants_away");
  ASSERT_TRUE(eventually([&] { return events_.count("database_lost") == 1; }));
  script("ALTER TABLE faultline.grants_away RENAME TO grants");
  ASSERT_TRUE(eventually([&] { return events_.count("database_back") == 1; }));

  for (int i = 0; i < 3; ++i) {
    const JobId id = enqueue({.attempts_max = 1});
    claim_one("lost");
    const int cuts = proxy.cuts();
    proxy.cut_after('S');
    ASSERT_TRUE(eventually([&] { return proxy.cuts() > cuts; }));
    advance(kTtl + ms{1});
    ASSERT_TRUE(eventually([&] { return job(id).state == JobState::dead; }));
  }
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger WHERE outcome = 'expired'"), 3);
}

TEST_F(WatchdogTest, stops_without_waiting_for_its_next_tick) {
  for (int i = 0; i < 5; ++i) {
    WatchdogOptions lazy = options();
    lazy.tick = std::chrono::hours{10};
    lazy.tidy = std::chrono::hours{10};
    Watchdog first = must(Watchdog::start(lazy));
    const Watchdog second = std::move(first);
  }
  SUCCEED() << "or the test would not end";
}

TEST_F(WatchdogTest, says_why_it_does_not_start) {
  WatchdogOptions hasty = options();
  hasty.tick = ms{0};
  EXPECT_EQ(Watchdog::start(hasty).error().code, ErrorCode::invalid_argument);

  const TestDatabase empty{Template::empty};
  WatchdogOptions elsewhere = options();
  elsewhere.database = empty.dsn();
  EXPECT_EQ(Watchdog::start(elsewhere).error().code, ErrorCode::wrong_schema);
}

}  // namespace
}  // namespace faultline::testing

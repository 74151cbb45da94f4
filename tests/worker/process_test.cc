// Worker processes: signals, and death.

#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>

#include "support/scratch.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ProcessTest : public WorkerTest {
 protected:
  ChildProcess spawn(const std::string& name = "child") {
    ChildProcess child{{.argv = {WORKER_PROCESS, database_.dsn(), name, scratch_.path().string()}}};
    EXPECT_TRUE(says(child, "worker_started")) << child.err();
    return child;
  }
  static bool says(const ChildProcess& child, std::string_view what) {
    return eventually([&] { return child.out().find(what) != std::string::npos; });
  }
  [[nodiscard]] bool runs(JobId id) const {
    return eventually([&] { return std::filesystem::exists(scratch_ / id.to_string()); });
  }
  /// All leases have run out, and all backoffs passed.
  void let_leases_run_out() {
    script(
        "UPDATE faultline.jobs SET lease_expires_at = faultline.clock() - interval '1 second' WHERE state = "
        "'running';"
        "UPDATE faultline.grants SET check_at = faultline.clock() - interval '1 second'");
    must(store_.expire_leases());
    script("UPDATE faultline.jobs SET run_at = faultline.clock() WHERE state = 'available' AND queue <> ''");
  }
  /// How the job's lost attempts read in the ledger.
  std::vector<std::string> losses(JobId id) {
    std::vector<std::string> losses;
    for (const Attempt& attempt : history(id).attempts) {
      if (attempt.outcome == "expired") losses.push_back(attempt.error.value_or(""));
    }
    return losses;
  }
  void let_go() const { write_file(scratch_ / "go", ""); }

  ScratchDir scratch_;
};

TEST_F(ProcessTest, a_signal_drains) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ChildProcess child = spawn();
    const JobId id = enqueue({.kind = "hold"});
    ASSERT_TRUE(runs(id));

    child.send(signal);
    ASSERT_TRUE(says(child, "worker_draining"));
    EXPECT_EQ(job(id).state, JobState::running);
    let_go();

    const ProcessResult result = child.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("released 0 abandoned 0 unsettled 0"));
    EXPECT_EQ(job(id).state, JobState::succeeded);
    std::filesystem::remove(scratch_ / "go");
  }
}

TEST_F(ProcessTest, a_second_signal_hurries) {
  ChildProcess child = spawn();
  const JobId id = enqueue({.kind = "hold"});
  ASSERT_TRUE(runs(id));
  child.send(SIGTERM);
  ASSERT_TRUE(says(child, "worker_draining"));

  child.send(SIGTERM);

  const ProcessResult result = child.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("released 1 abandoned 1 unsettled 0"));
  EXPECT_EQ(job(id).state, JobState::available);
}

TEST_F(ProcessTest, a_thousand_signals_are_one_drain) {
  ChildProcess child = spawn();
  enqueue_many(2'000, {.kind = "short"});
  const JobId id = enqueue({.kind = "hold", .priority = 6});
  ASSERT_TRUE(runs(id));

  for (int i = 0; i < 1'000; ++i) child.send(i % 2 == 0 ? SIGTERM : SIGINT);

  const ProcessResult result = child.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.signal, 0);
  const auto first = result.out.find("worker_draining");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(result.out.find("worker_draining", first + 1), std::string::npos) << "two drains";
  // The one that holds, and whatever else was running at that moment.
  EXPECT_THAT(result.out, ContainsRegex("abandoned [1-4] unsettled 0"));
  EXPECT_EQ(counts().running, 0);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(ProcessTest, says_why_it_does_not_start) {
  const ProcessResult result =
      run_process({.argv = {WORKER_PROCESS, database_.dsn(), std::string(200, 'x')}});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("worker"));
  EXPECT_THAT(result.out, Not(HasSubstr("worker_started")));
}

TEST_F(ProcessTest, jobs_that_crash_their_worker_take_their_neighbours_along_once_and_are_convicted_alone) {
  constexpr const char* kShared = "worker lease expired: other jobs may have run beside this one";
  constexpr const char* kAlone = "worker lease expired: this job ran alone";
  // All four are in one process when it dies: the first two are held until then.
  std::vector<JobId> healthy = enqueue_many(2, {.kind = "hold", .attempts_max = 2});
  {
    ChildProcess first = spawn("first");
    for (const JobId id : healthy) ASSERT_TRUE(runs(id));
    const std::vector<JobId> poison = enqueue_many(2, {.kind = "crash", .attempts_max = 3});
    EXPECT_EQ(first.wait().signal, SIGSEGV);
    let_leases_run_out();
    let_go();
    // From here on every crash is one job's alone, until its attempts are used up.
    const auto dead = [&] { return counts().dead; };
    for (int crashes = 0; dead() < 2; ++crashes) {
      ASSERT_LT(crashes, 5);
      EXPECT_EQ(spawn("next").wait().signal, SIGSEGV);
      const std::int64_t lost =
          number("SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND alone");
      EXPECT_EQ(lost, 1);
      let_leases_run_out();
    }
    for (const JobId id : poison) {
      EXPECT_EQ(job(id).state, JobState::dead);
      EXPECT_THAT(losses(id), ::testing::Contains(kAlone).Times(::testing::Ge(2)));
    }
  }
  ChildProcess heir = spawn("heir");
  for (const JobId id : healthy) {
    EXPECT_TRUE(reaches(id, JobState::succeeded));
    EXPECT_THAT(losses(id), ::testing::ElementsAre(kShared));
  }
  heir.send(SIGTERM);
  EXPECT_EQ(heir.wait().exit_code, 0);
}

TEST_F(ProcessTest, when_workers_are_killed_others_finish_all_and_every_job_commits_once) {
  constexpr int kVictims = 3;
  constexpr int kForEach = 500;
  constexpr int kJobs = kVictims * kForEach;
  set_ttl(ms{3'000});
  must(store_.set_queue("default", {.backoff_base = ms{0}}));
  script("CREATE TABLE ran (job uuid NOT NULL)");
  const auto committed = [&] { return number("SELECT count(*) FROM ran"); };

  for (int i = 0; i < kVictims; ++i) {
    enqueue_many(kForEach, {.kind = "count"});
    const std::int64_t before = committed();
    ChildProcess victim = spawn("victim" + std::to_string(i));
    ASSERT_TRUE(eventually([&] { return committed() > before + 40; }));
    victim.send(SIGKILL);
    EXPECT_EQ(victim.wait().signal, SIGKILL);
  }
  ChildProcess heir = spawn("heir");
  ASSERT_TRUE(sweeping_until([&] { return counts().succeeded == kJobs; })) << heir.err();
  heir.send(SIGTERM);
  EXPECT_EQ(heir.wait().exit_code, 0);

  EXPECT_EQ(committed(), kJobs);
  EXPECT_EQ(number("SELECT count(DISTINCT job) FROM ran"), kJobs);
  EXPECT_EQ(successes(), kJobs);
}

}  // namespace
}  // namespace faultline::testing

// What people see: one job, its history, lists in pages, counts, the evidence. On one bucket and on several.

#include <map>
#include <memory>
#include <set>

#include <gmock/gmock.h>

#include "schema/migrator.h"
#include "store/fixture.h"
#include "store/invariants.h"
#include "support/process.h"

namespace faultline::testing {
namespace {

/// A store on a database with as many buckets as the parameter says.
class ListingTest : public ::testing::TestWithParam<int> {
 protected:
  using ms = std::chrono::milliseconds;

  ListingTest()
      : database_(made_for(GetParam())),
        sql_(database_.connect()),
        clock_(database_),
        store_(must(Store::open({.database = database_.dsn()}))) {}
  static void TearDownTestSuite() { made_.clear(); }

  JobId add(NewJob job = {}) {
    if (job.kind.empty()) job.kind = "k";
    return must(store_.enqueue(job)).job;
  }
  /// A claim finds a job that was put back at the same moment soon, and not always at once.
  ClaimedJob claim_job(JobId id) {
    std::optional<ClaimedJob> found;
    EXPECT_TRUE(eventually([&] {
      for (ClaimedJob& claimed : must(store_.claim({.worker = "A", .limit = 1'000}))) {
        if (claimed.lease.job == id)
          found = std::move(claimed);
        else
          settle(claimed.lease, Outcome::release());
      }
      return found.has_value();
    }));
    return found.value();
  }
  Verdict settle(const Lease& lease, Outcome outcome) {
    const Settlement settlement{.lease = lease, .outcome = std::move(outcome)};
    return must(store_.settle({&settlement, 1})).at(0);
  }
  Job job(JobId id) { return must(store_.job(id)).value(); }
  QueueCounts counts() { return must(store_.counts("default")).at(0); }

  /// All pages of a listing, one after another; `between` runs after each page.
  std::vector<JobSummary> all_pages(ListRequest request, const std::function<void()>& between = [] {}) {
    std::vector<JobSummary> all;
    for (;;) {
      const JobPage page = must(store_.list(request));
      EXPECT_LE(page.jobs.size(), request.limit);
      all.insert(all.end(), page.jobs.begin(), page.jobs.end());
      if (!page.next) return all;
      request.before = page.next;
      between();
    }
  }
  std::vector<JobSummary> first_page(const ListRequest& request) { return must(store_.list(request)).jobs; }
  static std::vector<JobId> ids_of(const std::vector<JobSummary>& list) {
    std::vector<JobId> ids;
    for (const JobSummary& summary : list) ids.push_back(summary.id);
    return ids;
  }
  static std::vector<JobId> newest_first(std::vector<JobId> ids) {
    std::ranges::sort(ids, std::greater{});
    return ids;
  }

  /// One job in each state.
  std::map<JobState, JobId> one_of_each() {
    std::map<JobState, JobId> jobs;
    jobs[JobState::held] = add({.kind = "held", .delivery = Delivery::hold});
    must(store_.claim({.worker = "A", .limit = 100}));
    clock_.advance(ms{30'000});
    must(store_.expire_leases());
    jobs[JobState::dead] = add({.kind = "dead"});
    settle(claim_job(jobs[JobState::dead]).lease, Outcome::bury("no use"));
    jobs[JobState::succeeded] = add({.kind = "succeeded"});
    settle(claim_job(jobs[JobState::succeeded]).lease, Outcome::success("r"));
    jobs[JobState::cancelled] = add({.kind = "cancelled"});
    must(store_.cancel({&jobs[JobState::cancelled], 1}, "operator", "not wanted"));
    jobs[JobState::running] = add({.kind = "running"});
    claim_job(jobs[JobState::running]);
    jobs[JobState::scheduled] = add({.kind = "scheduled", .delay = ms{60'000}});
    jobs[JobState::available] = add({.kind = "available"});
    return jobs;
  }

  TestDatabase database_;
  pg::Connection sql_;
  MovableClock clock_;
  Store store_;

 private:
  /// The database to copy, with so many buckets and a clock: migrated once for all cases.
  static const std::string& made_for(int buckets) {
    std::unique_ptr<TestDatabase>& made = made_[buckets];
    if (!made) {
      made = std::make_unique<TestDatabase>(Template::empty);
      pg::Connection connection = made->connect();
      must(schema::migrate(connection, {.buckets = buckets}, soon()));
      must(connection.exec_script(drills::MovableClock::kInstall, soon()));
    }
    return made->name();
  }
  static inline std::map<int, std::unique_ptr<TestDatabase>> made_;
};

INSTANTIATE_TEST_SUITE_P(Buckets, ListingTest, ::testing::Values(1, 4), ::testing::PrintToStringParamName());

TEST_P(ListingTest, a_job_is_shown_in_every_state_and_found_by_its_filters) {
  must(store_.set_queue("other", {}));
  const JobId elsewhere = add({.queue = "other"});
  for (const auto& [state, id] : one_of_each()) {
    const std::string name{to_string(state)};
    SCOPED_TRACE(name);
    EXPECT_EQ(job(id).state, state);
    EXPECT_EQ(ids_of(first_page({.state = state})).front(),
              state == JobState::available ? std::max(id, elsewhere) : id);
    EXPECT_EQ(ids_of(first_page({.queue = "default", .state = state})), std::vector{id});
    EXPECT_EQ(ids_of(first_page({.queue = "default", .kind = name, .state = state})), std::vector{id});
    EXPECT_EQ(ids_of(first_page({.kind = name})), std::vector{id});
    EXPECT_TRUE(first_page({.kind = "none", .state = state}).empty());
    EXPECT_TRUE(first_page({.queue = "none", .state = state}).empty());
    const JobSummary summary = first_page({.kind = name}).at(0);
    EXPECT_EQ(summary.state, state);
    EXPECT_EQ(summary.queue, "default");
    EXPECT_EQ(summary.finished_at.has_value(), state == JobState::succeeded || state == JobState::cancelled);
  }
  EXPECT_EQ(first_page({.queue = "default"}).size(), 7U);
  EXPECT_EQ(first_page({}).size(), 8U);
  EXPECT_EQ(first_page({.queue = "other"}).size(), 1U);
}

TEST_P(ListingTest, counts_are_exact_in_every_state) {
  one_of_each();
  for (int round = 0; round < 2; ++round) {
    const QueueCounts now = counts();
    EXPECT_EQ(now.held, 1);
    EXPECT_EQ(now.dead, 1);
    EXPECT_EQ(now.succeeded, 1);
    EXPECT_EQ(now.cancelled, 1);
    EXPECT_EQ(now.running, 1);
    EXPECT_EQ(now.scheduled, 1);
    EXPECT_EQ(now.available, 1);
    EXPECT_EQ(now.oldest_due_age, std::chrono::microseconds{0});
    must(store_.fold_counts());
  }
  clock_.advance(ms{60'000});
  EXPECT_EQ(counts().scheduled, 0);
  EXPECT_EQ(counts().available, 2);
  EXPECT_EQ(counts().oldest_due_age, ms{60'000});
}

TEST_P(ListingTest, pages_have_no_gaps_and_no_duplicates_newest_first) {
  std::vector<JobId> all;
  for (int i = 0; i < 103; ++i) all.push_back(add({.kind = i % 2 == 0 ? "even" : "odd"}));
  std::vector<Settlement> done;
  for (const ClaimedJob& claimed : must(store_.claim({.worker = "A", .limit = 40})))
    done.push_back({.lease = claimed.lease});
  must(store_.settle(done));
  must(store_.claim({.worker = "A", .limit = 30}));
  all = newest_first(all);

  for (const std::size_t limit : {1U, 7U, 50U, 103U, 1'000U}) {
    EXPECT_EQ(ids_of(all_pages({.limit = limit})), all) << limit;
    EXPECT_EQ(ids_of(all_pages({.queue = "default", .limit = limit})), all) << limit;
  }
  EXPECT_EQ(all_pages({.kind = "even", .limit = 10}).size(), 52U);
  EXPECT_EQ(all_pages({.state = JobState::succeeded, .limit = 10}).size(), 40U);
  EXPECT_EQ(all_pages({.queue = "default", .state = JobState::succeeded, .limit = 10}).size(), 40U);
  EXPECT_EQ(all_pages({.state = JobState::running, .limit = 10}).size(), 30U);
  EXPECT_EQ(all_pages({.state = JobState::available, .limit = 10}).size(), 33U);
}

TEST_P(ListingTest, pages_stay_whole_while_jobs_are_added_run_and_finish_between_them) {
  std::vector<JobId> all;
  for (int i = 0; i < 60; ++i) all.push_back(add());

  const std::vector<JobSummary> seen = all_pages({.limit = 10}, [&] {
    std::vector<Settlement> done;
    for (const ClaimedJob& claimed : must(store_.claim({.worker = "A", .limit = 8}))) {
      done.push_back({.lease = claimed.lease});
      if (done.size() % 3 == 0) done.back().outcome = Outcome::release();
    }
    must(store_.settle(done));
    add();
  });

  // What was there at the beginning is seen once; what came later is newer than the first page.
  EXPECT_EQ(ids_of(seen), newest_first(all));
}

TEST_P(ListingTest, dead_jobs_of_a_queue_are_listed_in_pages_over_all_priorities) {
  std::vector<JobId> dead;
  for (int i = 0; i < 25; ++i) dead.push_back(add({.priority = i % 10}));
  std::vector<Settlement> buried;
  for (const ClaimedJob& claimed : must(store_.claim({.worker = "A", .limit = 100}))) {
    buried.push_back({.lease = claimed.lease, .outcome = Outcome::bury("no use")});
  }
  must(store_.settle(buried));
  add();

  EXPECT_EQ(ids_of(all_pages({.queue = "default", .state = JobState::dead, .limit = 4})), newest_first(dead));
  EXPECT_EQ(ids_of(all_pages({.state = JobState::dead, .limit = 4})), newest_first(dead));
}

TEST_P(ListingTest, a_page_that_looked_at_enough_ends_and_the_next_goes_on_where_it_did) {
  std::vector<JobId> rare;
  const auto many = [&](const char* kind, std::size_t count) {
    for (const Submission& added : must(store_.enqueue(std::vector<NewJob>(count, NewJob{.kind = kind}))))
      if (std::string_view{kind} == "rare") rare.push_back(added.job);
    clock_.advance(ms{1});
  };
  many("rare", 3);
  for (int i = 0; i < 8; ++i) many("many", 1'000);
  many("rare", 4);
  for (int i = 0; i < 4; ++i) many("many", 1'000);
  std::vector<Settlement> done;
  for (int i = 0; i < 6; ++i) {
    done.clear();
    for (const ClaimedJob& claimed : must(store_.claim({.worker = "A", .limit = 1'000})))
      done.push_back({.lease = claimed.lease});
    must(store_.settle(done));
  }

  const ListRequest of_kind{.kind = "rare", .limit = 2};
  const JobPage first = must(store_.list(of_kind));
  EXPECT_LT(first.jobs.size(), 2U);
  EXPECT_TRUE(first.next);
  EXPECT_GE(first.looked_at, 5'000U);
  EXPECT_EQ(ids_of(all_pages(of_kind)), newest_first(rare));
  EXPECT_EQ(ids_of(all_pages({.kind = "rare", .limit = 100})), newest_first(rare));
  EXPECT_EQ(ids_of(all_pages({.queue = "default", .kind = "rare", .limit = 2})), newest_first(rare));
  EXPECT_EQ(all_pages({.limit = 1'000}).size(), 12'007U);
  EXPECT_EQ(all_pages({.queue = "default", .limit = 1'000}).size(), 12'007U);
  EXPECT_TRUE(all_pages({.kind = "none"}).empty());
  EXPECT_TRUE(all_pages({.state = JobState::cancelled}).empty());
}

TEST_P(ListingTest, a_requeued_job_is_listed_once_as_what_it_is_now) {
  const JobId id = add();
  settle(claim_job(id).lease, Outcome::success());
  must(store_.requeue({&id, 1}, "operator"));

  EXPECT_TRUE(first_page({.state = JobState::succeeded}).empty());
  EXPECT_TRUE(first_page({.queue = "default", .state = JobState::succeeded}).empty());
  EXPECT_EQ(ids_of(first_page({})), std::vector{id});

  settle(claim_job(id).lease, Outcome::success());
  EXPECT_EQ(ids_of(first_page({})), std::vector{id});
  EXPECT_EQ(ids_of(first_page({.queue = "default", .state = JobState::succeeded})), std::vector{id});
  EXPECT_EQ(job(id).requeues, 1);
}

TEST_P(ListingTest, a_history_tells_the_whole_story_in_order) {
  const JobId id = add({.payload = "[1]",
                        .priority = 3,
                        .idempotency_key = "key",
                        .attempts_max = 9,
                        .lease_ttl = ms{5'000},
                        .run_max = ms{60'000},
                        .backoff_base = ms{0},
                        .tags = {"t"}});
  const ClaimedJob first = claim_job(id);
  const EffectResult effect{.lease = first.lease, .key = "charge", .result = "receipt"};
  must(store_.record_effects({&effect, 1}));
  EXPECT_TRUE(settle(first.lease, Outcome::failure("broken pipe")).committed());
  const ClaimedJob second = claim_job(id);
  clock_.advance(ms{5'000});
  EXPECT_EQ(must(store_.expire_leases()).expired.size(), 1U);
  EXPECT_FALSE(settle(second.lease, Outcome::success("late")).committed());
  const ClaimedJob third = claim_job(id);
  EXPECT_TRUE(settle(third.lease, Outcome::success("done")).committed());

  const JobHistory whole = must(store_.history(id)).value();

  EXPECT_EQ(whole.job.state, JobState::succeeded);
  EXPECT_EQ(whole.job.result, "done");
  EXPECT_EQ(whole.job.payload, "[1]");
  EXPECT_EQ(whole.job.priority, 3);
  EXPECT_EQ(whole.job.idempotency_key, "key");
  EXPECT_EQ(whole.job.attempts_max, 9);
  EXPECT_EQ(whole.job.lease_ttl, ms{5'000});
  EXPECT_EQ(whole.job.run_max, ms{60'000});
  EXPECT_EQ(whole.job.tags, std::vector<std::string>{"t"});
  EXPECT_EQ(whole.job.attempt, 3);
  EXPECT_EQ(whole.job.token, FenceToken{3});
  ASSERT_EQ(whole.attempts.size(), 3U);
  EXPECT_EQ(whole.attempts[0].outcome, "failed");
  EXPECT_EQ(whole.attempts[0].error, "broken pipe");
  EXPECT_EQ(whole.attempts[0].token, first.lease.token);
  EXPECT_EQ(whole.attempts[1].outcome, "expired");
  EXPECT_EQ(whole.attempts[1].ended_at - whole.attempts[1].started_at.value(), ms{5'000});
  EXPECT_EQ(whole.attempts[2].outcome, "succeeded");
  EXPECT_EQ(whole.attempts[2].token, FenceToken{3});
  ASSERT_EQ(whole.stale_writes.size(), 1U);
  EXPECT_EQ(whole.stale_writes[0].reason, StaleReason::lease_expired);
  EXPECT_EQ(whole.stale_writes[0].token, second.lease.token);
  ASSERT_EQ(whole.effects.size(), 1U);
  EXPECT_EQ(whole.effects[0].key, "charge");
  EXPECT_EQ(whole.effects[0].result, "receipt");
  EXPECT_EQ(whole.effects[0].token, FenceToken{1});
}

TEST_P(ListingTest, an_unknown_job_is_nothing) {
  JobId unknown = add();
  unknown.value.bytes[9] ^= 1U;
  EXPECT_FALSE(must(store_.job(unknown)).has_value());
  EXPECT_FALSE(must(store_.history(unknown)).has_value());
  EXPECT_TRUE(must(store_.counts("nowhere")).empty());
}

TEST_P(ListingTest, the_evidence_is_paged_newest_first_without_gaps_even_where_many_share_a_moment) {
  std::set<JobId> jobs;
  for (const int batch_size : {3, 1, 12, 1, 1, 7}) {
    std::vector<Lease> leases;
    for (int i = 0; i < batch_size; ++i)
      leases.push_back({.job = add(), .token = FenceToken{1}, .lease_id = Uuid::random(), .worker = "W"});
    for (const Lease& lease : leases) jobs.insert(lease.job);
    must(store_.heartbeat(leases));
    clock_.advance(ms{1});
  }
  for (const std::size_t limit : {1U, 2U, 5U, 100U}) {
    SCOPED_TRACE(limit);
    std::vector<StaleWrite> seen;
    std::optional<DatabaseTime> before;
    for (;;) {
      const std::vector<StaleWrite> page = must(store_.stale_writes(limit, before));
      if (page.empty()) break;
      seen.insert(seen.end(), page.begin(), page.end());
      before = page.back().at;
    }
    EXPECT_EQ(seen.size(), jobs.size());
    EXPECT_TRUE(std::ranges::is_sorted(seen, std::ranges::greater{}, &StaleWrite::at));
    std::set<JobId> seen_jobs;
    for (const StaleWrite& write : seen) seen_jobs.insert(write.job);
    EXPECT_EQ(seen_jobs, jobs);
  }
}

TEST_P(ListingTest, claims_reach_every_bucket_and_a_batch_over_them_is_settled_in_order) {
  std::set<JobId> all;
  for (int i = 0; i < 40; ++i) all.insert(add());
  std::vector<Settlement> settlements;
  std::set<JobId> claimed_jobs;
  while (claimed_jobs.size() < all.size()) {
    const auto claimed = must(store_.claim({.worker = "A", .limit = 9}));
    ASSERT_FALSE(claimed.empty());
    for (const ClaimedJob& each : claimed) {
      EXPECT_TRUE(claimed_jobs.insert(each.lease.job).second);
      settlements.push_back({.lease = each.lease});
    }
  }
  EXPECT_EQ(claimed_jobs, all);
  for (std::size_t i = 0; i < settlements.size(); i += 3) settlements[i].lease.lease_id = Uuid::random();

  const std::vector<Verdict> verdicts = must(store_.settle(settlements));

  for (std::size_t i = 0; i < verdicts.size(); ++i) EXPECT_EQ(verdicts[i].committed(), i % 3 != 0) << i;
  clock_.advance(ms{30'000});
  EXPECT_EQ(must(store_.expire_leases()).expired.size(), 14U);
  EXPECT_EQ(counts().succeeded, 26);
  EXPECT_EQ(must(store_.stale_writes(100)).size(), 14U);
}

class ManyWaitingTest : public StoreTest {};

TEST_F(ManyWaitingTest, jobs_whose_time_has_come_are_unmarked_in_batches_and_the_counts_stay_the_same) {
  enqueue_many(2'500, {.delay = ms{1'000}});
  enqueue_many(10, {.delay = ms{60'000}});
  advance(ms{1'000});
  ASSERT_EQ(claim("A", 100).size(), 100U);
  const auto expect_marked = [&](std::int64_t marked) {
    EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE delayed"), marked);
    EXPECT_EQ(counts().available, 2'400);
    EXPECT_EQ(counts().scheduled, 10);
    EXPECT_EQ(counts().running, 100);
    EXPECT_THAT(broken_invariants(sql_), ::testing::IsEmpty());
  };

  expect_marked(2'510);
  EXPECT_TRUE(must(store_.fold_counts()));
  expect_marked(1'510);
  EXPECT_TRUE(must(store_.fold_counts()));
  EXPECT_FALSE(must(store_.fold_counts()));
  expect_marked(10);
}

TEST_F(ManyWaitingTest, scheduled_and_available_are_told_apart_however_many_there_are) {
  constexpr std::size_t kBeyondTheCap = 10'050;
  const auto expect = [&](std::int64_t scheduled, std::int64_t available) {
    EXPECT_EQ(counts().scheduled, scheduled);
    EXPECT_EQ(counts().available, available);
  };
  enqueue_many(kBeyondTheCap);
  expect(0, 10'050);
  const auto scheduled = enqueue_many(20, {.priority = 2, .delay = ms{60'000}});
  expect(20, 10'050);
  enqueue_many(kBeyondTheCap, {.priority = 7, .delay = ms{60'000}});
  expect(10'070, 10'050);
  must(store_.cancel(scheduled, "operator", "not wanted"));
  expect(10'050, 10'050);

  std::vector<Settlement> buried;
  while (counts().available > 30) {
    buried.clear();
    for (const ClaimedJob& claimed :
         claim("A", static_cast<std::size_t>(std::min<std::int64_t>(1'000, counts().available - 30)))) {
      buried.push_back({.lease = claimed.lease, .outcome = Outcome::bury("no use")});
    }
    must(store_.settle(buried));
  }
  expect(10'050, 30);
  EXPECT_EQ(counts().dead, 10'020);
  advance(ms{60'000});
  expect(0, 10'080);
}

}  // namespace
}  // namespace faultline::testing

// Every verb of the service once, as a transport would call it.

#include <set>

#include <gmock/gmock.h>

#include "service/fixture.h"

namespace faultline::testing {
namespace {

using service::Changed;
using service::Page;
using service::QueueOverview;
using service::Selection;
using ::testing::HasSubstr;

class VerbsTest : public ServiceTest {
 protected:
  VerbsTest() { begin(); }

  std::vector<JobId> ids_on(const Page& page) {
    std::vector<JobId> ids;
    for (const JobSummary& job : page.jobs) ids.push_back(job.id);
    return ids;
  }
};

TEST_F(VerbsTest, enqueue_adds_jobs_and_knows_a_key_again) {
  const NewJob keyed{.kind = "mail", .payload = R"({"to":1})", .idempotency_key = "k"};
  const auto first = must(enqueue({keyed, NewJob{.kind = "mail"}}));
  const auto again = must(enqueue({keyed}));
  NewJob other = keyed;
  other.payload = R"({"to":2})";
  const auto conflict = must(enqueue({other}));

  EXPECT_EQ(first.at(0).status, Submission::Status::created);
  EXPECT_EQ(first.at(1).status, Submission::Status::created);
  EXPECT_EQ(again.at(0).status, Submission::Status::existing);
  EXPECT_EQ(again.at(0).job, first.at(0).job);
  EXPECT_EQ(conflict.at(0).status, Submission::Status::conflict);
  EXPECT_EQ(conflict.at(0).job, first.at(0).job);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"), 2);
  EXPECT_EQ(counted("faultline_jobs_enqueued_total"), 2);
}

TEST_F(VerbsTest, nothing_to_add_is_nothing_added) { EXPECT_TRUE(must(enqueue({})).empty()); }

TEST_F(VerbsTest, a_bad_job_refuses_its_whole_call) {
  const auto refused = enqueue({NewJob{.kind = "good"}, NewJob{.kind = "bad", .priority = 10}});

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
  EXPECT_THAT(refused.error().message, HasSubstr("job 1 of the batch"));
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"), 0);
}

TEST_F(VerbsTest, limits_are_kept_before_the_database) {
  service::ServiceOptions narrow = options();
  narrow.payload_bytes_max = 100;
  narrow.json_depth_max = 3;
  narrow.batch_max = 2;
  begin(narrow);

  const auto too_long = enqueue({NewJob{.kind = "x", .payload = '"' + std::string(100, 'x') + '"'}});
  const auto too_deep = enqueue({NewJob{.kind = "x", .payload = "[[[[1]]]]"}});
  const auto too_many = enqueue(std::vector<NewJob>(3, NewJob{.kind = "x"}));

  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, Code::too_large);
  ASSERT_FALSE(too_deep);
  EXPECT_EQ(too_deep.error().code, Code::invalid);
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, Code::too_large);
  EXPECT_THAT(too_many.error().hint, HasSubstr("2"));
}

TEST_F(VerbsTest, an_unknown_queue_is_not_found) {
  const auto refused = enqueue({NewJob{.queue = "nowhere", .kind = "x"}});
  Basket basket;
  const auto consumer = service_->consume(who_, "nowhere", "w", basket.deliver());

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::not_found);
  ASSERT_FALSE(consumer);
  EXPECT_EQ(consumer.error().code, Code::not_found);
}

TEST_F(VerbsTest, a_queue_that_somebody_else_made_is_found_at_once) {
  must(store_.set_queue("new", {}));
  const JobId id = enqueue_one({.queue = "new"});
  must(store_.set_queue("newer", {}));
  Basket basket;

  EXPECT_TRUE(service_->consume(who_, "newer", "w", basket.deliver()));
  EXPECT_EQ(claim_one("new").lease.job, id);
}

TEST_F(VerbsTest, a_job_goes_its_way) {
  const JobId id = enqueue_one({.payload = R"({"n":1})"});
  const ClaimedJob job = claim_one();
  EXPECT_EQ(job.lease.job, id);
  EXPECT_EQ(job.lease.worker, "w");
  EXPECT_EQ(job.payload, R"({"n":1})");

  const auto beats = must(answer_of<std::vector<Beat>>(
      [&](auto done) { service_->heartbeat(who_, {job.lease}, std::nullopt, std::move(done)); }));
  EXPECT_EQ(beats.at(0).status, Beat::Status::renewed);
  const auto extended = must(answer_of<std::vector<Beat>>(
      [&](auto done) { service_->heartbeat(who_, {job.lease}, ms{3'600'000}, std::move(done)); }));
  EXPECT_GT(extended.at(0).lease_expires_at, beats.at(0).lease_expires_at + ms{1'000'000});

  const auto progress = must(answer_of<std::vector<Verdict>>([&](auto done) {
    service_->progress(who_, {{.lease = job.lease, .fraction = 0.5, .note = "half"}}, std::move(done));
  }));
  EXPECT_TRUE(progress.at(0).committed());
  EXPECT_EQ(must(history(id)).job.progress_note, "half");

  const auto checked = must(answer_of<std::vector<Verdict>>(
      [&](auto done) { service_->check(who_, {job.lease}, std::move(done)); }));
  EXPECT_TRUE(checked.at(0).committed());

  const auto settled = must(settle({{.lease = job.lease, .outcome = Outcome::success("42")}}));
  EXPECT_TRUE(settled.at(0).committed());
  const JobHistory finished = must(history(id));
  EXPECT_EQ(finished.job.state, JobState::succeeded);
  EXPECT_EQ(finished.job.result, "42");
  ASSERT_EQ(finished.attempts.size(), 1);

  const auto resolved = must(answer_of<std::vector<std::optional<Outcome::Kind>>>(
      [&](auto done) { service_->resolve(who_, {job.lease}, std::move(done)); }));
  EXPECT_EQ(resolved.at(0), Outcome::Kind::succeeded);
  const auto counters = service_->counters();
  EXPECT_EQ(counted("faultline_lease_acquisitions_total"), 1);
  EXPECT_EQ(counted("faultline_jobs_settled_total"), 1);
  EXPECT_EQ(counters.heartbeats, 2);
  EXPECT_EQ(counters.waiting, 0);
}

TEST_F(VerbsTest, effects_are_begun_recorded_and_forgotten) {
  enqueue_one();
  const Lease lease = claim_one().lease;
  const std::vector<EffectKey> keys{{.lease = lease, .key = "a"}, {.lease = lease, .key = "b"}};

  const auto begun = must(answer_of<std::vector<Effect>>(
      [&](auto done) { service_->begin_effects(who_, keys, std::move(done)); }));
  const auto recorded = must(answer_of<std::vector<Effect>>([&](auto done) {
    service_->record_effects(who_, {{.lease = lease, .key = "a", .result = "1"}}, std::move(done));
  }));
  const auto forgotten = must(answer_of<std::vector<Verdict>>(
      [&](auto done) { service_->forget_effects(who_, {keys[1]}, std::move(done)); }));
  const auto again = must(answer_of<std::vector<Effect>>(
      [&](auto done) { service_->begin_effects(who_, keys, std::move(done)); }));

  EXPECT_EQ(begun.at(0).status, Effect::Status::begun);
  EXPECT_EQ(recorded.at(0).status, Effect::Status::recorded);
  EXPECT_TRUE(forgotten.at(0).committed());
  EXPECT_EQ(again.at(0).status, Effect::Status::recorded);
  EXPECT_EQ(again.at(0).result, "1");
  EXPECT_EQ(again.at(1).status, Effect::Status::begun);
}

TEST_F(VerbsTest, a_settlement_that_is_sent_again_is_committed_once) {
  const JobId id = enqueue_one();
  const Lease lease = claim_one().lease;
  const Settlement settlement{.lease = lease, .outcome = Outcome::success()};
  must(settle({settlement}));

  const auto again = must(settle({settlement}));
  const auto otherwise = must(settle({{.lease = lease, .outcome = Outcome::failure("no")}}));

  EXPECT_TRUE(again.at(0).committed());
  EXPECT_TRUE(again.at(0).repeated);
  EXPECT_EQ(otherwise.at(0).status, Verdict::Status::stale);
  EXPECT_EQ(otherwise.at(0).stale.reason, StaleReason::already_settled);
  EXPECT_EQ(must(history(id)).attempts.size(), 1);
  EXPECT_EQ(counted("faultline_jobs_settled_total"), 1);
  EXPECT_EQ(counted("faultline_stale_writes_blocked_total"), 1);
}

TEST_F(VerbsTest, a_settlement_that_had_not_come_through_is_settled_when_it_is_sent_again) {
  const JobId settled_before = enqueue_one();
  const JobId open = enqueue_one();
  const Lease first = claim_one().lease;
  const Lease second = claim_one().lease;
  must(settle({{.lease = first, .outcome = Outcome::success()}}));

  const auto verdicts = must(settle(
      {{.lease = first, .outcome = Outcome::success()}, {.lease = second, .outcome = Outcome::success()}}));

  EXPECT_TRUE(verdicts.at(0).committed());
  EXPECT_TRUE(verdicts.at(0).repeated);
  EXPECT_TRUE(verdicts.at(1).committed());
  EXPECT_FALSE(verdicts.at(1).repeated);
  EXPECT_EQ(state(settled_before), JobState::succeeded);
  EXPECT_EQ(state(open), JobState::succeeded);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger WHERE outcome = 'succeeded'"), 2);
}

TEST_F(VerbsTest, a_job_that_is_not_there_is_not_found) {
  const auto missing = history(JobId{});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::not_found);
}

TEST_F(VerbsTest, a_list_goes_from_page_to_page) {
  std::vector<JobId> ids = enqueue_many(25);
  enqueue_many(3, {.kind = "other"});
  std::ranges::sort(ids, std::greater{});

  std::vector<JobId> found;
  std::string cursor;
  std::size_t pages = 0;
  do {
    const Page page = must(list(who_, {.kind = "test", .limit = 10}, cursor));
    std::ranges::copy(ids_on(page), std::back_inserter(found));
    cursor = page.next.value_or("");
    ++pages;
  } while (!cursor.empty());

  EXPECT_EQ(found, ids);
  EXPECT_EQ(pages, 3);
}

TEST_F(VerbsTest, a_cursor_is_good_for_its_own_list_only) {
  enqueue_many(3);
  const std::string cursor = must(list(who_, {.queue = "default", .limit = 2})).next.value();
  EXPECT_EQ(cursor.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
            std::string::npos);

  std::vector<std::string> bad{
      "x", "AAAA", "not a cursor", cursor + "A", cursor.substr(1), std::string(1'000, 'A'), "\xff\xfe"};
  std::string flipped = cursor;
  flipped.back() = flipped.back() == '_' ? '-' : '_';
  bad.push_back(flipped);
  for (const std::string& text : bad) {
    const auto refused = list(who_, {.queue = "default", .limit = 2}, text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, Code::invalid);
    EXPECT_FALSE(refused.error().hint.empty());
  }
  EXPECT_TRUE(list(who_, {.queue = "default", .limit = 1}, cursor));
  EXPECT_FALSE(list(who_, {.limit = 2}, cursor));
  EXPECT_FALSE(list(who_, {.queue = "default", .kind = "test", .limit = 2}, cursor));
  EXPECT_FALSE(list(who_, {.queue = "default", .state = JobState::dead, .limit = 2}, cursor));
  const auto stale = answer_of<service::Service::StalePage>(
      [&](auto done) { service_->stale_writes(who_, 10, cursor, std::move(done)); });
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, Code::invalid);
}

TEST_F(VerbsTest, queues_are_made_changed_and_listed_with_their_counts) {
  const auto made = must(answer_of<QueueOverview>([&](auto done) {
    service_->set_queue(who_, "fast", {.running_max = 7, .lease_ttl = ms{5'000}}, true, std::move(done));
  }));
  EXPECT_EQ(made.queue.name, "fast");
  EXPECT_EQ(made.queue.running_max, 7);
  EXPECT_EQ(made.queue.lease_ttl, ms{5'000});
  enqueue_one({.queue = "fast"});
  const auto paused = must(answer_of<QueueOverview>(
      [&](auto done) { service_->set_queue(who_, "fast", {.paused = true}, false, std::move(done)); }));
  EXPECT_TRUE(paused.queue.paused);
  EXPECT_EQ(paused.queue.running_max, 7);
  EXPECT_EQ(paused.counts.available, 1);

  const auto all = must(
      answer_of<std::vector<QueueOverview>>([&](auto done) { service_->queues(who_, std::move(done)); }));
  ASSERT_EQ(all.size(), 2);
  EXPECT_EQ(all.at(0).queue.name, "default");
  EXPECT_EQ(all.at(0).counts.queue, "default");
  EXPECT_EQ(all.at(1).counts.available, 1);
  const auto bad = answer_of<QueueOverview>(
      [&](auto done) { service_->set_queue(who_, "fast", {.lease_ttl = ms{1}}, false, std::move(done)); });
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, Code::invalid);
}

TEST_F(VerbsTest, jobs_are_cancelled_and_requeued_by_id) {
  const std::vector<JobId> ids = enqueue_many(2);
  const auto cancelled = must(cancel(who_, {.ids = {ids[0], JobId{}, ids[0]}}));
  const auto requeued = must(requeue(who_, {.ids = {ids[1], ids[0]}}));

  EXPECT_EQ(cancelled.items.at(0), std::pair(ids[0], CancelStatus::cancelled));
  EXPECT_EQ(cancelled.items.at(1).second, CancelStatus::not_found);
  EXPECT_EQ(requeued.items.at(0).second, RequeueStatus::live);
  EXPECT_EQ(requeued.items.at(1).second, RequeueStatus::requeued);
  EXPECT_EQ(requeued.changed, 1);
  EXPECT_EQ(must(history(ids[0])).attempts.at(0).worker, "anybody");
}

TEST_F(VerbsTest, a_filter_that_is_sent_again_does_nothing_twice_to_a_job) {
  const JobId id = enqueue_one();
  const Selection dead{.filter = ListRequest{.queue = "default", .state = JobState::dead},
                       .call = Uuid::random()};
  must(settle({{.lease = claim_one().lease, .outcome = Outcome::bury("no")}}));
  EXPECT_EQ(must(requeue(who_, dead)).changed, 1);
  // It is dead again when the call, whose answer was lost, comes a second time.
  must(settle({{.lease = claim_one().lease, .outcome = Outcome::bury("no")}}));

  EXPECT_EQ(must(requeue(who_, dead)).changed, 1) << "as it was told before";
  EXPECT_EQ(state(id), JobState::dead);
  EXPECT_EQ(must(requeue(who_, {.filter = dead.filter})).changed, 1);
  EXPECT_EQ(state(id), JobState::available);
}

TEST_F(VerbsTest, dead_jobs_are_purged_by_id_and_by_filter_and_no_others) {
  const std::vector<JobId> ids = enqueue_many(2, {.kind = "doomed"});
  for (int i = 0; i < 2; ++i) {
    must(settle({{.lease = claim_one().lease, .outcome = Outcome::bury("it cannot be done")}}));
  }
  const JobId waiting_job = enqueue_one();

  const auto by_id = must(purge(who_, {.ids = {ids[0], waiting_job, JobId{}}}));
  EXPECT_EQ(by_id.items.at(0), std::pair(ids[0], PurgeStatus::purged));
  EXPECT_EQ(by_id.items.at(1).second, PurgeStatus::not_dead);
  EXPECT_EQ(by_id.items.at(2).second, PurgeStatus::not_found);
  EXPECT_EQ(by_id.changed, 1);
  EXPECT_EQ(must(history(ids[0])).attempts.back().outcome, "purged");
  EXPECT_EQ(must(history(ids[0])).attempts.back().worker, "anybody");

  const auto waiting = purge(who_, {.filter = ListRequest{.queue = "default", .state = JobState::available}});
  ASSERT_FALSE(waiting);
  EXPECT_EQ(waiting.error().code, Code::invalid);
  const auto counted = must(purge(who_, {.filter = ListRequest{.queue = "default"}, .dry_run = true}));
  EXPECT_EQ(counted.matched, 1);
  EXPECT_EQ(counted.changed, 0);
  EXPECT_EQ(must(purge(who_, {.filter = ListRequest{.queue = "default"}})).changed, 1);
  EXPECT_EQ(must(history(waiting_job)).job.state, JobState::available);
}

TEST_F(VerbsTest, all_that_match_are_cancelled_after_a_dry_run) {
  enqueue_many(1'203, {.kind = "bulk"});
  const std::vector<JobId> others = enqueue_many(2);

  const auto counted = must(cancel(who_, {.filter = ListRequest{.kind = "bulk"}, .dry_run = true}));
  EXPECT_EQ(counted.matched, 1'203);
  EXPECT_EQ(counted.changed, 0);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'bulk'"), 1'203);

  const auto cancelled = must(cancel(who_, {.filter = ListRequest{.kind = "bulk"}}));
  EXPECT_EQ(cancelled.matched, 1'203);
  EXPECT_EQ(cancelled.changed, 1'203);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'bulk'"), 0);
  EXPECT_EQ(state(others[0]), JobState::available);

  EXPECT_EQ(must(requeue(who_, {.filter = ListRequest{.kind = "bulk"}})).matched, 0);
  const auto requeued =
      must(requeue(who_, {.filter = ListRequest{.kind = "bulk", .state = JobState::cancelled}}));
  EXPECT_EQ(requeued.changed, 1'203);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'bulk'"), 1'203);
}

TEST_F(VerbsTest, a_selection_is_ids_or_a_filter_that_says_something) {
  const JobId id = enqueue_one();
  for (const Selection& selection : {Selection{}, Selection{.filter = ListRequest{}},
                                     Selection{.ids = {id}, .filter = ListRequest{.kind = "x"}},
                                     Selection{.ids = {id}, .dry_run = true}}) {
    const auto refused = cancel(who_, selection);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::invalid);
  }
  EXPECT_EQ(state(id), JobState::available);
}

TEST_F(VerbsTest, evidence_goes_from_page_to_page) {
  for (int i = 0; i < 5; ++i) {
    enqueue_one();
    const Lease lease = claim_one().lease;
    must(settle({{.lease = lease, .outcome = Outcome::success()}}));
    EXPECT_EQ(must(settle({{.lease = lease, .outcome = Outcome::failure("no")}})).at(0).status,
              Verdict::Status::stale);
  }
  std::set<JobId> found;
  std::string cursor;
  do {
    const auto page = must(answer_of<service::Service::StalePage>(
        [&](auto done) { service_->stale_writes(who_, 2, cursor, std::move(done)); }));
    for (const StaleWrite& write : page.writes) found.insert(write.job);
    cursor = page.next.value_or("");
  } while (!cursor.empty());
  EXPECT_EQ(found.size(), 5);
}

TEST_F(VerbsTest, after_it_has_stopped_everything_is_refused) {
  service_->stop();

  const auto refused = enqueue({NewJob{.kind = "x"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unavailable);
  EXPECT_TRUE(refused.error().retry_after);
  const auto looked = history(JobId{});
  ASSERT_FALSE(looked);
  EXPECT_EQ(looked.error().code, Code::unavailable);
  Basket basket;
  EXPECT_FALSE(service_->consume(who_, "default", "w", basket.deliver()));
  EXPECT_FALSE(service_->watch(who_, [](const auto&) {}));
  EXPECT_FALSE(service_->ready());
  EXPECT_FALSE(service_->why_not_ready().empty());
}

}  // namespace
}  // namespace faultline::testing

// Those who watch are told what happens, in order, and only what is their business.

#include <set>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "service/fixture.h"

namespace faultline::testing {
namespace {

using service::LiveEvent;

/// Keeps what it is told. Thread-safe.
class Diary {
 public:
  [[nodiscard]] auto next() {
    return [this](const std::shared_ptr<const LiveEvent>& event) {
      const std::lock_guard lock{mutex_};
      events_.push_back(*event);
    };
  }
  [[nodiscard]] std::vector<LiveEvent> of(std::string_view name) const {
    const std::lock_guard lock{mutex_};
    std::vector<LiveEvent> found;
    for (const LiveEvent& event : events_) {
      if (name.empty() || event.name == name) found.push_back(event);
    }
    return found;
  }
  [[nodiscard]] bool has(std::string_view name, std::size_t count = 1) const {
    return eventually([&] { return of(name).size() >= count; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<LiveEvent> events_;
};

class LiveEventsTest : public ServiceTest {
 protected:
  LiveEventsTest() { begin(); }

  [[nodiscard]] std::unique_ptr<service::Service::EventSubscription> watch(Diary& diary) {
    return watch(diary, who_);
  }
  [[nodiscard]] std::unique_ptr<service::Service::EventSubscription> watch(Diary& diary,
                                                                           const Principal& who) {
    return must(service_->watch(who, diary.next()));
  }
  /// One job through its whole life, and a refused write at the end.
  JobId live_a_life(std::string queue = "default") {
    const JobId id = enqueue_one({.queue = queue, .payload = R"("canary-payload")"});
    const Lease lease = claim_one(queue).lease;
    must(settle({{.lease = lease, .outcome = Outcome::success("canary-result")}}));
    must(settle({{.lease = lease, .outcome = Outcome::failure("canary-error")}}));
    return id;
  }
};

TEST_F(LiveEventsTest, a_jobs_life_is_told_in_order_without_its_payload) {
  Diary diary;
  const auto watching = watch(diary);
  const JobId id = live_a_life();

  ASSERT_TRUE(diary.has("job_enqueued"));
  ASSERT_TRUE(diary.has("lease_acquired"));
  ASSERT_TRUE(diary.has("job_settled"));
  ASSERT_TRUE(diary.has("stale_write_blocked"));
  ASSERT_TRUE(diary.has("queues"));
  for (const char* name : {"job_enqueued", "lease_acquired", "job_settled", "stale_write_blocked"}) {
    const LiveEvent event = diary.of(name).at(0);
    const auto json = nlohmann::json::parse(event.json);
    EXPECT_EQ(json.at("job_id"), id.to_string());
    EXPECT_EQ(json.at("queue"), "default");
    EXPECT_EQ(event.queue, "default");
  }
  EXPECT_EQ(nlohmann::json::parse(diary.of("stale_write_blocked").at(0).json).at("reason"),
            "already_settled");
  EXPECT_LT(diary.of("lease_acquired").at(0).id, diary.of("job_settled").at(0).id);
  std::uint64_t last = 0;
  for (const LiveEvent& event : diary.of("")) {
    EXPECT_GT(event.id, last);
    last = event.id;
    EXPECT_EQ(event.json.find("canary"), std::string::npos);
    EXPECT_EQ(event.json.find('\n'), std::string::npos);
  }
}

TEST_F(LiveEventsTest, a_refused_write_is_told_once_wherever_it_came_from) {
  Diary diary;
  const auto watching = watch(diary);
  const JobId own = live_a_life();
  const JobId id = enqueue_one();
  // Past this service.
  const auto claimed = must(store_.claim({.worker = "elsewhere"}));
  const Settlement settlement{.lease = claimed.at(0).lease, .outcome = Outcome::success()};
  must(store_.settle({&settlement, 1}));
  const Settlement otherwise{.lease = claimed.at(0).lease, .outcome = Outcome::failure("no")};
  must(store_.settle({&otherwise, 1}));

  ASSERT_TRUE(diary.has("stale_write_blocked", 2));
  // Two more looks at the database.
  ASSERT_TRUE(diary.has("queues", diary.of("queues").size() + 2));

  std::multiset<std::string> jobs;
  for (const LiveEvent& event : diary.of("stale_write_blocked")) {
    jobs.insert(nlohmann::json::parse(event.json).at("job_id").get<std::string>());
  }
  EXPECT_EQ(jobs, (std::multiset<std::string>{own.to_string(), id.to_string()}));
}

TEST_F(LiveEventsTest, a_settlement_that_is_sent_again_is_told_once) {
  Diary diary;
  const auto watching = watch(diary);
  enqueue_one();
  const Settlement settlement{.lease = claim_one().lease, .outcome = Outcome::success()};
  must(settle({settlement}));
  must(settle({settlement}));
  live_a_life();

  ASSERT_TRUE(diary.has("stale_write_blocked"));
  EXPECT_EQ(diary.of("job_settled").size(), 2) << "one of each job";
}

TEST_F(LiveEventsTest, snapshots_have_the_counts_of_all_queues) {
  must(store_.set_queue("other", {.paused = true}));
  enqueue_many(3, {.queue = "other"});
  Diary diary;
  const auto watching = watch(diary);
  ASSERT_TRUE(diary.has("queues"));

  const auto queues = nlohmann::json::parse(diary.of("queues").at(0).json).at("queues");
  ASSERT_EQ(queues.size(), 2);
  EXPECT_EQ(queues.at(1).at("name"), "other");
  EXPECT_EQ(queues.at(1).at("available"), 3);
  EXPECT_EQ(queues.at(1).at("paused"), true);
}

TEST_F(LiveEventsTest, a_change_of_a_queue_is_told) {
  Diary diary;
  const auto watching = watch(diary);
  must(answer_of<service::QueueOverview>(
      [&](auto done) { service_->set_queue(who_, "default", {.paused = true}, false, std::move(done)); }));
  ASSERT_TRUE(diary.has("queue_changed"));
  EXPECT_EQ(nlohmann::json::parse(diary.of("queue_changed").at(0).json).at("paused"), true);
}

TEST_F(LiveEventsTest, an_outcome_of_what_was_claimed_before_anybody_watched_has_its_queue) {
  must(store_.set_queue("mine", {}));
  enqueue_one({.queue = "mine"});
  const Lease lease = claim_one("mine").lease;
  Principal bound = Principal::anybody();
  bound.queues = {"mine"};
  Diary diary;
  const auto watching = watch(diary, bound);

  must(settle({{.lease = lease, .outcome = Outcome::success("1")}}));

  ASSERT_TRUE(diary.has("job_settled"));
  EXPECT_EQ(diary.of("job_settled").at(0).queue, "mine");
}

TEST_F(LiveEventsTest, a_bound_key_is_told_of_its_own_queues_only) {
  must(store_.set_queue("mine", {}));
  must(store_.set_queue("theirs", {}));
  Principal bound = Principal::anybody();
  bound.queues = {"mine"};
  Diary all;
  Diary mine;
  const auto watching_all = watch(all);
  const auto watching_mine = watch(mine, bound);
  live_a_life("theirs");
  live_a_life("mine");

  ASSERT_TRUE(all.has("stale_write_blocked", 2));
  ASSERT_TRUE(mine.has("stale_write_blocked"));
  ASSERT_TRUE(mine.has("queues", 2));
  for (const LiveEvent& event : mine.of("")) {
    EXPECT_EQ(event.json.find("theirs"), std::string::npos) << event.json;
    EXPECT_EQ(event.json.find("default"), std::string::npos) << event.json;
  }
  EXPECT_EQ(mine.of("job_settled").size(), 1);
  EXPECT_EQ(all.of("job_settled").size(), 2);
}

TEST_F(LiveEventsTest, who_has_left_is_told_nothing) {
  Diary gone;
  Diary there;
  auto leaving = watch(gone);
  const auto staying = watch(there);
  ASSERT_TRUE(gone.has("queues"));
  leaving.reset();
  const std::size_t told = gone.of("").size();
  live_a_life();
  ASSERT_TRUE(there.has("stale_write_blocked"));
  EXPECT_EQ(gone.of("").size(), told);
}

}  // namespace
}  // namespace faultline::testing

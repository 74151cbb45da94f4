// Submissions of several threads in one commit: who goes with whom, and that nobody suffers for another.

#include "store/shared_enqueue.h"

#include <latch>
#include <map>
#include <thread>

#include "fixture.h"

namespace faultline::testing {
namespace {

using store::SharedEnqueue;

NewJob small_job(const std::string& kind) { return {.queue = "default", .kind = kind, .payload = "1"}; }

Submission submission() { return {.status = Submission::Status::created, .job = JobId{Uuid::random()}}; }

/// An `add` that can be held, and that remembers what it was given.
class Gate {
 public:
  SharedEnqueue::Reply add(std::span<const NewJob> jobs) {
    std::unique_lock lock{mutex_};
    batches_.emplace_back();
    for (const NewJob& job : jobs) batches_.back().push_back(job.kind);
    const std::vector<std::string> mine = batches_.back();
    entered_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    // As a commit does, it lets others come meanwhile.
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    lock.lock();
    for (const std::string& kind : mine) {
      if (kind == bad_) return std::unexpected(Error{.code = error_, .message = "refused"});
    }
    return std::vector<Submission>(jobs.size(), submission());
  }
  void wait_for_batches(std::size_t count) {
    std::unique_lock lock{mutex_};
    entered_.wait(lock, [&] { return batches_.size() >= count; });
  }
  void open() {
    const std::lock_guard lock{mutex_};
    open_ = true;
    changed_.notify_all();
  }
  void refuse(std::string kind, ErrorCode error) {
    const std::lock_guard lock{mutex_};
    bad_ = std::move(kind);
    error_ = error;
  }
  std::vector<std::vector<std::string>> batches() {
    const std::lock_guard lock{mutex_};
    return batches_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable entered_;
  std::condition_variable changed_;
  bool open_ = false;
  std::string bad_;
  ErrorCode error_ = ErrorCode::internal;
  std::vector<std::vector<std::string>> batches_;
};

class SharedEnqueueTest : public ::testing::Test {
 protected:
  /// Adds a job in a thread of its own.
  void start(const std::string& kind) {
    threads_.emplace_back([this, kind] {
      const NewJob job = small_job(kind);
      auto reply = shared_.enqueue(std::span{&job, 1});
      const std::lock_guard lock{mutex_};
      replies_.emplace(kind, std::move(reply));
    });
  }
  const SharedEnqueue::Reply& reply(const std::string& kind) { return replies_.at(kind); }
  /// Two are under way, and wait for the gate.
  void fill() {
    start("first");
    gate_.wait_for_batches(1);
    start("second");
    gate_.wait_for_batches(2);
  }
  void finish() {
    gate_.open();
    threads_.clear();
  }

  Gate gate_;
  SharedEnqueue shared_{[this](std::span<const NewJob> jobs) { return gate_.add(jobs); }};
  std::mutex mutex_;
  std::map<std::string, SharedEnqueue::Reply> replies_;
  std::vector<std::jthread> threads_;
};

TEST_F(SharedEnqueueTest, who_has_waited_for_long_goes_by_himself) {
  fill();
  start("third");
  // It is under way though both places are taken and stay so.
  gate_.wait_for_batches(3);
  EXPECT_EQ(gate_.batches().back(), std::vector<std::string>{"third"});
  finish();
  for (const std::string kind : {"first", "second", "third"}) EXPECT_TRUE(reply(kind)) << kind;
}

TEST_F(SharedEnqueueTest, a_failure_of_one_is_not_that_of_the_others) {
  gate_.refuse("bad", ErrorCode::invalid_argument);
  gate_.open();
  std::size_t shared = 0;
  // Until a bad one has shared a batch.
  for (int round = 0; round < 1'000 && shared == 0; ++round) {
    replies_.clear();
    const std::size_t before = gate_.batches().size();
    for (const std::string kind : {"a", "b", "bad", "c", "d", "e"}) start(kind);
    threads_.clear();
    for (const std::string kind : {"a", "b", "c", "d", "e"}) ASSERT_TRUE(reply(kind)) << kind;
    ASSERT_FALSE(reply("bad"));
    const auto batches = gate_.batches();
    for (std::size_t i = before; i < batches.size(); ++i) {
      if (batches[i].size() > 1 && std::ranges::count(batches[i], "bad") > 0) ++shared;
    }
  }
  EXPECT_GT(shared, 0U);
}

TEST_F(SharedEnqueueTest, what_may_have_been_added_is_not_added_again) {
  gate_.refuse("bad", ErrorCode::outcome_unknown);
  gate_.open();
  std::size_t shared = 0;
  for (int round = 0; round < 1'000 && shared == 0; ++round) {
    replies_.clear();
    const std::size_t before = gate_.batches().size();
    for (const std::string kind : {"a", "b", "bad", "c", "d", "e"}) start(kind);
    threads_.clear();
    std::map<std::string, int> times;
    const auto batches = gate_.batches();
    for (std::size_t i = before; i < batches.size(); ++i) {
      const bool has_bad = std::ranges::count(batches[i], "bad") > 0;
      if (has_bad && batches[i].size() > 1) ++shared;
      for (const std::string& kind : batches[i]) {
        ++times[kind];
        // All who were in it are told that it is not known.
        EXPECT_EQ(reply(kind).has_value(), !has_bad) << kind;
      }
    }
    for (const auto& [kind, count] : times) EXPECT_EQ(count, 1) << kind;
  }
  EXPECT_GT(shared, 0U);
}

TEST_F(SharedEnqueueTest, only_small_ones_without_keys_share) {
  NewJob keyed = small_job("k");
  keyed.idempotency_key = "key";
  NewJob large = small_job("l");
  large.payload = std::string(100'000, ' ');
  const NewJob small = small_job("s");
  EXPECT_TRUE(SharedEnqueue::takes(std::span{&small, 1}));
  EXPECT_FALSE(SharedEnqueue::takes(std::span{&keyed, 1}));
  EXPECT_FALSE(SharedEnqueue::takes(std::span{&large, 1}));
  EXPECT_FALSE(SharedEnqueue::takes(std::vector<NewJob>(17, small)));
}

class SharedCommitTest : public StoreTest {};

// Each thread gets the ids of its own jobs, in order.
TEST_F(SharedCommitTest, threads_that_share_commits_get_the_ids_of_their_own_jobs) {
  Store store = open_store();
  std::mutex mutex;
  std::map<JobId, std::string> kinds;
  {
    std::latch go{8};
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        go.arrive_and_wait();
        for (int i = 0; i < 40; ++i) {
          std::vector<NewJob> jobs;
          for (int j = 0; j <= i % 3; ++j)
            jobs.push_back(small_job(std::to_string(t) + "." + std::to_string(i) + "." + std::to_string(j)));
          const auto added = must(store.enqueue(jobs));
          const std::lock_guard lock{mutex};
          for (std::size_t j = 0; j < jobs.size(); ++j) kinds.emplace(added.at(j).job, jobs[j].kind);
        }
      });
    }
  }
  EXPECT_EQ(kinds.size(), 8U * (14 + 13 * 2 + 13 * 3));
  for (const auto& [id, kind] : kinds) EXPECT_EQ(must(store.job(id))->kind, kind);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"),
            static_cast<std::int64_t>(kinds.size()));
}

}  // namespace
}  // namespace faultline::testing

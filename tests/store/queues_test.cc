// Queues are made, changed and deleted, and nothing of that is done by a slip.

#include <gmock/gmock.h>

#include "store/fixture.h"
#include "store/invariants.h"

namespace faultline::testing {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

class QueuesTest : public StoreTest {
 protected:
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const Queue& queue : must(store_.queues())) names.push_back(queue.name);
    return names;
  }
  ErrorCode refusal(const auto& answer) { return answer ? ErrorCode::internal : answer.error().code; }
};

TEST_F(QueuesTest, a_change_of_a_queue_that_there_is_not_makes_none) {
  EXPECT_EQ(refusal(store_.change_queue("defualt", {.attempts_max = 3})), ErrorCode::unknown_queue);
  EXPECT_EQ(refusal(store_.pause("defualt")), ErrorCode::unknown_queue);
  EXPECT_EQ(refusal(store_.resume("defualt")), ErrorCode::unknown_queue);
  EXPECT_THAT(names(), Not(Contains("defualt")));

  must(store_.change_queue("default", {.attempts_max = 3}));
  EXPECT_EQ(must(store_.queues()).at(0).attempts_max, 3);
}

TEST_F(QueuesTest, a_queue_with_live_jobs_is_not_deleted_and_says_how_many) {
  must(store_.set_queue("mail", {.backoff_base = std::chrono::hours{1}}));
  enqueue_many(2, {.queue = "mail"});
  enqueue({.queue = "mail", .delay = std::chrono::hours{1}});
  settle(claim_one("A", "mail").lease, Outcome::bury("no"));
  claim_one("B", "mail");

  const QueueDeletion refused = must(store_.delete_queue("mail"));

  EXPECT_EQ(refused.status, QueueDeletion::Status::has_jobs);
  EXPECT_EQ(refused.live, 3) << "one is dead, one runs, one is scheduled";
  EXPECT_THAT(names(), Contains("mail"));
  enqueue({.queue = "mail"});
}

TEST_F(QueuesTest, a_deleted_queue_is_gone_and_its_finished_jobs_are_kept_until_their_time) {
  must(store_.set_queue("mail", {.retention = std::chrono::hours{1}}));
  const JobId id = enqueue({.queue = "mail", .idempotency_key = "k"});
  complete(claim_one("A", "mail").lease);

  EXPECT_EQ(must(store_.delete_queue("mail")).status, QueueDeletion::Status::deleted);
  EXPECT_EQ(must(store_.delete_queue("mail")).status, QueueDeletion::Status::deleted) << "sent again";

  EXPECT_THAT(names(), Not(Contains("mail")));
  EXPECT_THAT(must(store_.counts("mail")), IsEmpty());
  EXPECT_EQ(refusal(store_.enqueue({.queue = "mail", .kind = "k"})), ErrorCode::unknown_queue);
  EXPECT_EQ(refusal(store_.change_queue("mail", {.paused = true})), ErrorCode::unknown_queue);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
  advance(std::chrono::hours{48});
  must(store_.prune());
  EXPECT_FALSE(must(store_.job(id)));
  EXPECT_EQ(must(store_.delete_queue("never")).status, QueueDeletion::Status::not_found);
}

TEST_F(QueuesTest, a_queue_that_is_made_anew_begins_with_the_defaults) {
  must(store_.set_queue("mail", {.paused = true, .attempts_max = 3}));
  must(store_.delete_queue("mail"));

  must(store_.set_queue("mail", {.lease_ttl = std::chrono::minutes{1}}));

  const std::vector<Queue> queues = must(store_.queues());
  const auto mail = std::ranges::find(queues, "mail", &Queue::name);
  ASSERT_NE(mail, queues.end());
  EXPECT_FALSE(mail->paused);
  EXPECT_EQ(mail->attempts_max, 20);
  enqueue({.queue = "mail"});
}

TEST_F(QueuesTest, what_a_producers_open_transaction_adds_after_all_is_seen_and_can_be_worked) {
  must(store_.set_queue("mail", {}));
  auto producer = database_.connect();
  must(producer.exec_script("BEGIN; SELECT faultline.enqueue('mail', 'k', '1')", soon()));

  EXPECT_EQ(must(store_.delete_queue("mail")).status, QueueDeletion::Status::deleted);
  must(producer.exec_script("COMMIT", soon()));

  const std::vector<Queue> queues = must(store_.queues());
  const auto mail = std::ranges::find(queues, "mail", &Queue::name);
  ASSERT_NE(mail, queues.end()) << "it has a job, and so it is seen";
  EXPECT_TRUE(mail->deleted_at);
  EXPECT_EQ(must(store_.counts("mail")).at(0).available, 1);
  EXPECT_EQ(refusal(store_.enqueue({.queue = "mail", .kind = "k"})), ErrorCode::unknown_queue);
  complete(claim_one("A", "mail").lease);
  EXPECT_THAT(names(), Not(Contains("mail")));
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

}  // namespace
}  // namespace faultline::testing

// `faultline queues`.

#include "job_fixture.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class QueuesCommandTest : public JobCommandTest {};

TEST_F(QueuesCommandTest, a_queue_is_made_changed_and_listed) {
  const auto made = run_json({"queues",
                              "set",
                              "mails",
                              "--create",
                              "--running-max",
                              "5",
                              "--ttl",
                              "1m",
                              "--attempts",
                              "3",
                              "--backoff-base",
                              "2s",
                              "--backoff-max",
                              "10m",
                              "--retention",
                              "2d",
                              "--key-retention",
                              "1h",
                              "--dead-retention",
                              "30d"});
  EXPECT_EQ(made.at("name"), "mails");
  EXPECT_EQ(made.at("running_max"), 5);
  EXPECT_EQ(made.at("lease_ttl_ms"), 60'000);
  EXPECT_EQ(made.at("attempts_max"), 3);
  EXPECT_EQ(made.at("backoff_base_ms"), 2'000);
  EXPECT_EQ(made.at("backoff_max_ms"), 600'000);
  EXPECT_EQ(made.at("retention_ms"), 172'800'000);
  EXPECT_EQ(made.at("key_retention_ms"), 3'600'000);
  EXPECT_EQ(made.at("dead_retention_ms"), 2'592'000'000);

  const auto changed = run_json({"queues", "set", "mails", "--running-max", "none"});
  EXPECT_FALSE(changed.contains("running_max"));
  EXPECT_EQ(changed.at("attempts_max"), 3);

  enqueue({.queue = "mails"});
  const auto listed = run({"queues", "list"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr("default"), HasSubstr("mails"), HasSubstr("2s to 10m")));
  const auto queues = run_json({"queues", "list"}).at("queues");
  ASSERT_EQ(queues.size(), 2U);
  EXPECT_EQ(queues.at(1).at("available"), 1);
}

TEST_F(QueuesCommandTest, nothing_is_claimed_from_a_paused_queue) {
  enqueue();
  EXPECT_EQ(run_json({"queues", "pause", "default"}).at("paused"), true);
  EXPECT_TRUE(claim("A").empty());
  EXPECT_EQ(run_json({"queues", "resume", "default"}).at("paused"), false);
  EXPECT_EQ(claim_one("A").attempt, 1);
}

TEST_F(QueuesCommandTest, a_queue_is_deleted_when_it_has_no_live_jobs_and_says_how_many_it_has) {
  run_json({"queues", "set", "mails", "--create"});
  enqueue_many(2, {.queue = "mails"});
  const auto refused = run_json({"queues", "delete", "mails"}, 1).at("error");
  EXPECT_EQ(refused.at("code"), "has_jobs");
  EXPECT_THAT(refused.at("message").get<std::string>(), HasSubstr("2 live jobs"));
  for (const ClaimedJob& job : claim("A", 2, "mails")) complete(job.lease);

  EXPECT_EQ(run_json({"queues", "delete", "mails"}).at("status"), "deleted");

  EXPECT_THAT(run({"queues", "list"}).out, ::testing::Not(HasSubstr("mails")));
  EXPECT_EQ(run_json({"queues", "delete", "mial"}, 1).at("error").at("code"), "unknown_queue");
}

TEST_F(QueuesCommandTest, jobs_that_wait_for_another_attempt_and_failures_have_columns_of_their_own) {
  enqueue();
  settle(claim_one("A").lease, Outcome::failure("no", std::chrono::hours{1}));

  const auto queue = run_json({"queues", "list"}).at("queues").at(0);
  EXPECT_EQ(queue.at("retrying"), 1);
  EXPECT_EQ(queue.at("scheduled"), 0);
  EXPECT_EQ(queue.at("failures"), 1);
  EXPECT_THAT(run({"queues", "list"}).out, AllOf(HasSubstr("RETRYING"), HasSubstr("FAILURES")));
}

TEST_F(QueuesCommandTest, what_cannot_be_done_says_what_can) {
  for (const std::string verb : {"pause", "resume", "set"}) {
    const auto error = run_json({"queues", verb, "nowhere"}, 1).at("error");
    EXPECT_EQ(error.at("code"), "unknown_queue");
    EXPECT_THAT(error.at("hint").get<std::string>(), HasSubstr("queues set"));
  }
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"queues"},
                                             {"queues", "set"},
                                             {"queues", "set", "q", "--running-max", "few"},
                                             {"queues", "set", "q", "--ttl", "30"},
                                             {"queues", "set", "q", "--ttl", "1ms"},
                                             {"queues", "set", "q", "--attempts", "0"}}) {
    EXPECT_EQ(run(arguments).exit_code, 2) << ::testing::PrintToString(arguments);
  }
  EXPECT_EQ(run_json({"queues", "list"}).at("queues").size(), 1U);
}

}  // namespace
}  // namespace faultline::testing

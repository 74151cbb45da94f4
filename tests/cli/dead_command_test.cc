// `faultline dead`: the dead letters, and what an operator does about them.

#include "job_fixture.h"
#include "store/invariants.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class DeadCommandTest : public JobCommandTest {};

TEST_F(DeadCommandTest, dead_jobs_are_listed_with_their_errors_and_requeued) {
  const JobId dead = dead_job({.kind = "mail"});
  const JobId alive = enqueue({.kind = "mail"});

  const auto listed = run({"dead", "list"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr(dead.to_string()), HasSubstr("no such address"),
                                Not(HasSubstr(alive.to_string()))));

  EXPECT_EQ(run_json({"dead", "requeue", alive.to_string()}, 1).at("error").at("code"), "not_dead");
  EXPECT_EQ(run_json({"dead", "requeue", dead.to_string()}).at("changed"), 1);
  EXPECT_EQ(job(dead).state, JobState::available);
  EXPECT_EQ(history(dead).attempts.back().worker, "joe");
}

TEST_F(DeadCommandTest, a_purged_job_is_gone_for_good_and_the_ledger_says_who_did_it) {
  const JobId id = dead_job({.kind = "mail", .payload = R"("secret")", .idempotency_key = "k"});

  EXPECT_EQ(run_json({"dead", "purge", id.to_string()}).at("items").at(0).at("status"), "purged");

  EXPECT_THAT(run_json({"dead", "list"}).at("jobs"), IsEmpty());
  const JobHistory after = history(id);
  EXPECT_EQ(after.attempts.back().outcome, "purged");
  EXPECT_EQ(after.attempts.back().worker, "joe");
  EXPECT_EQ(after.attempts.back().token, FenceToken{2});
  EXPECT_EQ(after.attempts.front().outcome, "buried");
  EXPECT_EQ(after.job.payload, "null");
  EXPECT_THAT(run({"jobs", "show", id.to_string()}).out, HasSubstr("purged by joe"));
  EXPECT_EQ(requeue(id), RequeueStatus::not_found);
  EXPECT_EQ(run_json({"dead", "purge", id.to_string()}, 1).at("error").at("code"), "not_dead");
  EXPECT_EQ(counts().dead, 0);
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

TEST_F(DeadCommandTest, many_are_purged_by_queue_with_a_yes_and_others_stay) {
  must(store_.set_queue("mails", {}));
  for (int i = 0; i < 3; ++i) dead_job({.queue = "mails"});
  const JobId other = dead_job();

  EXPECT_EQ(run({"dead", "purge", "--queue", "mails"}).exit_code, 2);
  EXPECT_EQ(run_json({"dead", "purge", "--queue", "mails", "--dry-run"}).at("matched"), 3);
  EXPECT_EQ(counts("mails").dead, 3);
  EXPECT_EQ(run_json({"dead", "purge", "--queue", "mails", "--yes"}).at("changed"), 3);
  EXPECT_EQ(counts("mails").dead, 0);
  EXPECT_EQ(job(other).state, JobState::dead);
  EXPECT_EQ(run_json({"dead", "requeue", "--all"}).at("changed"), 1);
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"dead"}, {"dead", "purge"}, {"dead", "purge", "--all", "--queue", "q"}})
    EXPECT_EQ(run(arguments).exit_code, 2) << ::testing::PrintToString(arguments);
}

TEST_F(DeadCommandTest, some_of_many_are_chosen_by_error_tag_and_time_and_shown_before_anything_is_done) {
  const auto die = [&](NewJob job, std::string error) {
    const JobId id = enqueue(std::move(job));
    settle(claim_one("A").lease, Outcome::bury(std::move(error)));
    return id;
  };
  const JobId old = die({.tags = {"eu"}}, "connection refused by mail.example");
  advance(std::chrono::hours{3});
  const JobId refused = die({.tags = {"eu"}}, "connection refused by mail.example");
  const JobId other = die({.tags = {"us"}}, "no such address");

  const auto shown = run({"dead", "requeue", "--error", "refused", "--dry-run"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr(old.to_string()), HasSubstr(refused.to_string()),
                               HasSubstr("connection refused"), HasSubstr("2 jobs match"),
                               HasSubstr("Nothing was changed"), Not(HasSubstr(other.to_string()))));
  EXPECT_EQ(counts().dead, 3);
  EXPECT_EQ(run_json({"dead", "requeue", "--tag", "us", "--dry-run"}).at("matched"), 1);
  EXPECT_EQ(run_json({"dead", "requeue", "--until", "2h", "--dry-run"}).at("matched"), 1);
  EXPECT_EQ(run_json({"dead", "requeue", "--all", "--limit", "2", "--dry-run"}).at("matched"), 2);

  EXPECT_EQ(run_json({"dead", "requeue", "--error", "refused", "--since", "2h"}).at("changed"), 1);
  EXPECT_EQ(job(refused).state, JobState::available);
  EXPECT_EQ(run_json({"dead", "purge", "--tag", "eu"}).at("changed"), 1);
  EXPECT_EQ(job(old).state, JobState::cancelled);
  EXPECT_EQ(job(other).state, JobState::dead);
  for (const auto& wrong : std::vector<std::vector<std::string>>{{"dead", "purge", "--since", "yesterday"},
                                                                 {"dead", "purge", "--limit", "2"},
                                                                 {"dead", "purge", "--all", "--tag", "eu"}})
    EXPECT_EQ(run(wrong).exit_code, 2) << ::testing::PrintToString(wrong);
}

TEST_F(DeadCommandTest, only_dead_jobs_are_purged) {
  const JobId waiting = enqueue();
  const JobId ended = enqueue();
  complete(claim_one("A").lease);
  const JobId running = claim_one("A").lease.job;
  const JobId dead = dead_job();
  const JobId none{Uuid::random()};
  const std::vector<JobId> ids{waiting, ended, running, dead, dead, none};

  const auto statuses = must(store_.purge_dead(ids, "operator"));

  using enum PurgeStatus;
  EXPECT_EQ(statuses, (std::vector{not_dead, not_dead, not_dead, purged, purged, not_found}));
  EXPECT_EQ(must(store_.purge_dead(ids, "operator"))[3], not_dead);
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

}  // namespace
}  // namespace faultline::testing

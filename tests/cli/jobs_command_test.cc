// `faultline jobs`: as a person and a script use it.

#include "job_fixture.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class JobsCommandTest : public JobCommandTest {};

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4U];
    text += kDigits[static_cast<unsigned char>(c) & 0xFU];
  }
  return text;
}

const std::string kNoJob = "01900000-0000-7000-8000-000000000000";

TEST_F(JobsCommandTest, the_list_is_filtered_and_comes_in_pages) {
  must(store_.set_queue("mails", {}));
  std::vector<JobId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(enqueue({.queue = "mails", .kind = "welcome"}));
  enqueue({.kind = "other"});

  const auto page = run({"jobs", "list", "--queue", "mails", "--kind", "welcome", "--limit", "2"});
  EXPECT_EQ(page.exit_code, 0) << page.err;
  EXPECT_THAT(page.out, AllOf(HasSubstr(ids[2].to_string()), HasSubstr("--before " + ids[1].to_string()),
                              Not(HasSubstr(ids[0].to_string())), Not(HasSubstr("other"))));
  EXPECT_THAT(run({"jobs", "list", "--queue", "mails", "--before", ids[1].to_string()}).out,
              AllOf(HasSubstr(ids[0].to_string()), Not(HasSubstr(ids[1].to_string()))));

  const auto json = run_json({"jobs", "list", "--queue", "mails", "--limit", "2"});
  EXPECT_EQ(json.at("jobs").at(0).at("id"), ids[2].to_string());
  const auto next = run_json({"jobs", "list", "--queue", "mails", "--before", json.at("next_cursor")});
  ASSERT_EQ(next.at("jobs").size(), 1U);
  EXPECT_EQ(next.at("jobs").at(0).at("id"), ids[0].to_string());
  EXPECT_THAT(run({"jobs", "list", "--state", "dead"}).out, HasSubstr("no such jobs"));
}

TEST_F(JobsCommandTest, names_that_play_tricks_with_a_terminal_do_not_reach_it) {
  // Clears the screen, by ESC and by the one character that means the same; turns the direction of writing.
  const std::vector<std::string> tricks{"\x1b[2J", "\u009b2J", "\u202e"};
  std::string worker = "evil";
  for (const std::string& trick : tricks) worker += trick;
  const JobId id = enqueue();
  must(store_.enqueue(NewJob{.kind = "other"}));
  const Lease lease = claim_one("w").lease;
  script("UPDATE faultline.jobs SET worker = convert_from('\\x" + hex_of(worker) +
         "', 'UTF8') WHERE state = 'running'");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"jobs", "list"},
                                                  {"jobs", "show", id.to_string()},
                                                  {"top", "--once"},
                                                  {"jobs", "list", "--json"},
                                                  {"jobs", "show", id.to_string(), "--json"}}) {
    const auto result = run(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("evil")) << command.back();
    for (const std::string& trick : tricks) EXPECT_THAT(result.out, Not(HasSubstr(trick))) << command.back();
  }
}

TEST_F(JobsCommandTest, a_listing_goes_on_by_itself_where_a_page_of_the_store_ends_early) {
  const JobId rare = enqueue({.kind = "rare"});
  advance(ms{1});
  for (int i = 0; i < 6; ++i) enqueue_many(1'000);
  ASSERT_TRUE(must(store_.list({.kind = "rare"})).jobs.empty());

  const auto found = run_json({"jobs", "list", "--kind", "rare"});

  ASSERT_EQ(found.at("jobs").size(), 1U);
  EXPECT_EQ(found.at("jobs").at(0).at("id"), rare.to_string());
  EXPECT_FALSE(found.contains("next_cursor"));
  EXPECT_EQ(found.at("looked_at"), 6'001);
  EXPECT_EQ(run_json({"jobs", "cancel", "--kind", "rare", "--yes"}).at("changed"), 1);
}

TEST_F(JobsCommandTest, a_lease_race_is_shown_with_the_write_that_bounced_off) {
  const JobId id = enqueue({.kind = "charge", .payload = R"({"cents":12345678901234567890})"});
  const Lease late = claim_one("worker-a").lease;
  advance(kTtl);
  ASSERT_EQ(sweep().size(), 1U);
  advance(std::chrono::minutes{10});
  const Lease good = claim_one("worker-b").lease;
  ASSERT_TRUE(settle(good, Outcome::success(R"("paid")")).committed());
  ASSERT_FALSE(settle(late, Outcome::success(R"("paid twice")")).committed());

  const auto shown = run({"jobs", "show", id.to_string()});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("charge"), HasSubstr("╳"), HasSubstr("expired after 30 s"),
                    HasSubstr("worker-b"), HasSubstr("↩┃  complete bounced: 1 < 2, token_mismatch"),
                    HasSubstr(R"("paid")"), Not(HasSubstr("paid twice"))));
  const auto ascii = run({"jobs", "show", id.to_string(), "--ascii", "--width", "60"});
  EXPECT_TRUE(std::ranges::all_of(ascii.out, [](char c) { return static_cast<unsigned char>(c) < 0x80U; }))
      << ascii.out;

  const auto raw = run({"jobs", "show", id.to_string(), "--json"});
  EXPECT_THAT(raw.out, HasSubstr(R"("payload":{"cents":12345678901234567890})"));
  const auto json = one_object(raw.out);
  EXPECT_EQ(json.at("job").at("state"), "succeeded");
  EXPECT_EQ(json.at("attempts").size(), 2U);
  EXPECT_EQ(json.at("stale_writes").at(0).at("reason"), "token_mismatch");
}

TEST_F(JobsCommandTest, an_id_that_is_unknown_or_not_whole_is_refused_with_what_to_do) {
  for (const std::string verb : {"show", "cancel", "requeue", "wait"}) {
    const auto error = run_json({"jobs", verb, kNoJob}, 1).at("error");
    EXPECT_EQ(error.at("code"), "unknown_job") << verb;
    EXPECT_THAT(error.at("hint").get<std::string>(), HasSubstr("jobs list"));
    const auto part = run({"jobs", verb, kNoJob.substr(0, 8)});
    EXPECT_EQ(part.exit_code, 2) << verb;
    EXPECT_THAT(part.err, HasSubstr("whole id"));
  }
}

TEST_F(JobsCommandTest, a_job_is_cancelled_and_requeued_in_the_operators_name) {
  const std::string id = enqueue().to_string();

  const auto cancelled = run_json({"jobs", "cancel", id, "--reason", "not wanted"});
  EXPECT_EQ(cancelled.at("items").at(0).at("status"), "cancelled");
  EXPECT_EQ(run_json({"jobs", "cancel", id}, 1).at("items").at(0).at("status"), "finished");
  EXPECT_EQ(run_json({"jobs", "requeue", id, "--as", "jane"}).at("changed"), 1);
  EXPECT_EQ(run_json({"jobs", "requeue", id}, 1).at("items").at(0).at("status"), "live");

  const auto attempts = run_json({"jobs", "show", id}).at("attempts");
  EXPECT_EQ(attempts.at(0).at("worker"), "joe");
  EXPECT_EQ(attempts.at(0).at("error"), "not wanted");
  EXPECT_EQ(attempts.at(1).at("worker"), "jane");
}

TEST_F(JobsCommandTest, more_than_one_job_needs_a_yes) {
  const auto ids = enqueue_many(1'201);
  const std::vector<std::vector<std::string>> bold{{"jobs", "cancel", ids[0].to_string(), ids[1].to_string()},
                                                   {"jobs", "cancel", "--queue", "default"}};
  for (const auto& arguments : bold) {
    const auto refused = run(arguments);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("nothing was changed"), HasSubstr("--yes")));
  }
  EXPECT_EQ(run_json({"jobs", "cancel", "--queue", "default", "--dry-run"}).at("matched"), 1'201);
  EXPECT_EQ(counts().available, 1'201);

  const auto done = run_json({"jobs", "cancel", "--queue", "default", "--kind", "test", "--yes"});
  EXPECT_EQ(done.at("matched"), 1'201);
  EXPECT_EQ(done.at("changed"), 1'201);
  EXPECT_EQ(counts().cancelled, 1'201);
  EXPECT_EQ(run_json({"jobs", "requeue", "--state", "cancelled", "--yes"}).at("changed"), 1'201);
  EXPECT_EQ(counts().available, 1'201);
}

TEST_F(JobsCommandTest, wrong_selections_are_wrong_usage) {
  const std::vector<std::vector<std::string>> wrong{{"jobs"},
                                                    {"jobs", "cancel"},
                                                    {"jobs", "cancel", kNoJob, "--queue", "default"},
                                                    {"jobs", "requeue", kNoJob, "--dry-run"},
                                                    {"jobs", "list", "--state", "asleep"},
                                                    {"jobs", "list", "--limit", "0"},
                                                    {"jobs", "list", "--before", "x"},
                                                    {"jobs", "wait", kNoJob, "--timeout", "soon"}};
  for (const auto& arguments : wrong) {
    const auto result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(arguments) << result.err;
    EXPECT_THAT(result.err, HasSubstr("\n  hint: "));
    EXPECT_THAT(result.out, IsEmpty());
  }
}

TEST_F(JobsCommandTest, wait_ends_when_the_jobs_do_and_says_how_they_ended) {
  const JobId good = enqueue();
  const ClaimedJob claimed = claim_one("A");
  ChildProcess waiting{program({"jobs", "wait", good.to_string()})};
  ASSERT_TRUE(settle(claimed.lease, Outcome::success(R"({"sent":3})")).committed());
  const auto waited = waiting.wait();
  EXPECT_EQ(waited.exit_code, 0) << waited.err;
  EXPECT_THAT(waited.out, AllOf(HasSubstr("succeeded"), HasSubstr(R"({"sent":3})")));

  const JobId bad = dead_job();
  const auto mixed = run({"jobs", "wait", good.to_string(), bad.to_string()});
  EXPECT_EQ(mixed.exit_code, 1);
  EXPECT_THAT(mixed.out, AllOf(HasSubstr("succeeded"), HasSubstr("dead"), HasSubstr("no such address")));

  const JobId idle = enqueue();
  const auto error = run_json({"jobs", "wait", idle.to_string(), "--timeout", "10ms"}, 1).at("error");
  EXPECT_EQ(error.at("code"), "timeout");
}

}  // namespace
}  // namespace faultline::testing

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

TEST_F(JobsCommandTest, an_id_that_is_unknown_or_none_is_refused_with_what_to_do) {
  for (const std::string verb : {"show", "cancel", "requeue", "wait"}) {
    for (const std::string& id : {kNoJob, kNoJob.substr(0, 8)}) {
      const auto error = run_json({"jobs", verb, id}, 1).at("error");
      EXPECT_EQ(error.at("code"), "unknown_job") << verb;
      EXPECT_THAT(error.at("hint").get<std::string>(), HasSubstr("jobs list"));
    }
    for (const std::string none : {"01900", "mails", "019000000000"}) {
      const auto refused = run({"jobs", verb, none});
      EXPECT_EQ(refused.exit_code, 2) << verb << " " << none;
      EXPECT_THAT(refused.err, HasSubstr("first characters"));
    }
  }
}

TEST_F(JobsCommandTest, the_first_characters_of_an_id_are_enough_when_they_name_one_job) {
  const JobId live = enqueue();
  complete(claim_one("A").lease);
  const JobId other = enqueue();
  // Ids begin with the time, and those of one moment differ in their last characters alone.
  std::string a = live.to_string(), b = other.to_string();
  std::size_t same = 0;
  while (a[same] == b[same]) ++same;

  EXPECT_EQ(run_json({"jobs", "show", a.substr(0, same + 1)}).at("job").at("id"), a);
  EXPECT_EQ(run_json({"jobs", "cancel", b.substr(0, same + 1)}).at("changed"), 1);
  std::ranges::transform(a, a.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  EXPECT_EQ(run_json({"jobs", "show", a.substr(0, same + 1)}).at("job").at("id"), live.to_string());

  ASSERT_GE(same, 6U);
  const auto several = run_json({"jobs", "show", b.substr(0, same)}, 1).at("error");
  EXPECT_EQ(several.at("code"), "several_jobs");
  EXPECT_THAT(several.at("message").get<std::string>(),
              AllOf(HasSubstr(live.to_string()), HasSubstr(other.to_string())));
}

TEST_F(JobsCommandTest,
       what_failed_is_listed_with_its_next_run_and_why_and_shown_with_the_times_of_each_attempt) {
  const JobId id = enqueue();
  settle(claim_one("A").lease, Outcome::failure("no such address", std::chrono::hours{1}));

  const Job failed = job(id);
  EXPECT_THAT(run({"jobs", "list"}).out, AllOf(HasSubstr("NEXT RUN"), HasSubstr(to_string(failed.run_at)),
                                               HasSubstr("no such address")));
  const Attempt attempt = history(id).attempts.at(0);
  EXPECT_THAT(run({"jobs", "show", id.to_string()}).out,
              AllOf(HasSubstr("attempts and acts"), HasSubstr(to_string(attempt.started_at.value())),
                    HasSubstr(to_string(attempt.ended_at)), HasSubstr("no such address")));
}

TEST_F(JobsCommandTest, a_person_says_what_became_of_an_effect_that_nobody_recorded) {
  const auto unknown = [&] {
    enqueue();
    const Lease lease = claim_one("A").lease;
    const EffectKey key{.lease = lease, .key = "charge"};
    must(store_.begin_effects({&key, 1}));
    settle(lease, Outcome::bury("unknown"));
    return lease.job;
  };
  const JobId done = unknown();
  const JobId not_done = unknown();
  const std::string id = done.to_string();
  EXPECT_THAT(run({"jobs", "show", id}).out, HasSubstr("it may have happened; see `jobs decide`"));

  const auto said =
      run({"jobs", "decide", id, "charge", "--happened", "--result", "receipt", "--reason", "seen"});
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("faultline jobs requeue " + id));
  EXPECT_EQ(history(done).effects.at(0).result, "receipt");
  EXPECT_EQ(history(done).decisions.at(0).decided_by, "joe");
  EXPECT_THAT(run({"jobs", "show", id}).out, AllOf(HasSubstr("happened, says joe"), HasSubstr("seen")));
  EXPECT_EQ(run_json({"jobs", "decide", id, "charge", "--did-not-happen", "--reason", "r"}, 1)
                .at("error")
                .at("code"),
            "decided_otherwise");
  EXPECT_EQ(
      run_json({"jobs", "decide", id, "other", "--happened", "--reason", "r"}, 1).at("error").at("code"),
      "unknown_effect");

  run_json({"jobs", "decide", not_done.to_string(), "charge", "--did-not-happen", "--reason", "r", "--as",
            "jane"});
  EXPECT_FALSE(history(not_done).decisions.at(0).happened);
  EXPECT_EQ(history(not_done).decisions.at(0).decided_by, "jane");

  for (const auto& wrong : std::vector<std::vector<std::string>>{
           {"jobs", "decide", id, "charge", "--reason", "r"},
           {"jobs", "decide", id, "charge", "--happened"},
           {"jobs", "decide", id, "charge", "--happened", "--did-not-happen", "--reason", "r"},
           {"jobs", "decide", id, "charge", "--did-not-happen", "--result", "x", "--reason", "r"}})
    EXPECT_EQ(run(wrong).exit_code, 2) << ::testing::PrintToString(wrong);
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

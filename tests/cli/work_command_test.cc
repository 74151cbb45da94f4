// `faultline work`: a program per job.

#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "faultline/store.h"
#include "program.h"
#include "server/serve_process.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ms = std::chrono::milliseconds;

/// Whether there is such a process, and it is not just waiting to be collected.
bool is_alive(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string stat{std::istreambuf_iterator<char>{file}, {}};
  const auto name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.substr(name_end + 2, 1) != "Z";
}

class WorkCommandTest : public ::testing::Test {
 protected:
  WorkCommandTest() : store_(must(Store::open({.database = database_.dsn()}))) {
    // What has failed is not tried again while a test looks at it.
    constexpr std::chrono::hours kLong{24};
    must(store_.set_queue("default", {.backoff_base = kLong, .backoff_max = kLong}));
  }

  JobId enqueue(NewJob job = {}) {
    if (job.kind.empty()) job.kind = "test";
    return must(store_.enqueue(job)).job;
  }
  Job job(JobId id) { return must(store_.job(id)).value(); }
  JobHistory history(JobId id) { return must(store_.history(id)).value(); }
  std::vector<std::string> outcomes(JobId id) {
    std::vector<std::string> outcomes;
    for (const Attempt& attempt : history(id).attempts) outcomes.push_back(attempt.outcome);
    return outcomes;
  }

  /// `work default` with these options, and a script of sh as its program.
  [[nodiscard]] ProcessOptions worker(std::vector<std::string> options, const std::string& script) const {
    std::vector<std::string> words{"work", "default", "--database", database_.dsn()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--exec", "sh", "-c", script, "--", "--json"});
    return faultline_program(std::move(words));
  }
  /// Works until there is nothing more to do.
  ProcessResult work(const std::string& script, std::vector<std::string> options = {}) const {
    options.emplace_back("--until-empty");
    return run_process(worker(std::move(options), script));
  }

  [[nodiscard]] std::string file(std::string_view name) const { return scratch_ / name; }
  [[nodiscard]] bool appears(const std::string& path) const {
    return eventually([&] { return std::filesystem::exists(path); });
  }
  /// Ends the lease of a running job, as if it had run out.
  void expire(JobId id) {
    auto sql = database_.connect();
    must(sql.exec_script(
        "UPDATE faultline.jobs SET lease_expires_at = faultline.clock() - interval '1 second' WHERE id = '" +
            id.to_string() +
            "';"
            "UPDATE faultline.grants SET check_at = faultline.clock() - interval '1 second'",
        soon()));
    must(store_.expire_leases());
  }

  const TestDatabase database_;
  const ScratchDir scratch_;
  Store store_;
};

TEST_F(WorkCommandTest, a_program_gets_the_payload_and_who_it_works_for_and_gives_the_result) {
  const JobId id = enqueue({.kind = "greet", .payload = R"({"to": "you"})", .run_max = ms{60'000}});
  const auto result = work(
      R"sh(printf '{"payload": %s, "id": "%s", "token": %s, "attempt": %s, "of": "%s/%s", ' \
             "$(cat)" $FAULTLINE_JOB_ID $FAULTLINE_TOKEN $FAULTLINE_ATTEMPT $FAULTLINE_QUEUE $FAULTLINE_KIND
           printf '"lease": "%s", "deadline": "%s", "last": "%s"}' \
             $FAULTLINE_LEASE_ID $FAULTLINE_DEADLINE "$1")sh");

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(job(id).state, JobState::succeeded) << result.err;
  const auto json = nlohmann::json::parse(job(id).result.value_or(""), nullptr, false);
  ASSERT_TRUE(json.is_object()) << job(id).result.value_or("");
  EXPECT_EQ(json.at("payload"), nlohmann::json::parse(R"({"to": "you"})"));
  EXPECT_EQ(json.at("id"), id.to_string());
  EXPECT_EQ(json.at("token"), 1);
  EXPECT_EQ(json.at("attempt"), 1);
  EXPECT_EQ(json.at("of"), "default/greet");
  pg::Connection sql = database_.connect();
  EXPECT_EQ(json.at("lease"), query_text(sql, "SELECT lease_id::text FROM faultline.ledger"));
  EXPECT_THAT(json.at("deadline").get<std::string>(), EndsWith("Z"));
  EXPECT_EQ(json.at("last"), "--json") << "an option of ours behind --exec is the program's";
}

TEST_F(WorkCommandTest, a_program_gets_the_environment_without_the_keys_and_passwords_of_its_worker) {
  const JobId id = enqueue();
  ProcessOptions options = worker({"--until-empty"}, "cat >/dev/null; env");
  for (const std::string name : {"FAULTLINE_API_KEY", "FAULTLINE_DATABASE_URL", "DATABASE_URL", "PGPASSWORD",
                                 "PGPASSFILE", "OTEL_EXPORTER_OTLP_HEADERS"})
    options.environment.emplace_back(name, name == "DATABASE_URL" ? database_.dsn() : "secret of the worker");
  options.environment.emplace_back("MAIL_RELAY", "mail.example");
  ASSERT_EQ(run_process(options).exit_code, 0);

  const std::string environment = job(id).result.value_or("");
  EXPECT_THAT(environment, AllOf(HasSubstr("MAIL_RELAY=mail.example"), HasSubstr("FAULTLINE_JOB_ID="),
                                 ::testing::Not(HasSubstr("secret of the worker")),
                                 ::testing::Not(HasSubstr("DATABASE_URL"))));
}

TEST_F(WorkCommandTest, a_program_cannot_read_them_in_proc_either) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root, to run the worker as another user, whom the kernel can refuse";
  ServeProcess server{database_.dsn()};
  server.wait_until_ready();
  const JobId id = enqueue();
  ProcessOptions options =
      faultline_program({"work", "default", "--server", server.url(), "--exec", "sh", "-c",
                         "cat >/dev/null; worker=$(sed -n 's/^PPid:.//p' /proc/$PPID/status); cat "
                         "/proc/$PPID/environ /proc/$worker/environ "
                         "| tr '\\0' ' '; echo looked at $worker"});
  // What is built in a home that is closed to others, no other user can run.
  std::filesystem::copy_file(options.argv[0], file("faultline"));
  options.argv[0] = file("faultline");
  options.user = "nobody";
  options.environment.emplace_back("FAULTLINE_API_KEY", "secret of the worker");
  ChildProcess process{options};

  ASSERT_TRUE(eventually([&] {
    return job(id).state != JobState::available && job(id).state != JobState::running;
  })) << process.err();
  EXPECT_THAT(job(id).result.value_or(""), AllOf(HasSubstr("looked at " + std::to_string(process.pid())),
                                                 ::testing::Not(HasSubstr("secret"))));
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 0) << process.err();
}

TEST_F(WorkCommandTest, a_variable_of_the_workers_own_is_handed_on_by_name) {
  const JobId id = enqueue();
  ProcessOptions options = worker({"--until-empty", "--pass-env", "PGPASSWORD"},
                                  "cat >/dev/null; echo \"$PGPASSWORD/$FAULTLINE_API_KEY\"");
  options.environment.emplace_back("PGPASSWORD", "handed on");
  options.environment.emplace_back("FAULTLINE_API_KEY", "not this");
  ASSERT_EQ(run_process(options).exit_code, 0);

  EXPECT_EQ(job(id).result, R"("handed on/")");
}

TEST_F(WorkCommandTest, what_a_program_leaves_in_sessions_of_its_own_ends_with_it_and_nobody_elses_does) {
  const std::string leaves = "setsid sh -c 'echo $$ >" + file("daemon") +
                             "; exec sleep 600' </dev/null >/dev/null 2>&1 & "
                             "(setsid setsid sh -c 'echo $$ >" +
                             file("deep") +
                             "; sleep 600' </dev/null >/dev/null 2>&1 &); "
                             "while [ ! -s " +
                             file("daemon") + " ] || [ ! -s " + file("deep") + " ]; do sleep 0.02; done";
  const JobId first = enqueue({.payload = R"("leaves")"});
  const JobId second = enqueue({.payload = R"("stays")"});
  ChildProcess running{worker({"--concurrency", "2"}, "if [ \"$(cat)\" = '\"leaves\"' ]; then " + leaves +
                                                          "; else setsid sh -c 'echo $$ >" + file("others") +
                                                          "; exec sleep 600' & wait; fi")};
  ASSERT_TRUE(appears(file("others")));
  ASSERT_TRUE(eventually([&] { return job(first).state == JobState::succeeded; })) << running.err();

  EXPECT_FALSE(is_alive(static_cast<pid_t>(std::stoi(read_file(file("daemon"))))));
  EXPECT_FALSE(is_alive(static_cast<pid_t>(std::stoi(read_file(file("deep"))))));
  const auto others = static_cast<pid_t>(std::stoi(read_file(file("others"))));
  EXPECT_TRUE(is_alive(others)) << "that of a program which still runs";
  EXPECT_EQ(job(second).state, JobState::running);

  running.send(SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_alive(others); })) << "it outlives its worker";
}

TEST_F(WorkCommandTest, output_that_is_no_json_is_a_string_and_no_output_is_no_result) {
  const JobId text = enqueue({.payload = R"("two \"words\"\n")"});
  ASSERT_EQ(work("cat > /dev/null; echo 'it is \"done\"'").exit_code, 0);
  const JobId none = enqueue();
  ASSERT_EQ(work("true").exit_code, 0);

  EXPECT_EQ(job(text).result, R"("it is \"done\"")");
  EXPECT_EQ(job(none).state, JobState::succeeded);
  EXPECT_EQ(job(none).result, std::nullopt);
}

TEST_F(WorkCommandTest, bytes_arrive_as_they_were_and_large_ones_too) {
  std::string payload;
  for (int i = 0; i < 1'000'000; ++i) payload += static_cast<char>(i * 7);
  const JobId id = enqueue({.payload = payload, .encoding = Encoding::bytes});
  const JobId unread = enqueue({.payload = payload, .encoding = Encoding::bytes, .tags = {"unread"}});

  ASSERT_EQ(work("[ $FAULTLINE_JOB_ID = " + unread.to_string() + " ] || cat > " + file("payload")).exit_code,
            0);

  EXPECT_EQ(read_file(file("payload")), payload);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_EQ(job(unread).state, JobState::succeeded);
}

TEST_F(WorkCommandTest, exit_codes_mean_retry_bury_and_snooze) {
  const auto payload = [](const char* text) { return NewJob{.payload = text}; };
  const JobId fails = enqueue(payload("3"));
  const JobId signalled = enqueue(payload("200"));
  const JobId buried = enqueue(payload("65"));
  const JobId snoozed = enqueue(payload("99"));

  const auto result =
      work("read code; [ $code != 200 ] || kill -SEGV $$; echo first >&2; echo last >&2; exit $code",
           {"--snooze", "1h", "--concurrency", "3"});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(job(fails).state, JobState::scheduled);
  EXPECT_EQ(job(fails).attempt, 1);
  EXPECT_EQ(job(fails).last_error, "exit code 3: first\nlast");
  EXPECT_EQ(job(signalled).state, JobState::scheduled);
  EXPECT_THAT(job(signalled).last_error.value_or(""), HasSubstr("killed by SIGSEGV"));
  EXPECT_EQ(job(buried).state, JobState::dead);
  EXPECT_EQ(job(buried).last_error, "exit code 65: first\nlast");
  EXPECT_EQ(job(snoozed).state, JobState::scheduled);
  EXPECT_EQ(job(snoozed).attempt, 0) << "a snooze does not count";
  EXPECT_GT(job(snoozed).run_at - job(snoozed).created_at, std::chrono::minutes{59});
  EXPECT_THAT(result.err, AllOf(HasSubstr("message=first"), HasSubstr("message=last")));
}

TEST_F(WorkCommandTest, what_exit_codes_mean_can_be_chosen) {
  const JobId retried = enqueue({.payload = "65"});
  const JobId buried = enqueue({.payload = "7"});
  const JobId snoozed = enqueue({.payload = "75"});
  ASSERT_EQ(
      work("read code; exit $code", {"--bury-on", "6,7", "--snooze-on", "75", "--retry-on", "65"}).exit_code,
      0);

  EXPECT_THAT(outcomes(retried), ElementsAre("failed"));
  EXPECT_THAT(outcomes(buried), ElementsAre("buried"));
  EXPECT_THAT(outcomes(snoozed), ElementsAre("snoozed"));
}

TEST_F(WorkCommandTest, output_that_cannot_be_a_result_is_a_failure_that_says_why) {
  const JobId large = enqueue();
  ASSERT_EQ(work("yes").exit_code, 0);
  const JobId binary = enqueue();
  ASSERT_EQ(work("printf '\\377'").exit_code, 0);

  EXPECT_THAT(job(large).last_error.value_or(""), HasSubstr("more than 1048576 bytes"));
  EXPECT_THAT(job(binary).last_error.value_or(""), HasSubstr("not UTF-8"));
}

TEST_F(WorkCommandTest, the_end_of_a_long_error_is_kept) {
  const JobId id = enqueue();
  ASSERT_EQ(work("seq 1 100000 >&2; printf '\\377 end' >&2; exit 1", {"--log-level", "error"}).exit_code, 0);
  EXPECT_THAT(job(id).last_error.value_or(""), EndsWith("\n100000\n\xEF\xBF\xBD end"));
  EXPECT_LT(job(id).last_error.value_or("").size(), 4'200U);
}

TEST_F(WorkCommandTest, a_program_that_cannot_be_run_is_refused_at_the_start) {
  write_file(file("text"), "no program");
  const JobId id = enqueue();
  for (const std::string& program :
       {std::string{"no-such-program"}, file("none"), file("text"), scratch_.path().string()}) {
    const auto result = run_faultline({"work", "default", "--database", database_.dsn(), "--exec", program});
    EXPECT_EQ(result.exit_code, 2) << program;
    EXPECT_THAT(result.err, HasSubstr("cannot run \"" + program + "\""));
  }
  for (const auto& wrong :
       std::vector<std::vector<std::string>>{{"--bury-on", "1", "--snooze-on", "1"},
                                             {"--retry-on", "256"},
                                             {"--kill-after", "soon"},
                                             {"--server", "faultline://localhost:1", "--until-empty"},
                                             {"--concurrency", "0"}}) {
    EXPECT_EQ(run_process(worker(wrong, "true")).exit_code, 2) << wrong.front();
  }
  EXPECT_EQ(run_faultline({"work", "default", "--database", database_.dsn()}).exit_code, 2);
  const auto unknown =
      run_faultline({"work", "no-such-queue", "--database", database_.dsn(), "--exec", "true"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("no-such-queue"));
  EXPECT_EQ(job(id).state, JobState::available);
}

TEST_F(WorkCommandTest, a_program_has_no_open_file_and_no_blocked_signal_of_its_worker) {
  const JobId id = enqueue();
  ASSERT_EQ(work("ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status | tr '\\n' ' '")
                .exit_code,
            0);
  // ls itself has one on the directory.
  EXPECT_THAT(job(id).result.value_or(""),
              AllOf(HasSubstr("\"0 1 2 3 Sig"), HasSubstr("SigBlk:\\t0000000000000000"),
                    HasSubstr("SigIgn:\\t0000000000000000")));
}

TEST_F(WorkCommandTest, what_a_program_leaves_behind_ends_with_it) {
  const JobId id = enqueue();
  // The one that stays has our standard output open.
  ASSERT_EQ(work("sleep 1000 & echo $!").exit_code, 0);
  EXPECT_EQ(job(id).state, JobState::succeeded);
  const pid_t left = std::stoi(job(id).result.value_or("0"));
  EXPECT_TRUE(eventually([&] { return !is_alive(left); }));
}

TEST_F(WorkCommandTest, a_lost_lease_is_sigterm_and_then_sigkill_and_nothing_of_it_counts) {
  const JobId id = enqueue({.lease_ttl = ms{3'000}, .backoff_base = ms{0}});
  const std::string script = "trap 'echo term > " + file("term") + "' TERM; echo $$ > " + file("tmp") +
                             "; mv " + file("tmp") + " " + file("pid") +
                             "; while :; do sleep 0.1; done; echo done";
  ChildProcess stubborn{worker({"--kill-after", "2s", "--name", "slow"}, script)};
  ASSERT_TRUE(appears(file("pid"))) << stubborn.err();
  const pid_t program = std::stoi(read_file(file("pid")));

  expire(id);
  // The worker's only slot is taken as long as the program is not killed.
  const auto claimed = must(store_.claim({.queue = "default", .worker = "rival"}));
  ASSERT_EQ(claimed.size(), 1U);
  const Lease rival = claimed.front().lease;
  static_cast<void>(must(store_.heartbeat({&rival, 1}, ms{60'000})));

  EXPECT_TRUE(appears(file("term"))) << stubborn.err();
  EXPECT_TRUE(eventually([&] { return !is_alive(program); }));
  EXPECT_TRUE(stubborn.running());
  const Settlement settlement{.lease = rival, .outcome = Outcome::success("\"by rival\"")};
  EXPECT_TRUE(must(store_.settle({&settlement, 1})).front().committed());
  stubborn.send(SIGTERM);
  EXPECT_EQ(stubborn.wait().exit_code, 0);
  EXPECT_THAT(outcomes(id), ElementsAre("expired", "succeeded"));
  EXPECT_EQ(job(id).result, "\"by rival\"");
}

TEST_F(WorkCommandTest, a_cancelled_job_ends_its_program) {
  const JobId id = enqueue({.lease_ttl = ms{3'000}});
  ChildProcess process{worker({}, "touch " + file("running") + "; sleep 1000")};
  ASSERT_TRUE(appears(file("running"))) << process.err();
  static_cast<void>(must(store_.cancel({&id, 1}, "operator", "not wanted")));
  EXPECT_TRUE(eventually([&] { return job(id).state == JobState::cancelled; })) << process.err();
}

TEST_F(WorkCommandTest, a_drain_lets_a_program_finish) {
  const JobId id = enqueue();
  ChildProcess process{worker(
      {}, "touch " + file("running") + "; while [ ! -e " + file("go") + " ]; do sleep 0.05; done; echo 1")};
  ASSERT_TRUE(appears(file("running"))) << process.err();
  process.send_to_group(SIGINT);
  ASSERT_TRUE(eventually([&] { return process.err().contains("worker_draining"); }));
  write_file(file("go"), "");
  EXPECT_EQ(process.wait().exit_code, 0);
  EXPECT_EQ(job(id).result, "1");
}

TEST_F(WorkCommandTest, a_second_signal_ends_programs_and_gives_their_jobs_back) {
  const JobId id = enqueue();
  ChildProcess process{worker({}, "touch " + file("running") + "; sleep 1000")};
  ASSERT_TRUE(appears(file("running"))) << process.err();
  process.send(SIGTERM);
  ASSERT_TRUE(eventually([&] { return process.err().contains("worker_draining"); }));
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 0) << process.err();
  EXPECT_EQ(job(id).state, JobState::available);
  EXPECT_THAT(outcomes(id), ElementsAre("released"));
}

TEST_F(WorkCommandTest, programs_die_with_their_worker_and_their_job_is_done_once_by_another) {
  const JobId id = enqueue({.backoff_base = ms{0}});
  ChildProcess dies{worker({}, "sleep 1000 & echo $$ $! > " + file("tmp") + "; mv " + file("tmp") + " " +
                                   file("pids") + "; wait")};
  ASSERT_TRUE(appears(file("pids"))) << dies.err();
  std::istringstream pids{read_file(file("pids"))};
  pid_t program = 0;
  pid_t grandchild = 0;
  pids >> program >> grandchild;
  ASSERT_TRUE(is_alive(program) && is_alive(grandchild));

  dies.send(SIGKILL);

  EXPECT_EQ(dies.wait().signal, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_alive(program) && !is_alive(grandchild); }));
  expire(id);
  const auto second = work("echo $FAULTLINE_TOKEN", {"--name", "second"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(job(id).result, "2");
  EXPECT_THAT(outcomes(id), ElementsAre("expired", "succeeded"));
}

TEST_F(WorkCommandTest, programs_run_at_once_as_far_as_concurrency_allows) {
  for (int i = 0; i < 3; ++i) enqueue();
  // Each waits for the other two.
  const auto result = work("touch " + file("here-") + "$FAULTLINE_JOB_ID; while [ $(ls " +
                               scratch_.path().string() + " | wc -l) -lt 3 ]; do sleep 0.05; done",
                           {"--concurrency", "3", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(one_object(result.out).at("settled"), 3);
}

TEST_F(WorkCommandTest, jobs_come_through_a_server_too) {
  ServeProcess server{database_.dsn()};
  server.wait_until_ready();
  const JobId id = enqueue({.payload = "[1]"});
  ChildProcess process{
      faultline_program({"work", "default", "--server", server.url(), "--exec", "tr", "1", "2"})};
  EXPECT_TRUE(eventually([&] { return job(id).state == JobState::succeeded; })) << process.err();
  EXPECT_EQ(job(id).result, "[2]");
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 0);
}

}  // namespace
}  // namespace faultline::testing

// `faultline enqueue`: one job, and imports that are interrupted.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "base/fields.h"
#include "job_fixture.h"
#include "support/every_option.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EnqueueCommandTest : public JobCommandTest {
 protected:
  std::int64_t jobs() { return number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"); }
  std::string file_of(std::string_view content) {
    const std::string path = scratch_ / "jobs.ndjson";
    write_file(path, content);
    return path;
  }
  static std::string lines(int from, int to) {
    std::string text;
    for (int i = from; i <= to; ++i) text += R"({"kind":"mail","payload":{"n":)" + std::to_string(i) + "}}\n";
    return text;
  }

  ScratchDir scratch_;
};

TEST_F(EnqueueCommandTest, one_job_with_all_options) {
  must(store_.set_queue("mails", {}));
  const auto made = run_json({"enqueue",
                              "welcome",
                              R"({"user":7})",
                              "--queue",
                              "mails",
                              "--priority",
                              "2",
                              "--delay",
                              "1h",
                              "--key",
                              "k",
                              "--attempts",
                              "4",
                              "--ttl",
                              "10s",
                              "--run-max",
                              "5m",
                              "--backoff-base",
                              "1s",
                              "--backoff-max",
                              "1m",
                              "--delivery",
                              "hold",
                              "--tag",
                              "a",
                              "--tag",
                              "b"});
  EXPECT_EQ(made.at("status"), "created");
  const Job made_job = job(JobId{Uuid::parse(made.at("job_id").get<std::string>()).value()});
  EXPECT_EQ(made_job.kind, "welcome");
  EXPECT_EQ(made_job.payload, R"({"user":7})");
  EXPECT_EQ(made_job.state, JobState::scheduled);
  EXPECT_EQ(made_job.priority, 2);
  EXPECT_EQ(made_job.attempts_max, 4);
  EXPECT_EQ(made_job.lease_ttl, ms{10'000});
  EXPECT_EQ(made_job.delivery, Delivery::hold);
  EXPECT_EQ(made_job.tags, (std::vector<std::string>{"a", "b"}));

  const auto again = run({"enqueue", "welcome", R"({"user":7})", "--queue", "mails", "--key", "k"});
  EXPECT_EQ(again.out, made.at("job_id").get<std::string>() + " existing\n");
  const auto conflict = run({"enqueue", "welcome", "8", "--queue", "mails", "--key", "k"});
  EXPECT_EQ(conflict.exit_code, 1);
  EXPECT_THAT(conflict.err, HasSubstr("names another job"));
}

// A flag's value.
std::string flag_text(const std::string& text) { return text; }
std::string flag_text(int number) { return std::to_string(number); }
std::string flag_text(std::chrono::milliseconds duration) { return std::to_string(duration.count()) + "ms"; }
std::string flag_text(DatabaseTime time) { return to_string(time); }
std::string flag_text(Delivery delivery) { return std::string{to_string(delivery)}; }

template <class T>
void add_flag(std::vector<std::string>& arguments, const FieldInfo& field, const T& value) {
  arguments.insert(arguments.end(), {std::string{field.flag}, flag_text(value)});
}
template <class T>
void add_flag(std::vector<std::string>& arguments, const FieldInfo& field, const std::optional<T>& value) {
  if (value) add_flag(arguments, field, *value);
}
void add_flag(std::vector<std::string>& arguments, const FieldInfo& field,
              const std::vector<std::string>& values) {
  for (const std::string& value : values) add_flag(arguments, field, value);
}

TEST_F(EnqueueCommandTest, every_option_of_the_table_is_a_flag) {
  must(store_.set_queue("every_option", {}));
  const NewJob wanted = job_with_every_option();
  write_file(scratch_ / "payload", wanted.payload);
  std::vector<std::string> arguments{"enqueue", wanted.kind, "@" + (scratch_ / "payload").string(),
                                     "--bytes"};
  for_each_field<NewJob>([&]<class T>(const Field<NewJob, T>& field) {
    // These are the arguments above.
    const bool has_no_flag =
        field.name == facts::kKind.name || field.form == Form::payload || field.form == Form::encoding;
    EXPECT_EQ(field.flag.empty(), has_no_flag) << field.name;
    if constexpr (!std::same_as<T, Encoding>) {
      if (!has_no_flag) add_flag(arguments, field, field.of(wanted));
    }
  });

  const auto made = run_json(arguments);

  const std::string id = made.at("job_id");
  EXPECT_EQ(differences(wanted, job(JobId{Uuid::parse(id).value()})), "");
  EXPECT_EQ(differences(wanted, run_json({"jobs", "show", id}).at("job").dump()), "");
}

TEST_F(EnqueueCommandTest, a_flag_s_value_that_cannot_be_is_refused_with_the_flag_s_name) {
  for (const std::vector<std::string>& bad : std::vector<std::vector<std::string>>{
           {"--priority", "high"}, {"--at", "tomorrow"}, {"--ttl", "10"}, {"--delivery", "twice"}}) {
    std::vector<std::string> arguments{"enqueue", "k", "null"};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    const auto refused = run(arguments);
    EXPECT_EQ(refused.exit_code, 2) << bad[0];
    EXPECT_THAT(refused.err, AllOf(HasSubstr(bad[0]), HasSubstr(bad[1])));
  }
}

TEST_F(EnqueueCommandTest, a_payload_comes_from_the_argument_a_file_or_standard_input) {
  write_file(scratch_ / "payload.json", "[1]\n");
  EXPECT_EQ(run({"enqueue", "a", "@" + (scratch_ / "payload.json").string()}).exit_code, 0);
  EXPECT_EQ(run({"enqueue", "b", "-"}, "[2]\n").exit_code, 0);
  EXPECT_EQ(run({"enqueue", "c"}).exit_code, 0);
  EXPECT_EQ(run({"enqueue", "e", "[3,4]"}).exit_code, 0);
  EXPECT_EQ(run({"enqueue", "d", "not json", "--bytes"}).exit_code, 0);
  const auto payload = [&](const std::string& kind) {
    return job(must(store_.list({.kind = kind})).jobs.at(0).id).payload;
  };
  EXPECT_EQ(payload("a"), "[1]");
  EXPECT_EQ(payload("b"), "[2]");
  EXPECT_EQ(payload("c"), "null");
  EXPECT_EQ(payload("e"), "[3,4]");
  EXPECT_EQ(payload("d"), "not json");
}

TEST_F(EnqueueCommandTest, what_is_wrong_with_a_job_is_said_and_nothing_is_added) {
  const std::vector<std::tuple<std::vector<std::string>, int, std::string>> wrong{
      {{"enqueue"}, 2, "KIND"},
      {{"enqueue", "k", "{"}, 1, "not valid JSON"},
      {{"enqueue", "k", "@" + (scratch_ / "none").string()}, 1, "/none"},
      {{"enqueue", "k", "@" + scratch_.path().string()}, 1, scratch_.path()},
      {{"enqueue", "k", "--queue", "nowhere"}, 1, "faultline queues set nowhere --create"},
      {{"enqueue", "k", "--priority", "10"}, 2, "0 to 9 are allowed"},
      {{"enqueue", "k", "--delay", "later"}, 2, "--delay"},
      {{"enqueue", "k", "--at", "noon"}, 2, "2030-01-31T12:00:00Z"},
      {{"enqueue", "k", "--delivery", "twice"}, 2, "at_most_once"},
      {{"enqueue", "k", "--file", "jobs"}, 2, "--file"},
      {{"enqueue", "k", "--skip-bad"}, 2, "--file"},
      {{"enqueue", "--file", scratch_ / "none"}, 1, "/none"},
      {{"enqueue", "--file", scratch_.path()}, 1, scratch_.path()},
  };
  for (const auto& [arguments, code, says] : wrong) {
    const auto result = run(arguments);
    EXPECT_EQ(result.exit_code, code) << ::testing::PrintToString(arguments) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr(says), HasSubstr("\n  hint: ")));
  }
  EXPECT_EQ(jobs(), 0);
}

TEST_F(EnqueueCommandTest, an_import_that_is_killed_and_run_again_adds_every_job_once) {
  const std::string pipe = scratch_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::vector<std::string> import{"enqueue", "--import-id", "monday", "--file"};
  auto from_pipe = import;
  from_pipe.push_back(pipe);
  ChildProcess first{program(from_pipe)};
  // Open, so that the import waits for more when it is killed.
  const int writer = ::open(pipe.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(writer, 0);
  const std::string half = lines(1, 1'500);
  ASSERT_EQ(::write(writer, half.data(), half.size()), static_cast<ssize_t>(half.size()));
  ASSERT_TRUE(eventually([&] { return jobs() == 1'000; })) << first.err();
  first.send(SIGKILL);
  EXPECT_EQ(first.wait().signal, SIGKILL);
  ::close(writer);
  ASSERT_EQ(jobs(), 1'000);

  auto from_file = import;
  from_file.push_back(file_of(lines(1, 5'000)));
  const auto second = run_json(from_file);

  EXPECT_EQ(second.at("existing"), 1'000);
  EXPECT_EQ(second.at("created"), 4'000);
  EXPECT_EQ(jobs(), 5'000);
  EXPECT_EQ(number("SELECT count(DISTINCT payload) FROM faultline.jobs WHERE queue <> ''"), 5'000);
  EXPECT_EQ(run_json(from_file).at("existing"), 5'000);
  EXPECT_EQ(jobs(), 5'000);
}

TEST_F(EnqueueCommandTest, a_bad_line_adds_nothing_of_its_batch_and_is_corrected_where_it_stands) {
  const std::string good = lines(1, 1'200);
  const std::string path = file_of(good + R"({"kind":"mail","paylod":1})" + "\n\n" + lines(1'203, 1'210));

  const auto bad = run({"enqueue", "--file", path});

  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, AllOf(HasSubstr(path + ":1201: "), HasSubstr("did you mean \"payload\""),
                             HasSubstr("nothing from line 1001 on was added"), HasSubstr("--skip-bad")));
  EXPECT_EQ(jobs(), 1'000);

  file_of(good + R"({"kind":"mail","payload":1})" + "\n\n" + lines(1'203, 1'210));
  const auto corrected = run({"enqueue", "--file", path});
  EXPECT_EQ(corrected.exit_code, 0) << corrected.err;
  EXPECT_THAT(corrected.out, HasSubstr("1,209 lines: 209 created, 1,000 existing."));
  EXPECT_THAT(corrected.err, IsEmpty());
  EXPECT_EQ(jobs(), 1'209);
}

TEST_F(EnqueueCommandTest, bad_lines_are_passed_over_or_only_counted_when_that_is_asked_for) {
  const std::string path = file_of(lines(1, 2) + "[]\nnonsense\n" + R"({"kind":"mail","queue":"nowhere"})" +
                                   "\n" + R"({"kind":"","payload":1})" + "\n" + lines(7, 8));

  const auto dry = run_faultline(
      {"enqueue", "--dry-run", "--file", path, "--json", "--database", "postgresql://127.0.0.1:1/x"});
  EXPECT_EQ(dry.exit_code, 1) << dry.err;
  EXPECT_EQ(one_object(dry.out).at("bad"), 3);
  EXPECT_EQ(jobs(), 0);

  const auto skipped = run_json({"enqueue", "--skip-bad", "--file", path}, 1);
  EXPECT_EQ(skipped.at("created"), 4);
  EXPECT_EQ(skipped.at("bad"), 4);
  EXPECT_THAT(skipped.at("problems").at(2).get<std::string>(),
              AllOf(HasSubstr(path + ":5: "), HasSubstr("faultline queues set nowhere --create")));
  EXPECT_EQ(jobs(), 4);
}

TEST_F(EnqueueCommandTest, changed_lines_of_an_import_are_conflicts_and_another_import_has_another_name) {
  const std::string path = file_of(lines(1, 3));
  ASSERT_EQ(run({"enqueue", "--file", path}).exit_code, 0);
  file_of(lines(1, 1) + lines(5, 6));

  const auto changed = run({"enqueue", "--file", path});

  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.out, AllOf(HasSubstr(path + ":2: "), HasSubstr("1 existing, 2 conflicts"),
                                 HasSubstr("--import-id")));
  EXPECT_EQ(jobs(), 3);
  EXPECT_EQ(run_json({"enqueue", "--file", path, "--import-id", "tuesday"}).at("created"), 3);
}

TEST_F(EnqueueCommandTest, what_comes_through_a_pipe_is_a_new_import_unless_it_is_named) {
  const auto first = run({"enqueue", "--file", "-"}, lines(1, 2));
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("--import-id"));
  EXPECT_EQ(run({"enqueue", "--file", "-"}, lines(1, 2)).exit_code, 0);
  EXPECT_EQ(jobs(), 4);

  const auto at = first.err.find("import id: ") + 11;
  const auto again = run({"enqueue", "--file", "-", "--import-id", first.err.substr(at, 36)}, lines(1, 2));
  EXPECT_THAT(again.out, HasSubstr("0 created, 2 existing"));
  EXPECT_EQ(jobs(), 4);
}

}  // namespace
}  // namespace faultline::testing

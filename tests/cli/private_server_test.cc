// `faultline` on its own PostgreSQL.

#include <csignal>

#include "program.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class PrivateServerTest : public ::testing::Test {
 protected:
  ~PrivateServerTest() override { (void)faultline({"pg", "stop"}); }

  [[nodiscard]] std::vector<std::string> on_data_dir(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--data-dir", data_dir()});
    return arguments;
  }
  [[nodiscard]] ProcessResult faultline(std::vector<std::string> arguments) const {
    return run_faultline(on_data_dir(std::move(arguments)));
  }
  [[nodiscard]] std::string data_dir() const { return scratch_ / "data"; }
  [[nodiscard]] bool running() const {
    return one_object(faultline({"pg", "status", "--json"}).out).at("running").get<bool>();
  }

  const ScratchDir scratch_;
};

TEST_F(PrivateServerTest, without_a_database_an_operators_command_is_refused_and_makes_none) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"migrate"},
                                             {"dead", "list"},
                                             {"jobs", "list"},
                                             {"queues", "list"},
                                             {"queues", "set", "mails"},
                                             {"enqueue", "greet"},
                                             {"keys", "list"},
                                             {"stale"},
                                             {"audit"},
                                             {"doctor"},
                                             {"top"},
                                             {"serve"},
                                             {"work", "default", "--exec", "true"}}) {
    const auto result = faultline(words);

    EXPECT_EQ(result.exit_code, 2) << words.front() << result.out << result.err;
    EXPECT_THAT(result.err,
                HasSubstr("no database is named, and no private PostgreSQL runs in " + data_dir()))
        << words.front();
    EXPECT_THAT(result.err, HasSubstr("faultline pg start")) << words.front();
  }
  EXPECT_FALSE(fs::exists(data_dir()));
}

TEST_F(PrivateServerTest, one_that_is_stopped_is_started_by_no_operators_command) {
  ASSERT_EQ(faultline({"pg", "start"}).exit_code, 0);
  ASSERT_EQ(faultline({"pg", "stop"}).exit_code, 0);

  EXPECT_EQ(faultline({"jobs", "list"}).exit_code, 2);

  EXPECT_FALSE(running());
}

TEST_F(PrivateServerTest, a_started_server_stays_for_later_commands_until_it_is_stopped) {
  provide_private_server(data_dir());
  const auto started = faultline({"pg", "start", "--json"});
  ASSERT_EQ(started.exit_code, 0) << started.err;
  const auto status = one_object(started.out);
  EXPECT_TRUE(status.at("running").get<bool>());

  EXPECT_THAT(faultline({"migrate"}).out,
              AllOf(HasSubstr("the private PostgreSQL in " + data_dir()), HasSubstr("up to date")));
  EXPECT_EQ(faultline({"jobs", "list"}).out,
            "There are no such jobs in the private PostgreSQL in " + data_dir() + ".\n");
  EXPECT_EQ(one_object(faultline({"pg", "status", "--json"}).out), status);
  EXPECT_EQ(faultline({"pg", "url"}).out, status.at("url").get<std::string>() + "\n");
  EXPECT_TRUE(has_schema(status.at("url").get<std::string>()));

  EXPECT_EQ(one_object(faultline({"pg", "stop", "--json"}).out).at("outcome"), "stopped");
  EXPECT_EQ(one_object(faultline({"pg", "stop", "--json"}).out).at("outcome"), "not_running");
}

TEST_F(PrivateServerTest, a_stop_waits_for_the_other_users) {
  provide_private_server(data_dir());
  ASSERT_EQ(faultline({"pg", "start"}).exit_code, 0);
  {
    PrivatePostgresOptions options;
    options.data_dir = data_dir();
    const auto user = must(PrivatePostgres::start(options));
    EXPECT_EQ(one_object(faultline({"pg", "stop", "--json"}).out).at("outcome"), "still_used");
    EXPECT_TRUE(running());
  }
  EXPECT_FALSE(running());
}

TEST_F(PrivateServerTest, there_is_no_url_of_a_server_that_does_not_run) {
  const auto result = faultline({"pg", "url"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("hint: start it with: faultline pg start"));
}

TEST_F(PrivateServerTest, a_data_directory_that_cannot_be_used_is_a_failure_with_a_hint) {
  write_file(data_dir(), "precious");
  const auto result = faultline({"pg", "start", "--json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(one_object(result.err).at("error").at("code"), "data_dir_unusable");
  EXPECT_THAT(one_object(result.err).at("error").at("hint").get<std::string>(), HasSubstr("--data-dir"));
}

TEST_F(PrivateServerTest, missing_binaries_are_named_by_their_package) {
  const auto result =
      run_faultline(on_data_dir({"pg", "start"}), {{"FAULTLINE_PG_BINDIR", scratch_ / "nothing-here"}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("apt install postgresql-15"));
}

TEST_F(PrivateServerTest, an_interrupt_leaves_nothing_running_at_whatever_moment_it_comes) {
  // Each of these appears at a later moment of a command: the cluster is being made, the server is
  // starting, the server is up.
  const std::vector<std::pair<std::string, int>> moments{{"start.lock", SIGINT},
                                                         {"server.log", SIGTERM},
                                                         {"pgdata", SIGINT},
                                                         {"socket", SIGHUP},
                                                         {"pgdata/postmaster.pid", SIGINT}};
  for (const auto& [sign, signal] : moments) {
    const ScratchDir scratch;
    const fs::path fresh = scratch / "data";
    ChildProcess command{faultline_program({"drill", "lease-race", "--data-dir", fresh.string()})};
    ASSERT_TRUE(eventually([&] { return fs::exists(fresh / sign) || !command.running(); }));

    command.send_to_group(signal);

    // A command that had finished by then ends as usual.
    const auto result = command.wait();
    EXPECT_TRUE(result.signal == signal || result.exit_code == 0) << sign << ": " << result.err;
    const auto status =
        one_object(run_faultline({"pg", "status", "--json", "--data-dir", fresh.string()}).out);
    EXPECT_FALSE(status.at("running").get<bool>()) << sign;
    EXPECT_FALSE(fs::exists(fresh / "pgdata/postmaster.pid")) << sign;
  }
}

}  // namespace
}  // namespace faultline::testing

// Commands that run for long on their own PostgreSQL, whose main process is killed under them.

#include <csignal>
#include <fstream>
#include <sstream>

#include "program.h"
#include "support/http_client.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class KilledPostgresTest : public ::testing::Test {
 protected:
  KilledPostgresTest() { provide_private_server(data_dir()); }
  ~KilledPostgresTest() override { (void)faultline({"pg", "stop"}); }

  [[nodiscard]] std::vector<std::string> on_data_dir(std::vector<std::string> words) const {
    words.insert(std::next(words.begin()), {"--data-dir", data_dir()});
    return words;
  }
  [[nodiscard]] ProcessResult faultline(std::vector<std::string> words) const {
    return run_faultline(on_data_dir(std::move(words)));
  }
  [[nodiscard]] std::string data_dir() const { return scratch_ / "data"; }
  [[nodiscard]] fs::path cluster() const { return fs::path{data_dir()} / "pgdata"; }

  /// Runs a command on it, and leaves it to the command.
  [[nodiscard]] std::unique_ptr<ChildProcess> alone_on_postgres(const std::vector<std::string>& words,
                                                                const std::string& says) const {
    EXPECT_EQ(faultline({"pg", "start"}).exit_code, 0);
    auto process = std::make_unique<ChildProcess>(faultline_program(on_data_dir(words)));
    wait_until_it_says(*process, says);
    EXPECT_EQ(one_object(faultline({"pg", "stop", "--json"}).out).at("outcome"), "still_used");
    return process;
  }
  [[nodiscard]] bool postgres_runs() const {
    return one_object(faultline({"pg", "status", "--json"}).out).at("running").get<bool>();
  }
  void kill_postgres() const {
    pid_t postmaster = 0;
    std::ifstream{cluster() / "postmaster.pid"} >> postmaster;
    ASSERT_GT(postmaster, 1);
    ::kill(postmaster, SIGKILL);
    ASSERT_TRUE(eventually([&] { return ::kill(postmaster, 0) != 0; }));
  }
  static void wait_until_it_says(ChildProcess& process, const std::string& words) {
    const auto says = [&] { return (process.out() + process.err()).contains(words); };
    ASSERT_TRUE(eventually([&] { return says() || !process.running(); }));
    ASSERT_TRUE(says()) << process.out() << process.err();
  }
  /// Ctrl-C, as a terminal sends it.
  void expect_clean_end(ChildProcess& process) const {
    process.send_to_group(SIGINT);
    const auto result = process.wait();
    EXPECT_EQ(result.exit_code, 0) << result.signal << result.err;
    EXPECT_FALSE(postgres_runs());
    EXPECT_FALSE(fs::exists(cluster() / "postmaster.pid"));
  }

  const ScratchDir scratch_;
};

TEST_F(KilledPostgresTest, up_starts_it_again_and_jobs_go_on) {
  ChildProcess process{faultline_program(
      on_data_dir({"up", "--listen", "127.0.0.1:0", "--grpc", "off", "--json", "--no-demo"}))};
  wait_until_it_says(process, R"("event":"up")");
  std::istringstream lines{process.out()};
  std::string http;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") == "up") http = event.at("http");
  }
  const auto port = static_cast<std::uint16_t>(std::stoi(http.substr(http.rfind(':') + 1)));

  for (int round = 0; round < 2; ++round) {
    kill_postgres();

    HttpResponse added;
    ASSERT_TRUE(eventually([&] {
      added = http_post(port, "/v1/jobs", {{"kind", "greet"}});
      return added.status == 201;
    })) << added.body
        << process.out();
    const std::string job = added.json().at("job_id");
    const auto worked = faultline({"work", "default", "--until-empty", "--exec", "true"});
    EXPECT_EQ(worked.exit_code, 0) << worked.err;
    EXPECT_EQ(http_get(port, "/v1/jobs/" + job).json().at("job").at("state"), "succeeded");
  }

  EXPECT_THAT(process.out(), HasSubstr(R"("event":"private_postgres_lost")"));
  EXPECT_THAT(process.out(), HasSubstr(R"("event":"private_postgres_back")"));
  expect_clean_end(process);
}

TEST_F(KilledPostgresTest, a_postgres_that_cannot_be_started_again_ends_up_with_a_reason) {
  ChildProcess process{
      faultline_program(on_data_dir({"up", "--listen", "127.0.0.1:0", "--grpc", "off", "--no-demo"}))};
  wait_until_it_says(process, "Faultline is up.");

  fs::rename(cluster() / "global/pg_control", scratch_ / "pg_control");
  kill_postgres();

  const auto result = process.wait();
  EXPECT_EQ(result.exit_code, 1) << result.signal;
  EXPECT_THAT(result.out, HasSubstr("private_postgres_start_failed"));
  EXPECT_THAT(result.err, HasSubstr("the private PostgreSQL has ended and could not be started again"));
}

TEST_F(KilledPostgresTest, it_is_started_again_under_every_command_that_runs_for_long) {
  struct Case {
    std::vector<std::string> words;
    std::string says;
  };
  for (const auto& [words, says] :
       {Case{{"serve", "--listen", "127.0.0.1:0", "--grpc", "off"}, "Faultline serves"},
        Case{{"work", "default", "--exec", "true"}, "worker_started"},
        Case{{"top", "--json", "--interval", "1h"}, "\n"}}) {
    SCOPED_TRACE(words.front());
    const auto process = alone_on_postgres(words, says);

    kill_postgres();

    EXPECT_TRUE(eventually([&] { return postgres_runs(); })) << process->err();
    EXPECT_TRUE(process->running());
    expect_clean_end(*process);
  }
}

TEST_F(KilledPostgresTest, a_worker_goes_on_with_what_comes_afterwards) {
  const auto owned = alone_on_postgres({"work", "default", "--exec", "true"}, "worker_started");
  ChildProcess& process = *owned;

  kill_postgres();
  wait_until_it_says(process, "private_postgres_back");

  const auto added = faultline({"enqueue", "greet", "--json"});
  ASSERT_EQ(added.exit_code, 0) << added.err;
  const std::string job = one_object(added.out).at("job_id");
  EXPECT_TRUE(eventually([&] {
    return faultline({"jobs", "show", job, "--json"}).out.contains(R"("state":"succeeded")");
  })) << process.err();
  expect_clean_end(process);
}

}  // namespace
}  // namespace faultline::testing

// `faultline up`: everything at once, and nothing left behind.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

#include "program.h"
#include "support/http_client.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A socket on a port of this machine that nobody else can have meanwhile.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): what the interface asks for
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, generic, size) != 0 || ::listen(socket_, 1) != 0 ||
        ::getsockname(socket_, generic, &size) != 0)
      throw std::runtime_error("cannot take a port");
    port_ = ntohs(address.sin_port);
  }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  ~TakenPort() { ::close(socket_); }

  [[nodiscard]] std::string port() const { return std::to_string(port_); }

 private:
  int socket_;
  std::uint16_t port_ = 0;
};

class UpCommandTest : public ::testing::Test {
 protected:
  /// `faultline up` on this test's data directory and on free ports.
  [[nodiscard]] ProcessOptions up(std::vector<std::string> options = {}) const {
    std::vector<std::string> words{"up",          "--data-dir", data_dir(),   "--listen",
                                   "127.0.0.1:0", "--grpc",     "127.0.0.1:0"};
    words.insert(words.end(), options.begin(), options.end());
    return faultline_program(std::move(words));
  }
  [[nodiscard]] std::string data_dir() const { return scratch_ / "data"; }

  /// The first JSON line that is this event; null if it does not come.
  static nlohmann::json wait_for(ChildProcess& process, std::string_view name) {
    nlohmann::json found;
    EXPECT_TRUE(eventually([&] {
      const bool running = process.running();
      std::istringstream lines{process.out()};
      for (std::string line; std::getline(lines, line);) {
        auto event = nlohmann::json::parse(line, nullptr, false);
        if (event.is_object() && event.value("event", "") == name) {
          found = std::move(event);
          return true;
        }
      }
      return !running;
    })) << name;
    EXPECT_FALSE(found.is_null()) << name << ":\n" << process.out() << process.err();
    return found;
  }
  static std::uint16_t port_of(const std::string& address) {
    return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  [[nodiscard]] bool postgres_runs() const {
    const auto status = run_faultline({"pg", "status", "--data-dir", data_dir(), "--json"});
    return fs::exists(fs::path{data_dir()} / "pgdata/postmaster.pid") ||
           one_object(status.out).at("running").get<bool>();
  }
  /// Ctrl-C, as a terminal sends it.
  static void expect_clean_end(ChildProcess& process) {
    process.send_to_group(SIGINT);
    const auto result = process.wait();
    EXPECT_EQ(result.exit_code, 0) << result.signal << result.err;
  }

  const ScratchDir scratch_;
};

TEST_F(UpCommandTest, a_lease_race_is_shown_and_its_evidence_is_there_at_the_next_start) {
  std::string job;
  {
    ChildProcess first{up({"--json"})};
    const auto up_event = wait_for(first, "up");
    ASSERT_TRUE(up_event.is_object());
    const auto race = wait_for(first, "demo_race");
    ASSERT_TRUE(race.is_object());
    job = race.at("job");

    const auto blocked = wait_for(first, "stale_write_blocked");
    EXPECT_EQ(blocked.at("job"), job);
    EXPECT_EQ(blocked.at("token"), 1);
    EXPECT_EQ(blocked.at("worker"), "demo-stalled");
    EXPECT_EQ(wait_for(first, "lease_expired").at("lost_by"), "demo-stalled");

    const auto answer = http_get(port_of(up_event.at("http")), "/v1/jobs/" + job);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const auto history = answer.json();
    ASSERT_EQ(history.at("attempts").size(), 2U);
    EXPECT_EQ(history.at("attempts")[0].at("token"), 1);
    EXPECT_EQ(history.at("attempts")[0].at("outcome"), "expired");
    EXPECT_EQ(history.at("attempts")[1].at("token"), 2);
    EXPECT_EQ(history.at("attempts")[1].at("outcome"), "succeeded");
    ASSERT_EQ(history.at("stale_writes").size(), 1U);
    EXPECT_EQ(history.at("stale_writes")[0].at("token"), 1);
    expect_clean_end(first);
  }
  EXPECT_FALSE(postgres_runs());

  ChildProcess second{up({"--json", "--no-demo"})};
  const auto up_event = wait_for(second, "up");
  ASSERT_TRUE(up_event.is_object());
  const auto answer = http_get(port_of(up_event.at("http")), "/v1/jobs/" + job);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.json().at("job").at("state"), "succeeded");
  expect_clean_end(second);
  EXPECT_FALSE(postgres_runs());
}

TEST_F(UpCommandTest, says_where_it_is_and_a_second_one_on_the_same_data_is_told_so) {
  provide_private_server(data_dir());
  ChildProcess first{up({"--no-demo"})};
  ASSERT_TRUE(eventually([&] { return first.out().contains("Ctrl-C") || !first.running(); }));
  const std::string welcome = first.out();
  EXPECT_THAT(welcome, AllOf(HasSubstr("Faultline is up."), HasSubstr("http://127.0.0.1:"), HasSubstr("gRPC"),
                             HasSubstr("curl "), HasSubstr("--data-dir " + data_dir()),
                             Not(HasSubstr("\x1b")), Not(HasSubstr("demo"))));

  const auto second = run_process(up());
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, AllOf(HasSubstr("up already"), HasSubstr("process " + std::to_string(first.pid())),
                                HasSubstr("http://127.0.0.1:"), HasSubstr("--data-dir")));
  EXPECT_TRUE(first.running());

  expect_clean_end(first);
  EXPECT_THAT(first.out(), HasSubstr("Faultline is down"));
  EXPECT_FALSE(postgres_runs());
}

TEST_F(UpCommandTest, a_taken_port_is_named_with_the_option_that_changes_it_before_anything_starts) {
  const TakenPort taken;
  for (const auto* option : {"--listen", "--grpc"}) {
    auto command = up();
    *std::next(std::ranges::find(command.argv, option)) = "127.0.0.1:" + taken.port();
    const auto result = run_process(command);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("port " + taken.port()), HasSubstr(option)));
  }
  EXPECT_FALSE(fs::exists(data_dir()));
}

TEST_F(UpCommandTest, what_is_missing_is_named) {
  auto no_binaries = up();
  no_binaries.environment.emplace_back("FAULTLINE_PG_BINDIR", scratch_ / "nothing-here");
  const auto missing = run_process(no_binaries);
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("apt install postgresql-15"));

  write_file(scratch_ / "file", "precious");
  auto unusable = up();
  *std::next(std::ranges::find(unusable.argv, "--data-dir")) = scratch_ / "file";
  const auto result = run_process(unusable);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("--data-dir"));
}

TEST_F(UpCommandTest, a_named_database_is_migrated_and_left_running) {
  const TestDatabase database{Template::empty};
  ChildProcess process{faultline_program({"up", "--database", database.dsn(), "--listen", "127.0.0.1:0",
                                          "--grpc", "off", "--json", "--no-demo"})};
  const auto up_event = wait_for(process, "up");
  ASSERT_TRUE(up_event.is_object());
  EXPECT_TRUE(up_event.at("grpc").is_null());
  EXPECT_TRUE(eventually([&] { return http_get(port_of(up_event.at("http")), "/ready").status == 200; }));
  expect_clean_end(process);
  EXPECT_TRUE(has_schema(database.dsn()));
}

}  // namespace
}  // namespace faultline::testing

// `faultline top`: one frame for a pipe, one object per frame for scripts, the whole screen for a person.

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <sstream>

#include "base/utf8.h"
#include "inspect_fixture.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// The program in a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const ProcessOptions& options, unsigned short rows = 30, unsigned short columns = 60) {
    winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    std::vector<char*> argv;
    std::vector<std::string> words = options.argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::unsetenv("DATABASE_URL");
      ::setenv("NO_COLOR", "1", 1);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::close(fd_);
  }

  void type(char key) const { EXPECT_EQ(::write(fd_, &key, 1), 1); }
  void resize(unsigned short rows, unsigned short columns) const {
    winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(fd_, TIOCSWINSZ, &size);
  }
  [[nodiscard]] bool echoes() const {
    termios now{};
    ::tcgetattr(fd_, &now);
    return (now.c_lflag & ECHO) != 0;
  }
  /// Reads what is there; until the text comes, at most for a while.
  [[nodiscard]] bool shows(const std::string& text) {
    return eventually([&] {
      read_some();
      return out_.find(text) != std::string::npos;
    });
  }
  /// Reads on to its end. The exit code, or -1 if a signal ended it.
  [[nodiscard]] int wait() {
    int status = 0;
    const bool done = eventually([&] {
      read_some();
      ended_ = ended_ || ::waitpid(pid_, &status, WNOHANG) == pid_;
      return ended_;
    });
    read_some();
    return done && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  [[nodiscard]] const std::string& out() const { return out_; }
  void forget() { out_.clear(); }

 private:
  void read_some() {
    std::array<char, 4'096> buffer{};
    pollfd polled{.fd = fd_, .events = POLLIN, .revents = 0};
    while (::poll(&polled, 1, 0) > 0) {
      const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
      if (got <= 0) return;
      out_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

  int fd_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string out_;
};

class TopCommandTest : public InspectTest {
 protected:
  TopCommandTest() {
    enqueue_many(4);
    complete(claim_one("w-done").lease);
    claim("w-busy", 2);
    must(store_.set_queue("idle", {.paused = true}));
  }
};

TEST_F(TopCommandTest, into_a_pipe_it_prints_one_plain_frame) {
  for (const auto& arguments : {std::vector<std::string>{"top"}, std::vector<std::string>{"top", "--once"}}) {
    const auto result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out,
                AllOf(ContainsRegex("default +- +- +- +1 +0 +0 +2 +0 +0 +1 +0"),
                      ContainsRegex("idle .*paused"), ContainsRegex("w-busy +2 .*in 30.0 s +default"),
                      HasSubstr("Stale writes refused: 0 in the last minute"), Not(HasSubstr("\x1b"))));
  }
}

TEST_F(TopCommandTest, scripts_get_one_object_per_frame_with_the_shapes_of_the_api) {
  const StaleWrite refused = refuse_a_write("w-late");
  claim_one("w-again");
  const auto result = run({"top", "--json", "--count", "2", "--interval", "100ms"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines{result.out};
  std::vector<nlohmann::json> frames;
  for (std::string line; std::getline(lines, line);) frames.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(frames.size(), 2U) << result.out;
  const auto& queue = frames[0].at("queues").at(0);
  EXPECT_EQ(queue.at("name"), "default");
  EXPECT_EQ(queue.at("succeeded"), 2);
  EXPECT_TRUE(queue.at("enqueued_per_second").is_null());
  EXPECT_EQ(frames[0].at("stale_writes").at("last_minute"), 1);
  EXPECT_EQ(frames[0].at("stale_writes").at("latest").at(0).at("job_id"), refused.job.to_string());
  EXPECT_EQ(frames[0].at("stale_writes").at("latest").at(0).at("worker"), "w-late");
  EXPECT_EQ(frames[0].at("workers").at(0).at("worker"), "w-again");
  EXPECT_THAT(frames[0].at("workers").at(0).at("queues"), ElementsAre("default"));
}

TEST_F(TopCommandTest, rates_are_the_difference_between_two_frames) {
  ChildProcess top{program({"top", "--json", "--interval", "100ms"})};
  const auto frames = [&] {
    std::vector<nlohmann::json> all;
    std::istringstream lines{top.out()};
    for (std::string line; std::getline(lines, line) && !lines.eof();)
      all.push_back(nlohmann::json::parse(line));
    return all;
  };
  ASSERT_TRUE(eventually([&] { return !frames().empty(); })) << top.err();
  // The clock moves only here. A frame may read the clock before and the counts behind it; then another turn
  // is seen whole, and every number of whole turns has the same rate.
  ASSERT_TRUE(eventually([&] {
    script(
        "BEGIN; UPDATE faultline.movable_clock SET at = at + interval '2 seconds';"
        "INSERT INTO faultline.tallies (bucket, queue, available) VALUES (0, 'default', 10); COMMIT");
    return std::ranges::any_of(frames(), [](const auto& frame) {
      return frame.at("queues").at(0).at("enqueued_per_second") == 5.0 &&
             frame.at("queues").at(0).at("settled_per_second") == 0.0;
    });
  })) << top.out();
  top.send(SIGTERM);
  EXPECT_EQ(top.wait().exit_code, 0);
}

TEST_F(TopCommandTest, on_a_terminal_it_takes_the_screen_and_gives_it_back_when_q_is_typed) {
  Terminal terminal{program({"top", "--interval", "100ms"})};
  ASSERT_TRUE(terminal.shows("q leaves")) << terminal.out();
  EXPECT_THAT(terminal.out(), AllOf(HasSubstr("\x1b[?1049h"), HasSubstr("\x1b[?25l"), HasSubstr("w-busy")));
  EXPECT_THAT(terminal.out(), HasSubstr("without CANCELLED")) << "60 columns are not enough for it";
  EXPECT_FALSE(terminal.echoes());
  terminal.resize(30, 200);
  EXPECT_TRUE(terminal.shows("SUCCEEDED  CANCELLED")) << "the view follows the terminal's size";

  terminal.forget();
  terminal.type('x');
  EXPECT_TRUE(terminal.shows("faultline top")) << "another key changes nothing";
  terminal.type('q');

  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_THAT(terminal.out(), HasSubstr("\x1b[?25h\x1b[?1049l"));
  EXPECT_TRUE(terminal.echoes());
}

TEST_F(TopCommandTest, on_a_small_terminal_nothing_wraps_and_what_is_left_out_is_said) {
  for (int i = 0; i < 30; ++i)
    must(store_.set_queue("a-queue-with-quite-a-long-name-" + std::to_string(i), {.running_max = 1'000}));
  for (int i = 0; i < 20; ++i) enqueue({.delay = std::chrono::hours{1}});
  for (int i = 0; i < 8; ++i) refuse_a_write("a-worker-with-a-long-name-" + std::to_string(i));
  Terminal terminal{program({"top", "--interval", "100ms"}), 24, 80};
  ASSERT_TRUE(terminal.shows("q leaves")) << terminal.out();

  const std::string& out = terminal.out();
  std::string screen = out.substr(out.rfind("\x1b[H") + 3);
  for (std::size_t at = screen.find('\x1b'); at != std::string::npos; at = screen.find('\x1b'))
    screen.erase(at, screen.find_first_of("mKJh", at) + 1 - at);
  std::istringstream lines{screen};
  std::size_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    while (line.ends_with('\r')) line.pop_back();
    EXPECT_LE(characters_of(line), 80U) << line;
  }
  EXPECT_LE(rows, 24U) << screen;
  EXPECT_THAT(screen, AllOf(HasSubstr("more queues"), HasSubstr("FAIL/S"), HasSubstr("DEAD"),
                            HasSubstr("Stale writes refused"), HasSubstr("q leaves")));
}

TEST_F(TopCommandTest, a_queue_in_which_everything_fails_does_not_look_idle) {
  must(store_.set_queue("failing", {}));
  enqueue_many(3, {.queue = "failing"});
  for (const ClaimedJob& job : claim("A", 3, "failing"))
    settle(job.lease, Outcome::failure("no", std::chrono::hours{1}));
  ChildProcess top{program({"top", "--json", "--interval", "100ms"})};
  const auto failing = [](const nlohmann::json& frame) { return frame.at("queues").at(1); };
  const auto frames = [&] {
    std::vector<nlohmann::json> all;
    std::istringstream lines{top.out()};
    for (std::string line; std::getline(lines, line) && !lines.eof();)
      all.push_back(nlohmann::json::parse(line));
    return all;
  };
  ASSERT_TRUE(eventually([&] { return !frames().empty(); })) << top.err();
  EXPECT_EQ(failing(frames()[0]).at("name"), "failing");
  EXPECT_EQ(failing(frames()[0]).at("retrying"), 3);
  EXPECT_EQ(failing(frames()[0]).at("scheduled"), 0);

  EXPECT_TRUE(eventually([&] {
    script(
        "BEGIN; UPDATE faultline.movable_clock SET at = at + interval '2 seconds';"
        "INSERT INTO faultline.tallies (bucket, queue, failures) VALUES (0, 'failing', 10); COMMIT");
    return std::ranges::any_of(
        frames(), [&](const auto& frame) { return failing(frame).at("failed_per_second") == 5.0; });
  })) << top.out();
  top.send(SIGTERM);
  EXPECT_EQ(top.wait().exit_code, 0);
}

TEST_F(TopCommandTest, ctrl_c_gives_the_terminal_back_too) {
  Terminal terminal{program({"top"})};
  ASSERT_TRUE(terminal.shows("q leaves")) << terminal.out();
  terminal.type('\x03');
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_THAT(terminal.out(), HasSubstr("\x1b[?25h\x1b[?1049l"));
  EXPECT_TRUE(terminal.echoes());
}

TEST_F(TopCommandTest, an_interval_that_cannot_be_is_wrong_usage) {
  for (const std::string interval : {"0s", "2d", "often"}) {
    const auto result = run({"top", "--once", "--interval", interval});
    EXPECT_EQ(result.exit_code, 2) << interval;
    EXPECT_THAT(result.out, IsEmpty());
  }
}

}  // namespace
}  // namespace faultline::testing

#include "cli/support/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/utf8.h"

namespace faultline::cli {
namespace {

// As every terminal of today understands them.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kClearLine = "\x1b[K";
constexpr std::string_view kClearBelow = "\x1b[J";
constexpr std::string_view kPlain = "\x1b[0m";

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written <= 0) return;  // the terminal is gone
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string_view code_of(Colour colour) {
  switch (colour) {
    case Colour::green:
      return "\x1b[32m";
    case Colour::yellow:
      return "\x1b[33m";
    case Colour::red:
      return "\x1b[31m";
    case Colour::grey:
      return "\x1b[90m";
    case Colour::bold:
      return "\x1b[1m";
  }
  return kPlain;
}

/// At most `columns` characters of a line, with all of its colours.
std::string cut(std::string_view line, std::size_t columns) {
  std::string text;
  std::size_t shown = 0;
  bool in_colour = false;
  for (const char c : line) {
    if (c == '\x1b') in_colour = true;
    if (!in_colour && !continues_utf8(c) && ++shown > columns) break;
    text += c;
    if (in_colour && c == 'm') in_colour = false;
  }
  return text;
}

}  // namespace

bool on_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

bool colours_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  return on_terminal() && (no_colour == nullptr || *no_colour == '\0');
}

std::string coloured(std::string_view text, Colour colour, bool wanted) {
  if (!wanted) return std::string{text};
  return std::string{code_of(colour)}.append(text).append(kPlain);
}

namespace {

TerminalSize size_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {.rows = size.ws_row, .columns = size.ws_col};
}

}  // namespace

TerminalSize terminal_size() { return size_of(STDOUT_FILENO); }
std::size_t columns_of(int fd) { return size_of(fd).columns; }

FullScreen::FullScreen() {
  if (::tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VSUSP] = _POSIX_VDISABLE;  // a stopped view would keep the terminal
    changed_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  write_all(kEnter);
}

FullScreen::~FullScreen() {
  write_all(kLeave);
  if (changed_) static_cast<void>(::tcsetattr(STDIN_FILENO, TCSANOW, &before_));
}

void FullScreen::draw(std::string_view frame) const {
  const TerminalSize size = terminal_size();
  std::string text{kHome};
  for (std::size_t row = 0; row < size.rows && !frame.empty(); ++row) {
    const std::size_t end = std::min(frame.find('\n'), frame.size());
    if (row > 0) text += "\r\n";
    text.append(cut(frame.substr(0, end), size.columns)).append(kPlain).append(kClearLine);
    frame.remove_prefix(std::min(end + 1, frame.size()));
  }
  write_all(text.append(kClearBelow));
}

char FullScreen::wait_for_key(std::chrono::milliseconds at_most, int wake) const {
  std::array<pollfd, 2> polled{pollfd{.fd = wake, .events = POLLIN, .revents = 0},
                               pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}};
  if (::poll(polled.data(), polled.size(), static_cast<int>(at_most.count())) <= 0) return 0;
  if (polled[0].revents != 0 || polled[1].revents == 0) return 0;
  char key = 0;
  // Standard input that has ended is no reason to go round without a wait.
  return ::read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
}

}  // namespace faultline::cli

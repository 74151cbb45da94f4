#pragma once

#include <termios.h>

#include <chrono>
#include <string>
#include <string_view>

namespace faultline::cli {

/// Standard output is a terminal.
[[nodiscard]] bool on_terminal();
/// Colours may be used on standard output: it is a terminal, and NO_COLOR is not set.
[[nodiscard]] bool colours_wanted();

enum class Colour { green, yellow, red, grey, bold };
/// The text in a colour, or as it is where `wanted` is false.
[[nodiscard]] std::string coloured(std::string_view text, Colour colour, bool wanted);

struct TerminalSize {
  std::size_t rows = 24;
  std::size_t columns = 80;
};
[[nodiscard]] TerminalSize terminal_size();
/// Of the terminal that a file descriptor is; 80 if it is none.
[[nodiscard]] std::size_t columns_of(int fd);

/// Takes the terminal for a full-screen view: another screen, no cursor, keys without Enter. Gives all of it
/// back when it is destroyed.
class FullScreen {
 public:
  FullScreen();
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;
  ~FullScreen();

  /// Draws a frame of lines over the one before, cut to the terminal's size. Colours do not count as width.
  void draw(std::string_view frame) const;
  /// Waits for a key, or for `wake` (a descriptor) to become readable. 0 when no key came, q when none can
  /// come.
  [[nodiscard]] char wait_for_key(std::chrono::milliseconds at_most, int wake) const;

 private:
  termios before_{};
  bool changed_ = false;
};

}  // namespace faultline::cli

#pragma once

#include <iosfwd>
#include <mutex>
#include <string>

#include "faultline/event.h"

namespace faultline::cli {

/// What `faultline up` shows: one line per event that a person watching would want to see. Thread-safe.
class UpDisplay {
 public:
  struct Options {
    bool json = false;    ///< events as JSON lines, and nothing else
    bool colour = false;  ///< of lines for people
    bool all = false;     ///< every event, not only interesting ones
  };

  UpDisplay(std::ostream& out, Options options) : out_(out), options_(options) {}

  void tell(const Event& event);
  /// Text for people, and the same as a JSON line; without one it is left out there.
  void say(const std::string& text, const std::string& json_line = {});
  /// The text in bold, if there are colours.
  [[nodiscard]] std::string bold(const std::string& text) const;

 private:
  void write(const std::string& text);

  std::ostream& out_;
  const Options options_;
  std::mutex mutex_;
};

/// Whether it is worth a line: what went wrong or nearly did, what became of jobs, and how a race went.
[[nodiscard]] bool is_interesting(const Event& event);
/// `12:00:03  stale_write_blocked  charge_card 0190…  token 1  demo-stalled  reason=… current_token=2`, in
/// the time of this machine.
[[nodiscard]] std::string to_display_line(const Event& event, bool colour);

}  // namespace faultline::cli

#include "cli/stale/stale_text.h"

#include "base/printable.h"
#include "cli/jobs/timeline.h"

namespace faultline::cli {
namespace {

/// What was true of the job when the write came.
std::string current(const StaleWrite& write) {
  if (!write.current_token) return "the job is not known";
  std::string text =
      write.current_state.value_or("?") + ", token " + std::to_string(write.current_token->value);
  if (write.current_worker) text += " of " + printable(*write.current_worker);
  return text;
}

}  // namespace

std::vector<std::string> stale_header() {
  return {"AT", "JOB", "QUEUE", "VERB", "REASON", "LATE", "TOKEN", "WORKER", "THEN"};
}

std::vector<std::string> stale_cells(const StaleWrite& write) {
  const auto late = late_by(write);
  return {faultline::to_string(write.at),
          write.job.to_string(),
          write.queue ? printable(*write.queue) : "-",
          printable(write.verb),
          std::string{faultline::to_string(write.reason)},
          late ? human_duration(*late) : "-",
          std::to_string(write.token.value),
          printable(write.worker),
          current(write)};
}

std::string stale_line(const StaleWrite& write) {
  std::string line;
  for (const std::string& cell : stale_cells(write)) line += (line.empty() ? "" : "  ") + cell;
  return line;
}

}  // namespace faultline::cli

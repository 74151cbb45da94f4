#include "cli/work/exec_handler.h"

#include <cstring>

#include <nlohmann/json.hpp>

#include "base/json_check.h"
#include "base/utf8.h"
#include "cli/support/failures.h"
#include "faultline/store.h"

namespace faultline::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::pair<std::string, std::string>> environment_of(const faultline::Context& context) {
  const ClaimedJob& job = context.job();
  std::vector<std::pair<std::string, std::string>> variables{
      {"FAULTLINE_JOB_ID", job.lease.job.to_string()},
      {"FAULTLINE_TOKEN", std::to_string(job.lease.token.value)},
      {"FAULTLINE_ATTEMPT", std::to_string(job.attempt)},
      {"FAULTLINE_LEASE_ID", job.lease.lease_id.to_string()},
      {"FAULTLINE_QUEUE", job.queue},
      {"FAULTLINE_KIND", job.kind}};
  if (job.run_max)
    variables.emplace_back(
        "FAULTLINE_DEADLINE",
        to_string(job.lease_expires_at - std::min(job.lease_ttl, *job.run_max) + *job.run_max));
  if (!context.traceparent().empty()) variables.emplace_back("TRACEPARENT", context.traceparent());
  return variables;
}

std::string_view without_newlines_at_end(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

/// "exit code 3" or "killed by SIGSEGV", and the program's last words.
std::string describe(const ProgramEnd& end) {
  std::string text;
  if (end.signal == 0) {
    text = "exit code " + std::to_string(end.exit_code);
  } else {
    const char* name = ::sigabbrev_np(end.signal);
    text = "killed by " + (name != nullptr ? "SIG" + std::string{name} : std::to_string(end.signal));
  }
  const std::string_view words = without_newlines_at_end(end.error_tail);
  return words.empty() ? text : text + ": " + std::string{words};
}

/// How much a program is pressed to end, over the time since it was first to stop.
class StopEscalation {
 public:
  StopEscalation(const ExecOptions& options, const std::atomic<int>& hurried)
      : options_(options), hurried_(hurried) {}

  Pressure operator()(StopReason reason) {
    const Clock::time_point now = Clock::now();
    if (!since_) since_ = now;
    const bool has_time =
        reason == StopReason::draining && hurried_ == 0 && now < *since_ + options_.drain_max;
    if (!terminated_at_ && !has_time) terminated_at_ = now;
    if (!terminated_at_) return Pressure::none;
    const bool kill = now >= *terminated_at_ + options_.kill_after || hurried_ > 1;
    return kill ? Pressure::kill : Pressure::terminate;
  }

 private:
  const ExecOptions& options_;
  const std::atomic<int>& hurried_;
  std::optional<Clock::time_point> since_;
  std::optional<Clock::time_point> terminated_at_;
};

}  // namespace

Expected<ExitMeanings> exit_meanings(const ExitCodeLists& lists) {
  ExitMeanings given;
  const auto add = [&](const std::vector<int>& codes, ExitMeaning meaning) -> std::optional<Failure> {
    for (const int code : codes) {
      if (code < 1 || code > 255)
        return wrong_usage("the exit code " + std::to_string(code) + " has no meaning to choose",
                           "give codes from 1 to 255; 0 is success");
      if (!given.emplace(code, meaning).second)
        return wrong_usage("the exit code " + std::to_string(code) + " is given twice",
                           "give it to one of --retry-on, --bury-on and --snooze-on");
    }
    return std::nullopt;
  };
  if (auto problem = add(lists.retry, ExitMeaning::retry)) return std::unexpected(std::move(*problem));
  if (auto problem = add(lists.bury.value_or(std::vector<int>{}), ExitMeaning::bury))
    return std::unexpected(std::move(*problem));
  if (auto problem = add(lists.snooze.value_or(std::vector<int>{}), ExitMeaning::snooze))
    return std::unexpected(std::move(*problem));
  // What was given goes before what is usual.
  if (!lists.bury) given.emplace(65, ExitMeaning::bury);
  if (!lists.snooze) given.emplace(99, ExitMeaning::snooze);
  return given;
}

Outcome ExecHandler::operator()(faultline::Context& context) const {
  const ProgramCall call{.path = options_.path,
                         .argv = options_.argv,
                         .environment = environment_of(context),
                         .hand_on = options_.hand_on,
                         .input = context.payload(),
                         .output_max = options_.output_max};
  StopEscalation escalation{options_, hurried_};
  const auto end =
      run_program(call,
                  {.stop = context.stop_token(),
                   .pressure = [&] { return escalation(context.stop_reason()); },
                   .error_line = [&](std::string_view line) { context.log(line, {{"stream", "stderr"}}); }},
                  orphan_killer_);
  if (!end) throw Fail{"cannot run " + options_.path + ": " + end.error()};
  // A program that finishes although it was told to stop has finished; whether that still counts is the
  // fence's matter. One that ends otherwise did as it was told, which is no failure of its job.
  if (end->told_to_stop && end->exit_code != 0) throw Stopped{context.stop_reason()};
  return outcome_of(*end);
}

Outcome ExecHandler::outcome_of(const ProgramEnd& end) const {
  if (end.output_too_large)
    throw Fail{"the program wrote more than " + std::to_string(options_.output_max) +
               " bytes to standard output, which is the most that a result may have"};
  if (end.exit_code == 0) return success_of(end);
  const auto found = options_.exit_meanings.find(end.exit_code);
  switch (found == options_.exit_meanings.end() ? ExitMeaning::retry : found->second) {
    case ExitMeaning::bury:
      return Bury{describe(end)};
    case ExitMeaning::snooze:
      return Snooze{options_.snooze};
    case ExitMeaning::retry:
      break;
  }
  throw Fail{describe(end)};
}

Outcome ExecHandler::success_of(const ProgramEnd& end) const {
  const std::string_view text = without_newlines_at_end(end.output);
  if (text.empty()) return Outcome::success();
  const auto bytes = std::as_bytes(std::span{text});
  if (!find_json_problem(bytes, StoreOptions{}.json_depth_max)) return Outcome::success(std::string{text});
  if (find_invalid_utf8(text))
    throw Fail{"the program's standard output is not UTF-8, so it cannot be the job's result"};
  return Outcome::success(nlohmann::json(text).dump());
}

}  // namespace faultline::cli

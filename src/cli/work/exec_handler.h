#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/support/output.h"
#include "cli/work/child_program.h"
#include "faultline/handler.h"

namespace faultline::cli {

/// What an exit code other than 0 means.
enum class ExitMeaning { retry, bury, snooze };

/// What exit codes mean. A code that is not among them means `retry`.
using ExitMeanings = std::map<int, ExitMeaning>;

/// The codes that each meaning was given on the command line; nothing: as usual.
struct ExitCodeLists {
  std::vector<int> retry{};
  std::optional<std::vector<int>> bury{};    ///< usually 65, EX_DATAERR of sysexits.h
  std::optional<std::vector<int>> snooze{};  ///< usually 99
};
/// A code that has two meanings is wrong usage.
[[nodiscard]] Expected<ExitMeanings> exit_meanings(const ExitCodeLists& lists);

struct ExecOptions {
  std::string path;                    ///< of the program
  std::vector<std::string> argv;       ///< with its name in front
  std::vector<std::string> hand_on{};  ///< variables of this process's own that the program gets all the same
  ExitMeanings exit_meanings{};
  std::chrono::milliseconds snooze{60'000};
  std::chrono::milliseconds kill_after{10'000};  ///< between SIGTERM and SIGKILL
  std::chrono::milliseconds drain_max{
      30'000};  ///< for programs to finish by themselves when the worker drains
  std::size_t output_max = 1'048'576;
};

/// A handler that runs a program per job:
///
///   standard input    the payload, as the bytes that were enqueued
///   environment       the worker's own, without its keys and passwords; FAULTLINE_JOB_ID _TOKEN _ATTEMPT
///   _LEASE_ID _QUEUE _KIND; FAULTLINE_DEADLINE if the job has a
///                     maximum run time: when it is over, in the database's time; TRACEPARENT if it belongs
///                     to a trace
///   standard output   the result: as it is if it is JSON, else as a JSON string
///   standard error    to the log, line by line; its end is the error's text
///   exit code         0: success; else as `exit_meanings` says; death by a signal: retry
///
/// When the attempt is to stop, the program's process group is sent SIGTERM, and SIGKILL some time later.
/// When the worker drains, programs first have time to finish. Thread-safe.
class ExecHandler {
 public:
  ExecHandler(ExecOptions options, const OrphanKiller& orphan_killer)
      : options_(std::move(options)), orphan_killer_(orphan_killer) {}

  [[nodiscard]] Outcome operator()(faultline::Context& context) const;

  /// From the first call on, a drain gives programs no time before SIGTERM; from the second on, none before
  /// SIGKILL.
  void hurry() { ++hurried_; }

 private:
  [[nodiscard]] Outcome outcome_of(const ProgramEnd& end) const;
  [[nodiscard]] Outcome success_of(const ProgramEnd& end) const;

  const ExecOptions options_;
  const OrphanKiller& orphan_killer_;
  std::atomic<int> hurried_{0};
};

}  // namespace faultline::cli

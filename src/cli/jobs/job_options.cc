#include "cli/jobs/job_options.h"

#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "cli/support/failures.h"
#include "config/settings.h"
#include "config/values.h"

namespace faultline::cli {

Expected<JobId> parse_job_id(const std::string& text) {
  if (const auto id = Uuid::parse(text)) return JobId{*id};
  return std::unexpected(
      wrong_usage(config::quoted(text) + " is not a job's id",
                  "give the whole id, as `faultline jobs list` shows it; a part of it is not enough"));
}

Expected<std::vector<JobId>> parse_job_ids(const std::vector<std::string>& texts) {
  std::vector<JobId> ids;
  ids.reserve(texts.size());
  for (const std::string& text : texts) {
    const auto id = parse_job_id(text);
    if (!id) return std::unexpected(id.error());
    ids.push_back(*id);
  }
  return ids;
}

Failure unknown_job(const JobId& id) {
  return {.code = "unknown_job",
          .message = "there is no job " + id.to_string(),
          .hint = "look with `faultline jobs list`; finished jobs are kept for their queue's retention"};
}

Expected<std::optional<std::chrono::milliseconds>> parse_duration_option(std::string_view name,
                                                                         const std::string& text) {
  if (text.empty()) return std::nullopt;
  if (const auto duration = config::parse_duration(text)) return duration;
  return std::unexpected(wrong_usage(std::string{name} + ": " + config::quoted(text) + " is not a duration",
                                     "write a whole number with its unit, such as 250ms, 30s, 5m, 2h or 7d"));
}

void add_queue_and_kind(CLI::App& command, FilterOptions& filter) {
  command.add_option("--queue", filter.queue, "Only jobs of this queue")->type_name("QUEUE");
  command.add_option("--kind", filter.kind, "Only jobs of this kind")->type_name("KIND");
}

void add_state(CLI::App& command, FilterOptions& filter) {
  command
      .add_option(
          "--state", filter.state,
          "Only jobs in this state: scheduled, available, running, held, dead, succeeded or cancelled")
      ->type_name("STATE");
}

Expected<ListRequest> to_request(const FilterOptions& filter) {
  ListRequest request;
  if (!filter.queue.empty()) request.queue = filter.queue;
  if (!filter.kind.empty()) request.kind = filter.kind;
  if (filter.state.empty()) return request;
  request.state = parse_job_state(filter.state);
  if (request.state) return request;
  return std::unexpected(
      wrong_usage("--state: there is no state " + config::quoted(filter.state),
                  "states are scheduled, available, running, held, dead, succeeded and cancelled"));
}

void add_operator(CLI::App& command, std::string& as) {
  command.add_option("--as", as, "Who does this, for the record (default: $USER)")->type_name("NAME");
}

std::string operator_name(const std::string& as) {
  if (!as.empty()) return as;
  if (const char* user = std::getenv("USER"); user != nullptr && *user != '\0') return user;
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return "uid " + std::to_string(::getuid());
}

Failure to_failure(const service::Problem& problem) {
  const bool usage = problem.code == service::Code::malformed || problem.code == service::Code::invalid ||
                     problem.code == service::Code::too_large;
  return {.code = std::string{service::to_string(problem.code)},
          .message = problem.message,
          .hint = problem.hint,
          .exit_code = usage ? ExitCode::wrong_usage : ExitCode::failure};
}

}  // namespace faultline::cli

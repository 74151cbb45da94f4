#include "cli/jobs/job_options.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "base/rfc3339.h"
#include "cli/support/failures.h"
#include "config/settings.h"
#include "config/values.h"

namespace faultline::cli {

namespace {

/// Fewer say nothing: ids begin with the time, and so all of one year begin alike.
constexpr std::size_t kPrefixMin = 6;
constexpr std::size_t kCandidatesMax = 10;

bool is_prefix(std::string_view text) {
  constexpr std::string_view kShape = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (text.size() < kPrefixMin || text.size() > kShape.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool fits =
        kShape[i] == '-' ? text[i] == '-' : std::isxdigit(static_cast<unsigned char>(text[i])) != 0;
    if (!fits) return false;
  }
  return true;
}

/// The last id that begins like this.
JobId last_of(const std::string& prefix) {
  constexpr std::string_view kLast = "ffffffff-ffff-ffff-ffff-ffffffffffff";
  return JobId{Uuid::parse(prefix + std::string{kLast.substr(prefix.size())}).value()};
}

/// The newest jobs whose ids begin like this.
Expected<std::vector<JobId>> begins_with(Store& store, const std::string& prefix) {
  ListRequest request{.before = last_of(prefix), .limit = kCandidatesMax + 1};
  std::vector<JobId> found;
  for (;;) {
    const auto page = store.list(request);
    if (!page) return std::unexpected(to_failure(page.error()));
    for (const JobSummary& job : page->jobs) {
      if (!job.id.to_string().starts_with(prefix)) return found;
      found.push_back(job.id);
    }
    if (!page->next || found.size() > kCandidatesMax || !page->next->to_string().starts_with(prefix))
      return found;
    request.before = page->next;
  }
}

Failure several_jobs(const std::string& prefix, const std::vector<JobId>& found) {
  std::string names;
  for (std::size_t i = 0; i < std::min(found.size(), kCandidatesMax); ++i)
    names += "\n  " + found[i].to_string();
  const bool more = found.size() > kCandidatesMax;
  return {.code = "several_jobs",
          .message = (more ? "more than " + std::to_string(kCandidatesMax) : std::to_string(found.size())) +
                     " jobs have ids that begin with " + prefix + (more ? ", the newest are:" : ":") + names,
          .hint = "give more of the id"};
}

}  // namespace

Expected<void> check_job_ids(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    if (!is_prefix(text))
      return std::unexpected(
          wrong_usage(config::quoted(text) + " is not a job's id",
                      "give an id as `faultline jobs list` shows it, or its first characters, six at least"));
  }
  return {};
}

Expected<JobId> find_job_id(Store& store, const std::string& text) {
  if (auto checked = check_job_ids({text}); !checked) return std::unexpected(checked.error());
  if (const auto id = Uuid::parse(text)) return JobId{*id};
  std::string prefix = text;
  std::ranges::transform(prefix, prefix.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  const auto found = begins_with(store, prefix);
  if (!found) return std::unexpected(found.error());
  if (found->size() == 1) return found->front();
  if (found->empty())
    return std::unexpected(Failure{
        .code = "unknown_job",
        .message = "there is no job whose id begins with " + prefix,
        .hint = "look with `faultline jobs list`; finished jobs are kept for their queue's retention"});
  return std::unexpected(several_jobs(prefix, *found));
}

Expected<std::vector<JobId>> find_job_ids(Store& store, const std::vector<std::string>& texts) {
  std::vector<JobId> ids;
  ids.reserve(texts.size());
  for (const std::string& text : texts) {
    const auto id = find_job_id(store, text);
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

Expected<std::optional<DatabaseTime>> parse_moment_option(std::string_view name, const std::string& text,
                                                          DatabaseTime now) {
  if (text.empty()) return std::nullopt;
  if (const auto duration = config::parse_duration(text)) return now - *duration;
  if (const auto moment = parse_rfc3339(text)) return *moment;
  return std::unexpected(
      wrong_usage(std::string{name} + ": " + config::quoted(text) + " is no moment",
                  "write how long ago, such as 2h, or a moment such as 2030-01-31T12:00:00Z"));
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

#include "cli/jobs/job_changes.h"

#include "cli/jobs/job_text.h"

namespace faultline::cli {

Failure needs_yes(std::string_view verb, const std::string& how_many) {
  return wrong_usage(
      how_many + ", and nothing was changed",
      "add --yes to " + std::string{verb} + " all of them; with a filter, --dry-run shows them");
}

std::string dry_run_text(std::string_view verb, const std::vector<JobSummary>& first, std::size_t matched) {
  std::string text = first.empty() ? "" : jobs_table(first);
  if (matched > first.size()) text += "… and " + std::to_string(matched - first.size()) + " more\n";
  return text + std::to_string(matched) + (matched == 1 ? " job matches" : " jobs match") + ": `" +
         std::string{verb} + "` would be done to " + (matched == 1 ? "it" : "them") +
         ". Nothing was changed.\n";
}

}  // namespace faultline::cli

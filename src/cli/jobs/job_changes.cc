#include "cli/jobs/job_changes.h"

namespace faultline::cli {

Failure needs_yes(std::string_view verb, const std::string& how_many) {
  return wrong_usage(
      how_many + ", and nothing was changed",
      "add --yes to " + std::string{verb} + " all of them; with a filter, --dry-run counts them");
}

}  // namespace faultline::cli

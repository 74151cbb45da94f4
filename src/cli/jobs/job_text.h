#pragma once

#include <string>
#include <vector>

#include "cli/jobs/timeline.h"
#include "faultline/job.h"

namespace faultline::cli {

/// A job for people: what it is, its life as a timeline, its errors and effects.
[[nodiscard]] std::string job_text(const JobHistory& history, const TimelineStyle& style);

/// A table of jobs, newest first: where each is, when it runs next or since when it is dead, and why it last
/// failed.
[[nodiscard]] std::string jobs_table(const std::vector<JobSummary>& jobs);

/// Bytes for a line: as they are if they are printable, else how many there are.
[[nodiscard]] std::string bytes_text(const std::string& bytes, std::size_t length_max);

}  // namespace faultline::cli

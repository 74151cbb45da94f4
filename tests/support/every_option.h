#pragma once

#include <string>

#include "faultline/job.h"

namespace faultline::testing {

/// A job of the queue `every_option` with every option of its field table set to something that is not the
/// default, except the delay, which goes with no run_at.
[[nodiscard]] NewJob job_with_every_option();

/// What of a submitted job is missing or another in the job that was read back, line by line; empty: nothing.
/// Both are compared as JSON, which has every field.
[[nodiscard]] std::string differences(const NewJob& submitted, const Job& found);
/// The same with the job as the JSON of an answer.
[[nodiscard]] std::string differences(const NewJob& submitted, const std::string& found_json);

}  // namespace faultline::testing

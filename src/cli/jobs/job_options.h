#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/support/output.h"
#include "faultline/store.h"
#include "service/problem.h"

namespace faultline::cli {

// What the commands about jobs share: ids, states, filters, durations, and who acts.

/// Whole ids only: a prefix that is unique today is not tomorrow.
[[nodiscard]] Expected<JobId> parse_job_id(const std::string& text);
[[nodiscard]] Expected<std::vector<JobId>> parse_job_ids(const std::vector<std::string>& texts);
[[nodiscard]] Failure unknown_job(const JobId& id);

/// "30s", as the option's value; `name` is the option's, for the message.
[[nodiscard]] Expected<std::optional<std::chrono::milliseconds>> parse_duration_option(
    std::string_view name, const std::string& text);

/// Which jobs: --queue, --kind, --state.
struct FilterOptions {
  std::string queue{};
  std::string kind{};
  std::string state{};

  [[nodiscard]] bool any() const { return !queue.empty() || !kind.empty() || !state.empty(); }
};
void add_queue_and_kind(CLI::App& command, FilterOptions& filter);
void add_state(CLI::App& command, FilterOptions& filter);
[[nodiscard]] Expected<ListRequest> to_request(const FilterOptions& filter);

/// Who acts, for the record: --as, else $USER, else the login's name.
void add_operator(CLI::App& command, std::string& as);
[[nodiscard]] std::string operator_name(const std::string& as);

/// What HTTP's readers found wrong, as a command tells it.
[[nodiscard]] Failure to_failure(const service::Problem& problem);

}  // namespace faultline::cli

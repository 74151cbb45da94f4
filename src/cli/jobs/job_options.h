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

/// Whether texts can be ids or their first characters: what needs no database.
[[nodiscard]] Expected<void> check_job_ids(const std::vector<std::string>& texts);
/// The job whose id this is, or begins like this. Several that begin so are an error that lists them.
[[nodiscard]] Expected<JobId> find_job_id(Store& store, const std::string& text);
[[nodiscard]] Expected<std::vector<JobId>> find_job_ids(Store& store, const std::vector<std::string>& texts);
[[nodiscard]] Failure unknown_job(const JobId& id);

/// "2h" ago, or a moment as `--at` has it; `name` is the option's, for the message.
[[nodiscard]] Expected<std::optional<DatabaseTime>> parse_moment_option(std::string_view name,
                                                                        const std::string& text,
                                                                        DatabaseTime now);

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

#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/jobs/job_options.h"
#include "cli/support/failures.h"
#include "cli/support/table_text.h"
#include "faultline/store.h"
#include "service/encode.h"
#include "service/operations.h"

namespace faultline::cli {

/// What a command is asked to do to jobs, by id or by filter.
template <class Status>
struct ChangeOrder {
  std::string_view verb;  ///< "cancel"
  std::string_view done;  ///< "cancelled"
  std::vector<JobId> ids{};
  std::optional<ListRequest> filter{};
  std::vector<JobState> states{};  ///< of a filter that names none: these, one after the other
  std::function<bool(const JobSummary&)> matches{};  ///< what else the filter asks for; none: nothing
  std::size_t limit = 0;                             ///< of a filter: so many jobs at most; 0: all
  bool dry_run = false;
  bool yes = false;
  std::function<faultline::Expected<std::vector<Status>>(Store&, std::span<const JobId>)> act{};
};

/// Jobs that match, page by page, from the newest to the oldest, to `visit`, which says whether to go on.
/// Jobs that are added meanwhile are not looked at.
template <class Status, std::predicate<std::span<const JobSummary>> F>
[[nodiscard]] Expected<void> each_page(Store& store, const ChangeOrder<Status>& order, const F& visit) {
  constexpr std::size_t kPage = 500;
  ListRequest filter = *order.filter;
  filter.limit = kPage;
  std::size_t left = order.limit > 0 ? order.limit : std::numeric_limits<std::size_t>::max();
  for (const JobState state : filter.state ? std::vector{*filter.state} : order.states) {
    filter.state = state;
    filter.before.reset();
    for (bool more = true; more;) {
      auto page = store.list(filter);
      if (!page) return std::unexpected(to_failure(page.error()));
      std::vector<JobSummary>& jobs = page->jobs;
      if (order.matches) std::erase_if(jobs, [&](const JobSummary& job) { return !order.matches(job); });
      jobs.resize(std::min(jobs.size(), left));
      left -= jobs.size();
      if (!jobs.empty() && !visit(std::span<const JobSummary>{jobs})) return {};
      if (left == 0) return {};
      filter.before = page->next;
      more = page->next.has_value();
    }
  }
  return {};
}

[[nodiscard]] Failure needs_yes(std::string_view verb, const std::string& how_many);
/// What would be done, and nothing was: the first of the jobs, and how many there are.
[[nodiscard]] std::string dry_run_text(std::string_view verb, const std::vector<JobSummary>& first,
                                       std::size_t matched);

/// Changes jobs by id. What was left as it was is bad news; a single job that is not there, a failure.
template <class Status>
[[nodiscard]] Expected<CommandResult> change_by_id(Store& store, const ChangeOrder<Status>& order) {
  if (order.dry_run)
    return std::unexpected(
        wrong_usage("there is nothing to try out with ids", "--dry-run counts what a filter matches"));
  if (order.ids.size() > 1 && !order.yes)
    return std::unexpected(needs_yes(order.verb, std::to_string(order.ids.size()) + " jobs are named"));
  const auto statuses = order.act(store, order.ids);
  if (!statuses) return std::unexpected(to_failure(statuses.error()));
  if (order.ids.size() == 1 && statuses->front() == Status::not_found)
    return std::unexpected(unknown_job(order.ids.front()));
  service::Changed<Status> changed;
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < order.ids.size(); ++i) {
    const Status status = (*statuses)[i];
    changed.items.emplace_back(order.ids[i], status);
    if (service::is_change(status)) ++changed.changed;
    rows.push_back({order.ids[i].to_string(), std::string{to_string(status)}});
  }
  const bool all = changed.changed == order.ids.size();
  return CommandResult{.text = table_text(rows),
                       .json_text = service::changed_json(changed),
                       .exit_code = all ? ExitCode::ok : ExitCode::failure};
}

template <class Status>
[[nodiscard]] Expected<CommandResult> change_by_filter(Store& store, const ChangeOrder<Status>& order) {
  constexpr std::size_t kShown = 20;
  service::Changed<Status> changed;
  std::optional<Failure> failure;
  std::vector<JobSummary> shown;
  const auto count = [&](std::span<const JobSummary> jobs) {
    changed.matched += jobs.size();
    for (const JobSummary& job : jobs) {
      if (shown.size() < kShown) shown.push_back(job);
    }
    return order.dry_run || changed.matched <= 1;
  };
  const auto act = [&](std::span<const JobSummary> jobs) {
    std::vector<JobId> ids;
    for (const JobSummary& job : jobs) ids.push_back(job.id);
    changed.matched += ids.size();
    const auto statuses = order.act(store, ids);
    if (!statuses) {
      failure = to_failure(statuses.error());
      return false;
    }
    changed.changed += static_cast<std::size_t>(
        std::ranges::count_if(*statuses, [](Status status) { return service::is_change(status); }));
    return true;
  };
  if (order.dry_run || !order.yes) {
    if (auto counted = each_page(store, order, count); !counted) return std::unexpected(counted.error());
    if (order.dry_run)
      return CommandResult{.text = dry_run_text(order.verb, shown, changed.matched),
                           .json_text = service::changed_json(changed)};
    if (changed.matched > 1) return std::unexpected(needs_yes(order.verb, "more than one job matches"));
    changed.matched = 0;
  }
  auto acted = each_page(store, order, act);
  if (!acted) failure = acted.error();
  if (failure) {
    failure->message = "it stopped after " + std::to_string(changed.changed) + " jobs: " + failure->message;
    failure->hint = "run it again: it goes on with the rest" +
                    (failure->hint.empty() ? std::string{} : "; " + failure->hint);
    return std::unexpected(*failure);
  }
  return CommandResult{.text = std::to_string(changed.matched) + " jobs matched, " +
                               std::to_string(changed.changed) + " were " + std::string{order.done} + ".\n",
                       .json_text = service::changed_json(changed)};
}

/// Either ids or a filter.
template <class Status>
[[nodiscard]] Expected<CommandResult> change(Store& store, const ChangeOrder<Status>& order) {
  return order.filter ? change_by_filter(store, order) : change_by_id(store, order);
}

}  // namespace faultline::cli

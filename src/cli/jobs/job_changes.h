#pragma once

#include <algorithm>
#include <functional>
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
  bool dry_run = false;
  bool yes = false;
  std::function<faultline::Expected<std::vector<Status>>(Store&, std::span<const JobId>)> act{};
};

/// Jobs that match, page by page, from the newest to the oldest, to `visit`, which says whether to go on.
/// Jobs that are added meanwhile are not looked at.
template <std::predicate<std::span<const JobId>> F>
[[nodiscard]] Expected<void> each_page(Store& store, ListRequest filter, const std::vector<JobState>& states,
                                       const F& visit) {
  constexpr std::size_t kPage = 500;
  filter.limit = kPage;
  for (const JobState state : filter.state ? std::vector{*filter.state} : states) {
    filter.state = state;
    filter.before.reset();
    for (bool more = true; more;) {
      const auto page = store.list(filter);
      if (!page) return std::unexpected(to_failure(page.error()));
      std::vector<JobId> ids;
      for (const JobSummary& job : page->jobs) ids.push_back(job.id);
      if (!ids.empty() && !visit(std::span<const JobId>{ids})) return {};
      filter.before = page->next;
      more = page->next.has_value();
    }
  }
  return {};
}

[[nodiscard]] Failure needs_yes(std::string_view verb, const std::string& how_many);

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
  service::Changed<Status> changed;
  std::optional<Failure> failure;
  const auto count = [&](std::span<const JobId> ids) {
    changed.matched += ids.size();
    return order.dry_run || changed.matched <= 1;
  };
  const auto act = [&](std::span<const JobId> ids) {
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
    if (auto counted = each_page(store, *order.filter, order.states, count); !counted)
      return std::unexpected(counted.error());
    if (order.dry_run)
      return CommandResult{.text = std::to_string(changed.matched) + " jobs match. Nothing was changed.\n",
                           .json_text = service::changed_json(changed)};
    if (changed.matched > 1) return std::unexpected(needs_yes(order.verb, "more than one job matches"));
    changed.matched = 0;
  }
  auto acted = each_page(store, *order.filter, order.states, act);
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

#include "service/operations.h"

#include <map>

#include "service/cursor.h"

namespace faultline::service {
namespace {

/// How many pages of others' evidence are gone through for one page of the caller's.
constexpr int kPagesMax = 20;

}  // namespace

std::vector<QueueOverview> overviews_of(std::vector<Queue> queues, std::vector<QueueCounts> counts) {
  std::map<std::string, QueueCounts, std::less<>> by_name;
  for (QueueCounts& count : counts) {
    std::string name = count.queue;
    by_name.emplace(std::move(name), std::move(count));
  }
  std::vector<QueueOverview> overviews;
  overviews.reserve(queues.size());
  for (Queue& queue : queues) {
    QueueCounts count{.queue = queue.name};
    if (const auto found = by_name.find(queue.name); found != by_name.end()) count = std::move(found->second);
    overviews.push_back({.queue = std::move(queue), .counts = std::move(count)});
  }
  return overviews;
}

Problem no_such_queue(const std::string& name) {
  return {.code = Code::not_found,
          .message = "there is no queue \"" + name + "\"",
          .hint = "check the name, or make the queue first"};
}

ServiceResult<QueueOverview> find_queue(Store& store, const std::string& name) {
  auto queues = store.queues();
  if (!queues) return std::unexpected(Problem::from(queues.error()));
  std::erase_if(*queues, [&](const Queue& queue) { return queue.name != name; });
  auto counts = store.counts(name);
  if (!counts) return std::unexpected(Problem::from(counts.error()));
  auto overviews = overviews_of(std::move(*queues), std::move(*counts));
  if (overviews.empty()) return std::unexpected(no_such_queue(name));
  return std::move(overviews.front());
}

ServiceResult<Service::StalePage> list_stale_writes(Store& store, const Principal& who, std::size_t limit,
                                                    std::optional<DatabaseTime> before) {
  Service::StalePage page;
  for (int pages = 0; pages < kPagesMax; ++pages) {
    auto writes = store.stale_writes(limit, before);
    if (!writes) return std::unexpected(Problem::from(writes.error()));
    page.next.reset();
    const bool full = writes->size() >= limit;
    if (full) before = writes->back().at;
    for (StaleWrite& write : *writes) {
      const bool visible = write.queue ? who.may_use(*write.queue) : !who.queues.has_value();
      if (visible) page.writes.push_back(std::move(write));
    }
    if (!full) return page;
    page.next = to_cursor(*before);
    if (page.writes.size() >= limit) return page;
  }
  return page;
}

std::optional<Problem> check_filter(const Principal& who, Operation operation, const ListRequest& filter) {
  if (auto problem = check_access(who, operation)) return problem;
  if (filter.queue) return check_access(who, operation, *filter.queue);
  if (!who.queues) return std::nullopt;
  std::string names;
  for (const std::string& queue : *who.queues) names += (names.empty() ? "" : ", ") + queue;
  return Problem{.code = Code::forbidden,
                 .message = "this key is not good for all queues",
                 .hint = "name one of the key's queues: " + names};
}

std::optional<Problem> check_selection(const Principal& who, Operation operation,
                                       const Selection& selection) {
  if (auto problem = check_access(who, operation)) return problem;
  if (selection.filter.has_value() != selection.ids.empty()) {
    return Problem{
        .code = Code::invalid,
        .message = selection.filter ? "there are both ids and a filter" : "there are no ids and no filter",
        .hint = "give ids, or a filter"};
  }
  if (!selection.filter) {
    if (!selection.dry_run) return std::nullopt;
    return Problem{.code = Code::invalid,
                   .message = "there is nothing to try out with ids",
                   .hint = "a dry run counts what a filter matches"};
  }
  const ListRequest& filter = *selection.filter;
  if (!filter.queue && !filter.kind && !filter.state) {
    return Problem{.code = Code::invalid,
                   .message = "the filter matches every job there is",
                   .hint = "name a queue, a kind or a state"};
  }
  return check_filter(who, operation, filter);
}

ServiceResult<std::vector<bool>> known_to(Store& store, const Principal& who, std::span<const JobId> ids) {
  std::vector<bool> known(ids.size(), true);
  if (!who.queues) return known;
  const auto queues = store.queues_of(ids);
  if (!queues) return std::unexpected(Problem::from(queues.error()));
  for (std::size_t i = 0; i < ids.size(); ++i) known[i] = (*queues)[i] && who.may_use(*(*queues)[i]);
  return known;
}

}  // namespace faultline::service

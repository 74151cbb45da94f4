#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "service/monitored_store.h"
#include "service/operations.h"
#include "service/thread_pool.h"

namespace faultline::service {

/// Cancels, requeues or purges all jobs that match a filter, page by page, from the newest to the oldest.
/// Every page is a task of its own, so that others have their turn between two of them. Jobs that are added
/// meanwhile are not looked at.
template <class Status>
class Bulk : public std::enable_shared_from_this<Bulk<Status>> {
 public:
  struct Order {
    MonitoredStore& store;
    ThreadPool& thread_pool;
    std::string account;  ///< `Principal::account` of who asked for it
    ListRequest filter;
    std::vector<JobState> states;  ///< one after the other
    bool dry_run = false;
    Act<Status> act;
    Done<Changed<Status>> done;
  };

  static void start(Order order) { std::make_shared<Bulk>(std::move(order))->post_next_page(); }

  explicit Bulk(Order order) : order_(std::move(order)) {
    order_.filter.before.reset();
    order_.filter.limit = kPage;
  }

 private:
  static constexpr std::size_t kPage = 500;

  void post_next_page() {
    order_.thread_pool.post(order_.account,
                            [self = this->shared_from_this()](bool refused) { self->turn_page(refused); });
  }

  void turn_page(bool refused) {
    if (refused) return end_early({.code = Code::unavailable, .message = "this server stops"});
    auto more = change_page();
    if (!more) return end_early(std::move(more.error()));
    if (*more) return post_next_page();
    order_.done(std::move(changed_));
  }

  /// Whether there is more to do.
  [[nodiscard]] ServiceResult<bool> change_page() {
    auto store = order_.store.get();
    if (!store) return std::unexpected(std::move(store.error()));
    order_.filter.state = order_.states[state_];
    const auto page = to_result((*store)->list(order_.filter));
    if (!page) return std::unexpected(page.error());
    std::vector<JobId> ids;
    ids.reserve(page->jobs.size());
    for (const JobSummary& job : page->jobs) ids.push_back(job.id);
    changed_.matched += ids.size();
    if (!order_.dry_run && !ids.empty()) {
      const auto statuses = order_.act(**store, ids);
      if (!statuses) return std::unexpected(statuses.error());
      changed_.changed += static_cast<std::size_t>(
          std::ranges::count_if(*statuses, [](Status status) { return is_change(status); }));
    }
    order_.filter.before = page->next;
    return page->next || ++state_ < order_.states.size();
  }

  /// Other problems say that nothing was changed. Here some of it may have been.
  void end_early(Problem problem) {
    if (changed_.changed > 0) {
      problem.code = Code::outcome_unknown;
      problem.message =
          "it was interrupted after " + std::to_string(changed_.changed) + " jobs: " + problem.message;
      problem.hint = "do it again: it goes on with the rest";
      problem.retry_after.reset();
    }
    order_.done(std::unexpected(std::move(problem)));
  }

  Order order_;
  std::size_t state_ = 0;
  Changed<Status> changed_;
};

}  // namespace faultline::service

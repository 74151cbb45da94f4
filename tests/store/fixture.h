#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "faultline/store.h"
#include "support/database.h"
#include "support/movable_clock.h"
#include "support/process.h"

namespace faultline::testing {

/// The value, or an exception with the error's text.
template <class T>
T must(Expected<T> result) {
  if (!result)
    throw std::runtime_error(std::string{to_string(result.error().code)} + ": " + result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// A store on a database of its own, whose clock the test moves.
class StoreTest : public ::testing::Test {
 protected:
  using ms = std::chrono::milliseconds;
  static constexpr ms kTtl{30'000};  // of the default queue

  StoreTest() : clock_(database_), sql_(database_.connect()), store_(open_store()) {}

  [[nodiscard]] Store open_store(StoreOptions options = {}) {
    options.database = database_.dsn();
    return must(Store::open(std::move(options)));
  }

  JobId enqueue(NewJob job = {}) {
    if (job.kind.empty()) job.kind = "test";
    return must(store_.enqueue(job)).job;
  }
  std::vector<JobId> enqueue_many(std::size_t count, NewJob job = {}) {
    if (job.kind.empty()) job.kind = "test";
    std::vector<JobId> ids;
    for (const Submission& submission : must(store_.enqueue(std::vector<NewJob>(count, job))))
      ids.push_back(submission.job);
    return ids;
  }

  std::vector<ClaimedJob> claim(std::string worker, std::size_t limit = 1, std::string queue = "default") {
    return must(store_.claim({.queue = std::move(queue), .worker = std::move(worker), .limit = limit}));
  }
  /// The one job that a claim of one gives. A job that was put back at the very moment at which it was last
  /// claimed is found soon, and on a busy machine not always at once.
  ClaimedJob claim_one(std::string worker, std::string queue = "default") {
    std::vector<ClaimedJob> jobs;
    if (!eventually([&] { return !(jobs = claim(worker, 1, queue)).empty(); })) {
      throw std::runtime_error("no job could be claimed");
    }
    return std::move(jobs.front());
  }

  Verdict settle(const Lease& lease, Outcome outcome) {
    const Settlement settlement{.lease = lease, .outcome = std::move(outcome)};
    return must(store_.settle({&settlement, 1})).front();
  }
  Verdict complete(const Lease& lease) { return settle(lease, Outcome::success()); }
  Beat heartbeat(const Lease& lease) { return must(store_.heartbeat({&lease, 1})).front(); }
  CancelStatus cancel(JobId job) { return must(store_.cancel({&job, 1}, "operator", "not wanted")).front(); }
  RequeueStatus requeue(JobId job) { return must(store_.requeue({&job, 1}, "operator")).front(); }
  std::vector<ExpiredLease> sweep() { return must(store_.expire_leases()).expired; }

  Job job(JobId id) {
    auto found = must(store_.job(id));
    if (!found) throw std::runtime_error("there is no job " + id.to_string());
    return std::move(*found);
  }
  JobHistory history(JobId id) {
    auto found = must(store_.history(id));
    if (!found) throw std::runtime_error("there is no job " + id.to_string());
    return std::move(*found);
  }
  QueueCounts counts(std::string queue = "default") { return must(store_.counts(std::move(queue))).at(0); }

  std::int64_t number(std::string_view query) {
    auto rows = must(sql_.exec({"", query}, {}, soon()));
    return rows.get<std::int64_t>(0, 0);
  }
  void script(std::string_view text) { must(sql_.exec_script(text, soon())); }
  void advance(std::chrono::microseconds by) { clock_.advance(by); }

  TestDatabase database_{Template::clocked};
  MovableClock clock_;
  pg::Connection sql_;
  Store store_;
};

}  // namespace faultline::testing

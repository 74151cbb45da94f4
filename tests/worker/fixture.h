#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "faultline/store.h"
#include "faultline/worker.h"
#include "support/database.h"
#include "support/process.h"

namespace faultline::testing {

/// Remembers every event that a worker tells of. Thread-safe.
class Events {
 public:
  [[nodiscard]] EventSink sink() {
    return [this](const Event& event) {
      const std::lock_guard lock{mutex_};
      events_.push_back(event);
    };
  }
  [[nodiscard]] std::vector<Event> of(std::string_view name) const {
    const std::lock_guard lock{mutex_};
    std::vector<Event> found;
    for (const Event& event : events_) {
      if (event.name == name) found.push_back(event);
    }
    return found;
  }
  [[nodiscard]] std::size_t count(std::string_view name) const { return of(name).size(); }

 private:
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

/// Holds handlers until the test lets them go. Nobody waits for ever, so that a failed test ends too.
/// Thread-safe.
class Gate {
 public:
  /// For a handler: waits until the gate is open.
  void pass() { static_cast<void>(pass(std::stop_token{})); }
  /// For a handler that listens: waits until the gate is open. False: the stop token fired first.
  [[nodiscard]] bool pass(const std::stop_token& stop) {
    std::unique_lock lock{mutex_};
    ++arrived_;
    changed_.wait_until(lock, stop, soon(), [&] { return open_; });
    return open_;
  }
  void open() {
    const std::lock_guard lock{mutex_};
    open_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] std::size_t arrived() const {
    const std::lock_guard lock{mutex_};
    return arrived_;
  }
  /// For the test: waits until this many handlers have come.
  [[nodiscard]] bool reached_by(std::size_t handlers) const {
    return eventually([&] { return arrived() >= handlers; });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::size_t arrived_ = 0;
  bool open_ = false;
};

/// For a handler: waits until it is told to stop, and says why.
inline StopReason wait_for_stop(const Context& context) {
  Gate never;
  static_cast<void>(never.pass(context.stop_token()));
  return context.stop_reason();
}

/// A database of the test's own with a store to add and look at jobs. Time is real here.
class WorkerTest : public ::testing::Test {
 protected:
  using ms = std::chrono::milliseconds;

  WorkerTest() : sql_(database_.connect()), store_(must(Store::open({.database = database_.dsn()}))) {}

  /// Options of a worker on this database, with its events in `events_`.
  [[nodiscard]] WorkerOptions options(std::string name = "w") {
    return {.database = database_.dsn(),
            .name = std::move(name),
            .slots = 4,
            .log = events_.sink(),
            .log_from = Severity::debug};
  }

  void set_ttl(ms ttl) { must(store_.set_queue("default", {.lease_ttl = ttl})); }

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
  Job job(JobId id) { return must(store_.job(id)).value(); }
  JobHistory history(JobId id) { return must(store_.history(id)).value(); }
  QueueCounts counts(std::string queue = "default") { return must(store_.counts(std::move(queue))).at(0); }
  [[nodiscard]] bool reaches(JobId id, JobState state) {
    return eventually([&] { return job(id).state == state; });
  }

  std::int64_t number(std::string_view query) {
    return must(sql_.exec({"", query}, {}, soon())).get<std::int64_t>(0, 0);
  }
  void script(std::string_view text) { must(sql_.exec_script(text, soon())); }
  std::int64_t evidence() { return number("SELECT count(*) FROM faultline.stale_writes"); }
  std::int64_t successes() {
    return number("SELECT count(*) FROM faultline.ledger WHERE outcome = 'succeeded'");
  }
  /// The job's outcomes, oldest first.
  std::vector<std::string> outcomes(JobId id) {
    std::vector<std::string> outcomes;
    for (const Attempt& attempt : history(id).attempts) outcomes.push_back(attempt.outcome);
    return outcomes;
  }
  /// Ends expired leases until the condition holds.
  [[nodiscard]] bool sweeping_until(const std::function<bool()>& condition) {
    return eventually([&] {
      must(store_.expire_leases());
      return condition();
    });
  }
  /// The worker has nothing in hand and nothing to take. A job that still runs waits for the end of its
  /// lease: the answer that brought it was lost, or the worker had no processor for as long as the lease
  /// lasts.
  [[nodiscard]] bool is_idle(const Worker& worker) {
    const WorkerStats now = worker.stats();
    return now.running == 0 && now.waiting == 0 && counts().available == 0;
  }
  /// A worker gave jobs back because they waited for a slot too long: the test was not quick enough.
  [[nodiscard]] bool gave_back() const { return events_.count("jobs_released") > 0; }
  /// Takes the job from the worker that runs it, as if its lease had run out, and returns its next lease. The
  /// worker must have no slot free, or it may take it again first.
  Lease take_over(JobId id, std::string queue = "default") {
    script(
        "UPDATE faultline.jobs SET lease_expires_at = faultline.clock() - interval '1 second' WHERE id = '" +
        id.to_string() +
        "';"
        "UPDATE faultline.grants SET check_at = faultline.clock() - interval '1 second'");
    must(store_.expire_leases());
    script("UPDATE faultline.jobs SET run_at = faultline.clock() WHERE id = '" + id.to_string() + "'");
    auto claimed = must(store_.claim({.queue = std::move(queue), .worker = "rival"}));
    return claimed.at(0).lease;
  }
  Verdict settle(const Lease& lease, Outcome outcome) {
    const Settlement settlement{.lease = lease, .outcome = std::move(outcome)};
    return must(store_.settle({&settlement, 1})).front();
  }
  CancelStatus cancel(JobId id, std::string reason = "not wanted") {
    return must(store_.cancel({&id, 1}, "operator", reason)).front();
  }

  TestDatabase database_;
  Events events_;
  pg::Connection sql_;
  Store store_;
};

}  // namespace faultline::testing

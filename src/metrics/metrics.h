#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "faultline/job.h"
#include "faultline/watchdog.h"
#include "metrics/table.h"

namespace faultline::metrics {

/// The metrics of one queue and kind. Made by `Metrics::series`, and lives as long as that.
class Series;

struct Settled {
  Series* series = nullptr;
  Outcome::Kind outcome = Outcome::Kind::succeeded;
  bool attempts_left = true;                       ///< of a failure: it is tried again
  std::optional<std::chrono::nanoseconds> held{};  ///< absent: not known
};

struct Executed {
  Series* series = nullptr;
  std::chrono::nanoseconds took{};
};

/// A value that somebody else knows.
struct Reading {
  Id id;
  double value = 0;
  std::vector<std::string> labels{};  ///< values, in the table's order
};

/// What a look at the database server said of it.
struct DatabaseHealth {
  double oldest_snapshot_age_seconds = 0;
  double oldest_xmin_age_transactions = 0;
  double connections = 0;
  double connections_max = 0;
};

/// Counts what happens in this process, as text for Prometheus.
///
/// Each thing is counted once: by the process that has it from the database. So what a worker does through a
/// server is counted there, and the sum over all processes is the whole. What only a worker can see, such as
/// how long handlers run, is counted by the worker.
///
/// Queues and kinds are labels, and there may be any number of them; the first 100 of each and the first
/// 1,000 pairs have series of their own, the others share one called "other".
///
/// Thread-safe. What happens to many jobs is counted in batches, so that a job costs a few nanoseconds.
class Metrics {
 public:
  static constexpr std::size_t kQueuesMax = 100;
  static constexpr std::size_t kKindsMax = 100;
  static constexpr std::size_t kPairsMax = 1'000;
  static constexpr std::string_view kOther = "other";
  /// A lease that this process knows nothing of, because another one gave it out.
  static constexpr std::string_view kUnknown = "unknown";

  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();

  [[nodiscard]] Series& series(std::string_view queue, std::string_view kind);

  // Jobs.

  void enqueued(std::span<const NewJob> jobs, std::span<const Submission> submissions);
  void claimed(std::span<const ClaimedJob> jobs);
  void settled(std::span<const Settled> settled);
  void executed(std::span<const Executed> executed);
  void renewed(Series& series, std::size_t leases = 1);
  void lost(std::string_view queue);
  void stale(std::string_view verb, StaleReason reason);
  /// Verbs and reasons that are not known count as "other".
  void stale(Outcome::Kind outcome, StaleReason reason);

  // Callers.

  /// They are there, with 0, before the first one is turned away.
  void know_refusals(std::span<const std::string_view> reasons);
  /// `reason` is one of those.
  void turned_away(std::string_view reason);

  // The watchdog.

  void swept(const Sweep& sweep);

  // What is looked at now and then. Nothing is shown of what could not be looked at.

  void show_queues(std::span<const QueueCounts> counts);
  void show_database(const DatabaseHealth& health);
  /// It does not answer: what was known of it is not shown any more.
  void database_is_lost();
  /// Violations by check.
  void show_audit(std::vector<std::pair<std::string, std::int64_t>> violations,
                  std::chrono::duration<double> took);
  void audit_failed();

  /// The worker's database or server answers, or not any more.
  void connected(bool is);

  /// Everything, and these readings besides.
  [[nodiscard]] std::string text(std::span<const Reading> readings = {}) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Finds series for one thread, which mostly asks for the one that it had last.
class Finder {
 public:
  explicit Finder(Metrics& metrics) : metrics_(metrics) {}
  [[nodiscard]] Series& operator()(std::string_view queue, std::string_view kind);

 private:
  Metrics& metrics_;
  Series* last_ = nullptr;
};

/// For `WatchdogOptions::on_sweep`.
[[nodiscard]] std::function<void(const Sweep&)> counting(std::shared_ptr<Metrics> metrics);

}  // namespace faultline::metrics

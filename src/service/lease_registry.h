#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "faultline/job.h"
#include "metrics/metrics.h"

namespace faultline::service {

/// Which job a lease belongs to, for those that were given out here lately: a result names its lease only,
/// while it is counted by queue and kind, and told to those who may see its queue. Nothing but figures and
/// events depends on it. Thread-safe.
class LeaseRegistry {
 public:
  struct Entry {
    std::shared_ptr<const std::string> queue;  ///< shared by the jobs of one claim
    metrics::Series* series = nullptr;
    bool attempts_left = true;
    std::chrono::steady_clock::time_point since{};
  };

  /// Remembers at most this many; then the oldest are forgotten.
  explicit LeaseRegistry(std::size_t leases_max) : leases_max_(leases_max) {}

  void add(metrics::Metrics& metrics, std::span<const ClaimedJob> jobs);
  [[nodiscard]] std::optional<Entry> find(const Lease& lease) const;
  /// Its settlement is sent to the database …
  void settling(const Lease& lease);
  /// … and was answered; nothing: with an error. Gives what is known of the lease, and forgets it, if that
  /// settled it. Where two of the same are under way, the one that did it is the one that knows.
  [[nodiscard]] std::optional<Entry> settled(const Lease& lease, const Verdict* verdict);

 private:
  struct Record {
    Uuid lease_id;
    Entry entry;
    std::list<JobId>::iterator place;  ///< in `in_order_`
    int settlements = 0;               ///< under way
  };
  using Records = std::unordered_map<JobId, Record>;

  [[nodiscard]] Records::iterator record_of(const Lease& lease);
  void erase(Records::iterator record);

  const std::size_t leases_max_;
  mutable std::mutex mutex_;   // guards all below
  Records records_;            ///< the latest lease of each job: those of one claim may share a lease id
  std::list<JobId> in_order_;  ///< of their claims
};

/// Whether a settlement is told of and counted here. Of one that was committed by an earlier sending, and
/// whose lease is not known here (any more), that was most likely done when it came first.
[[nodiscard]] inline bool is_news(const Verdict& verdict, const std::optional<LeaseRegistry::Entry>& known) {
  return verdict.committed() && (known || !verdict.repeated);
}

}  // namespace faultline::service

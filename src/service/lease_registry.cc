#include "service/lease_registry.h"

namespace faultline::service {

void LeaseRegistry::add(metrics::Metrics& metrics, std::span<const ClaimedJob> jobs) {
  metrics::Finder find{metrics};
  const auto now = std::chrono::steady_clock::now();
  std::shared_ptr<const std::string> queue;
  const std::lock_guard lock{mutex_};
  for (const ClaimedJob& job : jobs) {
    if (!queue || *queue != job.queue) queue = std::make_shared<const std::string>(job.queue);
    if (const auto older = records_.find(job.lease.job); older != records_.end()) erase(older);
    const Entry entry{.queue = queue,
                      .series = &find(job.queue, job.kind),
                      .attempts_left = job.attempt < job.attempts_max,
                      .since = now};
    records_.emplace(job.lease.job, Record{.lease_id = job.lease.lease_id,
                                           .entry = entry,
                                           .place = in_order_.insert(in_order_.end(), job.lease.job)});
  }
  while (records_.size() > leases_max_) erase(records_.find(in_order_.front()));
}

void LeaseRegistry::erase(Records::iterator record) {
  in_order_.erase(record->second.place);
  records_.erase(record);
}

std::optional<LeaseRegistry::Entry> LeaseRegistry::find(const Lease& lease) const {
  const std::lock_guard lock{mutex_};
  const auto found = records_.find(lease.job);
  if (found == records_.end() || found->second.lease_id != lease.lease_id) return std::nullopt;
  return found->second.entry;
}

LeaseRegistry::Records::iterator LeaseRegistry::record_of(const Lease& lease) {
  const auto found = records_.find(lease.job);
  return found != records_.end() && found->second.lease_id == lease.lease_id ? found : records_.end();
}

void LeaseRegistry::settling(const Lease& lease) {
  const std::lock_guard lock{mutex_};
  if (const auto found = record_of(lease); found != records_.end()) ++found->second.settlements;
}

std::optional<LeaseRegistry::Entry> LeaseRegistry::settled(const Lease& lease, const Verdict* verdict) {
  const std::lock_guard lock{mutex_};
  const auto found = record_of(lease);
  if (found == records_.end()) return std::nullopt;
  const bool another = --found->second.settlements > 0;
  if (verdict == nullptr || !verdict->committed() || (verdict->repeated && another)) return std::nullopt;
  const Entry entry = found->second.entry;
  erase(found);
  return entry;
}

}  // namespace faultline::service

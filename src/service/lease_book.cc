#include "service/lease_book.h"

namespace faultline::service {

void LeaseBook::enter(metrics::Metrics& metrics, std::span<const ClaimedJob> jobs) {
  metrics::Finder find{metrics};
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock{mutex_};
  for (const ClaimedJob& job : jobs) {
    if (const auto older = lines_.find(job.lease.job); older != lines_.end()) erase(older);
    const Entry entry{
        .series = &find(job.queue, job.kind), .attempts_left = job.attempt < job.attempts_max, .since = now};
    lines_.emplace(job.lease.job, Line{.lease_id = job.lease.lease_id,
                                       .entry = entry,
                                       .place = in_order_.insert(in_order_.end(), job.lease.job)});
  }
  while (lines_.size() > leases_max_) erase(lines_.find(in_order_.front()));
}

void LeaseBook::erase(Lines::iterator line) {
  in_order_.erase(line->second.place);
  lines_.erase(line);
}

std::optional<LeaseBook::Entry> LeaseBook::find(const Lease& lease) const {
  const std::lock_guard lock{mutex_};
  const auto found = lines_.find(lease.job);
  if (found == lines_.end() || found->second.lease_id != lease.lease_id) return std::nullopt;
  return found->second.entry;
}

std::optional<LeaseBook::Entry> LeaseBook::strike(const Lease& lease) {
  const std::lock_guard lock{mutex_};
  const auto found = lines_.find(lease.job);
  if (found == lines_.end() || found->second.lease_id != lease.lease_id) return std::nullopt;
  const Entry entry = found->second.entry;
  erase(found);
  return entry;
}

}  // namespace faultline::service

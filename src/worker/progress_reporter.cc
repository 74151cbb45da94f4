#include "worker/progress_reporter.h"

namespace faultline::worker {
namespace {

constexpr std::chrono::milliseconds kInterval{200};

}  // namespace

void ProgressReporter::run() {
  std::unique_lock lock{mutex_};
  while (!stopped_) {
    changed_.wait(lock, [&] { return stopped_ || !reports_.empty(); });
    if (stopped_) return;
    std::map<Attempt*, Report> reports;
    reports.swap(reports_);
    // An attempt ends under the lock, so those that are here are alive; these keep them so.
    const auto batches = coordinator_.batches();
    std::erase_if(reports, [](const auto& entry) { return !entry.first->begin_fenced_call(); });
    lock.unlock();
    write(reports);
    coordinator_.fenced_calls_over();
    lock.lock();
    changed_.wait_for(lock, kInterval, [&] { return stopped_; });
  }
}

void ProgressReporter::write(const std::map<Attempt*, Report>& reports) {
  std::vector<ProgressReport> batch;
  std::vector<Attempt*> attempts;
  for (const auto& [attempt, report] : reports) {
    attempts.push_back(attempt);
    batch.push_back({.lease = attempt->job.lease, .fraction = report.fraction, .note = report.note});
  }
  const auto verdicts = link_.progress(batch);
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    if (verdicts && (*verdicts)[i].status == Verdict::Status::stale) {
      const Stale& stale = (*verdicts)[i].stale;
      meter_.stale("progress", stale);
      const bool cancelled = stale.reason == StaleReason::cancelled;
      if (!cancelled && attempts[i]->stop(StopReason::lease_lost)) {
        meter_.lost(*attempts[i]);
        log_.tell(Severity::warning, "lease_lost", attempts[i]->job, fields_of(stale));
      }
    }
    attempts[i]->end_fenced_call();
  }
}

void ProgressReporter::stop() {
  const std::lock_guard lock{mutex_};
  stopped_ = true;
  changed_.notify_one();
}

void ProgressReporter::put(Attempt& attempt, double fraction, std::string_view note) {
  const std::lock_guard lock{mutex_};
  reports_.insert_or_assign(&attempt, Report{.fraction = fraction, .note = std::string{note}});
  changed_.notify_one();
}

void ProgressReporter::forget(Attempt& attempt) {
  const std::lock_guard lock{mutex_};
  reports_.erase(&attempt);
}

}  // namespace faultline::worker

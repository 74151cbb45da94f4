#pragma once

#include <atomic>

#include "faultline/handler.h"
#include "worker/attempt.h"
#include "worker/link.h"
#include "worker/log.h"
#include "worker/meter.h"
#include "worker/progress_reporter.h"

namespace faultline {

/// The other side of a handler's context.
class Context::Impl {
 public:
  Impl(worker::Attempt& attempt, worker::Link& link, worker::Coordinator& coordinator,
       worker::ProgressReporter& progress_reporter, const worker::Log& log, const worker::Meter& meter)
      : attempt_(attempt),
        link_(link),
        coordinator_(coordinator),
        progress_reporter_(progress_reporter),
        log_(log),
        meter_(meter) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (reported_) progress_reporter_.forget(attempt_);
  }

  [[nodiscard]] worker::Attempt& attempt() { return attempt_; }
  [[nodiscard]] const worker::Log& log() const { return log_; }
  /// The attempt was finished by `commit`, for good or for bad, and there is nothing left to be written.
  [[nodiscard]] bool committed() const { return committed_; }
  /// `commit` has taken the right to finish it, whatever came of it.
  [[nodiscard]] bool finishing() const { return finishing_; }

  void progress(double fraction, std::string_view note);
  void extend(std::chrono::milliseconds at_least);
  void check_fence();
  void commit(const std::function<Outcome(Transaction&)>& body);
  std::string once(std::string_view key, const Step& step, Unknown unknown, const Reconcile& reconcile);

 private:
  [[noreturn]] void refused(std::string_view verb, const Stale& stale);
  Effect begin_effect(const std::string& key, const Uuid& call);
  std::string run_step(const std::string& key, const Uuid& call, const Step& step);
  std::string record(const std::string& key, std::string result);
  /// Asks the ledger about a commit whose answer was lost, as long as the lease lasts.
  [[nodiscard]] bool found_committed();

  worker::Attempt& attempt_;
  worker::Link& link_;
  worker::Coordinator& coordinator_;
  worker::ProgressReporter& progress_reporter_;
  const worker::Log& log_;
  const worker::Meter& meter_;
  std::atomic<bool> reported_{false};
  bool finishing_ = false;
  bool committed_ = false;
};

}  // namespace faultline

#include "worker/executor.h"

#include "worker/context.h"

namespace faultline::worker {

void Executor::run() {
  Coordinator::ResultBuffer buffer{coordinator_};
  std::vector<Attempt*> jobs;
  while (coordinator_.next_jobs(buffer, jobs)) {
    put_begins_on_record(jobs);
    for (Attempt* attempt : jobs) {
      const auto begin = begins_.find(attempt);
      Coordinator::Finished finished = run(*attempt, begin == begins_.end() ? nullptr : &begin->second);
      // After the put the attempt may be gone.
      if (finished.took)
        executed_.push_back(
            {.series = &find_series_(attempt->job.queue, attempt->job.kind), .took = *finished.took});
      buffer.put(std::move(finished));
    }
    meter_.executed(executed_);
    executed_.clear();
  }
}

Coordinator::Finished Executor::run(Attempt& attempt, const Beat* begin) {
  Coordinator::Finished finished{.attempt = &attempt};
  const Clock::time_point began = Clock::now();
  if (began >= attempt.deadline()) attempt.stop(StopReason::lease_lost);
  if (!attempt.begin()) return finished;
  if (attempt.stop_reason() == StopReason::lease_lost) {
    finished.owns_outcome = attempt.finish();
    return finished;
  }
  if (begin != nullptr) {
    std::optional<Outcome> instead;
    if (!may_begin(attempt, *begin, instead)) {
      finished.owns_outcome = attempt.finish();
      finished.outcome = std::move(instead);
      return finished;
    }
  }
  if (exporter_ != nullptr) attempt.trace(trace::ExecutionSpan::begin(*exporter_, attempt.job));
  Context::Impl impl{attempt, link_, coordinator_, progress_reporter_, log_, meter_};
  Context context{impl};
  std::optional<Outcome> outcome = call(context, attempt);
  finished.took = Clock::now() - began;
  finished.owns_outcome = impl.finishing() || attempt.finish();
  if (impl.committed()) outcome.reset();
  if (outcome && attempt.stop_reason() == StopReason::cancelled) outcome = attempt.cancellation();
  if (outcome) {
    if (auto problem = store::check_outcome(*outcome, limits_))
      outcome = Outcome::failure("the handler's outcome cannot be stored: " + problem->describe());
  }
  finished.outcome = std::move(outcome);
  if (trace::ExecutionSpan* execution = attempt.execution();
      execution != nullptr && finished.owns_outcome && !finished.outcome) {
    const StopReason why = attempt.stop_reason();
    execution->end(why == StopReason::none ? "unknown" : to_string(why), "nothing is known to be committed");
  }
  return finished;
}

void Executor::put_begins_on_record(const std::vector<Attempt*>& jobs) {
  begins_.clear();
  if (link_.through_server()) return;  // where a claim counts as a begin
  std::vector<Attempt*> attempts;
  std::vector<Lease> leases;
  std::vector<Stage> stages;
  for (Attempt* attempt : jobs) {
    if (!attempt->begins_on_record() || !attempt->begin_fenced_call()) continue;
    attempts.push_back(attempt);
    leases.push_back(attempt->job.lease);
    stages.push_back(attempt->begun_stage());
  }
  if (attempts.empty()) return;
  const Clock::time_point sent_at = Clock::now();
  auto beats = link_.heartbeat(leases, stages);
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    Beat& begin = begins_[attempts[i]];
    begin = beats ? std::move((*beats)[i]) : Beat{.status = Beat::Status::unknown};
    if (begin.status == Beat::Status::renewed) attempts[i]->renew(sent_at, attempts[i]->job.lease_ttl);
    attempts[i]->end_fenced_call();
  }
  coordinator_.fenced_calls_over();
}

bool Executor::may_begin(Attempt& attempt, const Beat& begin, std::optional<Outcome>& instead) {
  switch (begin.status) {
    case Beat::Status::renewed:
      return true;
    case Beat::Status::unknown:
      instead = Outcome::release();
      return false;
    case Beat::Status::cancel_requested:
      attempt.cancel(begin.cancel_reason.value_or(""));
      instead = attempt.cancellation();
      return false;
    case Beat::Status::lost:
      break;
  }
  meter_.stale("heartbeat", begin.stale);
  if (attempt.stop(StopReason::lease_lost)) {
    meter_.lost(attempt);
    log_.tell(Severity::warning, "lease_lost", attempt.job, fields_of(begin.stale));
  }
  return false;
}

std::optional<Outcome> Executor::call(Context& context, Attempt& attempt) {
  const Handler* handler = handlers_.find(attempt.job.kind);
  if (handler == nullptr) {
    log_.tell(Severity::warning, "no_handler", attempt.job);
    return Outcome::failure("worker " + log_.worker() + " has no handler for the kind \"" + attempt.job.kind +
                            "\"");
  }
  log_.tell(Severity::debug, "execution_started", attempt.job);
  const auto failed = [&](std::string_view error) {
    log_.tell(Severity::info, "execution_failed", attempt.job, {{"error", std::string{error}}});
    return Outcome::failure(std::string{error});
  };
  try {
    return (*handler)(context);
  } catch (const Stopped&) {
    return after_stop(attempt);
  } catch (const LeaseLost&) {
    return std::nullopt;
  } catch (const EffectUnknown& unknown) {
    return Outcome::bury(unknown.what());
  } catch (const Fail& fail) {
    failed(fail.error);
    return fail;
  } catch (const Snooze& snooze) {
    return snooze;
  } catch (const Cancel& cancel) {
    return cancel;
  } catch (const Bury& bury) {
    return bury;
  } catch (const std::exception& error) {
    return failed(error.what());
  } catch (...) {
    return failed("the handler threw something that is no std::exception");
  }
}

std::optional<Outcome> Executor::after_stop(const Attempt& attempt) const {
  switch (attempt.stop_reason()) {
    case StopReason::cancelled:
      return attempt.cancellation();
    case StopReason::draining:
      return Outcome::release();
    case StopReason::none:
      return Outcome::failure("the handler stopped by itself");
    case StopReason::lease_lost:
    case StopReason::run_max:  // a lease does not outlive the maximum run time
      break;
  }
  return std::nullopt;
}

}  // namespace faultline::worker

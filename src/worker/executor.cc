#include "worker/executor.h"

#include "worker/context.h"

namespace faultline::worker {

void Executor::run() {
  Coordinator::ResultBuffer buffer{coordinator_};
  std::vector<Attempt*> jobs;
  while (coordinator_.next_jobs(buffer, jobs)) {
    for (Attempt* attempt : jobs) {
      Coordinator::Finished finished = run(*attempt);
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

Coordinator::Finished Executor::run(Attempt& attempt) {
  Coordinator::Finished finished{.attempt = &attempt};
  const Clock::time_point began = Clock::now();
  if (began >= attempt.deadline()) attempt.stop(StopReason::lease_lost);
  if (!attempt.begin()) return finished;
  if (attempt.stop_reason() == StopReason::lease_lost) {
    finished.owns_outcome = attempt.finish();
    return finished;
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

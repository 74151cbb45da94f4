#include "worker/context.h"

#include <stdexcept>
#include <thread>

namespace faultline {

using worker::Clock;
using worker::FencedCall;

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::none:
      return "none";
    case StopReason::lease_lost:
      return "lease_lost";
    case StopReason::cancelled:
      return "cancelled";
    case StopReason::run_max:
      return "run_max";
    case StopReason::draining:
      return "draining";
  }
  return "none";
}

EffectUnknown::EffectUnknown(std::string key, UnknownEffect effect)
    : effect_(std::move(effect)),
      text_("the effect \"" + std::move(key) + "\" was begun under token " +
            std::to_string(effect_.begun_under.value) +
            " and never recorded, so it may have happened; look for " + effect_.id +
            " on the other side, say what you found (faultline jobs decide) and requeue the job, or give "
            "once() a function that looks") {}

// What the handler calls.

const ClaimedJob& Context::job() const { return impl_.attempt().job; }
const std::string& Context::traceparent() const {
  static const std::string none;
  const worker::Attempt& attempt = impl_.attempt();
  if (const trace::ExecutionSpan* execution = attempt.execution()) return execution->traceparent();
  return attempt.job.traceparent ? *attempt.job.traceparent : none;
}
Clock::time_point Context::deadline() const { return impl_.attempt().deadline(); }
std::stop_token Context::stop_token() const { return impl_.attempt().stop_token(); }
StopReason Context::stop_reason() const { return impl_.attempt().stop_reason(); }

void Context::throw_if_stopped() const {
  if (const StopReason reason = stop_reason(); reason != StopReason::none) throw Stopped{reason};
}

void Context::progress(double fraction, std::string_view note) { impl_.progress(fraction, note); }
void Context::extend(std::chrono::milliseconds at_least) { impl_.extend(at_least); }
void Context::check_fence() { impl_.check_fence(); }

void Context::log(std::string_view message, std::vector<std::pair<std::string, std::string>> fields) {
  log(Severity::info, message, std::move(fields));
}

void Context::log(Severity severity, std::string_view message,
                  std::vector<std::pair<std::string, std::string>> fields) {
  fields.emplace(fields.begin(), "message", message);
  impl_.log().tell(severity, "handler_log", job(), std::move(fields));
}

void Context::commit_with(const std::function<Outcome(Transaction&)>& body) { impl_.commit(body); }

std::string Context::once_with(std::string_view key, const Step& step, Unknown unknown,
                               const Reconcile& reconcile) {
  return impl_.once(key, step, unknown, reconcile);
}

std::string Context::effect_id(std::string_view key) const {
  return job().lease.job.to_string() + "/" + std::string{key};
}

// Behind it.

namespace {

[[noreturn]] void failed(Error error) { throw StoreError{std::move(error)}; }

/// Of a call that comes when the attempt's outcome is on its way: from a thread that outlived its handler.
LeaseLost too_late() { return LeaseLost{{.reason = StaleReason::already_settled}}; }

}  // namespace

void Context::Impl::refused(std::string_view verb, const Stale& stale) {
  worker::Log::Fields fields = fields_of(stale);
  fields.insert(fields.begin(), {"verb", std::string{verb}});
  log_.tell(Severity::warning, "stale_write_blocked", attempt_.job, std::move(fields));
  if (trace::ExecutionSpan* execution = attempt_.execution()) execution->refused(verb, stale);
  coordinator_.count_stale(1);
  meter_.stale(verb, stale);
  if (stale.reason == StaleReason::cancelled) {
    attempt_.cancel("");
    throw Stopped{StopReason::cancelled};
  }
  if (attempt_.stop(StopReason::lease_lost)) meter_.lost(attempt_);
  throw LeaseLost{stale};
}

void Context::Impl::progress(double fraction, std::string_view note) {
  if (!(fraction >= 0 && fraction <= 1)) throw std::invalid_argument("progress is a fraction from 0 to 1");
  reported_ = true;
  progress_reporter_.put(attempt_, fraction, note);
}

void Context::Impl::extend(std::chrono::milliseconds at_least) {
  const FencedCall fenced_call{attempt_};
  if (!fenced_call) throw too_late();
  // It stands for a beat, so it renews for as long as a beat does.
  at_least = std::max(at_least, attempt_.job.lease_ttl);
  const Clock::time_point sent_at = Clock::now();
  auto beats = link_.extend({&attempt_.job.lease, 1}, at_least);
  if (!beats) failed(std::move(beats.error()));
  const Beat& beat = beats->front();
  if (beat.status == Beat::Status::lost) refused("extend", beat.stale);
  if (beat.status == Beat::Status::unknown) {
    failed({.code = ErrorCode::unavailable,
            .message = "whether the lease was extended is not known",
            .hint = "a lease is renewed only when the answer says so; try again"});
  }
  if (beat.status == Beat::Status::cancel_requested) {
    attempt_.cancel(beat.cancel_reason.value_or(""));
    throw Stopped{StopReason::cancelled};
  }
  attempt_.renew(sent_at, at_least);
}

void Context::Impl::check_fence() {
  const FencedCall fenced_call{attempt_};
  if (!fenced_call) throw too_late();
  auto verdicts = link_.check({&attempt_.job.lease, 1});
  if (!verdicts) failed(std::move(verdicts.error()));
  if (verdicts->front().status == Verdict::Status::unknown) {
    failed({.code = ErrorCode::unavailable,
            .message = "whether the lease is still good could not be found out",
            .hint = "try again"});
  }
  if (!verdicts->front().committed()) refused("check", verdicts->front().stale);
}

void Context::Impl::commit(const std::function<Outcome(Transaction&)>& body) {
  if (committed_) throw std::logic_error("commit was called twice: it is the attempt's end");
  Outcome outcome;
  bool closed = false;
  const auto reopen = [&] {
    if (std::exchange(closed, false)) attempt_.reopen();
  };
  const auto attempt_body = [&](Transaction& tx) {
    reopen();  // it is run again
    outcome = body(tx);
    if (!finishing_ && !attempt_.finish()) throw too_late();
    finishing_ = true;
    // From here on no heartbeat meets the settlement.
    attempt_.close();
    closed = true;
    return outcome;
  };
  Expected<Verdict> verdict;
  try {
    verdict = link_.transact(attempt_.job.lease, attempt_body);
  } catch (...) {
    reopen();
    throw;
  }
  if (!verdict) {
    reopen();
    failed(std::move(verdict.error()));
  }
  // Whatever it is, there is nothing left to be written.
  committed_ = true;
  finishing_ = true;
  if (verdict->status == Verdict::Status::unknown && !found_committed()) {
    failed(
        {.code = ErrorCode::outcome_unknown,
         .message = "the answer to the transaction's COMMIT was lost, and the ledger could not tell in time",
         .hint = "if it was committed the job is over, else it is tried again when the lease has run out"});
  }
  if (verdict->status == Verdict::Status::stale) refused("commit", verdict->stale);
  if (trace::ExecutionSpan* execution = attempt_.execution()) execution->end(outcome);
  coordinator_.count_settled(outcome.kind);
  worker::Meter::Settlements{meter_}.add(attempt_, outcome.kind);
  log_.tell(Severity::debug, "job_settled", attempt_.job,
            {{"outcome", std::string{to_string(outcome.kind)}}});
}

bool Context::Impl::found_committed() {
  while (Clock::now() < attempt_.deadline()) {
    const auto outcomes = link_.resolve({&attempt_.job.lease, 1});
    if (outcomes && outcomes->front()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
  }
  return false;
}

Effect Context::Impl::begin_effect(const std::string& key, const Uuid& call) {
  const FencedCall fenced_call{attempt_};
  if (!fenced_call) throw too_late();
  const EffectKey item{.lease = attempt_.job.lease, .key = key, .call = call};
  auto effects = link_.begin_effects({&item, 1});
  if (!effects) failed(std::move(effects.error()));
  if (effects->front().status == Effect::Status::stale) refused("effect", effects->front().stale);
  return std::move(effects->front());
}

std::string Context::Impl::run_step(const std::string& key, const Uuid& call, const Step& step) {
  try {
    return step();
  } catch (const NotDone&) {
    const FencedCall fenced_call{attempt_};
    if (!fenced_call) throw;
    const EffectKey item{.lease = attempt_.job.lease, .key = key, .call = call};
    // If this fails the effect stays unknown, and the next attempt asks.
    static_cast<void>(link_.forget_effects({&item, 1}));
    throw;
  }
}

std::string Context::Impl::record(const std::string& key, std::string result) {
  const FencedCall fenced_call{attempt_};
  if (!fenced_call) throw too_late();
  const EffectResult item{.lease = attempt_.job.lease, .key = key, .result = std::move(result)};
  auto effects = link_.record_effects({&item, 1});
  if (!effects) failed(std::move(effects.error()));
  if (effects->front().status == Effect::Status::stale) refused("effect", effects->front().stale);
  return std::move(effects->front().result).value_or("");
}

std::string Context::Impl::once(std::string_view key_view, const Step& step, Unknown unknown,
                                const Reconcile& reconcile) {
  const std::string key{key_view};
  const Uuid call = Uuid::random();
  Effect effect = begin_effect(key, call);
  if (effect.status == Effect::Status::recorded) return std::move(effect.result).value_or("");
  if (effect.status == Effect::Status::unknown && unknown != Unknown::run) {
    UnknownEffect question{.id = attempt_.job.lease.job.to_string() + "/" + key,
                           .begun_under = effect.begun_under.value_or(FenceToken{})};
    if (unknown == Unknown::refuse) throw EffectUnknown{key, std::move(question)};
    if (auto found = reconcile(question)) return record(key, std::move(*found));
  }
  return record(key, run_step(key, call, step));
}

}  // namespace faultline

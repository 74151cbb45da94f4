#include "wire/convert.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/utf8.h"

namespace faultline::wire {
namespace {

using google::protobuf::Timestamp;
using std::chrono::milliseconds;

// What a Timestamp can hold: the years 1 to 9999.
constexpr std::chrono::seconds kFirstSecond{-62'135'596'800};
constexpr std::chrono::seconds kLastSecond{253'402'300'799};

std::unexpected<Error> bad(std::string field, std::string_view what, std::string hint) {
  field.append(": ").append(what);
  return std::unexpected(
      Error{.code = ErrorCode::invalid_argument, .message = std::move(field), .hint = std::move(hint)});
}

/// An error inside of `field`.
std::unexpected<Error> within(std::string_view field, Error error) {
  error.message.insert(0, std::string{field} + ".");
  return std::unexpected(std::move(error));
}

// Moments before the year 1 and after 9999, which infinity is, go out as the earliest and the latest.
void set(Timestamp& to, DatabaseTime time) {
  constexpr DatabaseTime earliest{kFirstSecond};
  constexpr DatabaseTime latest{kLastSecond + std::chrono::microseconds{999'999}};
  const auto since_epoch = std::clamp(time, earliest, latest).time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  to.set_seconds(seconds.count());
  to.set_nanos(static_cast<std::int32_t>(std::chrono::nanoseconds{since_epoch - seconds}.count()));
}

Expected<DatabaseTime> time_of(const char* field, const Timestamp& from) {
  const bool year_fits = from.seconds() >= kFirstSecond.count() && from.seconds() <= kLastSecond.count();
  if (!year_fits || from.nanos() < 0 || from.nanos() > 999'999'999) {
    return bad(field, "it is not a moment between the years 1 and 9999", "nanos are 0 to 999999999");
  }
  return DatabaseTime{std::chrono::seconds{from.seconds()} + std::chrono::microseconds{from.nanos() / 1'000}};
}

/// A moment in a message that this project's server made.
DatabaseTime trusted_time(const Timestamp& from) { return time_of("", from).value_or(DatabaseTime{}); }

Expected<Uuid> uuid_of(const char* field, const std::string& text) {
  if (const auto uuid = Uuid::parse(text)) return *uuid;
  return bad(field, text.empty() ? "it is missing" : "it is not a UUID",
             "a UUID looks like 0190c7a2-1b1e-7000-8000-000000000000");
}

pb::Encoding to_enum(Encoding encoding) {
  return encoding == Encoding::bytes ? pb::ENCODING_BYTES : pb::ENCODING_JSON;
}
Expected<Encoding> from_enum(pb::Encoding encoding) {
  switch (encoding) {
    case pb::ENCODING_JSON:
      return Encoding::json;
    case pb::ENCODING_BYTES:
      return Encoding::bytes;
    default:
      return bad("encoding", "it is not known here", "ENCODING_JSON and ENCODING_BYTES are");
  }
}

pb::Delivery to_enum(Delivery delivery) {
  switch (delivery) {
    case Delivery::at_most_once:
      return pb::DELIVERY_AT_MOST_ONCE;
    case Delivery::hold:
      return pb::DELIVERY_HOLD;
    case Delivery::at_least_once:
      break;
  }
  return pb::DELIVERY_AT_LEAST_ONCE;
}
Expected<Delivery> from_enum(pb::Delivery delivery) {
  switch (delivery) {
    case pb::DELIVERY_AT_LEAST_ONCE:
      return Delivery::at_least_once;
    case pb::DELIVERY_AT_MOST_ONCE:
      return Delivery::at_most_once;
    case pb::DELIVERY_HOLD:
      return Delivery::hold;
    default:
      return bad("delivery", "it is not known here",
                 "DELIVERY_AT_LEAST_ONCE, DELIVERY_AT_MOST_ONCE and DELIVERY_HOLD are");
  }
}

pb::Stale::Reason to_enum(StaleReason reason) {
  switch (reason) {
    case StaleReason::lease_expired:
      return pb::Stale::LEASE_EXPIRED;
    case StaleReason::already_settled:
      return pb::Stale::ALREADY_SETTLED;
    case StaleReason::cancelled:
      return pb::Stale::CANCELLED;
    case StaleReason::token_mismatch:
      break;
  }
  return pb::Stale::TOKEN_MISMATCH;
}
StaleReason from_enum(pb::Stale::Reason reason) {
  switch (reason) {
    case pb::Stale::LEASE_EXPIRED:
      return StaleReason::lease_expired;
    case pb::Stale::ALREADY_SETTLED:
      return StaleReason::already_settled;
    case pb::Stale::CANCELLED:
      return StaleReason::cancelled;
    default:
      return StaleReason::token_mismatch;
  }
}

/// The lease of a message that must have one.
template <class Message>
Expected<Lease> lease_of(const Message& message) {
  if (!message.has_lease()) return bad("lease", "it is missing", "send it as the assignment brought it");
  auto lease = from_proto(message.lease());
  if (!lease) return within("lease", std::move(lease.error()));
  return lease;
}

template <class Repeated>
std::vector<std::string> take(
    Repeated&& texts) {  // NOLINT(cppcoreguidelines-missing-std-forward): its elements are
  return {std::make_move_iterator(texts.begin()), std::make_move_iterator(texts.end())};
}

pb::Job message_of(Job&& job) {
  pb::Job to;
  to.set_id(job.id.to_string());
  to.set_queue(std::move(job.queue));
  to.set_kind(std::move(job.kind));
  to.set_state(to_proto(job.state));
  to.set_priority(job.priority);
  to.set_attempt(job.attempt);
  if (job.attempts_max) to.set_attempts_max(*job.attempts_max);
  to.set_token(job.token.value);
  to.set_requeues(job.requeues);
  set(*to.mutable_run_at(), job.run_at);
  set(*to.mutable_created_at(), job.created_at);
  if (job.claimed_at) set(*to.mutable_claimed_at(), *job.claimed_at);
  if (job.lease_expires_at) set(*to.mutable_lease_expires_at(), *job.lease_expires_at);
  if (job.finished_at) set(*to.mutable_finished_at(), *job.finished_at);
  if (job.died_at) set(*to.mutable_died_at(), *job.died_at);
  if (job.worker) to.set_worker(std::move(*job.worker));
  to.set_delivery(to_enum(job.delivery));
  to.set_encoding(to_enum(job.encoding));
  to.set_payload(std::move(job.payload));
  if (job.result) to.set_result(std::move(*job.result));
  if (job.last_error) to.set_last_error(std::move(*job.last_error));
  if (job.progress) to.set_progress(*job.progress);
  if (job.progress_note) to.set_progress_note(std::move(*job.progress_note));
  if (job.cancel_requested_at) set(*to.mutable_cancel_requested_at(), *job.cancel_requested_at);
  if (job.cancel_reason) to.set_cancel_reason(std::move(*job.cancel_reason));
  if (job.idempotency_key) to.set_idempotency_key(std::move(*job.idempotency_key));
  for (std::string& tag : job.tags) to.add_tags(std::move(tag));
  if (job.lease_ttl) to.set_lease_ttl_ms(job.lease_ttl->count());
  if (job.run_max) to.set_run_max_ms(job.run_max->count());
  if (job.backoff_base) to.set_backoff_base_ms(job.backoff_base->count());
  if (job.backoff_max) to.set_backoff_max_ms(job.backoff_max->count());
  if (job.traceparent) to.set_traceparent(std::move(*job.traceparent));
  return to;
}

pb::Attempt message_of(Attempt&& attempt) {
  pb::Attempt to;
  to.set_token(attempt.token.value);
  to.set_attempt(attempt.attempt);
  to.set_outcome(std::move(attempt.outcome));
  to.set_state(std::move(attempt.state));
  if (attempt.worker) to.set_worker(std::move(*attempt.worker));
  if (attempt.written_by) to.set_written_by(std::move(*attempt.written_by));
  if (attempt.started_at) set(*to.mutable_started_at(), *attempt.started_at);
  if (attempt.lease_expires_at) set(*to.mutable_lease_expires_at(), *attempt.lease_expires_at);
  set(*to.mutable_ended_at(), attempt.ended_at);
  if (attempt.error) to.set_error(std::move(*attempt.error));
  to.set_requeues(attempt.requeues);
  return to;
}

pb::EffectDecision message_of(const EffectDecision& decision) {
  pb::EffectDecision to;
  to.set_key(decision.key);
  to.set_token(decision.token.value);
  to.set_happened(decision.happened);
  set(*to.mutable_decided_at(), decision.decided_at);
  to.set_decided_by(decision.decided_by);
  to.set_reason(decision.reason);
  return to;
}

pb::EffectRecord message_of(EffectRecord&& effect) {
  pb::EffectRecord to;
  to.set_key(std::move(effect.key));
  to.set_token(effect.token.value);
  to.set_worker(std::move(effect.worker));
  set(*to.mutable_started_at(), effect.started_at);
  if (effect.recorded_at) set(*to.mutable_recorded_at(), *effect.recorded_at);
  if (effect.result) to.set_result(std::move(*effect.result));
  return to;
}

}  // namespace

pb::Lease to_proto(const Lease& lease) {
  pb::Lease to;
  to.set_job_id(lease.job.to_string());
  to.set_token(lease.token.value);
  to.set_lease_id(lease.lease_id.to_string());
  to.set_worker(lease.worker);
  return to;
}

Expected<Lease> from_proto(const pb::Lease& lease) {
  const auto job = job_id(lease.job_id());
  if (!job) return std::unexpected(job.error());
  const auto id = uuid_of("lease_id", lease.lease_id());
  if (!id) return std::unexpected(id.error());
  return Lease{.job = *job, .token = {lease.token()}, .lease_id = *id, .worker = lease.worker()};
}

pb::NewJob to_proto(const NewJob& job) {
  pb::NewJob to;
  to.set_queue(job.queue);
  to.set_kind(job.kind);
  to.set_payload(job.payload);
  to.set_encoding(to_enum(job.encoding));
  to.set_priority(job.priority);
  if (job.run_at) set(*to.mutable_run_at(), *job.run_at);
  if (job.delay) to.set_delay_ms(job.delay->count());
  if (job.idempotency_key) to.set_idempotency_key(*job.idempotency_key);
  if (job.attempts_max) to.set_attempts_max(*job.attempts_max);
  if (job.lease_ttl) to.set_lease_ttl_ms(job.lease_ttl->count());
  if (job.run_max) to.set_run_max_ms(job.run_max->count());
  if (job.backoff_base) to.set_backoff_base_ms(job.backoff_base->count());
  if (job.backoff_max) to.set_backoff_max_ms(job.backoff_max->count());
  to.set_delivery(to_enum(job.delivery));
  for (const std::string& tag : job.tags) to.add_tags(tag);
  if (job.traceparent) to.set_traceparent(*job.traceparent);
  return to;
}

Expected<NewJob> from_proto(pb::NewJob&& job) {
  const auto encoding = from_enum(job.encoding());
  if (!encoding) return std::unexpected(encoding.error());
  const auto delivery = from_enum(job.delivery());
  if (!delivery) return std::unexpected(delivery.error());
  NewJob to{.kind = std::move(*job.mutable_kind()),
            .encoding = *encoding,
            .delivery = *delivery,
            .tags = take(std::move(*job.mutable_tags()))};
  if (!job.queue().empty()) to.queue = std::move(*job.mutable_queue());
  if (to.encoding == Encoding::bytes || !job.payload().empty())
    to.payload = std::move(*job.mutable_payload());
  if (job.has_priority()) to.priority = job.priority();
  if (job.has_run_at()) {
    const auto run_at = time_of("run_at", job.run_at());
    if (!run_at) return std::unexpected(run_at.error());
    to.run_at = *run_at;
  }
  if (job.has_delay_ms()) to.delay = milliseconds{job.delay_ms()};
  if (job.has_idempotency_key()) to.idempotency_key = std::move(*job.mutable_idempotency_key());
  if (job.has_attempts_max()) to.attempts_max = job.attempts_max();
  if (job.has_lease_ttl_ms()) to.lease_ttl = milliseconds{job.lease_ttl_ms()};
  if (job.has_run_max_ms()) to.run_max = milliseconds{job.run_max_ms()};
  if (job.has_backoff_base_ms()) to.backoff_base = milliseconds{job.backoff_base_ms()};
  if (job.has_backoff_max_ms()) to.backoff_max = milliseconds{job.backoff_max_ms()};
  if (job.has_traceparent()) to.traceparent = std::move(*job.mutable_traceparent());
  return to;
}

pb::Submission to_proto(const Submission& submission) {
  pb::Submission to;
  switch (submission.status) {
    case Submission::Status::created:
      to.set_status(pb::Submission::CREATED);
      break;
    case Submission::Status::existing:
      to.set_status(pb::Submission::EXISTING);
      break;
    case Submission::Status::conflict:
      to.set_status(pb::Submission::CONFLICT);
      break;
  }
  to.set_job_id(submission.job.to_string());
  return to;
}

Expected<Submission> from_proto(const pb::Submission& submission) {
  const auto job = job_id(submission.job_id());
  if (!job) return std::unexpected(job.error());
  Submission to{.job = *job};
  switch (submission.status()) {
    case pb::Submission::CREATED:
      to.status = Submission::Status::created;
      break;
    case pb::Submission::EXISTING:
      to.status = Submission::Status::existing;
      break;
    case pb::Submission::CONFLICT:
      to.status = Submission::Status::conflict;
      break;
    default:
      return bad("status", "it is not known here", "the server is newer than this program");
  }
  return to;
}

pb::JobAssignment to_proto(ClaimedJob&& job) {
  pb::JobAssignment to;
  *to.mutable_lease() = to_proto(job.lease);
  set(*to.mutable_lease_expires_at(), job.lease_expires_at);
  to.set_lease_ttl_ms(job.lease_ttl.count());
  to.set_queue(std::move(job.queue));
  to.set_kind(std::move(job.kind));
  to.set_payload(std::move(job.payload));
  to.set_encoding(to_enum(job.encoding));
  to.set_priority(job.priority);
  to.set_attempt(job.attempt);
  to.set_attempts_max(job.attempts_max);
  to.set_requeues(job.requeues);
  set(*to.mutable_run_at(), job.run_at);
  set(*to.mutable_created_at(), job.created_at);
  if (job.run_max) to.set_run_max_ms(job.run_max->count());
  to.set_delivery(to_enum(job.delivery));
  for (std::string& tag : job.tags) to.add_tags(std::move(tag));
  if (job.traceparent) to.set_traceparent(std::move(*job.traceparent));
  to.set_suspect(job.suspect);
  return to;
}

Expected<ClaimedJob> from_proto(pb::JobAssignment&& job) {
  auto lease = lease_of(job);
  if (!lease) return std::unexpected(std::move(lease.error()));
  const auto encoding = from_enum(job.encoding());
  if (!encoding) return std::unexpected(encoding.error());
  const auto delivery = from_enum(job.delivery());
  if (!delivery) return std::unexpected(delivery.error());
  ClaimedJob to{.lease = std::move(*lease),
                .lease_expires_at = trusted_time(job.lease_expires_at()),
                .lease_ttl = milliseconds{job.lease_ttl_ms()},
                .queue = std::move(*job.mutable_queue()),
                .kind = std::move(*job.mutable_kind()),
                .payload = std::move(*job.mutable_payload()),
                .encoding = *encoding,
                .priority = job.priority(),
                .attempt = job.attempt(),
                .attempts_max = job.attempts_max(),
                .requeues = job.requeues(),
                .run_at = trusted_time(job.run_at()),
                .created_at = trusted_time(job.created_at()),
                .delivery = *delivery,
                .tags = take(std::move(*job.mutable_tags())),
                .suspect = job.suspect()};
  if (job.has_run_max_ms()) to.run_max = milliseconds{job.run_max_ms()};
  if (job.has_traceparent()) to.traceparent = std::move(*job.mutable_traceparent());
  return to;
}

pb::Stale to_proto(const Stale& stale) {
  pb::Stale to;
  to.set_reason(to_enum(stale.reason));
  if (stale.current_token) to.set_current_token(stale.current_token->value);
  if (stale.current_worker) to.set_current_worker(*stale.current_worker);
  if (stale.current_state) to.set_current_state(to_proto(*stale.current_state));
  return to;
}

Stale from_proto(const pb::Stale& stale) {
  Stale to{.reason = from_enum(stale.reason()), .current_state = from_proto(stale.current_state())};
  if (stale.has_current_token()) to.current_token = FenceToken{stale.current_token()};
  if (stale.has_current_worker()) to.current_worker = stale.current_worker();
  return to;
}

pb::Verdict to_proto(const Verdict& verdict, const Lease& lease) {
  pb::Verdict to;
  switch (verdict.status) {
    case Verdict::Status::committed:
      to.set_status(pb::Verdict::COMMITTED);
      break;
    case Verdict::Status::stale:
      to.set_status(pb::Verdict::STALE);
      *to.mutable_stale() = to_proto(verdict.stale);
      break;
    case Verdict::Status::unknown:
      to.set_status(pb::Verdict::UNKNOWN);
      break;
  }
  to.set_token(lease.token.value);
  to.set_job_id(lease.job.to_string());
  to.set_repeated(verdict.repeated);
  return to;
}

Verdict from_proto(const pb::Verdict& verdict) {
  Verdict to{.stale = from_proto(verdict.stale()), .repeated = verdict.repeated()};
  switch (verdict.status()) {
    case pb::Verdict::COMMITTED:
      to.status = Verdict::Status::committed;
      break;
    case pb::Verdict::STALE:
      to.status = Verdict::Status::stale;
      break;
    default:
      to.status = Verdict::Status::unknown;
      break;
  }
  return to;
}

pb::Beat to_proto(const Beat& beat) {
  pb::Beat to;
  switch (beat.status) {
    case Beat::Status::renewed:
      to.set_status(pb::Beat::RENEWED);
      break;
    case Beat::Status::cancel_requested:
      to.set_status(pb::Beat::CANCEL_REQUESTED);
      break;
    case Beat::Status::lost:
      to.set_status(pb::Beat::LOST);
      break;
    case Beat::Status::unknown:
      to.set_status(pb::Beat::UNKNOWN);
      break;
  }
  if (beat.status == Beat::Status::lost) {
    *to.mutable_stale() = to_proto(beat.stale);
  } else if (beat.status != Beat::Status::unknown) {
    set(*to.mutable_lease_expires_at(), beat.lease_expires_at);
  }
  if (beat.cancel_reason) to.set_cancel_reason(*beat.cancel_reason);
  return to;
}

Beat from_proto(const pb::Beat& beat) {
  Beat to{.lease_expires_at = trusted_time(beat.lease_expires_at()), .stale = from_proto(beat.stale())};
  if (beat.has_cancel_reason()) to.cancel_reason = beat.cancel_reason();
  switch (beat.status()) {
    case pb::Beat::RENEWED:
      to.status = Beat::Status::renewed;
      break;
    case pb::Beat::CANCEL_REQUESTED:
      to.status = Beat::Status::cancel_requested;
      break;
    case pb::Beat::LOST:
      to.status = Beat::Status::lost;
      break;
    default:
      to.status = Beat::Status::unknown;
      break;  // what is not understood is not a renewal
  }
  return to;
}

pb::Outcome::Kind to_proto(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::Kind::failed:
      return pb::Outcome::FAILED;
    case Outcome::Kind::buried:
      return pb::Outcome::BURIED;
    case Outcome::Kind::snoozed:
      return pb::Outcome::SNOOZED;
    case Outcome::Kind::released:
      return pb::Outcome::RELEASED;
    case Outcome::Kind::cancelled:
      return pb::Outcome::CANCELLED;
    case Outcome::Kind::succeeded:
      break;
  }
  return pb::Outcome::SUCCEEDED;
}

std::optional<Outcome::Kind> from_proto(pb::Outcome::Kind kind) {
  switch (kind) {
    case pb::Outcome::SUCCEEDED:
      return Outcome::Kind::succeeded;
    case pb::Outcome::FAILED:
      return Outcome::Kind::failed;
    case pb::Outcome::BURIED:
      return Outcome::Kind::buried;
    case pb::Outcome::SNOOZED:
      return Outcome::Kind::snoozed;
    case pb::Outcome::RELEASED:
      return Outcome::Kind::released;
    case pb::Outcome::CANCELLED:
      return Outcome::Kind::cancelled;
    default:
      return std::nullopt;
  }
}

pb::Outcome to_proto(const Outcome& outcome) {
  pb::Outcome to;
  to.set_kind(to_proto(outcome.kind));
  if (outcome.result) to.set_result(*outcome.result);
  if (outcome.error) to.set_error(repaired_utf8(*outcome.error));
  if (outcome.delay) to.set_delay_ms(outcome.delay->count());
  return to;
}

Expected<Outcome> from_proto(pb::Outcome&& outcome) {
  const auto kind = from_proto(outcome.kind());
  if (!kind)
    return bad("kind", "it is not known here",
               "SUCCEEDED, FAILED, BURIED, SNOOZED, RELEASED and CANCELLED are");
  Outcome to{.kind = *kind};
  if (outcome.has_result()) to.result = std::move(*outcome.mutable_result());
  if (outcome.has_error()) to.error = std::move(*outcome.mutable_error());
  if (outcome.has_delay_ms()) to.delay = milliseconds{outcome.delay_ms()};
  return to;
}

pb::Result to_proto(const Settlement& settlement) {
  pb::Result to;
  *to.mutable_lease() = to_proto(settlement.lease);
  *to.mutable_outcome() = to_proto(settlement.outcome);
  return to;
}

Expected<Settlement> from_proto(pb::Result&& result) {
  auto lease = lease_of(result);
  if (!lease) return std::unexpected(std::move(lease.error()));
  // A success is the default of the enumeration, so it must at least be said that there is an outcome.
  if (!result.has_outcome()) return bad("outcome", "it is missing", "say how the attempt ended");
  auto outcome = from_proto(std::move(*result.mutable_outcome()));
  if (!outcome) return within("outcome", std::move(outcome.error()));
  return Settlement{.lease = std::move(*lease), .outcome = std::move(*outcome)};
}

pb::Progress to_proto(const ProgressReport& report) {
  pb::Progress to;
  *to.mutable_lease() = to_proto(report.lease);
  to.set_fraction(report.fraction);
  to.set_note(repaired_utf8(report.note));
  return to;
}

Expected<ProgressReport> from_proto(pb::Progress&& report) {
  auto lease = lease_of(report);
  if (!lease) return std::unexpected(std::move(lease.error()));
  return ProgressReport{
      .lease = std::move(*lease), .fraction = report.fraction(), .note = std::move(*report.mutable_note())};
}

pb::EffectKey to_proto(const EffectKey& key) {
  pb::EffectKey to;
  *to.mutable_lease() = to_proto(key.lease);
  to.set_key(key.key);
  if (!key.call.is_nil()) to.set_call_id(key.call.to_string());
  return to;
}

Expected<EffectKey> from_proto(pb::EffectKey&& key) {
  auto lease = lease_of(key);
  if (!lease) return std::unexpected(std::move(lease.error()));
  const auto call = call_id(key);
  if (!call) return std::unexpected(call.error());
  return EffectKey{.lease = std::move(*lease), .key = std::move(*key.mutable_key()), .call = *call};
}

pb::EffectResult to_proto(const EffectResult& result) {
  pb::EffectResult to;
  *to.mutable_lease() = to_proto(result.lease);
  to.set_key(result.key);
  to.set_result(result.result);
  return to;
}

Expected<EffectResult> from_proto(pb::EffectResult&& result) {
  auto lease = lease_of(result);
  if (!lease) return std::unexpected(std::move(lease.error()));
  return EffectResult{.lease = std::move(*lease),
                      .key = std::move(*result.mutable_key()),
                      .result = std::move(*result.mutable_result())};
}

pb::Effect to_proto(Effect&& effect) {
  pb::Effect to;
  switch (effect.status) {
    case Effect::Status::begun:
      to.set_status(pb::Effect::BEGUN);
      break;
    case Effect::Status::recorded:
      to.set_status(pb::Effect::RECORDED);
      break;
    case Effect::Status::unknown:
      to.set_status(pb::Effect::UNKNOWN);
      break;
    case Effect::Status::stale:
      to.set_status(pb::Effect::STALE);
      *to.mutable_stale() = to_proto(effect.stale);
      break;
  }
  if (effect.result) to.set_result(std::move(*effect.result));
  if (effect.begun_under) to.set_begun_under(effect.begun_under->value);
  return to;
}

Effect from_proto(pb::Effect&& effect) {
  Effect to{.stale = from_proto(effect.stale())};
  switch (effect.status()) {
    case pb::Effect::BEGUN:
      to.status = Effect::Status::begun;
      break;
    case pb::Effect::RECORDED:
      to.status = Effect::Status::recorded;
      break;
    case pb::Effect::STALE:
      to.status = Effect::Status::stale;
      break;
    default:
      to.status = Effect::Status::unknown;
      break;  // so that nothing is done twice
  }
  if (effect.has_result()) to.result = std::move(*effect.mutable_result());
  if (effect.has_begun_under()) to.begun_under = FenceToken{effect.begun_under()};
  return to;
}

pb::GetJobResponse to_proto(JobHistory&& history) {
  pb::GetJobResponse to;
  *to.mutable_job() = message_of(std::move(history.job));
  for (Attempt& attempt : history.attempts) *to.add_attempts() = message_of(std::move(attempt));
  for (const StaleWrite& write : history.stale_writes) *to.add_stale_writes() = to_proto(write);
  for (EffectRecord& effect : history.effects) *to.add_effects() = message_of(std::move(effect));
  for (const EffectDecision& decision : history.decisions) *to.add_decisions() = message_of(decision);
  return to;
}

pb::Job to_proto(const JobSummary& job) {
  pb::Job to;
  to.set_id(job.id.to_string());
  to.set_queue(job.queue);
  to.set_kind(job.kind);
  to.set_state(to_proto(job.state));
  to.set_priority(job.priority);
  to.set_attempt(job.attempt);
  to.set_token(job.token.value);
  set(*to.mutable_run_at(), job.run_at);
  set(*to.mutable_created_at(), job.created_at);
  if (job.finished_at) set(*to.mutable_finished_at(), *job.finished_at);
  if (job.died_at) set(*to.mutable_died_at(), *job.died_at);
  if (job.worker) to.set_worker(*job.worker);
  if (job.last_error) to.set_last_error(*job.last_error);
  for (const std::string& tag : job.tags) to.add_tags(tag);
  return to;
}

pb::StaleWrite to_proto(const StaleWrite& write) {
  pb::StaleWrite to;
  to.set_id(write.id.to_string());
  set(*to.mutable_at(), write.at);
  to.set_job_id(write.job.to_string());
  to.set_verb(write.verb);
  to.set_reason(to_enum(write.reason));
  if (write.queue) to.set_queue(*write.queue);
  to.set_token(write.token.value);
  to.set_worker(write.worker);
  if (write.current_token) to.set_current_token(write.current_token->value);
  if (write.current_worker) to.set_current_worker(*write.current_worker);
  if (write.current_state) to.set_current_state(*write.current_state);
  if (write.lease_expired_at) set(*to.mutable_lease_expired_at(), *write.lease_expired_at);
  return to;
}

pb::Queue to_proto(const Queue& queue, const QueueCounts& counts) {
  pb::Queue to;
  to.set_name(queue.name);
  to.set_paused(queue.paused);
  if (queue.running_max) to.set_running_max(*queue.running_max);
  to.set_lease_ttl_ms(queue.lease_ttl.count());
  to.set_attempts_max(queue.attempts_max);
  to.set_backoff_base_ms(queue.backoff_base.count());
  to.set_backoff_max_ms(queue.backoff_max.count());
  to.set_retention_ms(queue.retention.count());
  to.set_dead_retention_ms(queue.dead_retention.count());
  to.set_key_retention_ms(queue.key_retention.count());
  set(*to.mutable_created_at(), queue.created_at);
  set(*to.mutable_updated_at(), queue.updated_at);
  if (queue.deleted_at) set(*to.mutable_deleted_at(), *queue.deleted_at);
  to.set_scheduled(counts.scheduled);
  to.set_retrying(counts.retrying);
  to.set_available(counts.available);
  to.set_running(counts.running);
  to.set_held(counts.held);
  to.set_dead(counts.dead);
  to.set_succeeded(counts.succeeded);
  to.set_cancelled(counts.cancelled);
  to.set_failures(counts.failures);
  if (counts.oldest_due_age) {
    to.set_oldest_due_age_ms(std::chrono::floor<milliseconds>(*counts.oldest_due_age).count());
  }
  return to;
}

QueueSettings from_proto(const pb::SetQueueRequest& request) {
  QueueSettings to;
  if (request.has_paused()) to.paused = request.paused();
  if (request.has_running_max()) to.running_max = request.running_max();
  if (request.has_lease_ttl_ms()) to.lease_ttl = milliseconds{request.lease_ttl_ms()};
  if (request.has_attempts_max()) to.attempts_max = request.attempts_max();
  if (request.has_backoff_base_ms()) to.backoff_base = milliseconds{request.backoff_base_ms()};
  if (request.has_backoff_max_ms()) to.backoff_max = milliseconds{request.backoff_max_ms()};
  if (request.has_retention_ms()) to.retention = milliseconds{request.retention_ms()};
  if (request.has_dead_retention_ms()) to.dead_retention = milliseconds{request.dead_retention_ms()};
  if (request.has_key_retention_ms()) to.key_retention = milliseconds{request.key_retention_ms()};
  return to;
}

pb::JobState to_proto(JobState state) {
  switch (state) {
    case JobState::scheduled:
      return pb::JOB_STATE_SCHEDULED;
    case JobState::available:
      return pb::JOB_STATE_AVAILABLE;
    case JobState::running:
      return pb::JOB_STATE_RUNNING;
    case JobState::held:
      return pb::JOB_STATE_HELD;
    case JobState::dead:
      return pb::JOB_STATE_DEAD;
    case JobState::succeeded:
      return pb::JOB_STATE_SUCCEEDED;
    case JobState::cancelled:
      return pb::JOB_STATE_CANCELLED;
  }
  return pb::JOB_STATE_UNSPECIFIED;
}

std::optional<JobState> from_proto(pb::JobState state) {
  switch (state) {
    case pb::JOB_STATE_SCHEDULED:
      return JobState::scheduled;
    case pb::JOB_STATE_AVAILABLE:
      return JobState::available;
    case pb::JOB_STATE_RUNNING:
      return JobState::running;
    case pb::JOB_STATE_HELD:
      return JobState::held;
    case pb::JOB_STATE_DEAD:
      return JobState::dead;
    case pb::JOB_STATE_SUCCEEDED:
      return JobState::succeeded;
    case pb::JOB_STATE_CANCELLED:
      return JobState::cancelled;
    default:
      return std::nullopt;
  }
}

Expected<JobId> job_id(const std::string& text) {
  const auto uuid = uuid_of("job_id", text);
  if (!uuid) return std::unexpected(uuid.error());
  return JobId{*uuid};
}

Expected<Uuid> call_id_of(const std::string& text) {
  auto call = uuid_of("call_id", text);
  if (call && call->is_nil()) return bad("call_id", "it is nil", "make a random one, or leave it out");
  return call;
}

}  // namespace faultline::wire

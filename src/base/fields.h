#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include "faultline/job.h"

namespace faultline {

// One table per public struct says everything about its members that is said anywhere: JSON and its schemas,
// rows of the database, flags of the command line, limits and the tests of all of these come from it. A
// member that is in no table does not compile. Producers set what NewJob has, operators what QueueSettings
// has, workers what Lease has; all else is the protocol's.

/// How a member stands in JSON.
enum class Form {
  value,
  payload,   ///< bytes, as the struct's encoding says: the JSON value that they are, or NAME_base64
  encoding,  ///< not at all: it decides which of the two names the payload has
  result,    ///< bytes of whatever kind: the JSON value that they are, else NAME_base64
  cap,       ///< a number, or null for none, which is -1 in the struct
};

struct FieldInfo {
  static constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

  std::string_view name;  ///< in JSON, in messages and as a column; a duration's ends with `_ms`
  std::string_view about;
  /// What is allowed: of a number, of a duration in milliseconds, of a text in bytes, of a list in items.
  std::int64_t min = 0;
  std::int64_t max = kUnbounded;
  std::string_view flag{};    ///< of the command line; none: it is not set by a flag
  std::string_view schema{};  ///< of OpenAPI, unless the type says enough
  Form form = Form::value;
  bool required = false;  ///< a body must have it
  bool nullable = false;  ///< a moment that may be infinity, which is null in JSON
};

template <class Struct, class T>
struct Field : FieldInfo {
  T Struct::* member;

  [[nodiscard]] const T& of(const Struct& value) const { return value.*member; }
  [[nodiscard]] T& of(Struct& value) const { return value.*member; }
};
template <class Struct, class T>
[[nodiscard]] constexpr Field<Struct, T> field(T Struct::* member, FieldInfo info) {
  return {info, member};
}

namespace detail {

template <class T>
struct Exactly {
  template <std::same_as<T> U>
  operator U() const;  // NOLINT(google-explicit-constructor)
};

}  // namespace detail

/// Whether a table has all members of its struct, in their order.
template <class Struct, class... Ts>
[[nodiscard]] consteval bool is_whole(const std::tuple<Field<Struct, Ts>...>& /*table*/) {
  return requires { Struct{detail::Exactly<Ts>{}...}; } &&
         !requires { Struct{detail::Exactly<Ts>{}..., {}}; };
}

/// What is known of members that several structs have.
namespace facts {

inline constexpr std::int64_t kNameBytesMax = 128;
inline constexpr std::int64_t kKeyBytesMax = 256;
inline constexpr std::int64_t kDayMs = 86'400'000;

inline constexpr FieldInfo kId{.name = "id", .about = "The job's id"};
inline constexpr FieldInfo kJobId{.name = "job_id", .about = "The job's id", .required = true};
inline constexpr FieldInfo kToken{
    .name = "token", .about = "Grows with every claim and every operator's act", .required = true};
inline constexpr FieldInfo kLeaseId{
    .name = "lease_id", .about = "Makes one claim unlike every other", .required = true};
inline constexpr FieldInfo kWorker{.name = "worker",
                                   .about = "The worker's name, for people",
                                   .min = 1,
                                   .max = kNameBytesMax,
                                   .required = true};
inline constexpr FieldInfo kQueue{
    .name = "queue", .about = "The queue", .min = 1, .max = kNameBytesMax, .flag = "--queue"};
inline constexpr FieldInfo kKind{.name = "kind",
                                 .about = "What is to be done: the kind that a handler has",
                                 .min = 1,
                                 .max = kNameBytesMax,
                                 .required = true};
inline constexpr FieldInfo kState{.name = "state", .about = "Where it is in its life"};
inline constexpr FieldInfo kPayload{.name = "payload",
                                    .about = "The JSON value that was submitted, as the bytes that came",
                                    .form = Form::payload};
inline constexpr FieldInfo kEncoding{
    .name = "encoding", .about = "Whether the payload is JSON or bytes", .form = Form::encoding};
inline constexpr FieldInfo kResult{
    .name = "result", .about = "What the handler returned", .form = Form::result};
inline constexpr FieldInfo kPriority{
    .name = "priority", .about = "0 runs first, 9 last", .min = 0, .max = 9, .flag = "--priority"};
inline constexpr FieldInfo kRunAt{
    .name = "run_at", .about = "When it may run: not before this moment", .flag = "--at"};
inline constexpr FieldInfo kShownRunAt{.name = "run_at",
                                       .about = "When it may run; null for a job that will not run by itself",
                                       .nullable = true};
inline constexpr FieldInfo kDelay{.name = "delay_ms",
                                  .about = "When it may run: this long from now; not with run_at",
                                  .min = 0,
                                  .max = 3'650 * kDayMs,
                                  .flag = "--delay"};
inline constexpr FieldInfo kIdempotencyKey{.name = "idempotency_key",
                                           .about = "The same key in the same queue is the same job",
                                           .min = 1,
                                           .max = kKeyBytesMax,
                                           .flag = "--key"};
inline constexpr FieldInfo kAttempt{.name = "attempt", .about = "Attempts begun; a snooze gives one back"};
inline constexpr FieldInfo kAttemptsMax{.name = "attempts_max",
                                        .about = "Attempts before it is dead",
                                        .min = 1,
                                        .max = 1'000'000,
                                        .flag = "--attempts"};
inline constexpr FieldInfo kLeaseTtl{.name = "lease_ttl_ms",
                                     .about = "How long a lease is good without a heartbeat",
                                     .min = 100,
                                     .max = kDayMs,
                                     .flag = "--ttl"};
inline constexpr FieldInfo kRunMax{.name = "run_max_ms",
                                   .about = "No lease is renewed past this run time",
                                   .min = 100,
                                   .max = 365 * kDayMs,
                                   .flag = "--run-max"};
inline constexpr FieldInfo kBackoffBase{.name = "backoff_base_ms",
                                        .about = "The wait before the first retry; it doubles",
                                        .min = 0,
                                        .max = kDayMs,
                                        .flag = "--backoff-base"};
inline constexpr FieldInfo kBackoffMax{.name = "backoff_max_ms",
                                       .about = "The longest wait before a retry",
                                       .min = 0,
                                       .max = 7 * kDayMs,
                                       .flag = "--backoff-max"};
inline constexpr FieldInfo kDelivery{
    .name = "delivery", .about = "What a lost lease means", .flag = "--delivery"};
inline constexpr FieldInfo kTags{
    .name = "tags", .about = "Words for people, each of 1 to 128 bytes", .max = 32, .flag = "--tag"};
inline constexpr FieldInfo kTraceparent{.name = "traceparent",
                                        .about = "The trace that it belongs to, as in W3C Trace Context",
                                        .flag = "--traceparent",
                                        .schema = "Traceparent"};
inline constexpr FieldInfo kRequeues{.name = "requeues", .about = "How often it was put back after its end"};
inline constexpr FieldInfo kCreatedAt{.name = "created_at", .about = "When it was added"};
inline constexpr FieldInfo kFinishedAt{.name = "finished_at", .about = "When it succeeded or was cancelled"};
inline constexpr FieldInfo kDiedAt{.name = "died_at", .about = "Since when it is dead"};
inline constexpr FieldInfo kLeaseExpiresAt{.name = "lease_expires_at", .about = "When the lease runs out"};
inline constexpr FieldInfo kLastError{.name = "last_error", .about = "Why the last attempt that failed did"};
inline constexpr FieldInfo kReason{.name = "reason", .about = "Why the write was refused"};
inline constexpr FieldInfo kCurrentToken{.name = "current_token", .about = "The job's token at that moment"};
inline constexpr FieldInfo kCurrentWorker{.name = "current_worker",
                                          .about = "Who held the job at that moment"};
inline constexpr FieldInfo kCurrentState{.name = "current_state", .about = "The job's state at that moment"};
inline constexpr FieldInfo kPaused{.name = "paused", .about = "Whether no more jobs of it are claimed"};
inline constexpr FieldInfo kRetention{.name = "retention_ms",
                                      .about = "How long finished jobs are kept",
                                      .min = 0,
                                      .max = 36'500 * kDayMs,
                                      .flag = "--retention"};
inline constexpr FieldInfo kDeadRetention{.name = "dead_retention_ms",
                                          .about = "How long dead jobs are kept; 36500 days is for ever",
                                          .min = 0,
                                          .max = 36'500 * kDayMs,
                                          .flag = "--dead-retention"};
inline constexpr FieldInfo kKeyRetention{.name = "key_retention_ms",
                                         .about = "How much longer than its job an idempotency key lives",
                                         .min = 0,
                                         .max = 36'500 * kDayMs,
                                         .flag = "--key-retention"};

}  // namespace facts

/// The table of a struct.
template <class Struct>
inline constexpr std::tuple<> kFields{};

template <>
inline constexpr auto kFields<Lease> = std::tuple{
    field(&Lease::job, facts::kJobId),
    field(&Lease::token, facts::kToken),
    field(&Lease::lease_id, facts::kLeaseId),
    field(&Lease::worker, facts::kWorker),
};
static_assert(is_whole(kFields<Lease>));

template <>
inline constexpr auto kFields<NewJob> = std::tuple{
    field(&NewJob::queue, facts::kQueue),
    field(&NewJob::kind, facts::kKind),
    field(&NewJob::payload, facts::kPayload),
    field(&NewJob::encoding, facts::kEncoding),
    field(&NewJob::priority, facts::kPriority),
    field(&NewJob::run_at, facts::kRunAt),
    field(&NewJob::delay, facts::kDelay),
    field(&NewJob::idempotency_key, facts::kIdempotencyKey),
    field(&NewJob::attempts_max, facts::kAttemptsMax),
    field(&NewJob::lease_ttl, facts::kLeaseTtl),
    field(&NewJob::run_max, facts::kRunMax),
    field(&NewJob::backoff_base, facts::kBackoffBase),
    field(&NewJob::backoff_max, facts::kBackoffMax),
    field(&NewJob::delivery, facts::kDelivery),
    field(&NewJob::tags, facts::kTags),
    field(&NewJob::traceparent, facts::kTraceparent),
};
static_assert(is_whole(kFields<NewJob>));

template <>
inline constexpr auto kFields<ClaimedJob> = std::tuple{
    field(&ClaimedJob::lease, {.name = "lease", .about = "What every write of the worker carries"}),
    field(&ClaimedJob::lease_expires_at, facts::kLeaseExpiresAt),
    field(&ClaimedJob::lease_ttl, facts::kLeaseTtl),
    field(&ClaimedJob::queue, facts::kQueue),
    field(&ClaimedJob::kind, facts::kKind),
    field(&ClaimedJob::payload, facts::kPayload),
    field(&ClaimedJob::encoding, facts::kEncoding),
    field(&ClaimedJob::priority, facts::kPriority),
    field(&ClaimedJob::attempt, facts::kAttempt),
    field(&ClaimedJob::attempts_max, facts::kAttemptsMax),
    field(&ClaimedJob::requeues, facts::kRequeues),
    field(&ClaimedJob::run_at, facts::kRunAt),
    field(&ClaimedJob::created_at, facts::kCreatedAt),
    field(&ClaimedJob::run_max, facts::kRunMax),
    field(&ClaimedJob::delivery, facts::kDelivery),
    field(&ClaimedJob::tags, facts::kTags),
    field(&ClaimedJob::traceparent, facts::kTraceparent),
    field(&ClaimedJob::suspect,
          {.name = "suspect",
           .about = "Its last attempt ended with its worker: to be run with nothing beside it"}),
};
static_assert(is_whole(kFields<ClaimedJob>));

template <>
inline constexpr auto kFields<Stale> = std::tuple{
    field(&Stale::reason, facts::kReason),
    field(&Stale::current_token, facts::kCurrentToken),
    field(&Stale::current_worker, facts::kCurrentWorker),
    field(&Stale::current_state, facts::kCurrentState),
};
static_assert(is_whole(kFields<Stale>));

template <>
inline constexpr auto kFields<Attempt> = std::tuple{
    field(&Attempt::token, facts::kToken),
    field(&Attempt::attempt, facts::kAttempt),
    field(&Attempt::outcome, {.name = "outcome", .about = "How it ended", .schema = "AttemptOutcome"}),
    field(&Attempt::state, {.name = "state", .about = "Where the job went with it"}),
    field(&Attempt::worker, facts::kWorker),
    field(&Attempt::written_by,
          {.name = "written_by",
           .about = "The API key that ended it, by name and id, if that was done through a server"}),
    field(&Attempt::started_at, {.name = "started_at", .about = "When it was claimed"}),
    field(&Attempt::lease_expires_at,
          {.name = "lease_expires_at", .about = "When its lease ran out, or would have"}),
    field(&Attempt::ended_at, {.name = "ended_at", .about = "When it ended"}),
    field(&Attempt::error, {.name = "error", .about = "Why it failed, or was cancelled"}),
    field(&Attempt::requeues, facts::kRequeues),
};
static_assert(is_whole(kFields<Attempt>));

template <>
inline constexpr auto kFields<StaleWrite> = std::tuple{
    field(&StaleWrite::id, {.name = "id", .about = "Tells this row of the evidence from every other"}),
    field(&StaleWrite::at, {.name = "at", .about = "When it came"}),
    field(&StaleWrite::job, facts::kJobId),
    field(&StaleWrite::verb, {.name = "verb", .about = "What was tried"}),
    field(&StaleWrite::reason, facts::kReason),
    field(&StaleWrite::queue, facts::kQueue),
    field(&StaleWrite::token, facts::kToken),
    field(&StaleWrite::worker, facts::kWorker),
    field(&StaleWrite::current_token, facts::kCurrentToken),
    field(&StaleWrite::current_worker, facts::kCurrentWorker),
    field(&StaleWrite::current_state, facts::kCurrentState),
    field(&StaleWrite::lease_expired_at,
          {.name = "lease_expired_at", .about = "When the late writer's own lease ran out, or would have"}),
};
static_assert(is_whole(kFields<StaleWrite>));

template <>
inline constexpr auto kFields<EffectRecord> = std::tuple{
    field(&EffectRecord::key, {.name = "key", .about = "The effect's name within its job"}),
    field(&EffectRecord::token, facts::kToken),
    field(&EffectRecord::worker, facts::kWorker),
    field(&EffectRecord::started_at, {.name = "started_at", .about = "When it was announced"}),
    field(&EffectRecord::recorded_at,
          {.name = "recorded_at", .about = "When it was recorded; not there: it may have happened"}),
    field(&EffectRecord::result, {.name = "result", .about = "What it gave", .form = Form::result}),
};
static_assert(is_whole(kFields<EffectRecord>));

template <>
inline constexpr auto kFields<EffectDecision> = std::tuple{
    field(&EffectDecision::key, {.name = "key", .about = "The effect's name within its job"}),
    field(&EffectDecision::token, {.name = "token", .about = "The token under which it had begun"}),
    field(&EffectDecision::happened, {.name = "happened", .about = "Whether it happened"}),
    field(&EffectDecision::decided_at, {.name = "decided_at", .about = "When that was said"}),
    field(&EffectDecision::decided_by, {.name = "decided_by", .about = "Who said so"}),
    field(&EffectDecision::reason, {.name = "reason", .about = "How it is known"}),
};
static_assert(is_whole(kFields<EffectDecision>));

template <>
inline constexpr auto kFields<Job> = std::tuple{
    field(&Job::id, facts::kId),
    field(&Job::queue, facts::kQueue),
    field(&Job::kind, facts::kKind),
    field(&Job::state, facts::kState),
    field(&Job::priority, facts::kPriority),
    field(&Job::attempt, facts::kAttempt),
    field(&Job::attempts_max, facts::kAttemptsMax),
    field(&Job::token, facts::kToken),
    field(&Job::requeues, facts::kRequeues),
    field(&Job::run_at, facts::kShownRunAt),
    field(&Job::created_at, facts::kCreatedAt),
    field(&Job::claimed_at, {.name = "claimed_at", .about = "When the last attempt began"}),
    field(&Job::lease_expires_at, facts::kLeaseExpiresAt),
    field(&Job::finished_at, facts::kFinishedAt),
    field(&Job::died_at, facts::kDiedAt),
    field(&Job::worker, facts::kWorker),
    field(&Job::delivery, facts::kDelivery),
    field(&Job::encoding, facts::kEncoding),
    field(&Job::payload, facts::kPayload),
    field(&Job::result, facts::kResult),
    field(&Job::last_error, facts::kLastError),
    field(&Job::progress, {.name = "progress", .about = "How far it is, 0 to 1"}),
    field(&Job::progress_note, {.name = "progress_note", .about = "How far it is, in words"}),
    field(&Job::cancel_requested_at,
          {.name = "cancel_requested_at", .about = "When a running job was asked to wind up"}),
    field(&Job::cancel_reason, {.name = "cancel_reason", .about = "Why it is to be cancelled"}),
    field(&Job::idempotency_key, facts::kIdempotencyKey),
    field(&Job::tags, facts::kTags),
    field(&Job::lease_ttl, facts::kLeaseTtl),
    field(&Job::run_max, facts::kRunMax),
    field(&Job::backoff_base, facts::kBackoffBase),
    field(&Job::backoff_max, facts::kBackoffMax),
    field(&Job::traceparent, facts::kTraceparent),
};
static_assert(is_whole(kFields<Job>));

template <>
inline constexpr auto kFields<JobSummary> = std::tuple{
    field(&JobSummary::id, facts::kId),
    field(&JobSummary::queue, facts::kQueue),
    field(&JobSummary::kind, facts::kKind),
    field(&JobSummary::state, facts::kState),
    field(&JobSummary::priority, facts::kPriority),
    field(&JobSummary::attempt, facts::kAttempt),
    field(&JobSummary::token, facts::kToken),
    field(&JobSummary::run_at, facts::kShownRunAt),
    field(&JobSummary::created_at, facts::kCreatedAt),
    field(&JobSummary::finished_at, facts::kFinishedAt),
    field(&JobSummary::died_at, facts::kDiedAt),
    field(&JobSummary::worker, facts::kWorker),
    field(&JobSummary::last_error, facts::kLastError),
    field(&JobSummary::tags, facts::kTags),
};
static_assert(is_whole(kFields<JobSummary>));

template <>
inline constexpr auto kFields<QueueSettings> = std::tuple{
    field(&QueueSettings::paused, facts::kPaused),
    field(&QueueSettings::running_max,
          {.name = "running_max",
           .about = "The most jobs that run at once; null or -1 takes the cap away",
           .min = -1,
           .max = std::numeric_limits<int>::max(),
           .flag = "--running-max",
           .form = Form::cap}),
    field(&QueueSettings::lease_ttl, facts::kLeaseTtl),
    field(&QueueSettings::attempts_max, facts::kAttemptsMax),
    field(&QueueSettings::backoff_base, facts::kBackoffBase),
    field(&QueueSettings::backoff_max, facts::kBackoffMax),
    field(&QueueSettings::retention, facts::kRetention),
    field(&QueueSettings::dead_retention, facts::kDeadRetention),
    field(&QueueSettings::key_retention, facts::kKeyRetention),
};
static_assert(is_whole(kFields<QueueSettings>));

template <>
inline constexpr auto kFields<Queue> = std::tuple{
    field(&Queue::name, {.name = "name", .about = "The queue's name"}),
    field(&Queue::paused, facts::kPaused),
    field(&Queue::running_max, {.name = "running_max", .about = "The most jobs that run at once"}),
    field(&Queue::lease_ttl, facts::kLeaseTtl),
    field(&Queue::attempts_max, facts::kAttemptsMax),
    field(&Queue::backoff_base, facts::kBackoffBase),
    field(&Queue::backoff_max, facts::kBackoffMax),
    field(&Queue::retention, facts::kRetention),
    field(&Queue::dead_retention, facts::kDeadRetention),
    field(&Queue::key_retention, facts::kKeyRetention),
    field(&Queue::created_at, {.name = "created_at", .about = "When it was made"}),
    field(&Queue::updated_at, {.name = "updated_at", .about = "When it was last changed"}),
    field(&Queue::deleted_at,
          {.name = "deleted_at", .about = "It was deleted, and has got a job all the same"}),
};
static_assert(is_whole(kFields<Queue>));

/// In JSON these stand in the same object as the queue's own fields.
template <>
inline constexpr auto kFields<QueueCounts> = std::tuple{
    field(&QueueCounts::queue, facts::kQueue),
    field(&QueueCounts::scheduled, {.name = "scheduled", .about = "Jobs that are not due yet"}),
    field(&QueueCounts::retrying, {.name = "retrying", .about = "Jobs that wait for another attempt"}),
    field(&QueueCounts::available, {.name = "available", .about = "Jobs that are due"}),
    field(&QueueCounts::running, {.name = "running", .about = "Jobs with a lease"}),
    field(&QueueCounts::held, {.name = "held", .about = "Jobs that wait for a person"}),
    field(&QueueCounts::dead, {.name = "dead", .about = "Jobs that have used up their attempts"}),
    field(&QueueCounts::succeeded, {.name = "succeeded", .about = "Jobs still kept"}),
    field(&QueueCounts::cancelled, {.name = "cancelled", .about = "Jobs still kept"}),
    field(&QueueCounts::failures,
          {.name = "failures",
           .about = "Attempts that have failed or were lost since the queue was made; it only grows"}),
    field(&QueueCounts::oldest_due_age,
          {.name = "oldest_due_age_ms", .about = "How long the first due job has waited"}),
};
static_assert(is_whole(kFields<QueueCounts>));

template <class Struct>
inline constexpr std::size_t kFieldCount = std::tuple_size_v<std::remove_cvref_t<decltype(kFields<Struct>)>>;

/// Calls `visit` with every field of the struct's table.
template <class Struct, class Visit>
constexpr void for_each_field(Visit&& visit) {
  static_assert(kFieldCount<Struct> > 0, "the struct has no table");
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, kFields<Struct>);
}

}  // namespace faultline

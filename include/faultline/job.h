#pragma once

#include <chrono>
#include <compare>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "faultline/time.h"
#include "faultline/uuid.h"

namespace faultline {

/// Whatever has words is printed as these.
template <class Word>
  requires std::is_enum_v<Word> && requires(Word word) {
    { to_string(word) } -> std::same_as<std::string_view>;
  }
std::ostream& operator<<(std::ostream& out, Word word) {
  return out << to_string(word);
}

/// Names a job for ever. A version 7 UUID, so ids sort by the time they were made, with the job's bucket
/// in its last two bytes, so an id alone says where its row is.
struct JobId {
  Uuid value;

  friend constexpr auto operator<=>(const JobId&, const JobId&) = default;
  friend std::ostream& operator<<(std::ostream& out, const JobId& id) { return out << id.value; }
  [[nodiscard]] std::string to_string() const { return value.to_string(); }
  /// The id that `to_string` has written; nothing if it is none.
  [[nodiscard]] static std::optional<JobId> parse(std::string_view text) {
    const std::optional<Uuid> value = Uuid::parse(text);
    return value ? std::optional{JobId{*value}} : std::nullopt;
  }
  [[nodiscard]] std::int16_t bucket() const {
    return static_cast<std::int16_t>((value.bytes[14] << 8) | value.bytes[15]);
  }
};

/// Orders the claims of one job. Minted by the database, raised by every claim, never lowered. Hand it to
/// downstream stores, so that they too can refuse an older writer.
struct FenceToken {
  std::int64_t value = 0;

  friend constexpr auto operator<=>(const FenceToken&, const FenceToken&) = default;
  friend std::ostream& operator<<(std::ostream& out, const FenceToken& token) { return out << token.value; }
};

/// The time-bound right to run one attempt of a job. The pair of token and lease id is the fence: the
/// token orders claims, the lease id makes one claim unlike every other, even if a failover made the
/// database forget a claim and give out its number a second time. The jobs of one claim share it. It is the
/// holder's secret: who knows it can write in the holder's name, so no record shows it to anybody.
struct Lease {
  JobId job;
  FenceToken token;
  Uuid lease_id;
  std::string worker;  ///< who holds it: named in the evidence if it turns out to be stale

  friend bool operator==(const Lease&, const Lease&) = default;
};

enum class JobState { scheduled, available, running, held, dead, succeeded, cancelled };
[[nodiscard]] std::string_view to_string(JobState state);
[[nodiscard]] std::optional<JobState> parse_job_state(std::string_view text);

/// What becomes of a job whose lease runs out.
enum class Delivery {
  at_least_once,  ///< another attempt
  at_most_once,   ///< the dead letters
  hold,           ///< it waits for a person, who requeues or cancels it
};
[[nodiscard]] std::string_view to_string(Delivery delivery);
[[nodiscard]] std::optional<Delivery> parse_delivery(std::string_view text);
/// Whether another worker may have it although somebody may have begun it.
[[nodiscard]] constexpr bool may_run_twice(Delivery delivery) { return delivery == Delivery::at_least_once; }

/// How a payload is to be read. It is kept as the bytes that came in either case.
enum class Encoding { json, bytes };

/// A job to be added. What is not set is as the queue says.
struct NewJob {
  std::string queue = "default";
  std::string kind{};
  std::string payload = "null";
  Encoding encoding = Encoding::json;
  int priority = 5;  ///< 0 runs first, 9 last
  /// When it may run: at a moment of database time, or after a delay from now. Not both. A moment of the
  /// calendar comes by `DatabaseClock::from_sys`.
  std::optional<DatabaseTime> run_at{};
  std::optional<std::chrono::milliseconds> delay{};
  /// The same key in the same queue is the same job, until some time after the job has finished.
  std::optional<std::string> idempotency_key{};
  std::optional<int> attempts_max{};
  std::optional<std::chrono::milliseconds> lease_ttl{};
  std::optional<std::chrono::milliseconds> run_max{};  ///< no lease is renewed past this run time
  std::optional<std::chrono::milliseconds> backoff_base{};
  std::optional<std::chrono::milliseconds> backoff_max{};
  Delivery delivery = Delivery::at_least_once;
  std::vector<std::string> tags{};
  /// The trace that it belongs to, as a W3C `traceparent` of version 00. Executions are children of it.
  std::optional<std::string> traceparent{};
};

/// The answer to one submitted job.
struct Submission {
  enum class Status {
    created,
    existing,  ///< same key, same kind and payload: `job` is the one that is there
    conflict,  ///< same key, another kind or payload: `job` has the key, nothing was added; of a Store alone
  };
  Status status = Status::created;
  JobId job;
};
[[nodiscard]] std::string_view to_string(Submission::Status status);

/// A job in the hands of a worker.
struct ClaimedJob {
  Lease lease;
  DatabaseTime lease_expires_at;
  std::chrono::milliseconds lease_ttl{};
  std::string queue;
  std::string kind;
  std::string payload;
  Encoding encoding = Encoding::json;
  int priority = 0;
  int attempt = 0;  ///< 1 for the first; a snooze or release gives it back
  int attempts_max = 0;
  int requeues = 0;
  DatabaseTime run_at;
  DatabaseTime created_at;
  std::optional<std::chrono::milliseconds> run_max{};
  Delivery delivery = Delivery::at_least_once;
  std::vector<std::string> tags{};
  std::optional<std::string> traceparent{};
  bool suspect = false;  ///< its last attempt ended with its worker: to be run with nothing beside it
};

/// How an attempt ended, as its worker reports it.
struct Outcome {
  enum class Kind {
    succeeded,
    failed,    ///< again later, or dead when the attempts are used up
    buried,    ///< dead at once
    snoozed,   ///< again later; the attempt does not count
    released,  ///< again at once, by whoever comes; the attempt does not count
    cancelled,
  };
  Kind kind = Kind::succeeded;
  std::optional<std::string> result{};               ///< of a success
  std::optional<std::string> error{};                ///< of a failure, burial or cancellation
  std::optional<std::chrono::milliseconds> delay{};  ///< of a snooze, or of a failure instead of the backoff

  [[nodiscard]] static Outcome success(std::optional<std::string> result = std::nullopt);
  [[nodiscard]] static Outcome failure(std::string error,
                                       std::optional<std::chrono::milliseconds> retry_in = std::nullopt);
  [[nodiscard]] static Outcome bury(std::string error);
  [[nodiscard]] static Outcome snooze(std::chrono::milliseconds delay);
  [[nodiscard]] static Outcome release();
  [[nodiscard]] static Outcome cancel(std::string reason);
};
[[nodiscard]] std::string_view to_string(Outcome::Kind kind);
[[nodiscard]] std::optional<Outcome::Kind> parse_outcome(std::string_view text);

/// Why a write was refused.
enum class StaleReason {
  token_mismatch,   ///< somebody has claimed the job since
  lease_expired,    ///< the lease ran out before the write came
  already_settled,  ///< this attempt has ended already
  cancelled,        ///< the job was cancelled, or is to be
};
[[nodiscard]] std::string_view to_string(StaleReason reason);
[[nodiscard]] std::optional<StaleReason> parse_stale_reason(std::string_view text);

/// A refused write, with what was true when it came. The same stands in the database as evidence.
struct Stale {
  StaleReason reason = StaleReason::token_mismatch;
  std::optional<FenceToken> current_token{};  ///< absent when the job is not known at all
  std::optional<std::string> current_worker{};
  std::optional<JobState> current_state{};
};

/// The answer to one fenced write.
struct Verdict {
  enum class Status {
    committed,
    stale,    ///< refused; nothing changed, and there is evidence
    unknown,  ///< the connection was lost for good before it could be found out; ask `Store::resolve`
  };
  Status status = Status::committed;
  Stale stale{};  ///< when stale
  /// When committed: by an earlier sending of the same write, not by this one.
  bool repeated = false;

  [[nodiscard]] bool committed() const { return status == Status::committed; }
};

/// What a heartbeat brought back for one lease.
struct Beat {
  enum class Status {
    renewed,
    cancel_requested,  ///< wind up and settle as cancelled; the lease is not renewed any more
    lost,              ///< stop: nothing of this attempt can be committed any more
    unknown,           ///< whether it was renewed is not known, or somebody holds its row: try again
  };
  Status status = Status::renewed;
  DatabaseTime lease_expires_at{};  ///< unless lost or unknown
  std::optional<std::string> cancel_reason{};
  Stale stale{};  ///< when lost
};

/// What the effects ledger says of one `once` key.
struct Effect {
  enum class Status {
    begun,     ///< it is new: run it, then record what it gave
    recorded,  ///< an earlier attempt did it: `result`
    unknown,   ///< an earlier attempt began it and never recorded it: it may have happened
    stale,     ///< the lease is not good any more
  };
  Status status = Status::begun;
  std::optional<std::string> result{};
  std::optional<FenceToken> begun_under{};  ///< of an unknown effect: what to ask the other side for
  Stale stale{};
};

/// One row of a job's ledger: an ended attempt, or an operator's act.
struct Attempt {
  FenceToken token;
  int attempt = 0;
  std::string outcome;  ///< succeeded failed buried snoozed released expired cancelled requeued purged
  std::string state;    ///< where the job went with it
  std::optional<std::string> worker{};
  std::optional<std::string> written_by{};  ///< the API key that ended it, if that was done through a server
  std::optional<DatabaseTime> started_at{};
  std::optional<DatabaseTime> lease_expires_at{};  ///< when its lease ran out, or would have
  DatabaseTime ended_at;
  std::optional<std::string> error{};
  int requeues = 0;
};

/// One row of evidence.
struct StaleWrite {
  Uuid id;
  DatabaseTime at;
  JobId job;
  std::string verb;
  StaleReason reason = StaleReason::token_mismatch;
  std::optional<std::string> queue{};
  FenceToken token;
  std::string worker;
  std::optional<FenceToken> current_token{};
  std::optional<std::string> current_worker{};
  std::optional<std::string> current_state{};
  std::optional<DatabaseTime> lease_expired_at{};  ///< the late writer's own
};

struct EffectRecord {
  std::string key;
  FenceToken token;
  std::string worker;
  DatabaseTime started_at;
  std::optional<DatabaseTime> recorded_at{};
  std::optional<std::string> result{};
};

/// What a person has said about an effect that was begun and never recorded.
struct EffectDecision {
  std::string key;
  FenceToken token;  ///< under which it had begun
  bool happened = false;
  DatabaseTime decided_at;
  std::string decided_by;
  std::string reason;
};

/// A job as it is now.
struct Job {
  JobId id;
  std::string queue;
  std::string kind;
  JobState state = JobState::available;
  int priority = 0;
  int attempt = 0;
  std::optional<int> attempts_max{};
  FenceToken token;
  int requeues = 0;
  DatabaseTime run_at;
  DatabaseTime created_at;
  std::optional<DatabaseTime> claimed_at{};
  std::optional<DatabaseTime> lease_expires_at{};
  std::optional<DatabaseTime> finished_at{};
  std::optional<DatabaseTime> died_at{};  ///< of a dead job
  std::optional<std::string> worker{};
  Delivery delivery = Delivery::at_least_once;
  Encoding encoding = Encoding::json;
  std::string payload;
  std::optional<std::string> result{};
  std::optional<std::string> last_error{};
  std::optional<double> progress{};
  std::optional<std::string> progress_note{};
  std::optional<DatabaseTime> cancel_requested_at{};
  std::optional<std::string> cancel_reason{};
  std::optional<std::string> idempotency_key{};
  std::vector<std::string> tags{};
  std::optional<std::chrono::milliseconds> lease_ttl{};
  std::optional<std::chrono::milliseconds> run_max{};
  std::optional<std::chrono::milliseconds> backoff_base{};
  std::optional<std::chrono::milliseconds> backoff_max{};
  std::optional<std::string> traceparent{};
};

/// A job with its whole history.
struct JobHistory {
  Job job;
  std::vector<Attempt> attempts;
  std::vector<StaleWrite> stale_writes;
  std::vector<EffectRecord> effects;
  std::vector<EffectDecision> decisions;
};

/// One line of a listing.
struct JobSummary {
  JobId id;
  std::string queue;
  std::string kind;
  JobState state = JobState::available;
  int priority = 0;
  int attempt = 0;
  FenceToken token;
  DatabaseTime run_at;
  DatabaseTime created_at;
  std::optional<DatabaseTime> finished_at{};
  std::optional<DatabaseTime> died_at{};
  std::optional<std::string> worker{};
  std::optional<std::string> last_error{};
  std::vector<std::string> tags{};
};

/// Settings of a queue; what is not set is left as it is.
struct QueueSettings {
  std::optional<bool> paused{};
  std::optional<int> running_max{};  ///< the most jobs that run at once; -1 takes the cap away
  std::optional<std::chrono::milliseconds> lease_ttl{};
  std::optional<int> attempts_max{};
  std::optional<std::chrono::milliseconds> backoff_base{};
  std::optional<std::chrono::milliseconds> backoff_max{};
  std::optional<std::chrono::milliseconds> retention{};
  std::optional<std::chrono::milliseconds> dead_retention{};  ///< 36500 days: for ever
  std::optional<std::chrono::milliseconds> key_retention{};
};

struct Queue {
  std::string name;
  bool paused = false;
  std::optional<int> running_max{};
  std::chrono::milliseconds lease_ttl{};
  int attempts_max = 0;
  std::chrono::milliseconds backoff_base{};
  std::chrono::milliseconds backoff_max{};
  std::chrono::milliseconds retention{};
  std::chrono::milliseconds dead_retention{};  ///< 36500 days: for ever
  std::chrono::milliseconds key_retention{};
  DatabaseTime created_at;
  DatabaseTime updated_at;
  /// It was deleted, and has a job all the same: one that was being added at that moment, or was requeued.
  std::optional<DatabaseTime> deleted_at{};
};

struct QueueCounts {
  std::string queue;
  std::int64_t scheduled = 0;  ///< not due yet, and not tried yet
  std::int64_t retrying = 0;   ///< not due yet, after an attempt that did not succeed
  std::int64_t available = 0;  ///< due
  std::int64_t running = 0;
  std::int64_t held = 0;
  std::int64_t dead = 0;
  std::int64_t succeeded = 0;  ///< those still kept
  std::int64_t cancelled = 0;
  /// No number of jobs: how many attempts have failed, or were lost with their worker, since the queue was
  /// made. It only grows.
  std::int64_t failures = 0;
  std::optional<std::chrono::microseconds> oldest_due_age{};
};

/// How far an attempt was when its lease ran out, as far as its worker had said.
enum class Loss {
  unbegun,  ///< not known to have begun: the attempt does not count
  shared,   ///< begun, and other jobs may have run beside it: it may be a victim
  alone,    ///< begun, with nothing beside it in its worker
};
[[nodiscard]] std::string_view to_string(Loss loss);
[[nodiscard]] std::optional<Loss> parse_loss(std::string_view text);

/// What a sweep of the watchdog ended.
struct ExpiredLease {
  JobId job;
  FenceToken token;
  std::string worker;
  std::string queue;
  int attempt = 0;
  JobState next_state = JobState::available;
  DatabaseTime expired_at;
  std::optional<std::string> traceparent{};
  Loss loss = Loss::shared;
};

}  // namespace faultline

template <>
struct std::hash<faultline::JobId> {
  std::size_t operator()(const faultline::JobId& id) const noexcept {
    return std::hash<faultline::Uuid>{}(id.value);
  }
};

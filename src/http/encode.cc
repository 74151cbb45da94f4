#include "http/encode.h"

#include <optional>
#include <type_traits>

#include "base/json_check.h"

namespace faultline::http {
namespace {

void value(JsonWriter& out, const std::string& text) { out.string(text); }
void value(JsonWriter& out, std::string_view text) { out.string(text); }
void value(JsonWriter& out, bool truth) { out.boolean(truth); }
void value(JsonWriter& out, int number) { out.integer(number); }
void value(JsonWriter& out, std::int64_t number) { out.integer(number); }
void value(JsonWriter& out, double number) { out.number(number); }
/// Infinity, when a job that waits for a person runs, is no moment.
void value(JsonWriter& out, DatabaseTime time) {
  if (time == DatabaseTime::max() || time == DatabaseTime::min()) {
    out.raw("null");
  } else {
    out.string(to_string(time));
  }
}
void value(JsonWriter& out, std::chrono::milliseconds duration) { out.integer(duration.count()); }
void value(JsonWriter& out, const JobId& id) { out.string(id.to_string()); }
void value(JsonWriter& out, const Uuid& id) { out.string(id.to_string()); }
void value(JsonWriter& out, FenceToken token) { out.integer(token.value); }
void value(JsonWriter& out, JobState state) { out.string(to_string(state)); }

template <class T>
void field(JsonWriter& out, std::string_view name, const T& content) {
  out.key(name);
  value(out, content);
}
template <class T>
void field(JsonWriter& out, std::string_view name, const std::optional<T>& content) {
  if (content) field(out, name, *content);
}

void field_base64(JsonWriter& out, std::string_view name, std::string_view bytes) {
  out.key(std::string{name} + "_base64").string(base64(bytes));
}

void payload(JsonWriter& out, std::string_view bytes, Encoding encoding) {
  if (encoding == Encoding::json) {
    out.key("payload").raw(bytes);
  } else {
    field_base64(out, "payload", bytes);
  }
}

/// A result has no encoding: it is whatever a handler made.
void result(JsonWriter& out, const std::optional<std::string>& bytes) {
  constexpr std::size_t kDepthMax = 128;
  if (!bytes) return;
  if (find_json_problem(std::as_bytes(std::span{*bytes}), kDepthMax)) {
    field_base64(out, "result", *bytes);
  } else {
    out.key("result").raw(*bytes);
  }
}

void tags(JsonWriter& out, const std::vector<std::string>& tags) {
  out.key("tags").begin_array();
  for (const std::string& tag : tags) out.string(tag);
  out.end_array();
}

void lease(JsonWriter& out, const Lease& lease) {
  out.key("lease").begin_object();
  field(out, "job_id", lease.job);
  field(out, "token", lease.token);
  field(out, "lease_id", lease.lease_id);
  field(out, "worker", lease.worker);
  out.end_object();
}

void write(JsonWriter& out, const Job& job) {
  out.begin_object();
  field(out, "id", job.id);
  field(out, "queue", job.queue);
  field(out, "kind", job.kind);
  field(out, "state", job.state);
  field(out, "priority", job.priority);
  field(out, "attempt", job.attempt);
  field(out, "attempts_max", job.attempts_max);
  field(out, "token", job.token);
  field(out, "requeues", job.requeues);
  field(out, "run_at", job.run_at);
  field(out, "created_at", job.created_at);
  field(out, "claimed_at", job.claimed_at);
  field(out, "lease_expires_at", job.lease_expires_at);
  field(out, "finished_at", job.finished_at);
  field(out, "worker", job.worker);
  field(out, "delivery", to_string(job.delivery));
  payload(out, job.payload, job.encoding);
  result(out, job.result);
  field(out, "last_error", job.last_error);
  field(out, "progress", job.progress);
  field(out, "progress_note", job.progress_note);
  field(out, "cancel_requested_at", job.cancel_requested_at);
  field(out, "cancel_reason", job.cancel_reason);
  field(out, "idempotency_key", job.idempotency_key);
  tags(out, job.tags);
  field(out, "lease_ttl_ms", job.lease_ttl);
  field(out, "run_max_ms", job.run_max);
  field(out, "traceparent", job.traceparent);
  out.end_object();
}

void write(JsonWriter& out, const Attempt& attempt) {
  out.begin_object();
  field(out, "token", attempt.token);
  field(out, "lease_id", attempt.lease_id);
  field(out, "attempt", attempt.attempt);
  field(out, "outcome", attempt.outcome);
  field(out, "state", attempt.state);
  field(out, "worker", attempt.worker);
  field(out, "started_at", attempt.started_at);
  field(out, "ended_at", attempt.ended_at);
  field(out, "error", attempt.error);
  field(out, "requeues", attempt.requeues);
  out.end_object();
}

void write(JsonWriter& out, const EffectRecord& effect) {
  out.begin_object();
  field(out, "key", effect.key);
  field(out, "token", effect.token);
  field(out, "worker", effect.worker);
  field(out, "started_at", effect.started_at);
  field(out, "recorded_at", effect.recorded_at);
  result(out, effect.result);
  out.end_object();
}

template <class T>
void array_of(JsonWriter& out, std::string_view name, const std::vector<T>& items) {
  out.key(name).begin_array();
  for (const T& item : items) write(out, item);
  out.end_array();
}

std::string_view to_string(Submission::Status status) {
  switch (status) {
    case Submission::Status::created:
      return "created";
    case Submission::Status::existing:
      return "existing";
    case Submission::Status::conflict:
      break;
  }
  return "conflict";
}

std::string_view to_string(Verdict::Status status) {
  switch (status) {
    case Verdict::Status::committed:
      return "committed";
    case Verdict::Status::stale:
      return "stale";
    case Verdict::Status::unknown:
      break;
  }
  return "unknown";
}

std::string_view to_string(Beat::Status status) {
  switch (status) {
    case Beat::Status::renewed:
      return "renewed";
    case Beat::Status::cancel_requested:
      return "cancel_requested";
    case Beat::Status::lost:
      break;
  }
  return "lost";
}

std::string_view to_string(Effect::Status status) {
  switch (status) {
    case Effect::Status::begun:
      return "begun";
    case Effect::Status::recorded:
      return "recorded";
    case Effect::Status::unknown:
      return "unknown";
    case Effect::Status::stale:
      break;
  }
  return "stale";
}

}  // namespace

void write(JsonWriter& out, const Submission& submission) {
  out.begin_object();
  field(out, "status", to_string(submission.status));
  field(out, "job_id", submission.job);
  out.end_object();
}

void write(JsonWriter& out, const ClaimedJob& job) {
  out.begin_object();
  lease(out, job.lease);
  field(out, "lease_expires_at", job.lease_expires_at);
  field(out, "lease_ttl_ms", job.lease_ttl);
  field(out, "queue", job.queue);
  field(out, "kind", job.kind);
  payload(out, job.payload, job.encoding);
  field(out, "priority", job.priority);
  field(out, "attempt", job.attempt);
  field(out, "attempts_max", job.attempts_max);
  field(out, "requeues", job.requeues);
  field(out, "run_at", job.run_at);
  field(out, "created_at", job.created_at);
  field(out, "run_max_ms", job.run_max);
  field(out, "delivery", to_string(job.delivery));
  tags(out, job.tags);
  field(out, "traceparent", job.traceparent);
  out.end_object();
}

void write(JsonWriter& out, const Stale& stale) {
  out.begin_object();
  field(out, "reason", to_string(stale.reason));
  field(out, "current_token", stale.current_token);
  field(out, "current_worker", stale.current_worker);
  field(out, "current_state", stale.current_state);
  out.end_object();
}

void write(JsonWriter& out, const Verdict& verdict, const Lease& lease) {
  out.begin_object();
  field(out, "status", to_string(verdict.status));
  field(out, "job_id", lease.job);
  field(out, "token", lease.token);
  if (verdict.status == Verdict::Status::stale) {
    out.key("stale");
    write(out, verdict.stale);
  }
  out.end_object();
}

void write(JsonWriter& out, const Beat& beat) {
  out.begin_object();
  field(out, "status", to_string(beat.status));
  if (beat.status == Beat::Status::lost) {
    out.key("stale");
    write(out, beat.stale);
  } else {
    field(out, "lease_expires_at", beat.lease_expires_at);
  }
  field(out, "cancel_reason", beat.cancel_reason);
  out.end_object();
}

void write(JsonWriter& out, const Effect& effect) {
  out.begin_object();
  field(out, "status", to_string(effect.status));
  result(out, effect.result);
  field(out, "begun_under", effect.begun_under);
  if (effect.status == Effect::Status::stale) {
    out.key("stale");
    write(out, effect.stale);
  }
  out.end_object();
}

void write(JsonWriter& out, const StaleWrite& write) {
  out.begin_object();
  field(out, "at", write.at);
  field(out, "job_id", write.job);
  field(out, "verb", write.verb);
  field(out, "reason", to_string(write.reason));
  field(out, "queue", write.queue);
  field(out, "token", write.token);
  field(out, "lease_id", write.lease_id);
  field(out, "worker", write.worker);
  field(out, "current_token", write.current_token);
  field(out, "current_lease_id", write.current_lease_id);
  field(out, "current_worker", write.current_worker);
  field(out, "current_state", write.current_state);
  out.end_object();
}

void write(JsonWriter& out, const JobHistory& history) {
  out.begin_object();
  out.key("job");
  write(out, history.job);
  array_of(out, "attempts", history.attempts);
  array_of(out, "stale_writes", history.stale_writes);
  array_of(out, "effects", history.effects);
  out.end_object();
}

void write(JsonWriter& out, const JobSummary& job) {
  out.begin_object();
  field(out, "id", job.id);
  field(out, "queue", job.queue);
  field(out, "kind", job.kind);
  field(out, "state", job.state);
  field(out, "priority", job.priority);
  field(out, "attempt", job.attempt);
  field(out, "token", job.token);
  field(out, "run_at", job.run_at);
  field(out, "created_at", job.created_at);
  field(out, "finished_at", job.finished_at);
  field(out, "worker", job.worker);
  field(out, "last_error", job.last_error);
  out.end_object();
}

void write(JsonWriter& out, const service::QueueOverview& overview) {
  const Queue& queue = overview.queue;
  const QueueCounts& counts = overview.counts;
  out.begin_object();
  field(out, "name", queue.name);
  field(out, "paused", queue.paused);
  field(out, "running_max", queue.running_max);
  field(out, "lease_ttl_ms", queue.lease_ttl);
  field(out, "attempts_max", queue.attempts_max);
  field(out, "backoff_base_ms", queue.backoff_base);
  field(out, "backoff_max_ms", queue.backoff_max);
  field(out, "retention_ms", queue.retention);
  field(out, "key_retention_ms", queue.key_retention);
  field(out, "scheduled", counts.scheduled);
  field(out, "available", counts.available);
  field(out, "running", counts.running);
  field(out, "held", counts.held);
  field(out, "dead", counts.dead);
  field(out, "succeeded", counts.succeeded);
  field(out, "cancelled", counts.cancelled);
  if (counts.oldest_due_age) {
    field(out, "oldest_due_age_ms", std::chrono::floor<std::chrono::milliseconds>(*counts.oldest_due_age));
  }
  out.end_object();
}

}  // namespace faultline::http

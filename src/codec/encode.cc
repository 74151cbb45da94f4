#include "codec/encode.h"

#include <optional>

#include "base/fields.h"
#include "base/json_check.h"
#include "base/words.h"

namespace faultline::codec {
namespace {

template <class Struct>
void write_object(JsonWriter& out, const Struct& value);

void value(JsonWriter& out, const std::string& text) { out.string(text); }
void value(JsonWriter& out, bool truth) { out.boolean(truth); }
void value(JsonWriter& out, int number) { out.integer(number); }
void value(JsonWriter& out, std::int64_t number) { out.integer(number); }
void value(JsonWriter& out, double number) { out.number(number); }
void value(JsonWriter& out, std::chrono::milliseconds duration) { out.integer(duration.count()); }
void value(JsonWriter& out, std::chrono::microseconds duration) {
  out.integer(std::chrono::floor<std::chrono::milliseconds>(duration).count());
}
void value(JsonWriter& out, const JobId& id) { out.string(id.to_string()); }
void value(JsonWriter& out, const Uuid& id) { out.string(id.to_string()); }
void value(JsonWriter& out, FenceToken token) { out.integer(token.value); }
void value(JsonWriter& out, JobState state) { out.string(to_string(state)); }
void value(JsonWriter& out, Delivery delivery) { out.string(to_string(delivery)); }
void value(JsonWriter& out, StaleReason reason) { out.string(to_string(reason)); }
void value(JsonWriter& out, const Lease& lease) { write_object(out, lease); }
void value(JsonWriter& out, const std::vector<std::string>& texts) {
  out.begin_array();
  for (const std::string& text : texts) out.string(text);
  out.end_array();
}
/// Infinity, when a job that waits for a person runs, is no moment.
void value(JsonWriter& out, DatabaseTime time) {
  if (time == DatabaseTime::max() || time == DatabaseTime::min()) {
    out.raw("null");
  } else {
    out.string(to_string(time));
  }
}

template <class T>
void member(JsonWriter& out, std::string_view name, const T& content) {
  out.key(name);
  value(out, content);
}
template <class T>
void member(JsonWriter& out, std::string_view name, const std::optional<T>& content) {
  if (content) member(out, name, *content);
}

void member_bytes(JsonWriter& out, std::string_view name, std::string_view bytes, bool is_json) {
  if (is_json) {
    out.key(name).raw(bytes);
  } else {
    out.key(std::string{name} + "_base64").string(base64(bytes));
  }
}

/// A result has no encoding: it is whatever a handler made.
void member_result(JsonWriter& out, std::string_view name, const std::optional<std::string>& bytes) {
  constexpr std::size_t kDepthMax = 128;
  if (!bytes) return;
  const bool is_json = !find_json_problem(std::as_bytes(std::span{*bytes}), kDepthMax);
  member_bytes(out, name, *bytes, is_json);
}

template <class Struct, class T>
void write_field(JsonWriter& out, const Field<Struct, T>& field, const Struct& value) {
  const T& content = field.of(value);
  if constexpr (std::same_as<T, Encoding>) {
    return;  // the payload's name says it
  } else if constexpr (std::same_as<T, std::string> && requires { value.encoding; }) {
    if (field.form == Form::payload)
      return member_bytes(out, field.name, content, value.encoding == Encoding::json);
    member(out, field.name, content);
  } else if constexpr (std::same_as<T, std::optional<std::string>>) {
    if (field.form == Form::result) return member_result(out, field.name, content);
    member(out, field.name, content);
  } else {
    member(out, field.name, content);
  }
}

template <class Struct>
void write_members(JsonWriter& out, const Struct& value) {
  for_each_field<Struct>([&](const auto& field) { write_field(out, field, value); });
}

template <class Struct>
void write_object(JsonWriter& out, const Struct& value) {
  out.begin_object();
  write_members(out, value);
  out.end_object();
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
      return "lost";
    case Beat::Status::unknown:
      break;
  }
  return "unknown";
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

void write(JsonWriter& out, const Lease& lease) { write_object(out, lease); }
void write(JsonWriter& out, const NewJob& job) { write_object(out, job); }
void write(JsonWriter& out, const ClaimedJob& job) { write_object(out, job); }
void write(JsonWriter& out, const Stale& stale) { write_object(out, stale); }
void write(JsonWriter& out, const Attempt& attempt) { write_object(out, attempt); }
void write(JsonWriter& out, const StaleWrite& write) { write_object(out, write); }
void write(JsonWriter& out, const EffectRecord& effect) { write_object(out, effect); }
void write(JsonWriter& out, const EffectDecision& decision) { write_object(out, decision); }
void write(JsonWriter& out, const Job& job) { write_object(out, job); }
void write(JsonWriter& out, const JobSummary& job) { write_object(out, job); }
void write(JsonWriter& out, const QueueSettings& settings) { write_object(out, settings); }

void write(JsonWriter& out, const JobHistory& history) {
  out.begin_object();
  out.key("job");
  write(out, history.job);
  write_array(out, "attempts", history.attempts);
  write_array(out, "stale_writes", history.stale_writes);
  write_array(out, "effects", history.effects);
  write_array(out, "decisions", history.decisions);
  out.end_object();
}

void write(JsonWriter& out, const Submission& submission) {
  out.begin_object();
  out.key("status").string(to_string(submission.status));
  member(out, "job_id", submission.job);
  out.end_object();
}

void write(JsonWriter& out, const Verdict& verdict, const Lease& lease) {
  out.begin_object();
  out.key("status").string(to_string(verdict.status));
  member(out, "job_id", lease.job);
  member(out, "token", lease.token);
  if (verdict.repeated) out.key("repeated").boolean(true);
  if (verdict.status == Verdict::Status::stale) {
    out.key("stale");
    write(out, verdict.stale);
  }
  out.end_object();
}

void write(JsonWriter& out, const Beat& beat) {
  out.begin_object();
  out.key("status").string(to_string(beat.status));
  if (beat.status == Beat::Status::lost) {
    out.key("stale");
    write(out, beat.stale);
  } else if (beat.status != Beat::Status::unknown) {
    member(out, "lease_expires_at", beat.lease_expires_at);
  }
  member(out, "cancel_reason", beat.cancel_reason);
  out.end_object();
}

void write(JsonWriter& out, const Effect& effect) {
  out.begin_object();
  out.key("status").string(to_string(effect.status));
  member_result(out, "result", effect.result);
  member(out, "begun_under", effect.begun_under);
  if (effect.status == Effect::Status::stale) {
    out.key("stale");
    write(out, effect.stale);
  }
  out.end_object();
}

void write(JsonWriter& out, const Queue& queue, const QueueCounts& counts) {
  out.begin_object();
  write_members(out, queue);
  for_each_field<QueueCounts>([&](const auto& field) {
    // The queue's name stands there already.
    if (field.name != "queue") write_field(out, field, counts);
  });
  out.end_object();
}

}  // namespace faultline::codec

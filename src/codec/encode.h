#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "faultline/store.h"

namespace faultline::codec {

// Public values as JSON, with the names of their field tables, which are also those of `proto/`. Times are
// RFC 3339, durations whole milliseconds, and what is not known is left out. Bytes that are JSON stand as the
// value that they are, others as base64 under the name with `_base64` after it.

void write(JsonWriter& out, const Lease& lease);
void write(JsonWriter& out, const NewJob& job);
void write(JsonWriter& out, const ClaimedJob& job);
void write(JsonWriter& out, const Stale& stale);
void write(JsonWriter& out, const Attempt& attempt);
void write(JsonWriter& out, const StaleWrite& write);
void write(JsonWriter& out, const EffectRecord& effect);
void write(JsonWriter& out, const EffectDecision& decision);
void write(JsonWriter& out, const Job& job);
void write(JsonWriter& out, const JobSummary& job);
void write(JsonWriter& out, const QueueSettings& settings);
void write(JsonWriter& out, const JobHistory& history);
void write(JsonWriter& out, const Submission& submission);
void write(JsonWriter& out, const Verdict& verdict, const Lease& lease);
void write(JsonWriter& out, const Beat& beat);
void write(JsonWriter& out, const Effect& effect);
/// A queue and what is in it, as one object.
void write(JsonWriter& out, const Queue& queue, const QueueCounts& counts);

template <class T>
void write_array(JsonWriter& out, std::string_view name, const std::vector<T>& items) {
  out.key(name).begin_array();
  for (const T& item : items) write(out, item);
  out.end_array();
}

template <class T>
[[nodiscard]] std::string to_json(const T& value) {
  JsonWriter out;
  write(out, value);
  return out.take();
}

/// {"name":[…]}
template <class T>
[[nodiscard]] std::string list_body(std::string_view name, const std::vector<T>& items) {
  JsonWriter out;
  out.begin_object();
  write_array(out, name, items);
  out.end_object();
  return out.take();
}

}  // namespace faultline::codec

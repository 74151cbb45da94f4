#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json_text.h"
#include "faultline/store.h"
#include "service/service.h"

namespace faultline::http {

// Public values as JSON, with the names that `proto/` has for them. Times are RFC 3339, durations whole
// milliseconds with
// `_ms` in their name, and what is not known is left out. Bytes that are JSON stand as the value that they
// are, others as base64 under the name with `_base64` behind it.

void write(JsonWriter& out, const Submission& submission);
void write(JsonWriter& out, const ClaimedJob& job);
void write(JsonWriter& out, const Stale& stale);
void write(JsonWriter& out, const Verdict& verdict, const Lease& lease);
void write(JsonWriter& out, const Beat& beat);
void write(JsonWriter& out, const Effect& effect);
void write(JsonWriter& out, const JobHistory& history);
void write(JsonWriter& out, const JobSummary& job);
void write(JsonWriter& out, const StaleWrite& write);
void write(JsonWriter& out, const service::QueueOverview& queue);

template <class T>
void write_array(JsonWriter& out, std::string_view name, const std::vector<T>& items) {
  out.key(name).begin_array();
  for (const T& item : items) write(out, item);
  out.end_array();
}

/// {"name":[…]}
template <class T>
std::string list_body(std::string_view name, const std::vector<T>& items) {
  JsonWriter out;
  out.begin_object();
  write_array(out, name, items);
  out.end_object();
  return out.take();
}

/// What became of a change of several jobs.
template <class Status>
[[nodiscard]] std::string changed_json(const service::Changed<Status>& changed) {
  JsonWriter out;
  out.begin_object().key("items").begin_array();
  for (const auto& [id, status] : changed.items) {
    out.begin_object();
    out.key("id").string(id.to_string());
    out.key("status").string(to_string(status));
    out.end_object();
  }
  out.end_array();
  out.key("matched").integer(static_cast<std::int64_t>(changed.matched));
  out.key("changed").integer(static_cast<std::int64_t>(changed.changed));
  out.end_object();
  return out.take();
}

}  // namespace faultline::http

#pragma once

#include <string>

#include "codec/encode.h"
#include "service/service.h"

namespace faultline::service {

// A service's answers as JSON, for HTTP and for the program.

void write(JsonWriter& out, const QueueOverview& overview);

/// What became of a change of several jobs.
template <class Status>
[[nodiscard]] std::string changed_json(const Changed<Status>& changed) {
  JsonWriter out;
  out.begin_object().key("items").begin_array();
  for (const auto& [id, status] : changed.items) {
    out.begin_object();
    out.key("job_id").string(id.to_string());
    out.key("status").string(to_string(status));
    out.end_object();
  }
  out.end_array();
  out.key("matched").integer(static_cast<std::int64_t>(changed.matched));
  out.key("changed").integer(static_cast<std::int64_t>(changed.changed));
  out.end_object();
  return out.take();
}

}  // namespace faultline::service

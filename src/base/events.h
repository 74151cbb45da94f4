#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "faultline/event.h"
#include "faultline/job.h"

namespace faultline {

/// What there is to know of an event before it happens.
struct EventInfo {
  std::string_view name;
  Severity severity;  ///< the usual one
  std::string_view
      about;  ///< job: it also has `job`, `token` and mostly `queue`, `kind`, `attempt`; else process
  std::string_view fields;  ///< its own, separated by blanks; those that may be missing have a question mark
  std::string_view when;    ///< when it is told, for people
};

/// All events, in the order of the reference. The one list: docs/reference/events.md is checked against it.
[[nodiscard]] std::span<const EventInfo> all_events();
/// Null: there is none of that name.
[[nodiscard]] const EventInfo* find_event(std::string_view name);

/// What is known of a refusal, for the log.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> fields_of(const Stale& stale);

}  // namespace faultline

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "drills/lease_race.h"

namespace faultline::drills {

/// A trace for people, one line per event, from lines of JSON.
[[nodiscard]] std::string to_text(const std::vector<std::string>& trace);
/// The facts with a tick or a cross each, and what went wrong.
[[nodiscard]] std::string to_text(const LeaseRaceReport& report);
[[nodiscard]] nlohmann::json to_json(const LeaseRaceReport& report);
/// One line that says how far it is.
[[nodiscard]] std::string to_text(const DrillProgress& progress);
/// The same as a bar, for a terminal.
/// The same with a bar before it, in so many columns.
[[nodiscard]] std::string to_bar(const DrillProgress& progress, std::size_t columns);

}  // namespace faultline::drills

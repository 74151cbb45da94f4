#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "faultline/error.h"
#include "faultline/store.h"

namespace faultline::store {

/// Bad input is refused here, before the database, with what was wrong and what to do. Every function
/// returns the problem, or nothing.

struct Limits {
  std::size_t payload_bytes_max = 0;
  std::size_t json_depth_max = 0;
};

[[nodiscard]] std::optional<Error> check_job(const NewJob& job, const Limits& limits);
[[nodiscard]] std::optional<Error> check_claim(const ClaimRequest& request);
[[nodiscard]] std::optional<Error> check_outcome(const Outcome& outcome, const Limits& limits);
[[nodiscard]] std::optional<Error> check_progress(const ProgressReport& report);
[[nodiscard]] std::optional<Error> check_effect_key(std::string_view key);
[[nodiscard]] std::optional<Error> check_result(std::string_view result, const Limits& limits);
[[nodiscard]] std::optional<Error> check_lease(const Lease& lease);
[[nodiscard]] std::optional<Error> check_queue(std::string_view name, const QueueSettings& settings);
[[nodiscard]] std::optional<Error> check_list(const ListRequest& request);
[[nodiscard]] std::optional<Error> check_extend(std::chrono::milliseconds extend);
/// A name of a queue, kind, worker or actor.
[[nodiscard]] std::optional<Error> check_name(std::string_view what, std::string_view name);

/// Text of a program's making, such as an exception's message, as the database can hold it: bytes that are
/// not UTF-8, and NUL, become U+FFFD, and what is over the limit is cut off. A job must not be lost
/// because its error message is broken.
[[nodiscard]] std::string storable_text(std::string_view text);

}  // namespace faultline::store

#pragma once

#include <chrono>
#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/error.h"
#include "faultline/job.h"

namespace faultline::service {

/// Why a call was not done, as far as a caller in any language reacts to it. The names are stable: `code` in
/// HTTP's problem+json and in gRPC's Failure.
enum class Code {
  malformed,        ///< it cannot be read                                    400 INVALID_ARGUMENT
  invalid,          ///< it can be read, and a value is out of bounds         422 INVALID_ARGUMENT
  too_large,        ///< over a limit of size                                 413 INVALID_ARGUMENT
  unauthenticated,  ///< no key, or one that is not good (any more)           401 UNAUTHENTICATED
  forbidden,        ///< the key is good, and does not allow this             403 PERMISSION_DENIED
  not_found,        ///< no such job, queue, or address                       404 NOT_FOUND
  conflict,         ///< the key names another job, or the queue has live jobs 409 ALREADY_EXISTS
  stale,            ///< every write of it was refused by the fence           409 FAILED_PRECONDITION
  overloaded,       ///< too much is under way; nothing happened              429 RESOURCE_EXHAUSTED
  unavailable,      ///< the database is away or the server stops; nothing happened   503 UNAVAILABLE
  outcome_unknown,  ///< the database may or may not have done it             500 UNKNOWN
  internal,         ///< anything else                                        500 INTERNAL
};
[[nodiscard]] std::string_view to_string(Code code);

/// An error that a person can act on: what was wrong, and what to do. Nothing has changed, except where the
/// code is `outcome_unknown`.
struct Problem {
  Code code = Code::internal;
  std::string message;
  std::string hint{};
  std::optional<std::chrono::milliseconds> retry_after{};  ///< of overloaded and unavailable
  std::optional<JobId> job{};                              ///< of a conflict: the job that has the key
  std::string cause{};  ///< what the database said, for the server's own log alone

  /// Of the store's errors. Passwords and addresses of the database do not leave the server.
  [[nodiscard]] static Problem from(const Error& error);
};

template <class T>
using ServiceResult = std::expected<T, Problem>;
/// Called once, on any thread, maybe before the call that took it returns. Must not block.
template <class T>
using Done = std::move_only_function<void(ServiceResult<T>)>;

}  // namespace faultline::service

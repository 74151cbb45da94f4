#pragma once

#include <expected>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "faultline/job.h"
#include "faultline/language.h"

namespace faultline {

/// What went wrong, as far as a caller reacts to it.
enum class ErrorCode {
  invalid_argument,   ///< a name, number or option is out of bounds
  payload_too_large,  ///< the payload (or a result) is over the limit
  payload_invalid,    ///< said to be JSON, and is not: malformed, bad UTF-8, nested too deep
  unknown_queue,      ///< there is no queue of that name
  conflict,           ///< an idempotency key belongs to a job of another kind or payload: `Error::job`
  timed_out,          ///< what was waited for has not happened in time
  unavailable,        ///< the database cannot be reached or cannot work now; nothing happened
  locked,             ///< the database works, and somebody else's lock is in the way; nothing happened
  outcome_unknown,    ///< the database may or may not have done it, and could not be asked
  wrong_schema,       ///< no Faultline schema, or one of another version
  permission_denied,  ///< the database role may not do this
  internal,           ///< anything else: the message says what the database said
};

[[nodiscard]] std::string_view to_string(ErrorCode code);
/// Nothing happened, and the same call may do later.
[[nodiscard]] constexpr bool may_pass(ErrorCode code) {
  return code == ErrorCode::unavailable || code == ErrorCode::locked;
}

/// An error that a person can act on: what was wrong, and what to do. A call that returns one has
/// changed nothing, except where the code is `outcome_unknown`.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
  std::string hint;
  std::optional<JobId> job{};  ///< of a conflict: the job that has the key

  /// Message and hint in one line.
  [[nodiscard]] std::string describe() const;
};

std::ostream& operator<<(std::ostream& out, const Error& error);  ///< as `describe` has it

template <class T>
using Expected = std::expected<T, Error>;

}  // namespace faultline

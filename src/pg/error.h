#pragma once

#include <expected>
#include <string>
#include <string_view>

namespace faultline::pg {

/// What went wrong, as far as a caller reacts to it. An error that nobody reacts to is `server`.
enum class Errc {
  cannot_connect,         ///< no server answered, or it would not let us in
  connection_lost,        ///< the connection broke before a commit was asked for: nothing happened
  outcome_unknown,        ///< it broke (or the standby was not waited for) after a commit was asked for
  deadline_exceeded,      ///< the caller's deadline passed before a commit was asked for
  serialization_failure,  ///< 40001
  deadlock_detected,      ///< 40P01
  lock_not_available,     ///< 55P03, lock_timeout
  query_canceled,         ///< 57014, statement_timeout or a cancel request
  unique_violation,       ///< 23505
  check_violation,        ///< 23514, 23502, 23503
  invalid_value,  ///< class 22: out of range, bad encoding, bad JSON …; also a DSN that cannot be read
  insufficient_privilege,  ///< 42501
  undefined_object,  ///< 3F000, 42P01, 42883, 42703, 42704: the schema is not (or no longer) what we expect
  read_only,         ///< 25006: a standby, or a read-only session
  out_of_resources,  ///< classes 53 and 58: disk full, out of memory, too many connections, files gone
  raised,            ///< class FL: raised on purpose by Faultline's own SQL; `sqlstate` says which
  server,            ///< any other answer of the server
};

[[nodiscard]] std::string_view to_string(Errc code);

struct Error {
  Errc code = Errc::server;
  std::string sqlstate{};  ///< five characters, empty when the error is not the server's
  std::string message{};
  std::string detail{};
  std::string hint{};
  std::string statement{};  ///< the name of the statement that failed, where it was one

  /// Nothing was committed and the same whole transaction may succeed if it is run again.
  /// `outcome_unknown` is not among these: what to do then is the caller's knowledge.
  [[nodiscard]] bool retryable() const;
  /// The connection cannot be used again.
  [[nodiscard]] bool connection_is_gone() const;
  /// One line for logs: message, detail, hint, statement and SQLSTATE where present.
  [[nodiscard]] std::string describe() const;
};

template <class T>
using Expected = std::expected<T, Error>;

/// The SQLSTATE of a server that misses a file of its own, such as a library that an upgrade has replaced.
inline constexpr std::string_view kFileIsGone = "58P01";

/// Maps a SQLSTATE to what a caller reacts to.
[[nodiscard]] Errc classify_sqlstate(std::string_view sqlstate);

}  // namespace faultline::pg

#include "service/problem.h"

namespace faultline::service {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::malformed:
      return "malformed";
    case Code::invalid:
      return "invalid";
    case Code::too_large:
      return "too_large";
    case Code::unauthenticated:
      return "unauthenticated";
    case Code::forbidden:
      return "forbidden";
    case Code::not_found:
      return "not_found";
    case Code::conflict:
      return "conflict";
    case Code::stale:
      return "stale";
    case Code::overloaded:
      return "overloaded";
    case Code::unavailable:
      return "unavailable";
    case Code::outcome_unknown:
      return "outcome_unknown";
    case Code::internal:
      return "internal";
  }
  return "internal";
}

namespace {

constexpr std::chrono::milliseconds kRetryAfter{1'000};

Problem shown(const Error& error) {
  // Messages of bad input are of the store's own making. What PostgreSQL or libpq said may name hosts, roles
  // and values, and is replaced.
  switch (error.code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::payload_invalid:
      return {.code = Code::invalid, .message = error.message, .hint = error.hint};
    case ErrorCode::payload_too_large:
      return {.code = Code::too_large, .message = error.message, .hint = error.hint};
    case ErrorCode::unknown_queue:
      return {.code = Code::not_found, .message = error.message, .hint = error.hint};
    case ErrorCode::timed_out:
    case ErrorCode::unavailable:
      return {.code = Code::unavailable,
              .message = "the database cannot be reached, or cannot do this now",
              .hint = "nothing was changed; try again",
              .retry_after = kRetryAfter};
    case ErrorCode::conflict:
      return {.code = Code::conflict, .message = error.message, .hint = error.hint, .job = error.job};
    case ErrorCode::locked:
      return {.code = Code::unavailable,
              .message = "somebody holds a lock in the database that this needs",
              .hint = "nothing was changed; try again",
              .retry_after = kRetryAfter};
    case ErrorCode::wrong_schema:
      return {.code = Code::unavailable,
              .message = "the database's schema is not the one that this server speaks",
              .hint = "run `faultline migrate` on the database, or a server of the database's version",
              .retry_after = kRetryAfter};
    case ErrorCode::outcome_unknown:
      return {
          .code = Code::outcome_unknown,
          .message = "the connection to the database was lost before it said whether this was done",
          .hint = "it may have been done: look before you repeat it, or repeat it with an idempotency key"};
    case ErrorCode::permission_denied:
      return {.message = "the server's database role may not do this",
              .hint = "grant it faultline_producer, faultline_worker or faultline_owner"};
    case ErrorCode::internal:
      break;
  }
  return {.message = "the database refused this", .hint = "the database's own log says why"};
}

}  // namespace

Problem Problem::from(const Error& error) {
  Problem problem = shown(error);
  // What PostgreSQL says besides may quote the row, and with it a payload.
  problem.cause = error.code == ErrorCode::internal ? error.message.substr(0, error.message.find("; "))
                                                    : error.describe();
  return problem;
}

}  // namespace faultline::service

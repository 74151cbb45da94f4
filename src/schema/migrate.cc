#include <algorithm>

#include "faultline/schema.h"
#include "schema/migrator.h"

namespace faultline {

namespace schema {

Error to_error(MigrateError error) {
  const auto code = [&] {
    switch (error.code) {
      case MigrateError::Code::newer_schema:
      case MigrateError::Code::older_schema:
      case MigrateError::Code::foreign_schema:
        return ErrorCode::wrong_schema;
      case MigrateError::Code::usage:
        return ErrorCode::invalid_argument;
      case MigrateError::Code::permission_denied:
        return ErrorCode::permission_denied;
      case MigrateError::Code::database:
        break;
    }
    return ErrorCode::unavailable;
  };
  return {.code = code(), .message = std::move(error.message), .hint = std::move(error.hint)};
}

}  // namespace schema

namespace {

/// Longer than anybody waits, and no clock overflows.
constexpr std::chrono::hours kTimeoutMax{24 * 365};

}  // namespace

Expected<MigrateReport> migrate(const MigrateOptions& options) {
  const Deadline deadline =
      Deadline::clock::now() + std::clamp<std::chrono::milliseconds>(options.timeout, {}, kTimeoutMax);
  auto connection =
      pg::Connection::open({.dsn = options.database, .application_name = "faultline migrate"}, deadline);
  if (!connection) {
    return std::unexpected(Error{.code = ErrorCode::unavailable,
                                 .message = connection.error().describe(),
                                 .hint = "check that PostgreSQL runs and that the database URL is right"});
  }
  auto report = schema::migrate(*connection,
                                {.buckets = options.buckets, .lock_timeout = options.lock_timeout}, deadline);
  if (!report) return std::unexpected(schema::to_error(std::move(report.error())));
  MigrateReport done{.version_before = report->version_before,
                     .version_after = report->version_after,
                     .applied = {},
                     .functions_replaced = report->functions_replaced};
  for (schema::AppliedMigration& migration : report->applied)
    done.applied.push_back(std::move(migration.name));
  return done;
}

}  // namespace faultline

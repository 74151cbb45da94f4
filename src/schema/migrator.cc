#include "schema/migrator.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/sha256.h"
#include "pg/statement.h"
#include "sql/functions.h"
#include "sql/migrations.h"

namespace faultline::schema {
namespace {

using pg::Params;
using pg::Statement;

// Any number that others are unlikely to lock: the migrators of one database take turns on it.
constexpr std::int64_t kMigratorLock = 0x6661756c746c696e;

constexpr Statement kTakeTurn{"", "SELECT pg_advisory_xact_lock($1::bigint)"};
// Reads the catalog itself: to_regclass() answers from a cache, which a wait for the turn does not refresh,
// so that who waited would not see what the one before has made.
constexpr Statement kHasMigrations{"",
                                   "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN "
                                   "pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
                                   " WHERE n.nspname = 'faultline' AND c.relname = 'migrations')"};
// For who waited for nobody. To plan the join above takes longer than all that a store asks when it is
// opened.
constexpr Statement kHasMigrationsByName{"",
                                         "SELECT pg_catalog.to_regclass('faultline.migrations') IS NOT NULL"};
constexpr Statement kReadMigrations{
    "", "SELECT m.version, m.checksum FROM faultline.migrations m ORDER BY m.version"};
constexpr Statement kReadSpeaksFrom{"", "SELECT m.speaks_from FROM faultline.meta m WHERE m.bucket = 0"};
constexpr Statement kSetLocal{"", "SELECT set_config($1::text, $2::text, true)"};
constexpr Statement kRecord{
    "",
    "INSERT INTO faultline.migrations (version, name, checksum) VALUES ($1::integer, $2::text, $3::text)"};

// What they were made from, by name. A body is replaced when the program's text has another checksum.
constexpr Statement kReadFunctions{"", "SELECT f.name, f.checksum FROM faultline.functions f"};
constexpr Statement kRecordFunction{
    "",
    "INSERT INTO faultline.functions AS f (name, checksum) VALUES ($1::text, $2::text)"
    " ON CONFLICT (name) DO UPDATE SET checksum = EXCLUDED.checksum, applied_at = now()"};
// A new function may be called by everybody, until this is said.
constexpr std::string_view kRevokeFromPublic = "REVOKE ALL ON ALL FUNCTIONS IN SCHEMA faultline FROM PUBLIC";

constexpr std::string_view kMigrationsTable =
    "CREATE SCHEMA IF NOT EXISTS faultline;\n"
    "CREATE TABLE IF NOT EXISTS faultline.migrations (\n"
    "    version    integer PRIMARY KEY,\n"
    "    name       text NOT NULL,\n"
    "    checksum   text NOT NULL,\n"
    "    applied_at timestamptz NOT NULL DEFAULT now()\n"
    ");\n"
    "CREATE TABLE IF NOT EXISTS faultline.functions (\n"
    "    name       text PRIMARY KEY,\n"
    "    checksum   text NOT NULL,\n"
    "    applied_at timestamptz NOT NULL DEFAULT now()\n"
    ");\n";

template <class File>  // a migration or a function
std::string checksum(const File& file) {
  return to_hex(sha256({bytes_of(file.sql)}));
}

MigrateError from_database(const pg::Error& error) {
  MigrateError result{.message = error.describe()};
  if (error.code == pg::Errc::insufficient_privilege) {
    result.code = MigrateError::Code::permission_denied;
    result.hint = "migrate as the database's owner or a superuser; the first migration also makes roles";
  } else if (error.code == pg::Errc::lock_not_available) {
    result.hint = "somebody holds a table that the migration needs; end long transactions and run it again";
  } else if (error.code == pg::Errc::deadline_exceeded) {
    result.hint =
        "another migrator, or a long transaction, is in the way; look at pg_stat_activity and run it again";
  } else if (error.code == pg::Errc::read_only) {
    result.hint = "this is a standby or a read-only session; migrate on the primary";
  }
  return result;
}

/// What a database has.
struct Applied {
  std::map<int, std::string> checksums;                       ///< of the migrations, by version
  std::map<std::string, std::string, std::less<>> functions;  ///< their checksums, by name
  /// The oldest version that the schema serves; read only where the schema is newer than this program.
  int speaks_from = 0;

  [[nodiscard]] bool contains(int version) const { return checksums.contains(version); }
  [[nodiscard]] int newest() const { return checksums.empty() ? 0 : checksums.rbegin()->first; }
};

/// A migration that this program has and the database has not, if there is one.
const sql::Migration* next_missing(const Applied& applied) {
  const auto missing = std::ranges::find_if(
      sql::kMigrations, [&](const sql::Migration& m) { return !applied.contains(m.version); });
  return missing == sql::kMigrations.end() ? nullptr : &*missing;
}

/// The functions whose bodies are not this program's, or which are not there. A newer schema keeps its own:
/// they serve this program, or it is refused.
std::vector<const sql::Function*> outdated_functions(const Applied& applied) {
  std::vector<const sql::Function*> outdated;
  if (applied.newest() > version_of_program()) return outdated;
  for (const sql::Function& function : sql::kFunctions) {
    const auto found = applied.functions.find(function.name);
    if (found == applied.functions.end() || found->second != checksum(function))
      outdated.push_back(&function);
  }
  return outdated;
}

/// The problem, if a migration was applied that differs from this program's.
std::optional<MigrateError> refuse_foreign(const Applied& applied) {
  for (const sql::Migration& migration : sql::kMigrations) {
    const auto found = applied.checksums.find(migration.version);
    if (found != applied.checksums.end() && found->second != checksum(migration)) {
      return MigrateError{
          .code = MigrateError::Code::foreign_schema,
          .message = "migration " + std::to_string(migration.version) + " (" + std::string{migration.name} +
                     ") was applied to this database in another version of it",
          .hint = "the schema was made by another build of faultline; use that build, or another database"};
    }
  }
  return std::nullopt;
}

/// The problem, if the schema is newer than this program and no longer serves it.
std::optional<MigrateError> refuse_newer(const Applied& applied) {
  const int mine = version_of_program();
  if (applied.newest() <= mine || applied.speaks_from <= mine) return std::nullopt;
  const std::string oldest = std::to_string(applied.speaks_from);
  return MigrateError{.code = MigrateError::Code::newer_schema,
                      .message = "the database has schema version " + std::to_string(applied.newest()) +
                                 ", which serves programs of version " + oldest +
                                 " and later; this program speaks version " + std::to_string(mine),
                      .hint = "use a newer faultline, one that speaks version " + oldest + " or later"};
}

std::optional<MigrateError> refuse(const Applied& applied) {
  if (auto foreign = refuse_foreign(applied)) return foreign;
  return refuse_newer(applied);
}

pg::Expected<Applied> read_applied(pg::Connection& connection, Deadline deadline,
                                   const Statement& has_migrations = kHasMigrations) {
  auto exists = connection.exec(has_migrations, {}, deadline);
  if (!exists) return std::unexpected(std::move(exists.error()));
  Applied applied;
  if (!exists->get<bool>(0, 0)) return applied;
  auto rows = connection.exec(kReadMigrations, {}, deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  for (int row = 0; row < rows->rows(); ++row) {
    applied.checksums.emplace(rows->get<std::int32_t>(row, 0), rows->get<std::string>(row, 1));
  }
  if (refuse_foreign(applied)) return applied;  // refused for what it is; it need not have the other tables
  auto functions = connection.exec(kReadFunctions, {}, deadline);
  if (!functions) return std::unexpected(std::move(functions.error()));
  for (int row = 0; row < functions->rows(); ++row) {
    applied.functions.emplace(functions->get<std::string>(row, 0), functions->get<std::string>(row, 1));
  }
  if (applied.newest() > version_of_program()) {
    auto meta = connection.exec(kReadSpeaksFrom, {}, deadline);
    if (!meta) return std::unexpected(std::move(meta.error()));
    applied.speaks_from = meta->get<std::int32_t>(0, 0);
  }
  return applied;
}

/// The settings that a migration runs with, until the end of its transaction.
std::vector<std::pair<std::string, std::string>> settings_of(const MigrateOptions& options) {
  return {
      {"lock_timeout", std::to_string(options.lock_timeout.count())},
      {"faultline.buckets", std::to_string(options.buckets)},
      // What was migrated is on disk, whatever the database's default is: a program may rely on it at once.
      {"synchronous_commit", "on"},
      // A function may call one that is made after it.
      {"check_function_bodies", "off"}};
}

pg::Expected<void> set_local(pg::Connection& connection, const MigrateOptions& options, Deadline deadline) {
  for (const auto& [name, value] : settings_of(options)) {
    if (auto set = connection.exec(kSetLocal, Params{}.add(name).add(value), deadline); !set) {
      return std::unexpected(std::move(set.error()));
    }
  }
  return {};
}

/// Reads what was applied, and waits no longer for it than a migration does for a table.
pg::Expected<Applied> read_applied_shortly(pg::Connection& connection, const MigrateOptions& options,
                                           Deadline deadline) {
  if (auto begun = connection.begin(deadline); !begun) return std::unexpected(std::move(begun.error()));
  auto set = set_local(connection, options, deadline);
  auto applied = set ? read_applied(connection, deadline) : std::unexpected(std::move(set.error()));
  connection.rollback(deadline);
  return applied;
}

/// One transaction of a migrator, when it is its turn: `step` gets what the database has. Nothing of it stays
/// if the schema is refused, or if `step` has nothing to do.
template <class Step>
auto in_turn(pg::Connection& connection, const MigrateOptions& options, std::optional<MigrateError>& refusal,
             Deadline deadline, const Step& step) -> decltype(step(Applied{})) {
  using Done = decltype(step(Applied{}));
  const auto in_transaction = [&]() -> Done {
    // Waiting for another migrator blocks nobody, so it may take as long as the caller waits.
    if (auto turn = connection.exec(kTakeTurn, Params{}.add(kMigratorLock), deadline); !turn) {
      return std::unexpected(std::move(turn.error()));
    }
    if (auto set = set_local(connection, options, deadline); !set)
      return std::unexpected(std::move(set.error()));
    auto applied = read_applied(connection, deadline);
    if (!applied) return std::unexpected(std::move(applied.error()));
    refusal = refuse(*applied);
    if (refusal) return typename Done::value_type{};
    return step(*applied);
  };

  if (auto begun = connection.begin(deadline); !begun) return std::unexpected(std::move(begun.error()));
  auto result = in_transaction();
  if (!result || !*result) {
    connection.rollback(deadline);
    return result;
  }
  if (auto committed = connection.commit(deadline); !committed)
    return std::unexpected(std::move(committed.error()));
  return result;
}

/// Applies the next migration that is missing, or none.
pg::Expected<std::optional<AppliedMigration>> apply_next(pg::Connection& connection,
                                                         const MigrateOptions& options,
                                                         std::optional<MigrateError>& refusal,
                                                         Deadline deadline) {
  return in_turn(
      connection, options, refusal, deadline,
      [&](const Applied& applied) -> pg::Expected<std::optional<AppliedMigration>> {
        const sql::Migration* migration = next_missing(applied);
        if (migration == nullptr) return std::nullopt;
        if (auto table = connection.exec_script(kMigrationsTable, deadline); !table) {
          return std::unexpected(std::move(table.error()));
        }
        if (auto done = connection.exec_script(migration->sql, deadline); !done) {
          return std::unexpected(std::move(done.error()));
        }
        auto recorded = connection.exec(
            kRecord,
            Params{}.add(std::int32_t{migration->version}).add(migration->name).add(checksum(*migration)),
            deadline);
        if (!recorded) return std::unexpected(std::move(recorded.error()));
        return AppliedMigration{.version = migration->version, .name = std::string{migration->name}};
      });
}

/// Replaces the functions that are not this program's, all or none. Returns their number.
pg::Expected<std::size_t> replace_functions(pg::Connection& connection, const MigrateOptions& options,
                                            std::optional<MigrateError>& refusal, Deadline deadline) {
  return in_turn(connection, options, refusal, deadline,
                 [&](const Applied& applied) -> pg::Expected<std::size_t> {
                   const auto outdated = outdated_functions(applied);
                   for (const sql::Function* function : outdated) {
                     if (auto made = connection.exec_script(function->sql, deadline); !made)
                       return std::unexpected(std::move(made.error()));
                     auto recorded = connection.exec(
                         kRecordFunction, Params{}.add(function->name).add(checksum(*function)), deadline);
                     if (!recorded) return std::unexpected(std::move(recorded.error()));
                   }
                   if (outdated.empty()) return 0;
                   if (auto revoked = connection.exec_script(kRevokeFromPublic, deadline); !revoked)
                     return std::unexpected(std::move(revoked.error()));
                   return outdated.size();
                 });
}

bool worth_another_try(const pg::Error& error) {
  return error.code == pg::Errc::lock_not_available || error.code == pg::Errc::deadlock_detected ||
         error.code == pg::Errc::serialization_failure;
}

/// A table in use is waited for in short turns, so that the waiting migration holds up nobody.
template <class Step>
auto in_short_turns(Deadline deadline, const Step& step) -> decltype(step()) {
  std::optional<pg::Error> in_the_way;
  for (;;) {
    auto result = step();
    if (result) return result;
    const bool time_is_left = Deadline::clock::now() < deadline;
    if (time_is_left && worth_another_try(result.error())) {
      in_the_way = std::move(result.error());
      continue;
    }
    // That the time is over says less than what it was lost with.
    if (result.error().code == pg::Errc::deadline_exceeded && in_the_way)
      return std::unexpected(std::move(*in_the_way));
    return result;
  }
}

std::string dry_run_sql(const Applied& applied, const MigrateOptions& options) {
  std::string text;
  for (const sql::Migration& migration : sql::kMigrations) {
    if (applied.contains(migration.version)) continue;
    if (text.empty()) text = kMigrationsTable;
    const std::string version = std::to_string(migration.version);
    const std::string name{migration.name};
    text += "\n-- migration " + version + " " + name + "\nBEGIN;\n";
    for (const auto& [setting, value] : settings_of(options))
      text += "SET LOCAL " + setting + " = '" + value + "';\n";
    text += std::string{migration.sql} + "\n";
    text += "INSERT INTO faultline.migrations (version, name, checksum) VALUES (" + version + ", '" + name +
            "', '" + checksum(migration) + "');\nCOMMIT;\n";
  }
  const auto outdated = outdated_functions(applied);
  if (outdated.empty()) return text;
  text += "\n-- functions\nBEGIN;\n";
  for (const auto& [setting, value] : settings_of(options))
    text += "SET LOCAL " + setting + " = '" + value + "';\n";
  for (const sql::Function* function : outdated) {
    const std::string name{function->name};
    const std::string sum = checksum(*function);
    text += std::string{function->sql} + "\nINSERT INTO faultline.functions AS f (name, checksum) VALUES ('" +
            name + "', '" + sum + "')\n    ON CONFLICT (name) DO UPDATE SET checksum = '" + sum +
            "', applied_at = now();\n";
  }
  return text + std::string{kRevokeFromPublic} + ";\nCOMMIT;\n";
}

}  // namespace

int version_of_program() { return static_cast<int>(sql::kMigrations.size()); }

std::expected<MigrateReport, MigrateError> migrate(pg::Connection& connection, const MigrateOptions& options,
                                                   Deadline deadline) {
  if (options.buckets < 1 || options.buckets > 4096) {
    return std::unexpected(MigrateError{.code = MigrateError::Code::usage,
                                        .message = std::to_string(options.buckets) + " buckets cannot be",
                                        .hint = "a schema has 1 to 4096 buckets; a single server needs 1"});
  }
  auto applied =
      in_short_turns(deadline, [&] { return read_applied_shortly(connection, options, deadline); });
  if (!applied) return std::unexpected(from_database(applied.error()));
  if (auto refusal = refuse(*applied)) return std::unexpected(std::move(*refusal));

  MigrateReport report{.version_before = applied->newest()};
  if (options.dry_run) {
    report.version_after = report.version_before;
    report.sql = dry_run_sql(*applied, options);
    report.functions_replaced = outdated_functions(*applied).size();
    for (const sql::Migration& migration : sql::kMigrations) {
      if (!applied->contains(migration.version)) {
        report.applied.push_back({.version = migration.version, .name = std::string{migration.name}});
      }
    }
    return report;
  }

  std::optional<MigrateError> refusal;
  for (;;) {
    auto next = in_short_turns(deadline, [&] { return apply_next(connection, options, refusal, deadline); });
    if (!next) return std::unexpected(from_database(next.error()));
    if (refusal) return std::unexpected(std::move(*refusal));
    if (!*next) break;
    report.applied.push_back(std::move(**next));
  }
  auto replaced =
      in_short_turns(deadline, [&] { return replace_functions(connection, options, refusal, deadline); });
  if (!replaced) return std::unexpected(from_database(replaced.error()));
  if (refusal) return std::unexpected(std::move(*refusal));
  report.functions_replaced = *replaced;
  report.version_after = std::max(report.version_before, version_of_program());
  return report;
}

std::expected<int, MigrateError> check(pg::Connection& connection, Deadline deadline) {
  auto applied = read_applied(connection, deadline, kHasMigrationsByName);
  if (!applied) return std::unexpected(from_database(applied.error()));
  if (auto refusal = refuse(*applied)) return std::unexpected(std::move(*refusal));
  if (next_missing(*applied) == nullptr) {
    // Another body under the same name serves this program, a function that is not there does not.
    const auto missing = std::ranges::find_if(
        sql::kFunctions, [&](const sql::Function& f) { return !applied->functions.contains(f.name); });
    if (missing == sql::kFunctions.end()) return applied->newest();
    return std::unexpected(MigrateError{.code = MigrateError::Code::older_schema,
                                        .message = "the database lacks the function faultline." +
                                                   std::string{missing->name} + ", which this program calls",
                                        .hint = "run `faultline migrate` on it"});
  }
  return std::unexpected(MigrateError{
      .code = MigrateError::Code::older_schema,
      .message = applied->newest() == 0
                     ? std::string{"the database has no Faultline schema"}
                     : "the database has schema version " + std::to_string(applied->newest()) +
                           ", this program needs version " + std::to_string(version_of_program()),
      .hint = "run `faultline migrate` on it"});
}

}  // namespace faultline::schema

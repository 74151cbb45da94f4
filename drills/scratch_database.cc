#include "drills/scratch_database.h"

#include "drills/must.h"
#include "faultline/uuid.h"
#include "schema/migrator.h"

namespace faultline::drills {
namespace {

/// `faultline_drill_` and twelve hexadecimal digits, then `_` and a number.
constexpr std::string_view kPrefix = "faultline_drill_";
constexpr std::size_t kDigits = 12;

Deadline soon() { return Deadline::clock::now() + std::chrono::seconds{60}; }

std::string new_name() {
  std::string digits = Uuid::random().to_string();
  std::erase(digits, '-');
  return std::string{kPrefix} + digits.substr(0, kDigits);
}

pg::Connection connect(const std::string& dsn, const std::string& application_name) {
  return must(pg::Connection::open({.dsn = dsn, .application_name = application_name}, soon()));
}

void drop(pg::Connection& connection, const std::string& database) {
  must(connection.exec_script("DROP DATABASE IF EXISTS " + database + " WITH (FORCE)", soon()));
}

}  // namespace

std::string dsn_with_database(std::string dsn, std::string_view database) {
  // In both forms of a DSN the last word on a setting counts.
  if (dsn.contains("://"))
    dsn += dsn.contains('?') ? "&dbname=" : "?dbname=";
  else
    dsn += " dbname=";
  return dsn += database;
}

ScratchDatabases::ScratchDatabases(std::string dsn)
    : dsn_(std::move(dsn)), name_(new_name()), keeper_(connect(dsn_, name_)) {
  // The DSN may have an application name of its own, and that would be the session's.
  must(keeper_.exec_script("SET application_name = '" + name_ + "'", soon()));
  drop_orphans();
}

ScratchDatabases::~ScratchDatabases() {
  try {
    drop_all();
  } catch (const std::exception&) {
    // The next drill drops them.
  }
}

std::string ScratchDatabases::create() {
  const auto make = [&] {
    const std::lock_guard lock{mutex_};
    if (closed_) throw DrillError("the drill was interrupted");
    std::string name = name_ + "_" + std::to_string(databases_.size() + 1);
    databases_.push_back(name);
    if (const auto created = keeper_.exec_script("CREATE DATABASE " + name + " TEMPLATE template0", soon());
        !created) {
      throw DrillError("no scratch database can be made on this server: " + created.error().describe() +
                       "; a drill needs a login that may create databases");
    }
    return dsn_with_database(dsn_, name);
  };
  std::string made = make();
  auto connection = connect(made, name_);
  must(schema::migrate(connection, {}, soon()));
  return made;
}

void ScratchDatabases::drop_all() {
  const std::lock_guard lock{mutex_};
  closed_ = true;
  if (databases_.empty()) return;
  for (const std::string& database : databases_) drop(keeper_, database);
  databases_.clear();
}

void ScratchDatabases::drop_orphans() {
  // Only what this login could have made: others' drills are not even looked at.
  constexpr pg::Statement kOrphans{
      "",
      "SELECT d.datname::text FROM pg_catalog.pg_database d"
      " WHERE d.datname ~ '^faultline_drill_[0-9a-f]{12}_[0-9]+$'"
      "   AND pg_catalog.pg_get_userbyid(d.datdba) = current_user"
      "   AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a"
      "                    WHERE a.application_name = left(d.datname::text, 28))"};
  const auto orphans = must(keeper_.exec(kOrphans, {}, soon()));
  for (int row = 0; row < orphans.rows(); ++row) drop(keeper_, orphans.get<std::string>(row, 0));
}

}  // namespace faultline::drills

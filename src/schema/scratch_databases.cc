#include "schema/scratch_databases.h"

#include <stdexcept>

#include "faultline/uuid.h"
#include "schema/migrator.h"

namespace faultline::schema {
namespace {

constexpr std::size_t kDigits = 12;

/// The value; nobody has another answer to an error here than to say it.
template <class T, class E>
T must(std::expected<T, E> result) {
  if (!result) throw std::runtime_error(result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

Deadline soon() { return Deadline::clock::now() + std::chrono::seconds{60}; }

std::string new_name(const std::string& prefix) {
  std::string digits = Uuid::random().to_string();
  std::erase(digits, '-');
  return prefix + digits.substr(0, kDigits);
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

ScratchDatabases::ScratchDatabases(std::string dsn, std::string_view kind)
    : dsn_(std::move(dsn)),
      prefix_("faultline_" + std::string{kind} + "_"),
      name_(new_name(prefix_)),
      keeper_(connect(dsn_, name_)) {
  // The DSN may have an application name of its own, and that would be the session's.
  must(keeper_.exec_script("SET application_name = '" + name_ + "'", soon()));
  drop_orphans();
}

ScratchDatabases::~ScratchDatabases() {
  try {
    drop_all();
  } catch (const std::exception&) {
    // The next one of this kind drops them.
  }
}

std::string ScratchDatabases::create() {
  const auto make = [&] {
    const std::lock_guard lock{mutex_};
    if (closed_) throw std::runtime_error("interrupted");
    std::string name = name_ + "_" + std::to_string(databases_.size() + 1);
    databases_.push_back(name);
    if (const auto created = keeper_.exec_script("CREATE DATABASE " + name + " TEMPLATE template0", soon());
        !created) {
      throw std::runtime_error("no scratch database can be made on this server: " +
                               created.error().describe() + "; give a login that may create databases");
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
  // Only what this login could have made: others' are not even looked at.
  constexpr pg::Statement kOrphans{
      "",
      "SELECT d.datname::text FROM pg_catalog.pg_database d"
      " WHERE d.datname ~ ('^' || $1::text || '[0-9a-f]{12}_[0-9]+$')"
      "   AND pg_catalog.pg_get_userbyid(d.datdba) = current_user"
      "   AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a"
      "                    WHERE a.application_name = left(d.datname::text, length($1::text) + 12))"};
  const auto orphans = must(keeper_.exec(kOrphans, pg::Params{}.add(prefix_), soon()));
  for (int row = 0; row < orphans.rows(); ++row) drop(keeper_, orphans.get<std::string>(row, 0));
}

}  // namespace faultline::schema

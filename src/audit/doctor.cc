#include "audit/doctor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/utf8.h"
#include "schema/migrator.h"
#include "sql/statements.h"
#include "store/answer.h"
#include "store/backend.h"

namespace faultline::audit {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using Findings = std::vector<Finding>;
using pg::Expected;

constexpr seconds kSkewMax{5};
constexpr double kSnapshotWarningSeconds = 300;
constexpr double kSnapshotDangerSeconds = 3'600;
constexpr double kExpiredWarningSeconds = 60;
constexpr double kExpiredDangerSeconds = 600;
constexpr std::int64_t kDeadRowsMin = 10'000;  // below that bloat costs nothing
constexpr std::int64_t kUpdatesMin = 10'000;   // below that a ratio says nothing
constexpr double kHotRatioMin = 0.3;
constexpr double kBlockerDangerSeconds = 60;
constexpr std::int64_t kRetryingMin = 10;  // below that it is an ordinary mishap
constexpr std::size_t kErrorShown = 200;
constexpr double kConnectionsWarning = 0.8;
constexpr double kConnectionsDanger = 0.95;

/// How long something has gone on, for people: two units at most.
std::string for_people(double all_seconds) {
  const auto whole = static_cast<std::int64_t>(std::max(0.0, all_seconds));
  const auto part = [](std::int64_t value, const char* unit) { return std::to_string(value) + " " + unit; };
  if (whole < 60) return part(whole, "s");
  if (whole < 3'600) return part(whole / 60, "min ") + part(whole % 60, "s");
  if (whole < 86'400) return part(whole / 3'600, "h ") + part(whole % 3'600 / 60, "min");
  return part(whole / 86'400, "d ") + part(whole % 86'400 / 3'600, "h");
}

std::string percent(double ratio) { return std::to_string(std::lround(ratio * 100)) + " %"; }

std::string joined(const std::vector<std::string>& words, std::string_view with = ", ") {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : with).append(word);
  return text;
}

/// What doctor_server.sql gives.
struct ServerSettings {
  std::string version, role, database;
  bool standby = false, fsync = true, full_page_writes = true;
  std::string synchronous_commit, synchronous_standby_names;
  bool data_checksums = false, autovacuum = true;
  std::int64_t connections_max = 0, connections = 0;
};

ServerSettings read_server(const pg::Result& rows) {
  return {.version = rows.get<std::string>(0, 0),
          .role = rows.get<std::string>(0, 1),
          .database = rows.get<std::string>(0, 2),
          .standby = rows.get<bool>(0, 3),
          .fsync = rows.get<bool>(0, 4),
          .full_page_writes = rows.get<bool>(0, 5),
          .synchronous_commit = rows.get<std::string>(0, 6),
          .synchronous_standby_names = rows.get<std::string>(0, 7),
          .data_checksums = rows.get<bool>(0, 8),
          .autovacuum = rows.get<bool>(0, 9),
          .connections_max = rows.get<std::int64_t>(0, 10),
          .connections = rows.get<std::int64_t>(0, 11)};
}

Finding check_connection(const pg::Connection& connection, const ServerSettings& server) {
  Finding finding{
      .name = "connection",
      .seen = "PostgreSQL " + server.version + ", database " + server.database + ", login " + server.role};
  if (connection.behind_pooler())
    finding.seen += ", through a pooler (wake-ups do not pass it: workers poll)";
  if (server.standby) {
    finding.level = Level::danger;
    finding.seen += ": a standby";
    finding.todo = "connect to the primary: on a standby nothing can be added or claimed";
  }
  return finding;
}

Finding check_fsync(const ServerSettings& server) {
  if (server.fsync) return {.name = "fsync", .seen = "on"};
  return {.name = "fsync",
          .level = Level::danger,
          .seen = "off: a crash of the machine may lose or destroy everything",
          .todo = "set fsync = on in postgresql.conf and reload"};
}

Finding check_full_page_writes(const ServerSettings& server) {
  if (server.full_page_writes) return {.name = "full_page_writes", .seen = "on"};
  return {.name = "full_page_writes",
          .level = Level::danger,
          .seen = "off: a crash of the machine may leave half-written pages",
          .todo =
              "set full_page_writes = on in postgresql.conf and reload, unless the file system never tears a "
              "page"};
}

Finding check_synchronous_commit(const ServerSettings& server) {
  const std::string& value = server.synchronous_commit;
  const bool has_standby = !server.synchronous_standby_names.empty();
  Finding finding{.name = "synchronous_commit", .seen = value};
  if (value == "off") {
    finding.level = Level::danger;
    finding.seen +=
        ": a crash may lose jobs that SQL producers and enqueueing transactions of your own have seen "
        "committed "
        "(Faultline's own sessions set it on)";
    finding.todo = "ALTER DATABASE \"" + server.database + "\" SET synchronous_commit = on";
  } else if (has_standby && (value == "local" || value == "remote_write")) {
    finding.level = Level::warning;
    finding.seen += ": SQL producers do not wait until the standby has their jobs on disk";
    finding.todo = "ALTER DATABASE \"" + server.database + "\" SET synchronous_commit = on";
  }
  return finding;
}

Finding check_checksums(const ServerSettings& server) {
  if (server.data_checksums) return {.name = "data_checksums", .seen = "on"};
  return {.name = "data_checksums",
          .level = Level::warning,
          .seen = "off: a page that the disk has spoiled is not noticed",
          .todo = "stop the server and run pg_checksums --enable"};
}

Finding check_connections(const ServerSettings& server) {
  const double share = static_cast<double>(server.connections) /
                       static_cast<double>(std::max<std::int64_t>(1, server.connections_max));
  Finding finding{.name = "connections",
                  .seen = std::to_string(server.connections) + " of " +
                          std::to_string(server.connections_max) + " are in use"};
  if (share >= kConnectionsWarning) {
    finding.level = share >= kConnectionsDanger ? Level::danger : Level::warning;
    finding.todo = "raise max_connections, or put PgBouncer in transaction mode in front";
  }
  return finding;
}

Expected<Finding> check_standbys(pg::Connection& connection, const ServerSettings& server, Deadline until) {
  auto rows = connection.exec(sql::kDoctorStandbys, {}, until);
  if (!rows) return std::unexpected(std::move(rows.error()));
  std::vector<std::string> asynchronous;
  std::vector<std::string> synchronous;
  std::vector<std::string> slots;
  for (int row = 0; row < rows->rows(); ++row) {
    const auto name = rows->get<std::string>(row, 1);
    if (rows->get<std::string>(row, 0) == "slot")
      slots.push_back(name);
    else
      (rows->get<std::string>(row, 2) == "async" ? asynchronous : synchronous).push_back(name);
  }
  Finding finding{.name = "standbys"};
  if (!server.synchronous_standby_names.empty() && synchronous.empty()) {
    finding.level = Level::danger;
    finding.seen = "synchronous_standby_names is \"" + server.synchronous_standby_names +
                   "\" and no such standby is connected: every commit waits";
    finding.todo = "bring the standby back, or empty synchronous_standby_names and accept the risk";
  } else if (!asynchronous.empty()) {
    finding.level = Level::warning;
    finding.seen = "asynchronous: " + joined(asynchronous) +
                   (synchronous.empty() ? "" : "; synchronous: " + joined(synchronous));
    finding.todo =
        "a failover to an asynchronous standby loses the last commits; name one in synchronous_standby_names "
        "for "
        "jobs that must survive it";
  } else {
    finding.seen = synchronous.empty() ? "none" : "synchronous: " + joined(synchronous);
  }
  if (!slots.empty()) {
    finding.level = std::max(finding.level, Level::warning);
    finding.seen += "; nobody reads the replication slots " + joined(slots);
    finding.todo +=
        std::string{finding.todo.empty() ? "" : "; "} +
        "start their readers or drop them with pg_drop_replication_slot, before the log fills the disk";
  }
  return finding;
}

Expected<Finding> check_role(pg::Connection& connection, const ServerSettings& server, Deadline until) {
  auto rows = connection.exec(sql::kDoctorRole, {}, until);
  if (!rows) return std::unexpected(std::move(rows.error()));
  if (rows->get<bool>(0, 0))
    return Finding{.name = "role", .seen = server.role + " is a superuser: it may do everything"};
  const auto roles = rows->get<std::vector<std::string>>(0, 1);
  if (roles.empty()) {
    return Finding{
        .name = "role",
        .level = Level::danger,
        .seen = server.role + " has no role of Faultline",
        .todo = "GRANT faultline_owner (or faultline_producer, faultline_worker, faultline_reader) TO " +
                server.role};
  }
  const auto has = [&](std::string_view role) { return std::ranges::find(roles, role) != roles.end(); };
  std::vector<std::string> may{"look"};
  if (has("faultline_owner") || has("faultline_producer") || has("faultline_worker"))
    may.emplace_back("add jobs");
  if (has("faultline_owner") || has("faultline_worker")) may.emplace_back("work");
  if (has("faultline_owner")) may.emplace_back("operate");
  Finding finding{.name = "role", .seen = server.role + " is " + joined(roles) + ": it may " + joined(may)};
  if (!rows->get<bool>(0, 2)) {
    finding.level = Level::warning;
    finding.seen +=
        "; what other logins do is hidden from it, so neither this nor the server's metrics see how old "
        "their "
        "transactions are";
    finding.todo = "GRANT pg_read_all_stats TO " + server.role;
  }
  return finding;
}

/// A moment of the database's clock, and between which two of our own it was read.
struct Reading {
  DatabaseTime at;
  std::chrono::steady_clock::time_point sent, received;
  DatabaseTime ours;  ///< this machine's clock in the middle
};

Expected<Reading> read_clock(pg::Connection& connection, Deadline until) {
  Reading reading{.sent = std::chrono::steady_clock::now()};
  const auto wall = std::chrono::system_clock::now();
  auto rows = connection.exec(sql::kDoctorClock, {}, until);
  if (!rows) return std::unexpected(std::move(rows.error()));
  reading.received = std::chrono::steady_clock::now();
  reading.at = rows->get<DatabaseTime>(0, 0);
  const auto half = std::chrono::duration_cast<microseconds>(reading.received - reading.sent) / 2;
  reading.ours = DatabaseTime{std::chrono::duration_cast<microseconds>(wall.time_since_epoch()) + half};
  return reading;
}

Finding judge_clock(const Reading& first, const Reading& second) {
  const auto passed = second.at - first.at;
  if (passed <= microseconds{0}) {
    return {
        .name = "clock",
        .level = Level::danger,
        .seen = "the database's clock does not go on: it was " + to_string(first.at) + ", then " +
                to_string(second.at),
        .todo = "no lease runs out while it stands still; see to the clock of the database's machine (NTP)"};
  }
  const microseconds skew = second.at - second.ours;
  const auto doubt = std::chrono::duration_cast<microseconds>(second.received - second.sent) / 2;
  const double by = std::abs(std::chrono::duration<double>(skew).count());
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.3f s", by);
  Finding finding{.name = "clock",
                  .seen = "the database is " + std::string{text.data()} +
                          (skew < microseconds{0} ? " behind" : " ahead of") + " this machine"};
  if (std::chrono::abs(skew) > kSkewMax + doubt) {
    finding.level = Level::warning;
    finding.todo =
        "leases are judged by the database's clock alone, but logs of the two are hard to compare: set both "
        "by NTP";
  }
  return finding;
}

Expected<Finding> check_clock(pg::Connection& connection, Deadline until) {
  auto first = read_clock(connection, until);
  if (!first) return std::unexpected(std::move(first.error()));
  auto second = read_clock(connection, until);
  if (!second) return std::unexpected(std::move(second.error()));
  return judge_clock(*first, *second);
}

Expected<Finding> check_bloat(pg::Connection& connection, const ServerSettings& server, Deadline until) {
  auto rows = connection.exec(sql::kDoctorTables, {}, until);
  if (!rows) return std::unexpected(std::move(rows.error()));
  std::vector<std::string> bloated;
  std::vector<std::string> not_vacuumed;
  std::string jobs = "nothing is known of the tables yet";
  bool off_page = false;
  for (int row = 0; row < rows->rows(); ++row) {
    const auto name = rows->get<std::string>(row, 0);
    const auto number = [&](int column) { return rows->get<std::int64_t>(row, column); };
    const std::int64_t live = number(1), dead = number(2), updates = number(3);
    const double hot =
        static_cast<double>(number(4)) / static_cast<double>(std::max<std::int64_t>(1, updates));
    if (dead > kDeadRowsMin && dead > 2 * live)
      bloated.push_back(name + " (" + std::to_string(dead) + " dead rows beside " + std::to_string(live) +
                        ")");
    if (rows->get<bool>(row, 5)) not_vacuumed.push_back(name);
    if (name != "jobs") continue;
    jobs = "jobs has " + std::to_string(live) + " rows and " + std::to_string(dead) + " dead ones" +
           (updates > 0 ? ", " + percent(hot) + " of its updates stay on their page" : "");
    off_page = updates >= kUpdatesMin && hot < kHotRatioMin;
  }
  Finding finding{.name = "bloat", .seen = std::move(jobs)};
  if (!bloated.empty()) {
    finding.level = Level::warning;
    finding.seen += "; bloated: " + joined(bloated);
    finding.todo = "see oldest_snapshot for who holds vacuum back, then VACUUM these tables";
  } else if (off_page) {
    finding.level = Level::warning;
    finding.todo = "claims write to indexes: look for an index of your own on faultline.jobs, and drop it";
  }
  if (!server.autovacuum || !not_vacuumed.empty()) {
    finding.level = Level::danger;
    finding.seen +=
        server.autovacuum ? "; autovacuum is off for " + joined(not_vacuumed) : "; autovacuum is off";
    finding.todo = server.autovacuum
                       ? "ALTER TABLE faultline." + not_vacuumed.front() + " RESET (autovacuum_enabled)"
                       : "set autovacuum = on and track_counts = on in postgresql.conf and reload";
  }
  return finding;
}

Expected<Finding> check_snapshots(pg::Connection& connection, Deadline until) {
  auto rows = connection.exec(sql::kDoctorSnapshots, pg::Params{}.add(std::int64_t{1}), until);
  if (!rows) return std::unexpected(std::move(rows.error()));
  if (rows->rows() == 0) return Finding{.name = "oldest_snapshot", .seen = "nothing holds vacuum back"};
  const auto what = rows->get<std::string>(0, 0);
  const auto pid = rows->get<std::optional<std::int64_t>>(0, 1);
  const auto age = rows->get<std::optional<double>>(0, 5);
  const auto transactions = rows->get<std::optional<std::int64_t>>(0, 4).value_or(0);
  Finding finding{.name = "oldest_snapshot",
                  .seen = what + (pid ? " with pid " + std::to_string(*pid) : "") + " (" +
                          rows->get<std::string>(0, 2) + ", " + rows->get<std::string>(0, 3) +
                          ") holds vacuum back" + (age ? " since " + for_people(*age) : "") + ", " +
                          std::to_string(transactions) + " transactions ago"};
  if (what == "replication slot") {
    // Without an age, what counts is how much was written since.
    if (transactions > 1'000'000) finding.level = Level::warning;
    finding.todo = "start the reader of the slot, or drop it with pg_drop_replication_slot";
  } else if (what == "prepared transaction") {
    finding.level = age.value_or(0) >= kSnapshotWarningSeconds ? Level::danger : Level::warning;
    finding.todo = "COMMIT PREPARED or ROLLBACK PREPARED it: it outlives every session";
  } else if (age.value_or(0) >= kSnapshotWarningSeconds) {
    finding.level = *age >= kSnapshotDangerSeconds ? Level::danger : Level::warning;
    finding.todo = what == "standby"
                       ? "end the long query on the standby, or turn hot_standby_feedback off there"
                       : "end it: SELECT pg_terminate_backend(" + std::to_string(pid.value_or(0)) +
                             "); and set idle_in_transaction_session_timeout for its login";
  }
  if (finding.level == Level::ok) finding.todo.clear();
  return finding;
}

Expected<Finding> check_locks(pg::Connection& connection, Deadline until) {
  auto rows = connection.exec(sql::kDoctorBlockers, pg::Params{}.add(std::int64_t{1}), until);
  if (!rows) return std::unexpected(std::move(rows.error()));
  if (rows->rows() == 0) return Finding{.name = "locks", .seen = "nobody waits for a lock"};
  const auto pid = std::to_string(rows->get<std::int64_t>(0, 0));
  const double age = rows->get<std::optional<double>>(0, 3).value_or(0);
  const auto waiting = rows->get<std::int64_t>(0, 4);
  return Finding{.name = "locks",
                 .level = age >= kBlockerDangerSeconds ? Level::danger : Level::warning,
                 .seen = "the session with pid " + pid + " (" + rows->get<std::string>(0, 1) + ", " +
                         rows->get<std::string>(0, 2) + " since " + for_people(age) + ") holds locks that " +
                         std::to_string(waiting) + (waiting == 1 ? " other waits for" : " others wait for"),
                 .todo = "end it: SELECT pg_terminate_backend(" + pid + ")"};
}

Expected<Finding> check_leases(pg::Connection& connection, std::int16_t buckets, Deadline until) {
  std::int64_t expired = 0;
  double oldest = 0;
  for (std::int16_t bucket = 0; bucket < buckets; ++bucket) {
    auto rows = connection.exec(sql::kDoctorExpired, pg::Params{}.add(bucket), until);
    if (!rows) return std::unexpected(std::move(rows.error()));
    expired += rows->get<std::int64_t>(0, 0);
    oldest = std::max(oldest, rows->get<double>(0, 1));
  }
  if (expired == 0) return Finding{.name = "expired_leases", .seen = "none"};
  Finding finding{.name = "expired_leases",
                  .seen = std::to_string(expired) + ", the oldest since " + for_people(oldest)};
  if (oldest >= kExpiredWarningSeconds) {
    finding.level = oldest >= kExpiredDangerSeconds ? Level::danger : Level::warning;
    finding.seen += ": no watchdog seems to run";
    finding.todo = "run faultline serve, or a worker, which has a watchdog";
  }
  return finding;
}

Expected<Finding> check_queues(pg::Connection& connection, std::int16_t buckets, Deadline until) {
  std::vector<std::string> names;
  std::int64_t waiting = 0;
  for (std::int16_t bucket = 0; bucket < buckets; ++bucket) {
    auto rows = connection.exec(sql::kDoctorPaused, pg::Params{}.add(bucket), until);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) {
      if (bucket == 0) names.push_back(rows->get<std::string>(row, 0));
      waiting += rows->get<std::int64_t>(row, 1);
    }
  }
  if (names.empty()) return Finding{.name = "paused_queues", .seen = "none"};
  return Finding{.name = "paused_queues",
                 .level = Level::warning,
                 .seen = joined(names) + ", with " + std::to_string(waiting) + " jobs waiting",
                 .todo = "if that is over: faultline queues resume " + names.front()};
}

/// A queue in which everything fails looks idle: nothing is due and nothing runs.
Expected<Finding> check_failing(pg::Connection& connection, std::int16_t buckets, Deadline until) {
  std::vector<std::string> found;
  std::string first;
  for (std::int16_t bucket = 0; bucket < buckets; ++bucket) {
    auto rows = connection.exec(sql::kDoctorFailing, pg::Params{}.add(bucket).add(kRetryingMin), until);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) {
      const auto name = rows->get<std::string>(row, 0);
      const auto error = rows->get<std::string>(row, 3);
      if (first.empty()) first = name;
      found.push_back("in " + name + " " + std::to_string(rows->get<std::int64_t>(row, 1)) +
                      " jobs wait for another attempt, and " +
                      std::to_string(rows->get<std::int64_t>(row, 2)) + " have ended in ten minutes" +
                      (error.empty() ? "" : ": " + std::string{first_bytes(error, kErrorShown)}));
    }
  }
  if (found.empty()) return Finding{.name = "failing_queues", .seen = "none"};
  return Finding{.name = "failing_queues",
                 .level = Level::warning,
                 .seen = joined(found, "; "),
                 .todo = "faultline jobs list --queue " + first +
                         " --state scheduled has each one's last error and when it is tried next"};
}

/// Whether a new session, as this one is, can run the verbs. What is locked, read-only or forbidden is told
/// elsewhere.
Expected<Finding> check_functions(pg::Connection& connection, Deadline until) {
  auto called = connection.exec(sql::kDatabaseWritable, pg::Params{}.add(std::int16_t{0}), until);
  if (called || called.error().sqlstate != pg::kFileIsGone)
    return Finding{.name = "functions", .seen = "a new session can call them"};
  return Finding{.name = "functions",
                 .level = Level::danger,
                 .seen = "a new session cannot call them: " + called.error().message,
                 .todo =
                     "PostgreSQL's files were replaced or removed while it ran, as an upgrade does: "
                     "restart it"};
}

/// What can be looked at only where Faultline's schema is.
Expected<void> check_database(pg::Connection& connection, const ServerSettings& server, Findings& findings,
                              Deadline until) {
  auto meta = connection.exec(sql::kMetaGet, pg::Params{}.add(std::int16_t{0}), until);
  if (!meta) return std::unexpected(std::move(meta.error()));
  const auto buckets = meta->get<std::int16_t>(0, 0);
  for (auto finding : {check_functions(connection, until), check_clock(connection, until),
                       check_bloat(connection, server, until), check_snapshots(connection, until),
                       check_leases(connection, buckets, until), check_queues(connection, buckets, until),
                       check_failing(connection, buckets, until)}) {
    if (!finding) return std::unexpected(std::move(finding.error()));
    findings.push_back(std::move(*finding));
  }
  return {};
}

Expected<Findings> check_all(pg::Connection& connection, Deadline until) {
  // What is locked is a finding, and nothing to wait for.
  if (auto set = connection.exec_script("SET lock_timeout = '1s'", until); !set)
    return std::unexpected(std::move(set.error()));
  auto rows = connection.exec(sql::kDoctorServer, {}, until);
  if (!rows) return std::unexpected(std::move(rows.error()));
  const ServerSettings server = read_server(*rows);
  Findings findings{
      check_connection(connection, server), check_fsync(server),     check_full_page_writes(server),
      check_synchronous_commit(server),     check_checksums(server), check_connections(server)};
  for (auto finding : {check_standbys(connection, server, until), check_role(connection, server, until)}) {
    if (!finding) return std::unexpected(std::move(finding.error()));
    findings.push_back(std::move(*finding));
  }
  const auto version = schema::check(connection, until);
  if (!version) {
    findings.push_back({.name = "schema",
                        .level = Level::danger,
                        .seen = version.error().message,
                        .todo = version.error().hint});
    return findings;
  }
  findings.push_back({.name = "schema", .seen = "version " + std::to_string(*version)});
  auto locks = check_locks(connection, until);
  if (!locks) return std::unexpected(std::move(locks.error()));
  findings.push_back(std::move(*locks));
  auto looked = check_database(connection, server, findings, until);
  // A login that may not even look has been told so above, and so has who locks the tables.
  if (!looked && looked.error().code != pg::Errc::insufficient_privilege &&
      looked.error().code != pg::Errc::lock_not_available)
    return std::unexpected(std::move(looked.error()));
  return findings;
}

}  // namespace

std::string_view to_string(Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::warning:
      return "warning";
    case Level::danger:
      return "danger";
  }
  return "danger";
}

faultline::Expected<std::vector<Finding>> examine(pg::Connection& connection, Deadline until) {
  return store::answer_to(ErrorCode::internal, [&]() -> faultline::Expected<std::vector<Finding>> {
    auto findings = check_all(connection, until);
    if (!findings) return std::unexpected(store::translate(findings.error()));
    return std::move(*findings);
  });
}

}  // namespace faultline::audit

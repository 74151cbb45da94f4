// The plans of the real statements do not depend on what the planner believes of the tables: every lookup
// goes by its key, whether the table is empty, huge, bloated or was analysed at the wrong moment.

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <nlohmann/json.hpp>

#include "sql/statements.h"
#include "store/fixture.h"
#include "store/plan_settings.h"
#include "support/process.h"

namespace faultline::testing {
namespace {

using nlohmann::json;

/// What a statement does to one table, as EXPLAIN shows it.
struct Access {
  std::string table;
  std::string node;
  std::string index;
  std::string condition;

  [[nodiscard]] std::string describe() const {
    return node + " on " + table + (index.empty() ? "" : " using " + index) + " where " +
           (condition.empty() ? "nothing" : condition);
  }
};

void collect(const json& node, std::vector<Access>& found) {
  const std::string type = node.at("Node Type");
  if (type != "ModifyTable" && (node.contains("Relation Name") || node.contains("Index Name"))) {
    found.push_back({.table = node.value("Relation Name", ""),
                     .node = type,
                     .index = node.value("Index Name", ""),
                     .condition = node.value("Index Cond", "")});
  }
  if (!node.contains("Plans")) return;
  for (const json& child : node.at("Plans")) collect(child, found);
}

/// Whether an index condition compares this column for equality: `(id = …)`, `(j.id = ANY …)`.
bool compares(const std::string& condition, const std::string& column) {
  for (std::size_t at = condition.find(column); at != std::string::npos;
       at = condition.find(column, at + 1)) {
    const bool begins = at > 0 && condition[at - 1] == '(';
    if (begins && condition.compare(at + column.size(), 3, " = ") == 0) return true;
  }
  return false;
}

struct Rule {
  std::string index;
  std::vector<std::string> columns;  ///< compared for equality
  std::string within;                ///< and this text is in the condition
};

/// The ways into each table that stay fast however large it is.
const std::map<std::string, std::vector<Rule>>& good_ways() {
  static const std::map<std::string, std::vector<Rule>> ways{
      {"jobs",
       {{"jobs_pkey", {"bucket", "id"}, ""}, {"jobs_due", {"bucket", "queue", "priority"}, "run_at"}}},
      {"ledger", {{"ledger_pkey", {"bucket", "job_id"}, ""}}},
      {"idempotency_keys", {{"idempotency_keys_pkey", {"bucket", "queue", "key"}, ""}}},
      {"effects", {{"effects_pkey", {"bucket", "job_id", "key"}, ""}}},
      {"queues", {{"queues_pkey", {"bucket", "name"}, ""}}},
      {"tallies", {{"tallies_of_queue", {"bucket", "queue"}, ""}}},
      // The watchdog walks the grants that are ripe.
      {"grants", {{"grants_pkey", {"bucket"}, "check_at <= "}}},
  };
  return ways;
}

bool is_good(const Access& access) {
  if (access.node != "Index Scan" && access.node != "Index Only Scan") return false;
  const auto ways = good_ways().find(access.table);
  if (ways == good_ways().end()) return false;
  return std::ranges::any_of(ways->second, [&](const Rule& rule) {
    return access.index == rule.index && access.condition.find(rule.within) != std::string::npos &&
           std::ranges::all_of(rule.columns,
                               [&](const std::string& column) { return compares(access.condition, column); });
  });
}

int parameters_of(std::string_view sql) {
  int most = 0;
  for (std::size_t at = sql.find('$'); at != std::string_view::npos; at = sql.find('$', at + 1)) {
    most = std::max(most, std::atoi(std::string{sql.substr(at + 1, 2)}.c_str()));
  }
  return most;
}

/// The accesses of a statement's generic plan, planned anew in this session.
std::vector<Access> plan_of(pg::Connection& connection, const pg::Statement& statement) {
  std::string arguments;
  for (int i = 0; i < parameters_of(statement.sql); ++i) arguments += i == 0 ? "NULL" : ", NULL";
  const std::string name{statement.name};
  must(connection.exec_script("PREPARE " + name + " AS " + std::string{statement.sql}, soon()));
  const std::string explain = "EXPLAIN (FORMAT JSON) EXECUTE " + name + "(" + arguments + ")";
  const json plan = json::parse(query_text(connection, explain));
  must(connection.exec_script("DEALLOCATE " + name, soon()));
  std::vector<Access> found;
  collect(plan.at(0).at("Plan"), found);
  return found;
}

pg::Connection planning_session(const TestDatabase& database) {
  return must(pg::Connection::open({.dsn = database.dsn(), .settings = store::plan_settings()}, soon()));
}

const std::vector<std::pair<pg::Statement, std::set<std::string>>>& statements_with_tables() {
  static const std::vector<std::pair<pg::Statement, std::set<std::string>>> all{
      {sql::kJobsClaim, {"jobs", "queues", "tallies"}},
      {sql::kLeasesHeartbeat, {"jobs", "queues"}},
      {sql::kLeasesProgress, {"jobs"}},
      {sql::kLeasesCheck, {"jobs"}},
      {sql::kJobsFinish, {"jobs", "idempotency_keys", "queues"}},
      {sql::kJobsReturn, {"jobs", "queues"}},
      {sql::kLeasesLock, {"jobs"}},
      {sql::kLeasesJudge, {"jobs", "ledger"}},
      {sql::kLeasesFind, {"ledger"}},
      {sql::kLeasesExpire, {"jobs", "grants", "queues", "idempotency_keys"}},
      {sql::kJobsCancel, {"jobs", "queues", "idempotency_keys"}},
      {sql::kJobsRequeue, {"jobs"}},
      {sql::kJobsRequeueFinished, {"ledger", "idempotency_keys"}},
      {sql::kJobsKnown, {"jobs", "ledger"}},
      {sql::kJobGet, {"jobs", "ledger"}},
      {sql::kJobsStates, {"jobs", "ledger"}},
      {sql::kEffectsBegin, {"jobs", "effects"}},
      {sql::kEffectsRecord, {"jobs", "effects"}},
      {sql::kEffectsForget, {"jobs", "effects"}},
      {sql::kLeasesPeek, {"jobs"}},
      {sql::kJobsEnqueue, {}},
      {sql::kJobsEnqueueKeyed, {"idempotency_keys"}},
      {sql::kKeysTake, {}},
  };
  return all;
}

constexpr std::string_view kFill =
    "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload)"
    "  SELECT 0, gen_random_uuid(), 'default', 'test', 'null' FROM generate_series(1, 200000);"
    "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue)"
    "  SELECT 0, 1, 'succeeded', gen_random_uuid(), 1, 'succeeded', 0, 'default' FROM generate_series(1, "
    "200000);"
    "INSERT INTO faultline.idempotency_keys (bucket, queue, key, job_id, fingerprint)"
    "  SELECT 0, 'default', 'key ' || i, gen_random_uuid(), '' FROM generate_series(1, 200000) AS i;"
    "INSERT INTO faultline.effects (bucket, job_id, key, token, lease_id, worker)"
    "  SELECT 0, gen_random_uuid(), 'step', 1, gen_random_uuid(), 'w' FROM generate_series(1, 50000);"
    "INSERT INTO faultline.grants (bucket, check_at, lease_id, job_ids)"
    "  SELECT 0, faultline.clock(), gen_random_uuid(), '{}' FROM generate_series(1, 20000);"
    "INSERT INTO faultline.tallies (bucket, queue, available)"
    "  SELECT 0, 'default', 1 FROM generate_series(1, 20000);";

constexpr std::string_view kEmpty =
    "DELETE FROM faultline.jobs WHERE queue <> '';"
    "DELETE FROM faultline.ledger; DELETE FROM faultline.idempotency_keys; DELETE FROM faultline.effects;"
    "DELETE FROM faultline.grants; DELETE FROM faultline.tallies;";

constexpr std::string_view kOneRow =
    "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload)"
    "  VALUES (0, gen_random_uuid(), 'default', 'test', 'null');"
    "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue)"
    "  VALUES (0, 1, 'succeeded', gen_random_uuid(), 1, 'succeeded', 0, 'default');"
    "INSERT INTO faultline.idempotency_keys (bucket, queue, key, job_id, fingerprint)"
    "  VALUES (0, 'default', 'key', gen_random_uuid(), '');"
    "INSERT INTO faultline.grants (bucket, check_at, lease_id, job_ids)"
    "  VALUES (0, faultline.clock(), gen_random_uuid(), '{}');"
    "INSERT INTO faultline.tallies (bucket, queue, available) VALUES (0, 'default', 1);";

/// A state of the tables in which somebody might prepare a statement.
struct Condition {
  std::string name;
  std::vector<std::string> steps{};  ///< each sent by itself: VACUUM allows no transaction around it
  bool filled = false;               ///< to begin with: many rows since the tables were analysed
  bool under_an_old_snapshot = false;
};

std::ostream& operator<<(std::ostream& out, const Condition& condition) { return out << condition.name; }

std::vector<Condition> conditions() {
  const std::string empty{kEmpty};
  return {
      {.name = "fresh"},
      {.name = "empty_and_analysed", .steps = {"ANALYZE"}},
      {.name = "empty_and_vacuumed", .steps = {"VACUUM"}},
      {.name = "empty_vacuumed_and_analysed", .steps = {"VACUUM ANALYZE"}},
      {.name = "one_row_analysed", .steps = {std::string{kOneRow}, "ANALYZE"}},
      {.name = "analysed_when_tiny_then_filled", .filled = true},
      {.name = "huge_and_analysed", .steps = {"ANALYZE"}, .filled = true},
      {.name = "huge_then_emptied_and_vacuumed",
       .steps = {"ANALYZE", empty, "VACUUM ANALYZE"},
       .filled = true},
      {.name = "huge_then_emptied_and_not_vacuumed", .steps = {"ANALYZE", empty, "ANALYZE"}, .filled = true},
      {.name = "bloated_under_an_old_snapshot",
       .steps = {empty, "ANALYZE"},
       .filled = true,
       .under_an_old_snapshot = true},
      {.name = "emptied_by_truncate_and_analysed",
       .steps = {"ANALYZE",
                 "TRUNCATE faultline.ledger, faultline.idempotency_keys, faultline.effects, "
                 "faultline.grants, faultline.tallies",
                 "ANALYZE"},
       .filled = true},
  };
}

class PlansTest : public ::testing::TestWithParam<Condition> {
 protected:
  static void TearDownTestSuite() { filled_.reset(); }

  /// A database in which nothing is tidied up: the condition under test is the one that stands when the
  /// statements are planned.
  static std::unique_ptr<TestDatabase> left_alone() {
    auto database = std::make_unique<TestDatabase>();
    auto work = database->connect();
    for (const char* table : {"jobs", "ledger", "idempotency_keys", "effects", "grants", "tallies"}) {
      must(work.exec_script(
          "ALTER TABLE faultline." + std::string{table} + " SET (autovacuum_enabled = false)", soon()));
    }
    return database;
  }
  /// To fill the tables takes much longer than to copy them.
  static std::unique_ptr<TestDatabase> copy_of_filled() {
    if (!filled_) {
      auto database = left_alone();
      auto work = database->connect();
      for (const std::string_view step : {kOneRow, std::string_view{"ANALYZE"}, kFill})
        must(work.exec_script(step, soon()));
      filled_ = std::move(database);
    }
    return std::make_unique<TestDatabase>(filled_->name());
  }

 private:
  static inline std::unique_ptr<TestDatabase> filled_;
};

TEST_P(PlansTest, every_lookup_goes_by_its_key) {
  const auto database = GetParam().filled ? copy_of_filled() : left_alone();
  auto work = database->connect();
  auto snapshot = database->connect();
  if (GetParam().under_an_old_snapshot) {
    must(snapshot.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM faultline.meta", soon()));
  }
  for (const std::string& step : GetParam().steps) must(work.exec_script(step, soon()));
  auto session = planning_session(*database);

  for (const auto& [statement, tables] : statements_with_tables()) {
    SCOPED_TRACE(std::string{statement.name});
    std::set<std::string> seen;
    for (const Access& access : plan_of(session, statement)) {
      EXPECT_TRUE(is_good(access)) << access.describe();
      seen.insert(access.table);
    }
    EXPECT_EQ(seen, tables);
  }
}

INSTANTIATE_TEST_SUITE_P(Conditions, PlansTest, ::testing::ValuesIn(conditions()),
                         [](const auto& test) { return test.param.name; });

TEST(PlanRulesTest, a_walk_over_a_table_or_a_whole_bucket_is_found) {
  const TestDatabase database;
  auto session = planning_session(database);
  const auto has_a_bad_access = [&](std::string_view sql) {
    const auto accesses = plan_of(session, {"bad", sql});
    return std::ranges::any_of(accesses, [](const Access& access) { return !is_good(access); });
  };

  EXPECT_TRUE(has_a_bad_access("SELECT payload FROM faultline.jobs WHERE bucket = $1::smallint"));
  EXPECT_TRUE(has_a_bad_access(
      "SELECT payload FROM faultline.jobs WHERE bucket = $1::smallint AND worker = $2::text"));
  EXPECT_TRUE(has_a_bad_access("SELECT token FROM faultline.ledger WHERE token = $1::bigint"));
  EXPECT_TRUE(has_a_bad_access(
      "SELECT state FROM faultline.jobs WHERE bucket = $1::smallint AND queue = $2::text AND priority >= 0"));
  EXPECT_FALSE(
      has_a_bad_access("SELECT state FROM faultline.jobs WHERE bucket = $1::smallint AND id = $2::uuid"));
}

/// Counters of a table, once the sessions that moved them have ended and told.
class PlanStatisticsTest : public ::testing::Test {
 protected:
  std::int64_t number(std::string_view sql) {
    return must(sql_.exec({"", sql}, {}, soon())).get<std::int64_t>(0, 0);
  }
  /// Waits for a counter of this database to arrive at `least`.
  bool arrives_at(std::string_view sql, std::int64_t least) {
    return eventually([&] { return number(sql) >= least; });
  }
  Store open_store() { return must(Store::open({.database = database_.dsn()})); }

  static std::vector<Lease> leases_of(const std::vector<ClaimedJob>& jobs) {
    std::vector<Lease> leases;
    for (const ClaimedJob& job : jobs) leases.push_back(job.lease);
    return leases;
  }
  static std::vector<Settlement> successes_of(const std::vector<ClaimedJob>& jobs) {
    std::vector<Settlement> settlements;
    for (const ClaimedJob& job : jobs)
      settlements.push_back({.lease = job.lease, .outcome = Outcome::success()});
    return settlements;
  }

  TestDatabase database_;
  pg::Connection sql_{database_.connect()};
};

TEST_F(PlanStatisticsTest, a_claim_writes_to_no_index) {
  {
    Store store = open_store();
    must(store.enqueue(std::vector<NewJob>(100, NewJob{.kind = "test"})));
    ASSERT_EQ(must(store.claim({.worker = "w", .limit = 100})).size(), 100U);
  }

  ASSERT_TRUE(arrives_at("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'jobs'", 100));
  EXPECT_EQ(number("SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'"), 100);
}

TEST_F(PlanStatisticsTest, heartbeats_and_progress_write_to_no_index_while_their_page_has_room) {
  {
    Store store = open_store();
    // Few enough that a page holds all versions of them, whether or not anything is tidied up meanwhile.
    must(store.enqueue(std::vector<NewJob>(5, NewJob{.kind = "test"})));
    const auto leases = leases_of(must(store.claim({.worker = "w", .limit = 5})));
    must(store.heartbeat(leases));
    std::vector<ProgressReport> reports;
    for (const Lease& lease : leases) reports.push_back({.lease = lease, .fraction = 0.5});
    must(store.progress(reports));
  }

  ASSERT_TRUE(arrives_at("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'jobs'", 15));
  EXPECT_EQ(number("SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'"), 15);
}

TEST_F(PlanStatisticsTest, plans_that_were_made_on_an_empty_queue_stay_good_on_a_full_one) {
  {
    Store store = open_store();
    // Every statement of the round is prepared, and its generic plan kept, while there is one job.
    for (int i = 0; i < 7; ++i) {
      must(store.enqueue({.kind = "test"}));
      const auto claimed = must(store.claim({.worker = "w", .limit = 100}));
      must(store.heartbeat(leases_of(claimed)));
      must(store.settle(successes_of(claimed)));
    }
    must(sql_.exec_script(
        "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload)"
        "  SELECT 0, faultline.new_id(0::smallint), 'default', 'test', 'null' FROM generate_series(1, "
        "100000);"
        "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue)"
        "  SELECT 0, 1, 'succeeded', gen_random_uuid(), 1, 'succeeded', 0, 'default' FROM generate_series(1, "
        "100000)",
        soon()));
    const auto claimed = must(store.claim({.worker = "w", .limit = 100}));
    ASSERT_EQ(claimed.size(), 100U);
    must(store.heartbeat(leases_of(claimed)));
    for (const Verdict& verdict : must(store.settle(successes_of(claimed)))) EXPECT_TRUE(verdict.committed());
  }

  ASSERT_TRUE(arrives_at("SELECT n_tup_del FROM pg_stat_user_tables WHERE relname = 'jobs'", 107));
  EXPECT_LT(
      number("SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE schemaname = 'faultline'"),
      5'000);
  EXPECT_EQ(
      number("SELECT sum(seq_tup_read)::bigint FROM pg_stat_user_tables WHERE relname = 'jobs'") / 100'000,
      0);
}

}  // namespace
}  // namespace faultline::testing

// The plans of the real statements, those within the functions above all, do not depend on what the planner
// believes of the tables: every lookup goes by its key, whether the table is empty, huge, bloated or was
// analysed at the wrong moment.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <libpq-fe.h>
#include <nlohmann/json.hpp>

#include "schema/sql_text.h"
#include "sql/functions.h"
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
       {{"jobs_pkey", {"bucket", "id"}, ""},
        // Whether anything at all lies between the ids of a submission.
        {"jobs_pkey", {"bucket"}, "(id >= ($3)[1]) AND (id <= "},
        {"jobs_due", {"bucket", "queue", "priority"}, "run_at"},
        // The delayed jobs whose time has come.
        {"jobs_delayed", {"bucket"}, "run_at <= "},
        // Retention walks the dead jobs of one queue that are old enough.
        {"jobs_dead_retention", {"bucket", "queue"}, "died_at < "}}},
      // Retention walks the finished jobs of one queue that were made in a certain time.
      {"ledger",
       {{"ledger_pkey", {"bucket", "job_id"}, ""},
        {"ledger_pkey", {"bucket"}, "(job_id >= ($3)[1]) AND (job_id <= "},
        {"ledger_finished", {"bucket", "queue"}, "job_id <= "}}},
      {"idempotency_keys",
       {{"idempotency_keys_pkey", {"bucket", "queue", "key"}, ""},
        {"idempotency_keys_expiring", {"bucket"}, "expires_at <= "}}},
      {"effects", {{"effects_pkey", {"bucket", "job_id"}, ""}}},
      {"effect_decisions", {{"effect_decisions_pkey", {"bucket", "job_id"}, ""}}},
      {"stale_writes",
       {{"stale_writes_pkey", {"bucket", "job_id"}, ""},
        {"stale_writes_retention", {"bucket", "queue"}, "at < "}}},
      {"pg_class", {{"pg_class_oid_index", {"oid"}, ""}}},
      // Of these there are few.
      {"queues", {{"queues_pkey", {"bucket"}, ""}}},
      {"meta", {{"meta_pkey", {}, ""}}},
      {"retention", {{"retention_pkey", {"bucket"}, ""}}},
      {"tallies", {{"tallies_pkey", {"bucket", "queue"}, ""}}},
      // The watchdog walks the grants that are ripe.
      {"grants",
       {{"grants_pkey", {"bucket"}, "check_at <= "},
        {"grants_pkey", {"bucket", "check_at", "lease_id"}, ""}}},
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

/// The statements that are no calls of functions, and which look something up.
const std::vector<std::pair<pg::Statement, std::set<std::string>>>& statements_with_tables() {
  static const std::vector<std::pair<pg::Statement, std::set<std::string>>> all{
      {sql::kJobsQueues, {"jobs", "ledger"}},   {sql::kJobGet, {"jobs", "ledger"}},
      {sql::kJobsStates, {"jobs", "ledger"}},   {sql::kJobAttempts, {"ledger"}},
      {sql::kJobEffects, {"effects"}},          {sql::kJobEffectDecisions, {"effect_decisions"}},
      {sql::kJobStaleWrites, {"stale_writes"}},
  };
  return all;
}

/// The listings, and the indexes that they may walk: with the index that is made for it where there is one,
/// and else in the order of the page, so that as many rows are read as may be looked at.
const std::vector<std::pair<pg::Statement, std::set<std::string>>>& listings_with_indexes() {
  static const std::vector<std::pair<pg::Statement, std::set<std::string>>> all{
      {sql::kJobsListLive, {"jobs_pkey"}},
      {sql::kJobsListOfQueue, {"jobs_due", "jobs_pkey"}},
      {sql::kJobsListParked, {"jobs_parked"}},
      {sql::kJobsListParkedOfQueue, {"jobs_parked_of_queue"}},
      {sql::kJobsListRunning, {"grants_pkey", "jobs_pkey"}},
      {sql::kJobsListFinished, {"ledger_pkey"}},
      {sql::kJobsListFinishedOfQueue, {"ledger_finished", "ledger_pkey"}},
  };
  return all;
}

// ---- The statements within the functions

/// A statement that was run: where, and how it got at its rows.
struct Explained {
  std::string function;
  int line = 0;
  std::vector<Access> accesses;
};

/// A session that tells the plan of everything that it runs, nested statements included.
class ExplainingSession {
 public:
  explicit ExplainingSession(const std::string& dsn) : connection_(PQconnectdb(dsn.c_str()), &PQfinish) {
    PQsetNoticeReceiver(connection_.get(), &ExplainingSession::receive, this);
    run("LOAD 'auto_explain';"
        "SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;"
        "SET auto_explain.log_format = json; SET auto_explain.log_level = notice;"
        // So that functions are called by their full names.
        "SET search_path = pg_catalog");
    explained_.clear();
  }

  void run(const std::string& sql) {
    PGresult* result = PQexec(connection_.get(), sql.c_str());
    const std::string error{PQresultErrorMessage(result)};
    PQclear(result);
    if (!error.empty()) throw std::runtime_error(error);
    if (!problem_.empty()) throw std::runtime_error(problem_);
  }
  /// What was run within functions of Faultline's, each plan once.
  [[nodiscard]] const std::vector<Explained>& explained() const { return explained_; }

 private:
  static void receive(void* self, const PGresult* notice) {
    const auto field = [&](int code) {
      const char* text = PQresultErrorField(notice, code);
      return std::string{text == nullptr ? "" : text};
    };
    static_cast<ExplainingSession*>(self)->note(field(PG_DIAG_MESSAGE_PRIMARY), field(PG_DIAG_CONTEXT));
  }

  /// "duration: 0.1 ms  plan: {…}", in the context of the function that ran it.
  void note(const std::string& message, const std::string& context) {
    const std::size_t plan = message.find("plan:\n");
    if (plan == std::string::npos) return;
    const std::string begin = "PL/pgSQL function ";
    const std::string schema = "faultline.";
    const std::size_t innermost = context.find(begin);
    if (innermost == std::string::npos) return;
    const std::size_t name = innermost + begin.size();
    if (context.compare(name, schema.size(), schema) != 0) return;
    const std::size_t parameters = context.find('(', name);
    const std::size_t line = context.find(" line ", name);
    if (parameters == std::string::npos || line == std::string::npos) return;
    Explained found{.function = context.substr(name + schema.size(), parameters - name - schema.size()),
                    .line = std::atoi(context.c_str() + line + 6)};
    // Most statements are run many times with the same plan.
    if (!seen_.emplace(found.function, found.line, message.substr(plan)).second) return;
    const json explained = json::parse(message.substr(plan + 6), nullptr, false);
    if (explained.is_discarded()) {
      problem_ = "cannot be read: " + message;
      return;
    }
    collect(explained.at("Plan"), found.accesses);
    explained_.push_back(std::move(found));
  }

  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
  std::vector<Explained> explained_;
  std::set<std::tuple<std::string, int, std::string>> seen_;
  std::string problem_;
};

/// A clock that the scenario moves, and which goes on by a step each time it is asked.
constexpr std::string_view kSteppingClock = R"sql(
CREATE OR REPLACE FUNCTION faultline.clock_now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    time_now timestamptz := current_setting('plans.now');
BEGIN
    PERFORM set_config('plans.now', (time_now + current_setting('plans.step')::interval)::text, true);
    RETURN time_now;
END
$$;
)sql";

/// Comes to every statement of every function that names a table.
constexpr std::string_view kScenario = R"sql(
DO $scenario$DECLARE
    ids    uuid[];
    heavy  uuid[];
    lease  uuid := gen_random_uuid();
    one    record;
    job    record;
BEGIN
    PERFORM set_config('plans.now', statement_timestamp()::text, true), set_config('plans.step', '0', true);

    -- Queues.
    PERFORM faultline.set_queue('plans', attempts_max => 2, retention => '1 hour', key_retention => '2 hours');
    PERFORM faultline.set_queue('capped', running_max => 3);
    PERFORM faultline.pause('plans');
    PERFORM faultline.resume('plans');

    -- Submissions: one, several of two queues, with new keys and with one that is taken.
    PERFORM faultline.enqueue('plans', 'plain', '{}');
    ids := ARRAY(SELECT faultline.enqueue_many('[{"queue": "plans", "kind": "many", "payload": 1, "idempotency_key": "a"},
        {"queue": "capped", "kind": "many", "payload": 1}, {"queue": "plans", "kind": "many", "payload": 1}]'));
    PERFORM faultline.enqueue('plans', 'many', '1', idempotency_key => 'a');
    PERFORM faultline.refuse_conflicts(0::smallint, 'plans', ARRAY['a'], ARRAY[faultline.fingerprint('many', 'json', '1')]);

    -- Of a queue with a cap, and of one without.
    PERFORM FROM faultline.claim_jobs(0::smallint, 'capped', 'w', gen_random_uuid(), 1, '{5}', '{-infinity}', ARRAY[lease], true, false, NULL);
    SELECT c.* INTO job FROM faultline.claim('capped') AS c;
    FOR job IN SELECT c.* FROM faultline.claim('plans', 'w', 10) AS c LOOP
        -- What a worker says under a good lease, …
        PERFORM FROM faultline.heartbeat(job.id, job.token, job.lease_id);
        PERFORM FROM faultline.progress(job.id, job.token, job.lease_id, 0.5, 'half');
        PERFORM FROM faultline.peek_lease(0::smallint, job.id, job.token, job.lease_id);
        PERFORM FROM faultline.begin_effect(job.id, job.token, job.lease_id, 'step');
        PERFORM FROM faultline.record_effect(job.id, job.token, job.lease_id, 'step', '1');
        PERFORM FROM faultline.begin_effect(job.id, job.token, job.lease_id, 'other');
        PERFORM FROM faultline.forget_effect(job.id, job.token, job.lease_id, 'other');
        PERFORM FROM faultline.begin_effect(job.id, job.token, job.lease_id, 'unknown');
        PERFORM FROM faultline.complete(job.id, job.token, job.lease_id, '1');
        PERFORM faultline.decide_effect(job.id, 'unknown', true, 'seen', '1'),
                faultline.decide_effect(job.id, 'unknown', true, 'seen', '1');
        -- … and after it.
        PERFORM FROM faultline.find_leases(0::smallint, ARRAY[job.id], ARRAY[job.token], ARRAY[job.lease_id]);
        PERFORM FROM faultline.heartbeat(job.id, job.token, job.lease_id);
        PERFORM FROM faultline.forget_effect(job.id, job.token, job.lease_id, 'other');
        PERFORM FROM faultline.complete(job.id, job.token, job.lease_id, '1');
        PERFORM FROM faultline.fail(job.id, job.token, job.lease_id, 'late');
    END LOOP;

    -- A job that has ended, submitted once more, alone and with others.
    ids := ARRAY(SELECT i.id FROM unnest(ARRAY[job.id, faultline.new_id(0::smallint)]) AS i(id) ORDER BY i.id);
    PERFORM FROM faultline.enqueue_jobs(0::smallint, 'plans', ids, '{plain,late}',
        '{1,1}', NULL, '{5,5}', NULL, '{0,86400000}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    PERFORM FROM faultline.enqueue_jobs(0::smallint, 'plans', ARRAY[job.id], '{plain}', '{1}', NULL, '{5}', NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    -- A key whose job ended long ago, and is on record.
    PERFORM set_config('plans.now', (statement_timestamp() + interval '3 hours')::text, true);
    PERFORM faultline.enqueue('plans', 'another', '2', idempotency_key => 'a');

    -- All outcomes in one call, some of it under a lease that is not good, and some of it cancelled while it ran.
    ids := ARRAY(SELECT faultline.new_id(0::smallint) FROM generate_series(1, 8) ORDER BY 1);
    PERFORM FROM faultline.enqueue_jobs(0::smallint, 'plans', ids, array_fill('mixed'::text, '{8}'),
        array_fill('1'::bytea, '{8}'), NULL, array_fill(0::smallint, '{8}'), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL);
    PERFORM FROM faultline.claim_jobs(0::smallint, 'plans', 'w', lease, 8, '{0}', '{-infinity}', ARRAY[lease], false, true, 1);
    PERFORM faultline.cancel(ids[7], 'no'), faultline.cancel(ids[8], 'no');
    PERFORM FROM faultline.settle_jobs(0::smallint, ids, '{1,1,1,1,1,7,1,1}', array_fill(lease, '{8}'), '{w}',
        '{succeeded,failed,buried,snoozed,released,succeeded,succeeded,cancelled}', NULL, NULL, NULL, array_fill('k'::text, '{8}'));
    -- Jobs that are too large to be settled in one go.
    heavy := ARRAY(SELECT faultline.new_id(0::smallint) FROM generate_series(1, 17) ORDER BY 1);
    PERFORM FROM faultline.enqueue_jobs(0::smallint, 'plans', heavy, array_fill('heavy'::text, '{17}'),
        array_fill(repeat('x', 1048576)::bytea, '{17}'), NULL,
        array_fill(9::smallint, '{17}'), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    PERFORM FROM faultline.claim_jobs(0::smallint, 'plans', 'w', lease, 17, '{9}', '{-infinity}', ARRAY[lease], false, true, 1);
    PERFORM FROM faultline.settle_jobs(0::smallint, heavy, array_fill(1::bigint, '{17}'), array_fill(lease, '{17}'), '{w}',
        '{succeeded}', NULL, NULL, NULL, NULL);
    -- Leases that run out while the settlement waits.
    PERFORM FROM faultline.claim_jobs(0::smallint, 'plans', 'w', lease, 8, '{0}', '{-infinity}', ARRAY[lease], false, true, 1);
    PERFORM set_config('plans.step', '1 hour', true);
    PERFORM FROM faultline.settle_jobs(0::smallint, ids, array_fill(2::bigint, '{8}'), array_fill(lease, '{8}'), '{w}',
        '{succeeded}', NULL, NULL, NULL, NULL);
    PERFORM set_config('plans.step', '0', true);

    -- What operators do, to jobs that wait, run, are dead and have ended; each call comes twice.
    FOR one IN SELECT u.id FROM unnest(ids) AS u(id) LOOP
        PERFORM faultline.requeue(one.id, lease), faultline.requeue(one.id, lease), faultline.purge(one.id, lease),
                faultline.purge(one.id, lease), faultline.cancel(one.id, 'no', lease), faultline.cancel(one.id, 'no', lease);
    END LOOP;

    -- Leases that run out: of each kind of delivery, of one that is to be cancelled, and of one that cannot be ended.
    ids := ARRAY(SELECT faultline.new_id(0::smallint) FROM generate_series(1, 5) ORDER BY 1);
    PERFORM FROM faultline.enqueue_jobs(0::smallint, 'plans', ids, array_fill('lost'::text, '{5}'),
        array_fill('1'::bytea, '{5}'), NULL, array_fill(1::smallint, '{5}'), NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        '{at_least_once,at_most_once,hold,at_least_once,at_least_once}', NULL, NULL, NULL, NULL);
    PERFORM FROM faultline.claim_jobs(0::smallint, 'plans', 'w', lease, 8, '{1}', '{-infinity}', ARRAY[lease], false, false, NULL);
    PERFORM faultline.cancel(ids[4], 'no');
    INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue)
    VALUES (0, 1, 'failed', ids[5], 1, 'available', 0, 'plans');
    PERFORM set_config('plans.now', (current_setting('plans.now')::timestamptz + interval '1 hour')::text, true);
    PERFORM faultline.sweep(), faultline.sweep();

    -- Suspects: two of them, of which a claim takes one.
    PERFORM FROM faultline.claim('plans', 'w', 100);
    PERFORM set_config('plans.now', (current_setting('plans.now')::timestamptz + interval '1 hour')::text, true);
    PERFORM faultline.sweep(), faultline.check_writable(0::smallint);
    PERFORM FROM faultline.claim_jobs(0::smallint, 'plans', 'w', gen_random_uuid(), 8, '{1,5}', '{-infinity,-infinity}',
                                      ARRAY[lease, lease], false, true, 1);

    -- Retention: of jobs, of which one has a key that outlives it, and of keys.
    PERFORM faultline.enqueue('plans', 'kept', '1', idempotency_key => 'b');
    FOR job IN SELECT c.* FROM faultline.claim('plans', 'w', 100) AS c LOOP
        PERFORM FROM faultline.complete(job.id, job.token, job.lease_id);
    END LOOP;
    -- And of evidence about a job that stays.
    PERFORM faultline.enqueue('plans', 'buried', '1');
    SELECT c.* INTO job FROM faultline.claim('plans') AS c;
    PERFORM FROM faultline.bury(job.id, job.token, job.lease_id, 'no');
    PERFORM FROM faultline.complete(job.id, job.token, job.lease_id);
    PERFORM faultline.set_queue('plans', dead_retention => '1 hour');
    PERFORM set_config('plans.now', (current_setting('plans.now')::timestamptz + interval '90 minutes')::text, true);
    -- A round of one job at a time, which the next call goes on with.
    PERFORM faultline.prune_jobs(0::smallint, 1);
    PERFORM faultline.tidy();
    PERFORM set_config('plans.now', (current_setting('plans.now')::timestamptz + interval '1 day')::text, true);
    PERFORM faultline.tidy();
    PERFORM faultline.set_queue('gone'), faultline.pause('gone'), faultline.delete_queue('gone'), faultline.set_queue('gone');
END
$scenario$;
)sql";

/// The statements of a function that name a table, by the line that PL/pgSQL gives them.
std::map<int, std::string> lines_with_tables(std::string_view function) {
  std::map<int, std::string> lines;
  for (const SqlText& statement : inner_statements(body_of(function))) {
    if (!tables_of(statement).empty()) lines.emplace(statement.line(), statement.excerpt());
  }
  return lines;
}

constexpr std::string_view kFill =
    "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload)"
    "  SELECT 0, gen_random_uuid(), 'default', 'test', 'null' FROM generate_series(1, 60000);"
    "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue)"
    "  SELECT 0, 1, 'succeeded', faultline.new_id(0::smallint), 1, 'succeeded', 0, 'default'"
    "    FROM generate_series(1, 60000);"
    "INSERT INTO faultline.idempotency_keys (bucket, queue, key, job_id, fingerprint)"
    "  SELECT 0, 'default', 'key ' || i, gen_random_uuid(), '' FROM generate_series(1, 60000) AS i;"
    "INSERT INTO faultline.effects (bucket, job_id, key, token, lease_id, worker)"
    "  SELECT 0, gen_random_uuid(), 'step', 1, gen_random_uuid(), 'w' FROM generate_series(1, 20000);"
    "INSERT INTO faultline.effect_decisions (bucket, job_id, key, token, happened, decided_by, reason)"
    "  SELECT 0, gen_random_uuid(), 'step', 1, true, 'w', 'r' FROM generate_series(1, 20000);"
    "INSERT INTO faultline.stale_writes (bucket, job_id, verb, reason, token, lease_id, worker)"
    "  SELECT 0, gen_random_uuid(), 'complete', 'token_mismatch', 1, gen_random_uuid(), 'w'"
    "    FROM generate_series(1, 20000);"
    // After all that the scenario is to find.
    "INSERT INTO faultline.grants (bucket, check_at, lease_id, job_ids)"
    "  SELECT 0, faultline.clock() + interval '1000 days', gen_random_uuid(), '{}' FROM generate_series(1, "
    "20000);"
    "INSERT INTO faultline.tallies (bucket, queue, available)"
    "  SELECT 0, 'default', 1 FROM generate_series(1, 20000);";

constexpr std::string_view kEmpty =
    "DELETE FROM faultline.jobs WHERE queue <> '';"
    "DELETE FROM faultline.ledger; DELETE FROM faultline.idempotency_keys; DELETE FROM faultline.effects;"
    "DELETE FROM faultline.effect_decisions; DELETE FROM faultline.stale_writes; DELETE FROM "
    "faultline.grants; DELETE FROM faultline.tallies;";

constexpr std::string_view kOneRow =
    "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload)"
    "  VALUES (0, gen_random_uuid(), 'default', 'test', 'null');"
    "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue)"
    "  VALUES (0, 1, 'succeeded', gen_random_uuid(), 1, 'succeeded', 0, 'default');"
    "INSERT INTO faultline.idempotency_keys (bucket, queue, key, job_id, fingerprint)"
    "  VALUES (0, 'default', 'key', gen_random_uuid(), '');"
    "INSERT INTO faultline.stale_writes (bucket, job_id, verb, reason, token, lease_id, worker)"
    "  VALUES (0, gen_random_uuid(), 'complete', 'token_mismatch', 1, gen_random_uuid(), 'w');"
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
                 "faultline.effect_decisions, "
                 "faultline.stale_writes, faultline.grants, faultline.tallies",
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
    for (const char* table :
         {"jobs", "ledger", "idempotency_keys", "effects", "stale_writes", "grants", "tallies"}) {
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
  for (const auto& [statement, indexes] : listings_with_indexes()) {
    SCOPED_TRACE(std::string{statement.name});
    std::set<std::string> seen;
    for (const Access& access : plan_of(session, statement)) {
      EXPECT_TRUE(!access.index.empty() && access.condition.find("bucket = ") != std::string::npos)
          << access.describe();
      seen.insert(access.index);
    }
    // In a ledger of one row, when it was last analysed, every column looks unique, and all indexes are
    // alike. It is analysed again as it grows.
    const bool all_alike = GetParam().filled && GetParam().steps.empty();
    if (all_alike && statement.name == sql::kJobsListFinishedOfQueue.name) continue;
    EXPECT_EQ(seen, indexes);
  }

  ExplainingSession explaining{database->dsn()};
  explaining.run("BEGIN");
  explaining.run(std::string{kSteppingClock});
  explaining.run(std::string{kScenario});
  explaining.run("ROLLBACK");

  std::set<std::pair<std::string, int>> reached;
  std::set<std::string> bad;
  for (const Explained& explained : explaining.explained()) {
    reached.emplace(explained.function, explained.line);
    for (const Access& access : explained.accesses) {
      if (!is_good(access))
        bad.insert(explained.function + " line " + std::to_string(explained.line) + ": " + access.describe());
    }
  }
  EXPECT_THAT(bad, ::testing::IsEmpty());
  std::size_t statements = 0;
  for (const sql::Function& function : sql::kFunctions) {
    for (const auto& [line, text] : lines_with_tables(function.sql)) {
      ++statements;
      EXPECT_TRUE(reached.contains({std::string{function.name}, line}))
          << "the scenario does not come to " << function.name << " line " << line << ": " << text;
    }
  }
  EXPECT_GT(statements, 80U);
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

TEST(PlanRulesTest, a_walk_within_a_function_is_found_with_its_place) {
  const TestDatabase database;
  ExplainingSession session{database.dsn()};
  session.run("BEGIN");
  session.run(
      "CREATE FUNCTION faultline.walk(in_bucket smallint) RETURNS bigint LANGUAGE plpgsql AS $$\n"
      "BEGIN\n"
      "  RETURN (SELECT count(*) FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.worker = 'w');\n"
      "END $$");
  session.run("SELECT faultline.walk(0::smallint)");

  ASSERT_EQ(session.explained().size(), 1U);
  EXPECT_EQ(session.explained()[0].function, "walk");
  EXPECT_EQ(session.explained()[0].line, 3);
  ASSERT_EQ(session.explained()[0].accesses.size(), 1U);
  EXPECT_FALSE(is_good(session.explained()[0].accesses[0]));
}

TEST(PlanRulesTest, every_statement_of_a_function_that_names_a_table_is_seen) {
  const auto lines = lines_with_tables(
      "CREATE FUNCTION faultline.f() AS $$\n"
      "DECLARE\n"
      "    meta faultline.meta;\n"
      "BEGIN\n"
      "    IF EXISTS (SELECT FROM faultline.meta m) THEN\n"
      "        x := CASE WHEN true THEN 1 END;\n"
      "        UPDATE faultline.jobs j SET state = 'dead';\n"
      "    ELSE\n"
      "        -- Not this: FROM faultline.jobs\n"
      "        RETURN QUERY\n"
      "        SELECT 1 FROM faultline.ledger;\n"
      "    END IF;\n"
      "    FOR one IN SELECT 1 FROM faultline.effects LOOP\n"
      "        DELETE FROM faultline.grants;\n"
      "    END LOOP;\n"
      "EXCEPTION WHEN OTHERS THEN\n"
      "    ids := ARRAY(SELECT 1 FROM faultline.queues);\n"
      "END\n"
      "$$");

  std::vector<int> found;
  for (const auto& [line, text] : lines) found.push_back(line);
  EXPECT_THAT(found, ::testing::ElementsAre(5, 7, 10, 13, 14, 17));
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

  /// How many entries of a table's indexes `act` reads, in a session of its own.
  template <class Act>
  std::int64_t entries_read(const std::string& table, Act act) {
    const std::string sql =
        "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = '" + table + "'";
    // A session tells its counters when it ends. So does ours, for what it did before.
    const auto told = [&] {
      sql_ = database_.connect();
      EXPECT_TRUE(eventually([&] {
        return number(
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
                   "pg_backend_pid() AND backend_type = 'client backend'") == 0;
      }));
      return number(sql);
    };
    const std::int64_t before = told();
    act(open_store());
    return told() - before;
  }

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

TEST_F(PlanStatisticsTest, retention_looks_at_few_finished_jobs_however_many_are_kept) {
  must(sql_.exec_script(
      "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue)"
      "  SELECT 0, 1, 'succeeded', faultline.new_id(0::smallint), 1, 'succeeded', 0, 'default'"
      "    FROM generate_series(1, 10000);"
      "INSERT INTO faultline.stale_writes (bucket, job_id, verb, reason, token, lease_id, worker, queue)"
      "  SELECT 0, gen_random_uuid(), 'complete', 'token_mismatch', 1, gen_random_uuid(), 'w', 'default'"
      "    FROM generate_series(1, 10000);"
      // One of each that is old enough.
      "UPDATE faultline.ledger SET ended_at = '2000-01-01', job_id = '00dc6acf-ac00-7000-8000-000000000000'"
      " WHERE job_id = (SELECT job_id FROM faultline.ledger LIMIT 1);"
      "UPDATE faultline.stale_writes SET at = '2000-01-01' WHERE id = (SELECT id FROM faultline.stale_writes "
      "LIMIT 1)",
      soon()));

  Store::PruneReport first;
  Store::PruneReport second;
  const auto prune_twice = [&](Store store) {
    first = must(store.prune());
    second = must(store.prune());
  };
  EXPECT_LT(entries_read("ledger", prune_twice), 20);
  EXPECT_EQ(first.jobs, 1U);
  EXPECT_EQ(first.stale_writes, 1U);
  EXPECT_EQ(second.jobs + second.stale_writes, 0U);
  EXPECT_LT(entries_read("stale_writes", prune_twice), 20);
}

/// Jobs that were made long ago and ended just now, and after them, by id, one that is due: in this queue.
constexpr std::string_view kSlowJobsBeforeOneThatIsDue =
    "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue, ended_at)"
    "  SELECT 0, 1, 'succeeded',"
    "         ('00dc6acf-ac00-7000-8000-' || lpad(to_hex(i), 8, '0') || '0000')::uuid, 1, 'succeeded', 0,"
    "         'default', CASE WHEN i < 2500 THEN faultline.clock() ELSE '2001-01-01' END"
    "    FROM generate_series(1, 2500) AS i";

TEST_F(PlanStatisticsTest, retention_goes_on_behind_jobs_that_took_long_and_looks_at_few_of_them_at_a_time) {
  must(sql_.exec_script(kSlowJobsBeforeOneThatIsDue, soon()));

  std::vector<std::size_t> retired;
  for (int round = 0; round < 3; ++round) {
    const auto read =
        entries_read("ledger", [&](Store store) { retired.push_back(must(store.prune(100)).jobs); });
    EXPECT_LT(read, 1'200);
  }

  EXPECT_THAT(retired, ::testing::ElementsAre(0, 0, 1));
  // That was the end of a round. The next one begins at the beginning.
  must(
      sql_.exec_script("UPDATE faultline.ledger SET ended_at = '2001-01-01' WHERE job_id = "
                       "'00dc6acf-ac00-7000-8000-000000010000'",
                       soon()));
  EXPECT_EQ(must(open_store().prune(100)).jobs, 1U);
}

TEST_F(PlanStatisticsTest, retention_finds_jobs_whose_ids_tell_no_time) {
  must(sql_.exec_script(
      "SELECT faultline.set_queue('zz');"
      "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue, "
      "ended_at)"
      "  SELECT 0, 1, 'succeeded', u.id::uuid, 1, 'succeeded', 0, q.name, '2001-01-01'"
      "    FROM unnest('{00000000-0000-0000-0000-000000000000,11111111-1111-1111-1111-111111110000,"
      "ffffffff-ffff-ffff-ffff-ffffffffffff}'::text[]) AS u(id), faultline.queues q"
      "   WHERE q.name = 'zz'",
      soon()));

  Store store = open_store();
  EXPECT_EQ(must(store.prune(2)).jobs, 2U);
  EXPECT_EQ(must(store.prune(2)).jobs, 1U);
  EXPECT_EQ(must(store.prune(2)).jobs, 0U);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger"), 0);
}

TEST_F(PlanStatisticsTest, dead_retention_looks_at_few_dead_jobs_however_many_are_kept) {
  must(sql_.exec_script(
      "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload, state, run_at, died_at)"
      "  SELECT 0, faultline.new_id(0::smallint), 'default', 'test', 'null', 'dead', 'infinity', "
      "faultline.clock() FROM generate_series(1, 10000);"
      "UPDATE faultline.jobs SET died_at = '2000-01-01' WHERE id = (SELECT id FROM faultline.jobs WHERE "
      "queue "
      "<> '' LIMIT 1);"
      "UPDATE faultline.queues SET dead_retention_ms = 86400000",
      soon()));

  Store::PruneReport first;
  Store::PruneReport second;
  EXPECT_LT(entries_read("jobs",
                         [&](Store store) {
                           first = must(store.prune());
                           second = must(store.prune());
                         }),
            20);
  EXPECT_EQ(first.dead, 1U);
  EXPECT_EQ(second.dead, 0U);

  // Queues that keep them for ever are not even looked at.
  must(sql_.exec_script("UPDATE faultline.queues SET dead_retention_ms = 3153600000000", soon()));
  EXPECT_EQ(entries_read("jobs", [&](Store store) { must(store.prune()); }), 0);
  EXPECT_EQ(number("SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes WHERE indexrelname = "
                   "'jobs_dead_retention'"),
            2);
}

TEST_F(PlanStatisticsTest, a_page_of_any_listing_looks_at_few_jobs_however_many_there_are) {
  must(sql_.exec_script(
      "INSERT INTO faultline.queues (bucket, name) VALUES (0, 'small');"
      // The oldest: ten of a small queue, of which one is dead; and far more of another one after them.
      "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload, state, run_at)"
      "  SELECT 0, ('01900000-0000-7000-8000-' || lpad(to_hex(i), 8, '0') || '0000')::uuid, 'small', 'rare', "
      "'null',"
      "         (CASE WHEN i = 1 THEN 'dead' ELSE 'available' END)::faultline.job_state,"
      "         CASE WHEN i = 1 THEN 'infinity' ELSE faultline.clock() END FROM generate_series(1, 10) AS i;"
      "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload)"
      "  SELECT 0, faultline.new_id(0::smallint), 'default', 'test', 'null' FROM generate_series(1, 50000);"
      "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue, kind,"
      "    priority, run_at, created_at)"
      "  SELECT 0, 1, s::text::faultline.outcome, faultline.new_id(0::smallint), 1, s, 0, 'default', 'test', "
      "5,"
      "         faultline.clock(), faultline.clock()"
      "    FROM (SELECT (CASE WHEN i = 1 THEN 'cancelled' ELSE 'succeeded' END)::faultline.job_state AS s"
      "            FROM generate_series(1, 50000) AS i) AS f",
      soon()));
  const auto looks = [&](const ListRequest& request) {
    JobPage page;
    std::int64_t read = 0;
    read += entries_read("jobs", [&](Store store) { page = must(store.list(request)); });
    read += entries_read("ledger", [&](Store store) { page = must(store.list(request)); });
    EXPECT_LE(read, 11'000);
    EXPECT_LE(page.looked_at, 10'100U);
    return page;
  };

  // By an index, all at once, and little is read.
  for (const auto& [request, jobs] :
       std::vector<std::pair<ListRequest, std::size_t>>{{{.state = JobState::dead}, 1},
                                                        {{.state = JobState::held}, 0},
                                                        {{.queue = "small"}, 10},
                                                        {{.queue = "small", .state = JobState::dead}, 1},
                                                        {{.queue = "small", .state = JobState::available}, 9},
                                                        {{.queue = "small", .kind = "none"}, 0},
                                                        {{.queue = "small", .state = JobState::running}, 0},
                                                        {{.queue = "small", .state = JobState::succeeded}, 0},
                                                        {{.state = JobState::running}, 0}}) {
    const JobPage page = looks(request);
    EXPECT_EQ(page.jobs.size(), jobs);
    EXPECT_FALSE(page.next);
    EXPECT_LE(page.looked_at, 10U);
  }
  // The newest are at hand.
  for (const ListRequest& request :
       {ListRequest{}, ListRequest{.queue = "default"}, ListRequest{.state = JobState::available},
        ListRequest{.state = JobState::succeeded},
        ListRequest{.queue = "default", .state = JobState::succeeded}}) {
    const JobPage page = looks(request);
    EXPECT_EQ(page.jobs.size(), 50U);
    EXPECT_EQ(page.next, page.jobs.back().id);
  }
  // What nothing finds is looked for as far as a page goes.
  for (const ListRequest& request :
       {ListRequest{.kind = "rare"}, ListRequest{.kind = "none"}, ListRequest{.state = JobState::scheduled},
        ListRequest{.state = JobState::cancelled},
        ListRequest{.queue = "default", .state = JobState::cancelled},
        ListRequest{.queue = "default", .kind = "none", .state = JobState::running},
        ListRequest{.queue = "default", .kind = "none", .state = JobState::available}}) {
    const JobPage page = looks(request);
    EXPECT_TRUE(page.jobs.empty());
    EXPECT_EQ(page.next.has_value(), request.state != JobState::running);
    EXPECT_GE(page.looked_at, 5'000U);
  }
}

TEST_F(PlanStatisticsTest, a_claim_under_a_cap_folds_many_differences_and_folding_is_bounded) {
  Store store = open_store();
  must(store.set_queue("default", {.running_max = 10}));
  must(store.enqueue(std::vector<NewJob>(20, NewJob{.kind = "test"})));
  must(sql_.exec_script(
      "INSERT INTO faultline.tallies (bucket, queue) SELECT 0, 'default' FROM generate_series(1, 30000)",
      soon()));
  const auto differences = [&] { return number("SELECT count(*) FROM faultline.tallies"); };

  ASSERT_EQ(must(store.claim({.worker = "w", .limit = 4})).size(), 4U);
  EXPECT_LT(differences(), 29'100);
  EXPECT_GT(differences(), 20'000);

  EXPECT_TRUE(must(store.fold_counts()));
  EXPECT_GT(differences(), 10'000);
  while (must(store.fold_counts())) {
  }
  EXPECT_EQ(differences(), 1);
  EXPECT_EQ(must(store.claim({.worker = "w", .limit = 20})).size(), 6U);
}

TEST_F(PlanStatisticsTest, counts_look_at_few_jobs_however_many_are_due_and_scheduled) {
  {
    Store store = open_store();
    for (int i = 0; i < 11; ++i) {
      must(store.enqueue(std::vector<NewJob>(1'000, NewJob{.kind = "test"})));
      must(store.enqueue(std::vector<NewJob>(1'000, NewJob{.kind = "test", .delay = std::chrono::hours{1}})));
    }
  }

  std::vector<QueueCounts> counts;
  const auto read = entries_read("jobs", [&](Store store) { counts = must(store.counts()); });

  EXPECT_LT(read, 100);
  ASSERT_EQ(counts.size(), 1U);
  EXPECT_EQ(counts[0].available, 11'000);
  EXPECT_EQ(counts[0].scheduled, 11'000);
  EXPECT_TRUE(counts[0].oldest_due_age);
}

}  // namespace
}  // namespace faultline::testing

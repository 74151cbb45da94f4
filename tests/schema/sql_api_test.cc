// The functions that people call with a driver of their own, as docs/sql.md and docs/reference/sql.md have
// them.

#include <unistd.h>

#include <regex>
#include <sstream>

#include <gmock/gmock.h>

#include "schema/migrator.h"
#include "support/database.h"
#include "support/movable_clock.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using Lines = std::vector<std::string>;

const fs::path kRoot = FAULTLINE_SOURCE_DIR;
constexpr const char* kNobody = "00000000-0000-4000-8000-000000000000";

class SqlApiTest : public ::testing::Test {
 protected:
  std::string ask(const std::string& sql) { return query_text(sql_, sql); }
  /// What a call raises: its SQLSTATE and its message.
  std::string refusal(const std::string& sql) {
    const auto result = sql_.exec({"", sql}, {}, soon());
    return result ? "nothing" : result.error().sqlstate + " " + result.error().message;
  }
  int count(const std::string& from) {
    return std::stoi(ask("SELECT count(*)::text FROM faultline." + from));
  }

  std::string enqueue(const std::string& options = "") {
    return ask("SELECT faultline.enqueue('default', 'k', '{\"a\": 1}'" + options + ")::text");
  }
  /// A lease as its three arguments.
  std::string claim(const std::string& worker = "A") {
    return ask("SELECT format('%L, %s, %L', id, token, lease_id) FROM faultline.claim('default', '" + worker +
               "')");
  }
  /// A verb of a worker's: its status, and the reason if there is one.
  std::string call(const std::string& verb, const std::string& lease, const std::string& more = "") {
    return ask("SELECT concat_ws(' ', status, reason) FROM faultline." + verb + "(" + lease + more + ")");
  }
  /// A lease that has run out, and whose job another one has.
  std::string lost_lease() {
    const std::string lease = claim("A");
    clock_.advance(31s);
    EXPECT_EQ(ask("SELECT faultline.sweep()::text"), "1");
    clock_.advance(10s);
    claim("B");
    return lease;
  }
  std::string evidence() {
    return ask(
        "SELECT coalesce(string_agg(concat_ws(' ', worker, token, verb, reason, current_worker), ', ' ORDER "
        "BY at), '')"
        " FROM faultline.stale_writes");
  }

  TestDatabase database_{Template::clocked};
  MovableClock clock_{database_};
  pg::Connection sql_ = database_.connect();
};

// ---- Producers

TEST_F(SqlApiTest, many_jobs_are_added_in_their_order_all_or_none) {
  EXPECT_EQ(ask("WITH added AS MATERIALIZED (SELECT id, n FROM faultline.enqueue_many((SELECT "
                "jsonb_agg(jsonb_build_object("
                "'queue', 'default', 'kind', 'k', 'payload', i, 'idempotency_key', CASE i % 3 WHEN 0 THEN "
                "'k' || i END) ORDER BY i)"
                " FROM generate_series(1, 100) AS i)) WITH ORDINALITY AS a(id, n))"
                "SELECT count(DISTINCT id)::text FROM added"),
            "100");
  EXPECT_EQ(ask("SELECT string_agg(payload::text, ',') FROM faultline.claim('default', 'w', 5)"),
            "1,2,3,4,5");

  EXPECT_EQ(
      refusal("SELECT faultline.enqueue_many('[{\"queue\": \"default\", \"kind\": \"k\", \"payload\": 1},"
              " {\"queue\": \"default\", \"kind\": \"k\", \"payload\": 1, \"idempotency_key\": \"k3\"}]')")
          .substr(0, 40),
      "FL409 job 2 of the array: idempotency ke");
  EXPECT_EQ(count("jobs WHERE queue <> ''"), 100);
}

TEST_F(SqlApiTest, many_jobs_under_the_keys_of_others_are_those_others) {
  const std::string call =
      "SELECT string_agg(id::text, ' ') FROM faultline.enqueue_many('["
      "{\"queue\": \"default\", \"kind\": \"k\", \"payload\": {\"a\": 1}, \"idempotency_key\": \"x\"},"
      "{\"queue\": \"default\", \"kind\": \"k\", \"payload\": {\"a\": 2}, \"idempotency_key\": \"y\"}]') AS "
      "id";
  const std::string one = enqueue(", idempotency_key => 'x'");

  const std::string both = ask(call);

  EXPECT_THAT(both, HasSubstr(one));
  EXPECT_EQ(ask(call), both);
  EXPECT_EQ(count("jobs WHERE queue <> ''"), 2);
}

TEST_F(SqlApiTest, all_that_is_said_of_a_job_gets_there_from_an_array_as_from_parameters) {
  const std::string shown =
      "SELECT (to_jsonb(j) - '{id,created_at,idempotency_key}'::text[])::text FROM faultline.jobs j WHERE "
      "idempotency_key = ";
  clock_.advance(0s);
  ask("SELECT faultline.enqueue('default', 'k', '{\"a\": 1}', 3, timestamptz '2030-01-01 00:00:00+00', NULL, "
      "'one', 7,"
      " '2 s', '3 s', '4 s', '5 s', 'hold', ARRAY['t', 'u'], "
      "'00-0123456789abcdef0123456789abcdef-0123456789abcdef-01')::text");
  ask(R"(SELECT faultline.enqueue_many('[{"queue": "default", "kind": "k", "payload": {"a": 1}, "priority": 3,
      "run_at": "2030-01-01 00:00:00+00", "idempotency_key": "many", "attempts_max": 7, "lease_ttl": "2 s", "run_max": "3 s",
      "backoff_base": "4 s", "backoff_max": "5 s", "delivery": "hold", "tags": ["t", "u"],
      "traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}]')::text)");

  EXPECT_EQ(ask(shown + "'one'"), ask(shown + "'many'"));
  EXPECT_THAT(ask(shown + "'one'"), HasSubstr("\"backoff_max_ms\": 5000"));
}

TEST_F(SqlApiTest, what_is_wrong_with_a_job_is_said) {
  for (const auto& [call, said] : std::vector<std::pair<std::string, std::string>>{
           {"enqueue('nowhere', 'k', '1')", "FL404 there is no queue 'nowhere'"},
           {"enqueue('default', 'k')", "FL400 a payload is needed; give 'null' or '{}' for none"},
           {"enqueue('default', 'k', '1', payload_bytes => '\\x00')",
            "FL400 give payload or payload_bytes, not both"},
           {"enqueue('default', 'k', '1', priority => 70000)", "FL400 a priority is 0 (first) to 9 (last)"},
           {"enqueue('default', 'k', '1', lease_ttl => '1000 years')", "FL400 lease_ttl is 100 ms to 24 h"},
           {"enqueue('default', 'k', '1', delivery => 'twice')",
            "FL400 delivery is at_least_once, at_most_once or hold"},
           {"enqueue('default', 'k', to_jsonb(repeat('x', 1048577)))",
            "FL400 the payload has 1048579 bytes, the limit is 1048576; store the data elsewhere and enqueue "
            "a reference to it"},
           {"enqueue_many('{}')", "FL400 jobs is a JSON array of at most 1000 objects"},
           {"enqueue_many('[7]')", "FL400 job 1 of the array: it is no object"},
           {"enqueue_many('[{\"queue\": \"default\", \"kind\": \"k\"}]')",
            "FL400 job 1 of the array: a payload is needed; give 'null' or '{}' for none"},
           {"enqueue_many('[{\"queue\": \"default\", \"kind\": \"k\", \"payload\": 1, \"delay\": "
            "\"soon\"}]')",
            "FL400 a field of a job cannot be read: invalid input syntax for type interval: \"soon\""},
       }) {
    EXPECT_EQ(refusal("SELECT faultline." + call), said);
  }
}

TEST_F(SqlApiTest, a_queue_is_announced_when_its_job_is_due_and_no_earlier) {
  must(sql_.exec_script("LISTEN faultline_jobs", soon()));
  const auto heard = [&](const std::string& call) {
    ask("SELECT set_config('faultline.announced', '', false)");
    ask("SELECT count(*)::text FROM faultline." + call);
    return !must(sql_.wait_for_notifications(std::chrono::steady_clock::now() + 50ms)).empty();
  };

  EXPECT_TRUE(heard("enqueue('default', 'k', '1')"));
  EXPECT_FALSE(heard("enqueue('default', 'k', '1', delay => '1 s')"));
  EXPECT_TRUE(heard("enqueue_many('[{\"queue\": \"default\", \"kind\": \"k\", \"payload\": 1}]')"));
  EXPECT_FALSE(heard(
      "enqueue_many('[{\"queue\": \"default\", \"kind\": \"k\", \"payload\": 1, \"delay\": \"1 s\"}]')"));
  const std::string lease = claim();
  EXPECT_TRUE(heard("release(" + lease + ")"));
  EXPECT_FALSE(heard("fail(" + claim() + ", 'e', '1 s')"));
  EXPECT_TRUE(heard("resume('default')"));
  EXPECT_FALSE(heard("pause('default')"));
}

// ---- Workers

TEST_F(SqlApiTest, a_claim_shows_the_job) {
  enqueue(", priority => 2, tags => ARRAY['t'], attempts_max => 3, run_max => '1 hour'");
  ask("SELECT faultline.enqueue('default', 'raw', payload_bytes => '\\x00ff')::text");

  EXPECT_EQ(ask("SELECT concat_ws(' ', token, attempt, attempts_max, kind, payload, priority, tags, run_max, "
                "lease_ttl, delivery)"
                " FROM faultline.claim('default', 'w')"),
            "1 1 3 k {\"a\": 1} 2 {t} 01:00:00 00:00:30 at_least_once");
  EXPECT_EQ(ask("SELECT concat_ws(' ', kind, coalesce(payload::text, 'none'), payload_bytes) FROM "
                "faultline.claim()"),
            "raw none \\x00ff");
  EXPECT_EQ(ask("SELECT count(*)::text FROM faultline.claim()"), "0");
  EXPECT_EQ(
      ask("SELECT string_agg(worker, ' ' ORDER BY priority) FROM faultline.jobs WHERE state = 'running'"),
      "w " + ask("SELECT session_user::text"));
}

TEST_F(SqlApiTest, a_payload_that_jsonb_cannot_hold_is_in_nobodys_way) {
  enqueue();
  must(sql_.exec_script(
      "UPDATE faultline.jobs SET payload = convert_to('{\"a\": \"\\u0000\", \"n\": 1e999999}', 'UTF8')"
      " WHERE queue <> ''",
      soon()));

  EXPECT_EQ(ask("SELECT coalesce(payload::text, 'none') FROM faultline.claim()"),
            "{\"a\": \"\\u0000\", \"n\": 1e999999}");
}

TEST_F(SqlApiTest, a_claim_walks_all_buckets_and_every_verb_finds_its_job) {
  const TestDatabase wide{Template::empty};
  sql_ = wide.connect();
  must(schema::migrate(sql_, {.buckets = 5}, soon()));
  for (int i = 0; i < 40; ++i) enqueue();
  EXPECT_GT(std::stoi(ask("SELECT count(DISTINCT bucket)::text FROM faultline.jobs WHERE queue <> ''")), 1);

  for (int i = 0; i < 40; ++i) {
    const std::string lease = claim();
    EXPECT_EQ(call("heartbeat", lease), "committed");
    EXPECT_EQ(call("complete", lease), "committed");
  }

  EXPECT_EQ(ask("SELECT count(*)::text FROM faultline.claim()"), "0");
  ask("SELECT count(*)::text FROM faultline.enqueue_many((SELECT jsonb_agg('{\"queue\": \"default\", "
      "\"kind\": \"k\", \"payload\": 1}'"
      "::jsonb) FROM generate_series(1, 30)))");
  EXPECT_EQ(ask("SELECT count(*)::text FROM faultline.claim('default', 'w', 30)"), "30");
  ask("SELECT faultline.set_queue('new', running_max => 3)::text");
  EXPECT_EQ(count("queues WHERE name = 'new' AND running_max = 3"), 5);
}

TEST_F(SqlApiTest, a_settlement_that_is_sent_again_is_repeated_and_counts_once) {
  for (const auto& [verb, more] :
       std::vector<std::pair<std::string, std::string>>{{"complete", ", '{\"r\": 1}'"},
                                                        {"fail", ", 'e', '0'"},
                                                        {"bury", ", 'e'"},
                                                        {"snooze", ", '1 hour'"},
                                                        {"release", ""},
                                                        {"acknowledge_cancel", ""}}) {
    enqueue(", priority => 0");
    const std::string lease = claim();
    EXPECT_EQ(call(verb, lease, more), "committed") << verb;
    EXPECT_EQ(call(verb, lease, more), "repeated") << verb;
    clock_.advance(1s);
    if (verb == "fail" || verb == "release") {
      claim("B");  // and when another one has the job
      EXPECT_EQ(call(verb, lease, more), "repeated") << verb;
    }
  }
  EXPECT_EQ(count("ledger"), 6);
  EXPECT_EQ(evidence(), "");
}

TEST_F(SqlApiTest, every_write_under_a_lost_lease_is_refused_and_the_evidence_names_its_holder) {
  enqueue();
  const std::string lease = lost_lease();
  const Lines verbs{"heartbeat",     "complete",           "fail",     "bury",  "snooze",
                    "release",       "acknowledge_cancel", "progress", "check", "begin_effect",
                    "record_effect", "forget_effect"};
  const std::map<std::string, std::string> more{
      {"fail", ", 'e'"},         {"bury", ", 'e'"},          {"snooze", ", '1 s'"},     {"progress", ", 0.5"},
      {"begin_effect", ", 'k'"}, {"record_effect", ", 'k'"}, {"forget_effect", ", 'k'"}};
  std::string expected;
  for (const std::string& verb : verbs) {
    EXPECT_EQ(call(verb, lease, more.contains(verb) ? more.at(verb) : ""), "stale token_mismatch") << verb;
    const std::string shown = verb.contains("effect")        ? "effect"
                              : verb == "acknowledge_cancel" ? "cancel"
                                                             : verb;
    expected += (expected.empty() ? "A 1 " : ", A 1 ") + shown + " token_mismatch B";
    clock_.advance(1ms);
  }

  EXPECT_EQ(evidence(), expected);
  EXPECT_EQ(ask("SELECT concat_ws(' ', token, worker) FROM faultline.jobs WHERE state = 'running'"), "2 B");
}

TEST_F(SqlApiTest, a_transaction_that_looks_at_the_past_cannot_write_under_a_lost_lease) {
  // In its snapshot the lease is good, and it stays so for as long as the transaction lasts.
  enqueue();
  const std::string lease = claim("A");
  std::vector<std::pair<std::string, pg::Connection>> late;
  for (const std::string call :
       {"heartbeat(@)", "complete(@)", "fail(@, 'e')", "bury(@, 'e')", "snooze(@, '1 s')", "release(@)",
        "acknowledge_cancel(@)", "progress(@, 0.5)", "check(@)", "begin_effect(@, 'k')",
        "record_effect(@, 'k')", "forget_effect(@, 'k')", "complete_or_abort(@)"}) {
    for (const std::string level : {"REPEATABLE READ", "SERIALIZABLE"}) {
      pg::Connection session = database_.connect();
      must(session.exec_script("BEGIN ISOLATION LEVEL " + level + "; SELECT 1 FROM faultline.jobs", soon()));
      late.emplace_back(std::regex_replace(call, std::regex{"@"}, lease), std::move(session));
    }
  }
  clock_.advance(31s);
  EXPECT_EQ(ask("SELECT faultline.sweep()::text"), "1");
  clock_.advance(10s);
  claim("B");

  for (auto& [call, session] : late) {
    const auto result = session.exec({"", "SELECT * FROM faultline." + call}, {}, soon());
    ASSERT_FALSE(result) << call;
    EXPECT_EQ(result.error().sqlstate, "40001") << call << ": " << result.error().message;
  }
  EXPECT_EQ(ask("SELECT concat_ws(' ', token, worker) FROM faultline.jobs WHERE state = 'running'"), "2 B");
  EXPECT_EQ(count("effects"), 0);
  EXPECT_EQ(ask("SELECT string_agg(outcome::text, ',') FROM faultline.ledger"), "expired");
}

TEST_F(SqlApiTest, a_lease_that_was_never_granted_is_named_by_the_login) {
  const std::string id = enqueue();
  claim("B");

  EXPECT_EQ(call("complete", "'" + id + "', 1, '" + kNobody + "'"), "stale token_mismatch");

  EXPECT_EQ(evidence(), ask("SELECT session_user::text") + " 1 complete token_mismatch B");
}

TEST_F(SqlApiTest, what_is_no_lease_or_no_argument_is_said) {
  const std::string id = enqueue();
  const std::string lease = claim();
  for (const auto& [call, said] : std::vector<std::pair<std::string, std::string>>{
           {"complete('" + id + "', NULL, '" + kNobody + "')",
            "FL400 this is no lease: job " + id + ", token NULL, lease_id " + kNobody},
           {"heartbeat('ffffffff-ffff-4fff-8fff-ffffffffffff', 1, '" + std::string{kNobody} + "')",
            "FL400 this is no lease: job ffffffff-ffff-4fff-8fff-ffffffffffff, token 1, lease_id " +
                std::string{kNobody}},
           {"heartbeat(" + lease + ", '1 year')", "FL400 a lease is renewed for 100 ms to 24 h"},
           {"snooze(" + lease + ", NULL)", "FL400 a snooze needs a delay"},
           {"snooze(" + lease + ", '-1 s')", "FL400 a delay is 0 to 3650 days"},
           {"fail(" + lease + ", 'e', '20 years')", "FL400 a delay is 0 to 3650 days"},
           {"complete(" + lease + ", to_jsonb(repeat('x', 1048577)))",
            "FL400 the result has 1048579 bytes, the limit is 1048576"},
           {"progress(" + lease + ", 2)",
            "FL400 progress is a fraction from 0 to 1 and a note of at most 64 KiB"},
           {"begin_effect(" + lease + ", '')", "FL400 an effect has a key of 1 to 256 bytes"},
           {"claim('nowhere')", "FL404 there is no queue 'nowhere'"},
           {"claim('default', 'w', 0)",
            "FL400 a claim has a lease id, a worker of 1 to 128 bytes, and a limit of 1 to 1000 jobs"},
           {"pause('nowhere')", "FL404 there is no queue 'nowhere'"},
           {"set_queue('q', lease_ttl => '1 ms')", "FL400 lease_ttl is 100 ms to 24 h"},
           {"set_queue('q', attempts_max => 0)", "FL400 attempts_max is 1 to 1000000"},
           {"set_queue('q', running_max => -2)", "FL400 running_max is 0 or more, or -1 for no cap"},
           {"set_queue('')", "FL400 the name of a queue has 1 to 128 bytes and no control characters"},
       }) {
    EXPECT_EQ(refusal("SELECT faultline." + call), said);
  }
  EXPECT_EQ(call("complete", lease), "committed");
}

TEST_F(SqlApiTest, a_claim_is_refused_where_it_could_not_see_who_runs) {
  enqueue();
  must(sql_.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ", soon()));

  EXPECT_EQ(refusal("SELECT faultline.claim()"), "FL400 a claim needs the isolation level READ COMMITTED");
}

TEST_F(SqlApiTest, a_heartbeat_renews_and_tells_of_a_cancellation) {
  const std::string id = enqueue();
  const std::string lease = claim();
  for (int i = 0; i < 3; ++i) {
    clock_.advance(20s);
    EXPECT_EQ(call("heartbeat", lease), "committed");
  }
  EXPECT_EQ(ask("SELECT faultline.cancel('" + id + "', 'enough')"), "requested");

  EXPECT_EQ(ask("SELECT concat_ws(' ', status, cancel_requested, cancel_reason) FROM faultline.heartbeat(" +
                lease + ")"),
            "committed t enough");
  EXPECT_EQ(call("acknowledge_cancel", lease), "committed");
  EXPECT_EQ(ask("SELECT concat_ws(' ', outcome, worker) FROM faultline.ledger"), "cancelled A");
}

TEST_F(SqlApiTest, effects_are_begun_once_and_the_same_call_is_told_the_same) {
  enqueue();
  const std::string lease = claim();
  const std::string named = std::string{", 'pay', '"} + kNobody + "'";

  EXPECT_EQ(call("begin_effect", lease, named), "begun");
  EXPECT_EQ(call("begin_effect", lease, named), "begun");
  EXPECT_EQ(call("begin_effect", lease, ", 'pay'"), "unknown");
  EXPECT_EQ(call("forget_effect", lease, named), "committed");
  EXPECT_EQ(call("begin_effect", lease, ", 'pay'"), "begun");
  EXPECT_EQ(ask("SELECT recorded::text FROM faultline.record_effect(" + lease + ", 'pay', '{\"r\": 1}')"),
            "{\"r\": 1}");
  EXPECT_EQ(ask("SELECT recorded::text FROM faultline.record_effect(" + lease + ", 'pay', '{\"r\": 2}')"),
            "{\"r\": 1}");
  EXPECT_EQ(ask("SELECT concat_ws(' ', status, recorded) FROM faultline.begin_effect(" + lease + ", 'pay')"),
            "recorded {\"r\": 1}");
}

// ---- The fenced transaction

class FencedTransactionTest : public SqlApiTest {
 protected:
  FencedTransactionTest() { must(sql_.exec_script("CREATE TABLE writes (what text)", soon())); }

  /// Writes, completes and commits, without a look at what is answered, as a driver that goes on after an
  /// error would.
  std::string write_and_complete(const std::string& lease) {
    must(sql_.exec_script("BEGIN; INSERT INTO writes VALUES ('mine')", soon()));
    const auto result =
        sql_.exec({"", "SELECT faultline.complete_or_abort(" + lease + ")::text"}, {}, soon());
    must(sql_.exec_script("COMMIT", soon()));
    return result ? "committed" : result.error().sqlstate + " " + result.error().detail;
  }
  int writes() { return std::stoi(ask("SELECT count(*)::text FROM writes")); }
};

TEST_F(FencedTransactionTest, commits_with_the_job) {
  enqueue();
  EXPECT_EQ(write_and_complete(claim()), "committed");
  EXPECT_EQ(writes(), 1);
  EXPECT_EQ(count("ledger WHERE state = 'succeeded'"), 1);
}

TEST_F(FencedTransactionTest, cannot_commit_a_second_time) {
  enqueue();
  const std::string lease = claim();
  write_and_complete(lease);

  EXPECT_EQ(write_and_complete(lease), "FL410 repeated");

  EXPECT_EQ(writes(), 1);
  EXPECT_EQ(evidence(), "");
}

TEST_F(FencedTransactionTest, cannot_commit_under_a_lost_lease_and_check_keeps_the_evidence) {
  enqueue();
  const std::string lease = lost_lease();

  EXPECT_EQ(write_and_complete(lease), "FL410 token_mismatch");

  EXPECT_EQ(writes(), 0);
  EXPECT_EQ(evidence(), "") << "it went with the rollback";
  EXPECT_EQ(call("check", lease), "stale token_mismatch");
  EXPECT_EQ(evidence(), "A 1 check token_mismatch B");
}

TEST_F(FencedTransactionTest, cannot_commit_a_job_that_is_to_be_cancelled) {
  const std::string id = enqueue();
  const std::string lease = claim();
  ask("SELECT faultline.cancel('" + id + "')");

  EXPECT_EQ(write_and_complete(lease), "FL410 cancelled");

  EXPECT_EQ(writes(), 0);
  EXPECT_EQ(call("acknowledge_cancel", lease), "committed");
}

// ---- Operators

TEST_F(SqlApiTest, an_operators_call_that_is_sent_again_is_told_the_same_and_does_nothing) {
  const std::string id = enqueue();
  const auto twice = [&](const std::string& verb, const std::string& call_id) {
    const std::string sql = "SELECT faultline." + verb + "('" + id + "', call_id => '" + call_id + "')";
    const std::string first = ask(sql);
    return first + " " + ask(sql);
  };
  const std::string me = ask("SELECT session_user::text");
  EXPECT_EQ(twice("cancel", "00000000-0000-4000-8000-000000000001"), "cancelled cancelled");
  EXPECT_EQ(twice("requeue", "00000000-0000-4000-8000-000000000002"), "requeued requeued");
  call("bury", claim(), ", 'e'");
  EXPECT_EQ(twice("requeue", "00000000-0000-4000-8000-000000000002"), "requeued requeued") << "late";
  EXPECT_EQ(ask("SELECT state::text FROM faultline.jobs WHERE queue <> ''"), "dead");
  EXPECT_EQ(twice("purge", "00000000-0000-4000-8000-000000000003"), "purged purged");
  EXPECT_EQ(ask("SELECT faultline.purge('" + id + "')"), "not_dead");
  EXPECT_EQ(ask("SELECT string_agg(outcome || ' ' || worker, ', ' ORDER BY token) FROM faultline.ledger"),
            "cancelled " + me + ", requeued " + me + ", buried A, purged " + me);
}

TEST_F(SqlApiTest, a_paused_queue_gives_no_jobs_and_settings_stay_where_none_is_given) {
  enqueue();
  ask("SELECT faultline.set_queue('default', lease_ttl => '5 s', running_max => 2)::text");
  EXPECT_EQ(count("queues WHERE lease_ttl_ms = 5000 AND running_max = 2"), 1);
  ask("SELECT faultline.pause('default')::text");
  EXPECT_EQ(ask("SELECT count(*)::text FROM faultline.claim()"), "0");
  ask("SELECT faultline.resume('default')::text");

  EXPECT_EQ(ask("SELECT lease_ttl::text FROM faultline.claim()"), "00:00:05");
  ask("SELECT faultline.set_queue('default', running_max => -1)::text");
  EXPECT_EQ(
      ask("SELECT concat_ws(' ', lease_ttl_ms, coalesce(running_max, -1), paused) FROM faultline.queues"),
      "5000 -1 f");
}

TEST_F(SqlApiTest, a_round_of_housekeeping_retires_what_is_past_its_time) {
  enqueue();
  call("complete", claim());
  EXPECT_EQ(ask("SELECT faultline.tidy()::text"), "0");
  clock_.advance(std::chrono::hours{24 * 8});

  EXPECT_EQ(ask("SELECT faultline.tidy()::text"), "1");

  EXPECT_EQ(count("ledger"), 0);
}

// ---- The documentation

/// A block of SQL in the guide: who runs it, and what comes out.
struct Block {
  std::string as;
  std::string sql;
  std::string output;
};

std::vector<Block> blocks_of(const std::string& document) {
  static const std::regex mark{"<!-- as ([a-z]+) -->"};
  std::vector<Block> blocks;
  std::istringstream in{document};
  std::string as;
  std::string* into = nullptr;
  bool after_sql = false;
  for (std::string line; std::getline(in, line);) {
    std::smatch match;
    if (into != nullptr && line != "```") {
      *into += line + "\n";
    } else if (into != nullptr) {
      after_sql = into == &blocks.back().sql;
      into = nullptr;
    } else if (line == "```sql") {
      into = &blocks.emplace_back(Block{.as = std::exchange(as, "")}).sql;
    } else if (line == "```" && after_sql) {
      into = &blocks.back().output;
    } else {
      after_sql = false;
      if (std::regex_match(line, match, mark)) as = match[1];
    }
  }
  return blocks;
}

TEST(SqlGuideTest, every_block_of_sql_gives_what_the_guide_says) {
  const Lines logins{"shop", "mailer", "boss"};
  const TestDatabase database;
  auto admin = database.connect();
  const auto drop_logins = [&] {
    for (const std::string& login : logins) {
      if (query_text(admin, "SELECT count(*)::text FROM pg_roles WHERE rolname = '" + login + "'") != "0")
        must(admin.exec_script("DROP OWNED BY " + login + "; DROP ROLE " + login, soon()));
    }
  };
  drop_logins();
  const std::vector<Block> blocks = blocks_of(read_file(kRoot / "docs/sql.md"));
  ASSERT_GT(blocks.size(), 10U);

  std::string script = "\\pset footer off\n\\set SHOW_CONTEXT never\n";
  for (const Block& block : blocks) {
    EXPECT_FALSE(block.as.empty()) << "nobody is said to run:\n" << block.sql;
    script += "\\set QUIET on\n\\connect \"" +
              (block.as == "admin" ? database.dsn() : database.dsn_as(block.as)) +
              // The admin's own schema is that of his name, faultline.
              "\"\nSET search_path = public;\n" + block.sql + "\\echo ==== the next\n";
  }
  const ProcessResult result = run_process(
      {.argv = {"sh", "-c", "psql --no-psqlrc --quiet '" + database.dsn() + "' 2>&1"}, .input = script});

  static const std::regex uuid{"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"};
  std::string said = std::regex_replace(result.out, uuid, "…");
  for (const Block& block : blocks) {
    const std::size_t end = said.find("==== the next\n");
    ASSERT_NE(end, std::string::npos) << said;
    // psql puts an empty line after every table.
    static const std::regex empty_lines{"\n\n+"};
    const std::string output = std::regex_replace(said.substr(0, end), empty_lines, "\n");
    if (block.output.empty())
      EXPECT_THAT(output, Not(HasSubstr("ERROR"))) << "of:\n" << block.sql;
    else
      EXPECT_EQ(output, block.output) << "of:\n" << block.sql;
    said.erase(0, end + std::string_view{"==== the next\n"}.size());
  }
  drop_logins();
}

/// What a function for people is called with, what it answers and who may call it; those for people have a
/// comment.
constexpr std::string_view kFunctionsQuery = R"sql(
SELECT p.proname::text, coalesce(obj_description(p.oid, 'pg_proc'), ''),
       coalesce((SELECT string_agg(
                            a.name || ' ' || replace(format_type(a.type, NULL), 'timestamp with time zone', 'timestamptz')
                            || CASE WHEN a.n > p.pronargs - p.pronargdefaults
                                    THEN ' DEFAULT ' || regexp_replace(
                                             pg_get_function_arg_default(p.oid, a.n::integer), '::[a-z ]+(\[\])?$', '')
                                    ELSE '' END, ', ' ORDER BY a.n)
                   FROM unnest(p.proargtypes::oid[], p.proargnames[1 : p.pronargs]) WITH ORDINALITY AS a(type, name, n)),
                ''),
       coalesce((SELECT string_agg(o.name || ' ' || replace(format_type(o.type, NULL), 'timestamp with time zone', 'timestamptz'),
                                   ', ' ORDER BY o.n)
                   FROM unnest(p.proallargtypes, p.proargmodes, p.proargnames) WITH ORDINALITY AS o(type, mode, name, n)
                  WHERE o.mode IN ('o', 't')), format_type(p.prorettype, NULL))
       || CASE WHEN p.proretset THEN '; a row per job' ELSE '' END,
       (SELECT coalesce(string_agg(substr(r.rolname, 11), ', ' ORDER BY r.rolname DESC), '')
          FROM aclexplode(p.proacl) AS x JOIN pg_roles r ON r.oid = x.grantee
         WHERE r.rolname LIKE 'faultline\_%')
  FROM pg_proc p
 WHERE p.pronamespace = 'faultline'::regnamespace
 ORDER BY p.proname)sql";

/// A list in one line, or where that is too long with a line for each.
std::string in_lines(const std::string& list) {
  static const std::regex kComma{", "};
  return list.size() <= 100 ? list : "\n    " + std::regex_replace(list, kComma, ",\n    ");
}

std::string reference_page(pg::Connection& connection) {
  const auto rows = must(connection.exec({"", kFunctionsQuery}, {}, soon()));
  const std::map<std::string, std::string> sections{{"worker, producer, owner", "For producers"},
                                                    {"worker, owner", "For workers"},
                                                    {"owner", "For operators"}};
  std::map<std::string, std::string> texts;
  std::string batch;
  for (int row = 0; row < rows.rows(); ++row) {
    const auto text = [&](int column) { return rows.get<std::string>(row, column); };
    const std::string roles = text(4);
    const std::string answer = (text(3).size() > 100 ? "" : " ") + in_lines(text(3));
    if (!text(1).empty())
      texts[sections.at(roles)] += "\n### " + text(0) + "\n\n" + text(1) + "\n\n```\n" + text(0) + "(" +
                                   in_lines(text(2)) + ")\n→" + answer + "\n```\n";
    else if (!roles.empty())
      batch += "| `" + text(0) + "` | " + roles + " |\n";
  }
  std::string page =
      "# Functions in SQL\n\n"
      "What the schema `faultline` offers to programs with a driver of their own; [sql.md](../sql.md) says "
      "how to use it.\n"
      "`faultline_owner` may call all of them, `faultline_worker` those for producers too. This page is what "
      "the database says of\n"
      "its functions, and a test holds it against them.\n";
  for (const std::string title : {"For producers", "For workers", "For operators"})
    page += "\n## " + title + "\n" + texts[title];
  return page +
         "\n## Batch forms\n\n"
         "What the library calls, and the functions above: many jobs of one bucket at once. They change with "
         "the schema's version.\n\n"
         "| function | roles |\n| --- | --- |\n" +
         batch;
}

TEST(SqlReferenceTest, is_what_the_database_says) {
  const TestDatabase database;
  auto connection = database.connect();
  const std::string page = reference_page(connection);
  const fs::path file = kRoot / "docs/reference/sql.md";

  if ((fs::exists(file) ? read_file(file) : "") == page) return;

  const fs::path made = fs::path{FAULTLINE_BINARY_DIR} / "sql.md";
  write_file(made, page);
  ADD_FAILURE() << "docs/reference/sql.md has drifted. What it should be is in " << made;
}

TEST(SqlReferenceTest, every_function_for_people_is_in_the_guide) {
  const TestDatabase database;
  auto connection = database.connect();
  const std::string guide = read_file(kRoot / "docs/sql.md");
  const auto rows =
      must(connection.exec({"",
                            "SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = "
                            "'faultline'::regnamespace AND obj_description(p.oid, 'pg_proc') <> ''"},
                           {}, soon()));
  EXPECT_GT(rows.rows(), 20);
  for (int row = 0; row < rows.rows(); ++row) {
    const auto name = rows.get<std::string>(row, 0);
    EXPECT_TRUE(guide.contains("`" + name) || guide.contains("faultline." + name + "(")) << name;
  }
}

}  // namespace
}  // namespace faultline::testing

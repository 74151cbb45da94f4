// The four roles, each by the real verbs of the store, by what raw SQL could do beside them, and by what a
// hostile caller may hand to the functions.

#include <functional>
#include <map>
#include <memory>
#include <set>

#include <gmock/gmock.h>
#include <libpq-fe.h>

#include "sql/functions.h"
#include "store/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Logins that are members of one role each, and one of none. Roles belong to the server, so names carry the
/// process's number; all are dropped at the end.
class Logins {
 public:
  Logins() {
    std::string script;
    for (const std::string& role : roles()) {
      script += "DROP ROLE IF EXISTS " + login(role) + "; CREATE ROLE " + login(role) + " LOGIN" +
                (role == "nobody" ? "" : " IN ROLE faultline_" + role) + ";";
    }
    must(TestServer::instance().admin().exec_script(script, soon()));
  }
  Logins(const Logins&) = delete;
  Logins& operator=(const Logins&) = delete;
  ~Logins() {
    auto admin = TestServer::instance().admin();
    for (const std::string& role : roles())
      static_cast<void>(admin.exec_script("DROP ROLE " + login(role), soon()));
  }

  static const std::vector<std::string>& roles() {
    static const std::vector<std::string> all{"owner", "producer", "worker", "reader", "nobody"};
    return all;
  }
  static std::string login(const std::string& role) {
    return "login_" + std::to_string(::getpid()) + "_" + role;
  }
};

class RolesTest : public StoreTest {
 protected:
  ~RolesTest() override {
    // What a login was granted in this database must not keep it from being dropped.
    for (const std::string& role : Logins::roles()) {
      static_cast<void>(sql_.exec_script("DROP OWNED BY " + Logins::login(role), soon()));
    }
  }

  [[nodiscard]] Store store_as(const std::string& role) {
    return must(Store::open({.database = database_.dsn_as(Logins::login(role))}));
  }
  [[nodiscard]] pg::Connection connect_as(const std::string& role) {
    return testing::connect(database_.dsn_as(Logins::login(role)));
  }
  /// A job that somebody else has claimed, with its lease.
  Lease lease() {
    enqueue({.queue = "default"});
    return claim_one("w").lease;
  }

  Logins logins_;
};

/// How a verb ended, in a word.
template <class T>
std::string word_for(const Expected<T>& result) {
  return result                                                               ? "allowed"
         : std::string{to_string(result.error().code)} == "permission_denied" ? "denied"
                                                                              : result.error().describe();
}

std::string word_for(const pg::Expected<void>& result) {
  if (result) return "allowed";
  return result.error().code == pg::Errc::insufficient_privilege ? "denied" : result.error().describe();
}

using Verb = std::function<std::string(Store&)>;

// ---- The matrix

TEST_F(RolesTest, every_role_can_do_its_verbs_and_no_others) {
  const std::vector<NewJob> many(600, NewJob{.kind = "test"});
  must(store_.set_queue("capped", {.running_max = 5}));
  const auto settle_as = [&](Outcome outcome) -> Verb {
    return [this, outcome](Store& store) {
      const Settlement settlement{.lease = lease(), .outcome = outcome};
      return word_for(store.settle({&settlement, 1}));
    };
  };
  const std::string all = "owner producer worker reader";
  const std::vector<std::tuple<std::string, Verb, std::string>> verbs{
      {"enqueue", [](Store& s) { return word_for(s.enqueue(NewJob{.kind = "test"})); },
       "owner producer worker"},
      {"enqueue with all options",
       [](Store& s) {
         return word_for(s.enqueue(NewJob{.kind = "test",
                                          .encoding = Encoding::bytes,
                                          .delay = ms{1},
                                          .attempts_max = 2,
                                          .lease_ttl = ms{1'000},
                                          .run_max = ms{1'000},
                                          .backoff_base = ms{1},
                                          .backoff_max = ms{2},
                                          .delivery = Delivery::hold,
                                          .tags = {"x"}}));
       },
       "owner producer worker"},
      {"enqueue with a key",
       [](Store& s) { return word_for(s.enqueue(NewJob{.kind = "test", .idempotency_key = "the same"})); },
       "owner producer worker"},
      {"enqueue with keys, all or none",
       [](Store& s) {
         const NewJob job{.kind = "test", .idempotency_key = "all or none"};
         return word_for(
             s.enqueue(std::vector{job, job, NewJob{.kind = "test", .idempotency_key = "another"}},
                       KeyConflict::refuse));
       },
       "owner producer worker"},
      {"enqueue many", [&](Store& s) { return word_for(s.enqueue(many)); }, "owner producer worker"},
      {"enqueue in bulk",
       [](Store& s) {
         bool given = false;
         return word_for(s.enqueue_bulk([&]() -> std::optional<NewJob> {
           if (std::exchange(given, true)) return std::nullopt;
           return NewJob{.kind = "test"};
         }));
       },
       "owner producer worker"},
      {"claim", [](Store& s) { return word_for(s.claim({.worker = "w"})); }, "owner worker"},
      {"claim of a queue with a cap",
       [](Store& s) { return word_for(s.claim({.queue = "capped", .worker = "w"})); }, "owner worker"},
      {"heartbeat",
       [&](Store& s) {
         const Lease l = lease();
         return word_for(s.heartbeat({&l, 1}));
       },
       "owner worker"},
      {"progress",
       [&](Store& s) {
         const ProgressReport r{.lease = lease(), .fraction = 0.5};
         return word_for(s.progress({&r, 1}));
       },
       "owner worker"},
      {"check",
       [&](Store& s) {
         const Lease l = lease();
         return word_for(s.check({&l, 1}));
       },
       "owner worker"},
      {"complete", settle_as(Outcome::success("done")), "owner worker"},
      {"fail", settle_as(Outcome::failure("no")), "owner worker"},
      {"bury", settle_as(Outcome::bury("no")), "owner worker"},
      {"snooze", settle_as(Outcome::snooze(ms{1})), "owner worker"},
      {"release", settle_as(Outcome::release()), "owner worker"},
      {"complete a keyed job",
       [&](Store& s) {
         static int n = 0;
         must(store_.enqueue(
             NewJob{.kind = "test", .priority = 0, .idempotency_key = "k" + std::to_string(++n)}));
         const Settlement settlement{.lease = claim_one("w").lease, .outcome = Outcome::success()};
         return word_for(s.settle({&settlement, 1}));
       },
       "owner worker"},
      {"a stale write, with its evidence",
       [&](Store& s) {
         const Lease old = lease();
         complete(old);
         const Settlement late{.lease = old, .outcome = Outcome::success()};
         return word_for(s.settle({&late, 1}));
       },
       "owner worker"},
      {"exchange",
       [&](Store& s) {
         const Settlement settlement{.lease = lease(), .outcome = Outcome::success()};
         return word_for(s.exchange({&settlement, 1}, {.worker = "w"}));
       },
       "owner worker"},
      {"begin an effect",
       [&](Store& s) {
         const EffectKey key{.lease = lease(), .key = "k"};
         return word_for(s.begin_effects({&key, 1}));
       },
       "owner worker"},
      {"record an effect",
       [&](Store& s) {
         const EffectKey key{.lease = lease(), .key = "k"};
         must(store_.begin_effects({&key, 1}));
         const EffectResult result{.lease = key.lease, .key = "k", .result = "r"};
         return word_for(s.record_effects({&result, 1}));
       },
       "owner worker"},
      {"forget an effect",
       [&](Store& s) {
         const EffectKey key{.lease = lease(), .key = "k"};
         must(store_.begin_effects({&key, 1}));
         return word_for(s.forget_effects({&key, 1}));
       },
       "owner worker"},
      {"a fenced transaction",
       [&](Store& s) {
         return word_for(s.transact(lease(), [](Transaction&) { return Outcome::success(); }));
       },
       "owner worker"},
      {"a fenced transaction that returns the job and adds another",
       [&](Store& s) {
         try {
           return word_for(s.transact(lease(), [](Transaction& tx) {
             tx.enqueue({.kind = "test"});
             return Outcome::snooze(ms{1});
           }));
         } catch (const SqlError& error) {
           return error.sqlstate() == "42501" ? std::string{"denied"} : error.what();
         }
       },
       "owner worker"},
      {"sweep",
       [&](Store& s) {
         lease();
         advance(kTtl);
         return word_for(s.expire_leases(1'000));
       },
       "owner worker"},
      {"check whether it is writable", [](Store& s) { return word_for(s.check_writable()); }, all},
      {"prune", [](Store& s) { return word_for(s.prune()); }, "owner worker"},
      {"fold the counts", [](Store& s) { return word_for(s.fold_counts()); }, "owner worker"},
      {"resolve",
       [&](Store& s) {
         const Lease l = lease();
         return word_for(s.resolve({&l, 1}));
       },
       "owner worker"},
      {"cancel a waiting job",
       [&](Store& s) {
         const JobId id = enqueue();
         return word_for(s.cancel({&id, 1}, "me", "why"));
       },
       "owner"},
      {"cancel a running job",
       [&](Store& s) {
         const JobId id = lease().job;
         return word_for(s.cancel({&id, 1}, "me", "why"));
       },
       "owner"},
      {"requeue a dead job",
       [&](Store& s) {
         const Lease dead = lease();
         settle(dead, Outcome::bury("no"));
         return word_for(s.requeue({&dead.job, 1}, "me"));
       },
       "owner"},
      {"requeue a finished job",
       [&](Store& s) {
         const Lease done = lease();
         complete(done);
         return word_for(s.requeue({&done.job, 1}, "me"));
       },
       "owner"},
      {"purge a dead job",
       [&](Store& s) {
         const Lease dead = lease();
         settle(dead, Outcome::bury("no"));
         return word_for(s.purge_dead({&dead.job, 1}, "me"));
       },
       "owner"},
      {"decide about an effect",
       [&](Store& s) {
         const Lease dead = lease();
         const EffectKey key{.lease = dead, .key = "k"};
         must(store_.begin_effects({&key, 1}));
         settle(dead, Outcome::bury("no"));
         return word_for(s.decide_effect({.job = dead.job, .key = "k", .reason = "r"}, "me"));
       },
       "owner"},
      {"delete a queue", [](Store& s) { return word_for(s.delete_queue("another")); }, "owner"},
      {"set a queue", [](Store& s) { return word_for(s.set_queue("default", {.attempts_max = 20})); },
       "owner"},
      {"make a queue", [](Store& s) { return word_for(s.set_queue("another", {})); }, "owner"},
      {"pause",
       [](Store& s) {
         auto word = word_for(s.pause("capped"));
         return word;
       },
       "owner"},
      {"look at a job", [&](Store& s) { return word_for(s.job(enqueue())); }, all},
      {"look at a history", [&](Store& s) { return word_for(s.history(enqueue())); }, all},
      {"list", [](Store& s) { return word_for(s.list({})); }, all},
      {"list running", [](Store& s) { return word_for(s.list({.state = JobState::running})); }, all},
      {"list finished", [](Store& s) { return word_for(s.list({.state = JobState::succeeded})); }, all},
      {"list the evidence", [](Store& s) { return word_for(s.stale_writes(10)); }, all},
      {"list the queues", [](Store& s) { return word_for(s.queues()); }, all},
      {"count", [](Store& s) { return word_for(s.counts()); }, all},
      {"ask the time", [](Store& s) { return word_for(s.now()); }, all},
  };

  for (const std::string role : {"owner", "producer", "worker", "reader"}) {
    Store store = store_as(role);
    for (const auto& [name, verb, allowed] : verbs) {
      must(store_.resume("capped"));
      const std::string expected = allowed.find(role) == std::string::npos ? "denied" : "allowed";
      EXPECT_EQ(verb(store), expected) << role << ": " << name;
    }
  }
}

TEST_F(RolesTest, the_sql_function_and_the_callers_own_transaction_serve_whoever_may_enqueue) {
  const std::map<std::string, std::string> expected{{"owner", "allowed"},
                                                    {"producer", "allowed"},
                                                    {"worker", "allowed"},
                                                    {"reader", "denied"},
                                                    {"nobody", "denied"}};
  for (const auto& [role, word] : expected) {
    auto connection = connect_as(role);
    EXPECT_EQ(word_for(connection.exec_script("SELECT faultline.enqueue('default', 'test', '{}')", soon())),
              word)
        << role;
    EXPECT_EQ(word_for(connection.exec_script(
                  "SELECT faultline.enqueue('default', 'test', '{}', idempotency_key => 'k')", soon())),
              word)
        << role;
  }
  const std::unique_ptr<PGconn, decltype(&PQfinish)> own{
      PQconnectdb(database_.dsn_as(Logins::login("producer")).c_str()), &PQfinish};
  PQclear(PQexec(own.get(), "BEGIN"));
  const NewJob job{.kind = "test"};
  EXPECT_EQ(word_for(store_as("producer").enqueue_in(own.get(), {&job, 1})), "allowed");
  PQclear(PQexec(own.get(), "COMMIT"));
}

// ---- What raw SQL could do beside the verbs

TEST_F(RolesTest, nobody_but_the_owner_reads_a_lease_id) {
  const Lease held = lease();
  const EffectKey effect{.lease = held, .key = "k"};
  must(store_.begin_effects({&effect, 1}));
  Lease late = held;
  late.token.value += 1;
  EXPECT_EQ(settle(late, Outcome::success()).status, Verdict::Status::stale);
  // Wherever a value of it stands: in a table, in a view, in what a function answers.
  const auto rows = must(sql_.exec(
      {"",
       "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'faultline'::regnamespace"
       "   AND c.relkind IN ('r', 'v') AND c.relname NOT IN ('api_keys', 'movable_clock') ORDER BY 1"},
      {}, soon()));
  const auto columns_of = [&](const std::string& role, const std::string& relation) {
    return query_text(sql_,
                      "SELECT coalesce(string_agg(quote_ident(a.attname), ', '), '') FROM pg_attribute a"
                      " WHERE a.attrelid = 'faultline." +
                          relation +
                          "'::regclass AND a.attnum > 0 AND NOT a.attisdropped"
                          "   AND has_column_privilege('" +
                          Logins::login(role) + "', a.attrelid, a.attnum, 'SELECT')");
  };
  const std::string id = held.lease_id.to_string();
  for (const std::string role : {"producer", "worker", "reader"}) {
    auto connection = connect_as(role);
    for (int row = 0; row < rows.rows(); ++row) {
      const auto relation = rows.get<std::string>(row, 0);
      const std::string columns = columns_of(role, relation);
      ASSERT_FALSE(columns.empty()) << role << " reads nothing of " << relation;
      const std::string shown =
          query_text(connection, "SELECT coalesce(string_agg(r::text, E'\\n'), '') FROM (SELECT " + columns +
                                     " FROM faultline." + relation + ") AS r");
      EXPECT_EQ(shown.find(id), std::string::npos) << role << ": " << relation;
    }
  }
  EXPECT_EQ(word_for(connect_as("reader").exec_script("SELECT lease_id FROM faultline.jobs", soon())),
            "denied");
  auto worker = connect_as("worker");
  for (const std::string& verb : {"judge_writes(0::smallint, ARRAY['" + held.job.to_string() +
                                      "'::uuid], '{1}', ARRAY[gen_random_uuid()], '{x}',"
                                      " '{check}', NULL, NULL, NULL)",
                                  "report_progress(0::smallint, ARRAY['" + held.job.to_string() +
                                      "'::uuid], '{1}', ARRAY[gen_random_uuid()],"
                                      " '{x}', '{0.5}', NULL)"}) {
    EXPECT_EQ(query_text(worker, "SELECT v::text FROM faultline." + verb + " AS v").find(id),
              std::string::npos);
  }
}

TEST_F(RolesTest, no_role_may_write_to_a_table_or_lock_its_rows) {
  const Lease held = lease();
  complete(lease());
  std::vector<std::string> tables;
  const auto rows = must(sql_.exec({"",
                                    "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = "
                                    "'faultline'::regnamespace AND c.relkind = 'r'"
                                    "   AND c.relname NOT IN ('api_keys', 'movable_clock') ORDER BY 1"},
                                   {}, soon()));
  for (int row = 0; row < rows.rows(); ++row) tables.push_back(rows.get<std::string>(row, 0));
  ASSERT_THAT(tables,
              ElementsAre("effect_decisions", "effects", "functions", "grants", "idempotency_keys", "jobs",
                          "ledger", "meta", "migrations", "queues", "retention", "stale_writes", "tallies"));

  for (const std::string& role : Logins::roles()) {
    auto connection = connect_as(role);
    for (const std::string& name : tables) {
      const std::string table = "faultline." + name;
      const std::string column = name == "functions" || name == "migrations" ? "checksum" : "bucket";
      for (const std::string& attempt :
           {"INSERT INTO " + table + " DEFAULT VALUES", "UPDATE " + table + " SET " + column + " = " + column,
            "DELETE FROM " + table, "TRUNCATE " + table, "SELECT 1 FROM " + table + " FOR UPDATE",
            "SELECT 1 FROM " + table + " FOR KEY SHARE", "LOCK TABLE " + table + " IN ROW EXCLUSIVE MODE"}) {
        EXPECT_EQ(word_for(connection.exec_script("BEGIN; " + attempt, soon())), "denied")
            << role << ": " << attempt;
        must(connection.exec_script("ROLLBACK", soon()));
      }
    }
  }
  EXPECT_TRUE(complete(held).committed());
}

TEST_F(RolesTest, nobody_changes_the_schema_and_keys_of_servers_are_the_owners) {
  const std::vector<std::tuple<std::string, std::string, std::string>> attempts{
      {"owner producer worker reader nobody", "make a table", "CREATE TABLE faultline.mine (id integer)"},
      {"owner producer worker reader nobody", "change a table",
       "ALTER TABLE faultline.jobs ADD COLUMN mine integer"},
      {"owner producer worker reader nobody", "drop a table", "DROP TABLE faultline.jobs"},
      {"owner producer worker reader nobody", "replace the clock",
       "CREATE OR REPLACE FUNCTION faultline.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'"},
      {"owner producer worker reader nobody", "change what a verb runs with",
       "ALTER FUNCTION faultline.claim_jobs RESET search_path"},
      {"producer worker reader nobody", "look at keys", "SELECT 1 FROM faultline.api_keys"},
      {"producer worker reader nobody", "add a key",
       "INSERT INTO faultline.api_keys (bucket, id, name, secret_hash, scopes)"
       " VALUES (0, 'mine', 'mine', sha256('mine'), '{admin}')"},
      {"producer worker reader nobody", "revoke keys", "UPDATE faultline.api_keys SET revoked_at = now()"},
      {"owner producer worker reader nobody", "make a key good for more",
       "UPDATE faultline.api_keys SET scopes = '{admin}'"},
      {"owner producer worker reader nobody", "delete keys of servers", "DELETE FROM faultline.api_keys"},
      {"nobody", "look", "SELECT 1 FROM faultline.jobs"},
      {"nobody", "ask the time", "SELECT faultline.clock()"},
  };

  for (const auto& [roles, name, text] : attempts) {
    for (const std::string& role : Logins::roles()) {
      if (roles.find(role) == std::string::npos) continue;
      auto connection = connect_as(role);
      EXPECT_EQ(word_for(connection.exec_script("BEGIN; " + text, soon())), "denied") << role << ": " << name;
    }
  }
}

/// The names of functions that a role may call, or that a condition is true of.
class FunctionRightsTest : public RolesTest {
 protected:
  std::set<std::string> functions_where(const std::string& condition) {
    const auto rows = must(sql_.exec({"",
                                      "SELECT p.proname::text FROM pg_proc p"
                                      " WHERE p.pronamespace = 'faultline'::regnamespace AND " +
                                          condition},
                                     {}, soon()));
    std::set<std::string> names;
    for (int row = 0; row < rows.rows(); ++row) names.insert(rows.get<std::string>(row, 0));
    return names;
  }
  std::set<std::string> functions_of(const std::string& role) {
    return functions_where("has_function_privilege('faultline_" + role + "', p.oid, 'EXECUTE')");
  }
};

TEST_F(FunctionRightsTest, each_role_may_call_its_verbs) {
  const std::set<std::string> read{"check_writable", "clock", "shown_state"};
  std::set<std::string> produce{"enqueue", "enqueue_jobs", "enqueue_many", "refuse_conflicts"};
  produce.merge(std::set<std::string>{read});
  std::set<std::string> work{"acknowledge_cancel",
                             "begin_effect",
                             "begin_effects",
                             "bury",
                             "check",
                             "claim",
                             "claim_jobs",
                             "complete",
                             "complete_or_abort",
                             "expire_leases",
                             "fail",
                             "find_leases",
                             "fold_tallies",
                             "forget_effect",
                             "forget_effects",
                             "heartbeat",
                             "judge_writes",
                             "peek_lease",
                             "progress",
                             "prune_dead",
                             "prune_jobs",
                             "prune_keys",
                             "prune_stale_writes",
                             "record_effect",
                             "record_effects",
                             "release",
                             "renew_leases",
                             "report_progress",
                             "settle_jobs",
                             "snooze",
                             "sweep",
                             "tidy"};
  work.merge(std::set<std::string>{produce});
  std::set<std::string> operate{"cancel",       "cancel_jobs",     "decide_effect", "decide_effect_in",
                                "delete_queue", "delete_queue_in", "pause",         "purge",
                                "purge_jobs",   "requeue",         "requeue_jobs",  "resume",
                                "set_queue",    "set_queue_in"};
  operate.merge(std::set<std::string>{work});

  EXPECT_EQ(functions_of("reader"), read);
  EXPECT_EQ(functions_of("producer"), produce);
  EXPECT_EQ(functions_of("worker"), work);
  EXPECT_EQ(functions_of("owner"), operate);
}

TEST_F(FunctionRightsTest, what_runs_with_the_callers_rights_is_called_by_verbs_alone) {
  std::set<std::string> callable;
  for (const std::string role : {"owner", "producer", "worker", "reader"}) callable.merge(functions_of(role));
  for (const std::string& name : functions_where("NOT p.prosecdef")) {
    if (name == "clock" || name == "shown_state") continue;
    EXPECT_FALSE(callable.contains(name)) << name;
  }

  for (const std::string& role : Logins::roles()) {
    auto connection = connect_as(role);
    for (const std::string call :
         {"faultline.announce('default')", "faultline.end_expired(0::smallint, now(), '{}')",
          "faultline.clock_now()", "faultline.new_id(0::smallint)", "faultline.result_bytes('1')",
          "faultline.lease_holder(0::smallint, gen_random_uuid(), 1, gen_random_uuid())",
          "faultline.settle_one(gen_random_uuid(), 1, gen_random_uuid(), 'succeeded', NULL, NULL, NULL)",
          "faultline.id_problem(gen_random_uuid(), 0::smallint)", "faultline.tags_of('[]')"}) {
      EXPECT_EQ(word_for(connection.exec_script("SELECT " + call, soon())), "denied") << role << ": " << call;
    }
  }
}

TEST_F(RolesTest, public_has_no_right_to_anything_of_the_schema) {
  constexpr std::string_view kGrantedToPublic =
      "SELECT 'relation ' || c.relname FROM pg_class c, aclexplode(c.relacl) AS a"
      " WHERE c.relnamespace = 'faultline'::regnamespace AND a.grantee = 0 AND c.relname <> 'movable_clock'"
      " UNION ALL SELECT 'column ' || t.attname FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid,"
      "   aclexplode(t.attacl) AS a WHERE c.relnamespace = 'faultline'::regnamespace AND a.grantee = 0"
      " UNION ALL SELECT 'function ' || p.proname FROM pg_proc p,"
      "   aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a"
      " WHERE p.pronamespace = 'faultline'::regnamespace AND a.grantee = 0"
      " UNION ALL SELECT 'schema' FROM pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', "
      "n.nspowner))) AS a"
      " WHERE n.nspname = 'faultline' AND a.grantee = 0";
  const auto granted = [&] {
    const auto rows = must(sql_.exec({"", kGrantedToPublic}, {}, soon()));
    std::vector<std::string> names;
    for (int row = 0; row < rows.rows(); ++row) names.push_back(rows.get<std::string>(row, 0));
    return names;
  };

  EXPECT_THAT(granted(), IsEmpty());

  script("CREATE FUNCTION faultline.open_to_all() RETURNS integer LANGUAGE sql AS 'SELECT 1'");
  EXPECT_THAT(granted(), ::testing::ElementsAre("function open_to_all"));
}

// ---- Functions that run with the owner's rights

TEST_F(RolesTest, functions_with_the_owners_rights_look_names_up_in_no_schema_of_the_callers) {
  complete(lease());
  // A worker that may make objects of its own puts an operator in front of the system's: it says yes to every
  // comparison of times, and notes with whose rights it ran.
  script(
      "CREATE SCHEMA trap; GRANT ALL ON SCHEMA trap TO PUBLIC;"
      "CREATE TABLE trap.sprung (who text); GRANT ALL ON trap.sprung TO PUBLIC;");
  auto worker = connect_as("worker");
  must(worker.exec_script(
      "CREATE FUNCTION trap.yes(a timestamptz, b timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$"
      " BEGIN INSERT INTO trap.sprung VALUES (current_user); RETURN true; END $$;"
      "CREATE OPERATOR trap.< (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = trap.yes);"
      "CREATE TEMP TABLE ledger (bucket smallint, job_id uuid);"
      "SET search_path = trap, pg_temp, pg_catalog",
      soon()));

  must(worker.exec_script("SELECT faultline.prune_jobs(0::smallint, 100)", soon()));

  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger"), 1) << "its retention has not passed";
  EXPECT_EQ(number("SELECT count(*) FROM trap.sprung"), 0);

  // The trap is a real one: the same function without its own search_path falls into it.
  script("ALTER FUNCTION faultline.prune_jobs(smallint, bigint) RESET search_path");
  must(worker.exec_script("SELECT faultline.prune_jobs(0::smallint, 100)", soon()));
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger"), 0);
  EXPECT_GT(number("SELECT count(*) FROM trap.sprung WHERE who NOT LIKE 'login%'"), 0);
}

TEST_F(FunctionRightsTest, every_function_with_the_owners_rights_has_a_search_path_of_its_own) {
  const auto with_owners_rights = functions_where("p.prosecdef");
  EXPECT_GT(with_owners_rights.size(), 30U);
  EXPECT_EQ(functions_where("p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'] AND p.prosecdef"),
            with_owners_rights);
  std::set<std::string> declared;
  for (const sql::Function& function : sql::kFunctions) {
    if (function.sql.find("SECURITY DEFINER") != std::string_view::npos) declared.emplace(function.name);
  }
  EXPECT_EQ(declared, with_owners_rights);
}

// ---- What a hostile caller hands to the functions

/// A call of a function by the names of its parameters. All are given, and some are changed.
class Call {
 public:
  Call(std::string function, std::vector<std::pair<std::string, std::string>> parameters)
      : function_(std::move(function)), parameters_(std::move(parameters)) {}

  [[nodiscard]] Call with(const std::string& name, const std::string& value) const {
    Call changed = *this;
    const auto found =
        std::ranges::find(changed.parameters_, name, &std::pair<std::string, std::string>::first);
    if (found == changed.parameters_.end()) throw std::runtime_error("there is no parameter " + name);
    found->second = value;
    return changed;
  }
  [[nodiscard]] bool gives(const std::string& name) const {
    const auto found = std::ranges::find(parameters_, name, &std::pair<std::string, std::string>::first);
    return found != parameters_.end() && found->second != "NULL";
  }
  [[nodiscard]] std::string sql() const {
    std::string text = "SELECT * FROM faultline." + function_ + "(";
    for (const auto& [name, value] : parameters_)
      text += (text.back() == '(' ? "" : ", ") + name + " => " + value;
    return text + ")";
  }

 private:
  std::string function_;
  std::vector<std::pair<std::string, std::string>> parameters_;
};

class HostileCallerTest : public RolesTest {
 protected:
  /// The SQLSTATE of a call, or empty.
  std::string state_of(pg::Connection& connection, const Call& call) {
    const auto result = connection.exec({"", call.sql()}, {}, soon());
    return result ? "" : result.error().sqlstate;
  }
  static Call submission(const std::string& id) {
    return {"enqueue_jobs",
            {{"in_bucket", "0::smallint"},
             {"in_queue", "'default'"},
             {"in_ids", "ARRAY['" + id + "'::uuid]"},
             {"in_kinds", "'{test}'"},
             {"in_payloads", "'{1}'"},
             {"in_encodings", "NULL"},
             {"in_priorities", "'{5}'"},
             {"in_run_ats", "NULL"},
             {"in_delays_ms", "NULL"},
             {"in_attempts_max", "NULL"},
             {"in_lease_ttls_ms", "NULL"},
             {"in_run_max_ms", "NULL"},
             {"in_backoff_base_ms", "NULL"},
             {"in_backoff_max_ms", "NULL"},
             {"in_deliveries", "NULL"},
             {"in_tags", "NULL"},
             {"in_traceparents", "NULL"},
             {"in_keys", "NULL"},
             {"in_fingerprints", "NULL"}}};
  }
  /// A call about the lease, of this function, with more parameters.
  static Call fenced(const std::string& function, const Lease& lease,
                     const std::vector<std::pair<std::string, std::string>>& more) {
    std::vector<std::pair<std::string, std::string>> parameters{
        {"in_bucket", "0::smallint"},
        {"in_ids", "ARRAY['" + lease.job.to_string() + "'::uuid]"},
        {"in_tokens", "'{" + std::to_string(lease.token.value) + "}'"},
        {"in_lease_ids", "ARRAY['" + lease.lease_id.to_string() + "'::uuid]"},
        {"in_workers", "'{w}'"}};
    parameters.insert(parameters.end(), more.begin(), more.end());
    return {function, std::move(parameters)};
  }

  static constexpr std::string_view kId = "00000001-0000-7000-8000-000000010000";
};

TEST_F(HostileCallerTest, a_producer_cannot_add_what_no_claim_can_take) {
  const std::string id{kId};
  const Lease done = lease();
  complete(done);
  const Call one = submission(id);
  const Call two = submission(id)
                       .with("in_ids", "ARRAY['" + id + "', '00000001-0000-7000-8000-000000020000']::uuid[]")
                       .with("in_kinds", "'{test,test}'")
                       .with("in_payloads", "'{1,2}'")
                       .with("in_priorities", "'{5,5}'");
  const std::string many_tags = "ARRAY[(SELECT jsonb_agg('t' || i) FROM generate_series(1, 33) AS i)::text]";
  const std::vector<std::pair<Call, std::string>> calls{
      {one.with("in_bucket", "NULL"), "FL404"},
      {one.with("in_bucket", "7::smallint"), "FL404"},
      {one.with("in_ids", "NULL"), "FL400"},
      {one.with("in_ids", "'{NULL}'"), "FL400"},
      {one.with("in_ids", "'{00000001-0000-7000-8000-000000010007}'"), "FL400"},
      {one.with("in_queue", "'unknown'"), "FL404"},
      {one.with("in_queue", "''"), "FL404"},
      {one.with("in_queue", "NULL"), "FL404"},
      {one.with("in_kinds", "'{NULL}'"), "FL400"},
      {one.with("in_kinds", "'{}'"), "FL400"},
      {one.with("in_payloads", "NULL"), "FL400"},
      {one.with("in_payloads", "'{NULL}'"), "FL400"},
      {one.with("in_priorities", "'{10}'"), "FL400"},
      {one.with("in_priorities", "'{-1}'"), "FL400"},
      {one.with("in_priorities", "'{NULL}'"), "FL400"},
      {one.with("in_priorities", "'{5,5}'"), "FL400"},
      {one.with("in_run_ats", "'{infinity}'"), "FL400"},
      {one.with("in_run_ats", "'{-infinity}'"), "FL400"},
      {one.with("in_delays_ms", "'{-1}'"), "FL400"},
      {one.with("in_lease_ttls_ms", "'{0}'"), "FL400"},
      {one.with("in_tags", many_tags), "FL400"},
      {one.with("in_tags", "'{\"[null]\"}'"), "FL400"},
      {one.with("in_tags", "ARRAY['{}']"), "FL400"},
      {one.with("in_traceparents", "'{x}'"), "FL400"},
      {one.with("in_keys", "'{\"\"}'").with("in_fingerprints", "'{x}'"), "FL400"},
      {one.with("in_keys", "'{k}'"), "FL400"},
      {one.with("in_keys", "'{k}'").with("in_fingerprints", "'{NULL}'"), "FL400"},
      // Checked as element 1, added as the first: these are not the same in arrays of another shape.
      {one.with("in_attempts_max", "'{{0}}'"), "FL400"},
      {one.with("in_lease_ttls_ms", "'[2:2]={-5}'"), "FL400"},
      {one.with("in_run_ats", "'[0:0]={infinity}'"), "FL400"},
      {one.with("in_tags", "'[2:2]={x}'"), "FL400"},
      {one.with("in_ids", "ARRAY[ARRAY['" + id + "'::uuid]]"), "FL400"},
      {two.with("in_kinds", "'{test}'"), "FL400"},
      {two.with("in_payloads", "'{1}'"), "FL400"},
      {two.with("in_priorities", "'{5}'"), "FL400"},
      {two.with("in_encodings", "'{json,json,json}'"), "FL400"},
      {two.with("in_attempts_max", "'{1}'"), "FL400"},
      {two.with("in_tags", "'{NULL,NULL,NULL}'"), "FL400"},
      {two.with("in_keys", "'{k}'"), "FL400"},
      {two.with("in_attempts_max", "'{1,0}'"), "FL400"},
      {two.with("in_ids", "ARRAY['" + id + "', NULL]::uuid[]"), "FL400"},
      {two.with("in_ids", "array_fill('" + id + "'::uuid, '{100000}')"), "FL400"},
  };
  auto producer = connect_as("producer");

  for (const auto& [call, state] : calls) {
    EXPECT_EQ(state_of(producer, call), state) << call.sql();
    // One job with a key goes the way of many.
    if (call.gives("in_keys")) continue;
    const Call keyed = call.with("in_keys", "'{k}'").with("in_fingerprints", "'{x}'");
    EXPECT_EQ(state_of(producer, keyed), state) << keyed.sql();
  }
  // The job of this id has ended: it is not brought back to life.
  EXPECT_EQ(state_of(producer, submission(done.job.to_string())), "");
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"), 0);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.idempotency_keys"), 0);
  EXPECT_EQ(counts().available, 0);

  EXPECT_EQ(state_of(producer, two.with("in_ids", "'{}'")), "");
  EXPECT_EQ(state_of(producer, two), "");
  // Their ids sort before the last one that was claimed: they are found by the next look from the beginning.
  std::size_t claimed = 0;
  EXPECT_TRUE(eventually([&] { return (claimed += claim("w", 10).size()) == 2; })) << claimed;
}

TEST_F(HostileCallerTest, a_worker_cannot_write_what_makes_no_sense) {
  const Lease held = lease();
  const auto both = [](const std::string& value) { return "'{" + value + "," + value + "}'"; };
  const Call settle = fenced("settle_jobs", held,
                             {{"in_outcomes", "'{succeeded}'"},
                              {"in_results", "NULL"},
                              {"in_errors", "NULL"},
                              {"in_delays_ms", "NULL"},
                              {"in_writers", "NULL"}});
  const std::vector<Call> of_leases{
      settle,
      fenced(
          "renew_leases", held,
          {{"in_ttls_ms", "NULL"}, {"in_verb", "'heartbeat'"}, {"in_begun", "NULL"}, {"in_alone", "NULL"}}),
      fenced("report_progress", held, {{"in_fractions", "'{0.5}'"}, {"in_notes", "NULL"}}),
      fenced("begin_effects", held, {{"in_keys", "'{k}'"}, {"in_call_ids", "NULL"}}),
      fenced("record_effects", held, {{"in_keys", "'{k}'"}, {"in_results", "NULL"}}),
      fenced("forget_effects", held, {{"in_keys", "'{k}'"}, {"in_call_ids", "NULL"}}),
      fenced("judge_writes", held,
             {{"in_verbs", "'{check}'"},
              {"in_outcomes", "NULL"},
              {"in_results", "NULL"},
              {"in_errors", "NULL"}})};
  std::vector<Call> calls;
  for (const Call& call : of_leases) {
    calls.push_back(call.with("in_ids", "NULL"));
    calls.push_back(call.with("in_ids", "'{NULL}'"));
    calls.push_back(call.with("in_ids", "'{}'"));
    calls.push_back(call.with("in_ids", "array_fill('" + held.job.to_string() + "'::uuid, '{100000}')"));
    calls.push_back(call.with("in_tokens", "NULL"));
    calls.push_back(call.with("in_tokens", "'{NULL}'"));
    calls.push_back(call.with("in_tokens", both("1")));
    calls.push_back(call.with("in_lease_ids", "NULL"));
    calls.push_back(call.with("in_lease_ids", "'{NULL}'"));
  }
  for (const std::string outcomes :
       {"NULL", "'{}'", "'{NULL}'", "'{expired}'", "'{purged}'", "'{succeeded,succeeded}'"})
    calls.push_back(settle.with("in_outcomes", outcomes));
  for (const std::string delays : {"'{-1}'", "'{9223372036854775807}'", "'{1,1}'"})
    calls.push_back(settle.with("in_outcomes", "'{snoozed}'").with("in_delays_ms", delays));
  for (const std::string writers : {"'{a,b}'", "ARRAY[repeat('x', 300)]"})
    calls.push_back(settle.with("in_writers", writers));
  calls.push_back(settle.with("in_results", "'{x,x}'"));
  calls.push_back(settle.with("in_errors", "'{x,x}'"));
  calls.push_back(settle.with("in_workers", "NULL"));
  calls.push_back(of_leases[1].with("in_ttls_ms", "'{1}'"));
  calls.push_back(of_leases[1].with("in_begun", "'{true,true}'"));
  calls.push_back(of_leases[1].with("in_alone", "'{true,true}'"));
  calls.push_back(of_leases[1].with("in_tokens", "'{99}'").with("in_verb", "NULL"));
  calls.push_back(of_leases[2].with("in_fractions", "'{NaN}'"));
  calls.push_back(of_leases[2].with("in_fractions", "'{2}'"));
  calls.push_back(of_leases[3].with("in_keys", "NULL"));
  calls.push_back(of_leases[3].with("in_keys", "'{NULL}'"));
  calls.push_back(of_leases[3].with("in_keys", "'{a,b}'"));
  calls.push_back(of_leases[4].with("in_keys", "NULL"));
  calls.push_back(of_leases[6].with("in_workers", "'{NULL}'"));
  auto worker = connect_as("worker");

  for (const Call& call : calls) EXPECT_EQ(state_of(worker, call), "FL400") << call.sql();

  EXPECT_EQ(number("SELECT count(*) FROM faultline.stale_writes"), 0);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.effects"), 0);
  EXPECT_EQ(job(held.job).state, JobState::running);
  EXPECT_TRUE(complete(held).committed());
}

TEST_F(HostileCallerTest, a_claim_counts_what_it_took_however_it_asks) {
  enqueue();
  enqueue();
  auto worker = connect_as("worker");
  const Call claim{"claim_jobs",
                   {{"in_bucket", "0::smallint"},
                    {"in_queue", "'default'"},
                    {"in_worker", "'w'"},
                    {"in_lease_id", "gen_random_uuid()"},
                    {"in_limit", "10"},
                    {"in_priorities", "'{5,5,5}'"},
                    {"in_since", "'{-infinity,-infinity,-infinity}'"},
                    {"in_since_ids", "array_fill('00000000-0000-0000-0000-000000000000'::uuid, '{3}')"},
                    {"in_wait", "false"},
                    {"in_ahead", "false"},
                    {"in_suspects_max", "NULL::bigint"}}};

  EXPECT_EQ(state_of(worker, claim.with("in_limit", "NULL")), "FL400");
  EXPECT_EQ(state_of(worker, claim.with("in_limit", "100000")), "FL400");
  EXPECT_EQ(state_of(worker, claim.with("in_lease_id", "NULL")), "FL400");
  EXPECT_EQ(state_of(worker, claim.with("in_worker", "NULL")), "FL400");
  EXPECT_EQ(state_of(worker, claim.with("in_priorities", "NULL")), "");
  EXPECT_EQ(counts().available, 2);
  const auto rows = must(worker.exec({"", claim.sql()}, {}, soon()));

  EXPECT_EQ(rows.rows(), 2);
  EXPECT_EQ(counts().available, 0);
  EXPECT_EQ(counts().running, 2);
}

TEST_F(HostileCallerTest, an_operator_names_each_job_and_a_bucket_that_is_there) {
  auto owner = connect_as("owner");
  const Call cancel{"cancel_jobs",
                    {{"in_bucket", "0::smallint"},
                     {"in_ids", "'{}'"},
                     {"in_who", "'me'"},
                     {"in_reason", "NULL"},
                     {"in_call_id", "gen_random_uuid()"}}};
  const Call set{"set_queue_in",
                 {{"in_bucket", "0::smallint"},
                  {"in_name", "'mine'"},
                  {"in_paused", "NULL"},
                  {"in_running_max", "NULL"},
                  {"in_lease_ttl_ms", "NULL"},
                  {"in_attempts_max", "NULL"},
                  {"in_backoff_base_ms", "NULL"},
                  {"in_backoff_max_ms", "NULL"},
                  {"in_retention_ms", "NULL"},
                  {"in_key_retention_ms", "NULL"},
                  {"in_dead_retention_ms", "NULL"},
                  {"in_make", "true"}}};

  EXPECT_EQ(state_of(owner, cancel), "");
  EXPECT_EQ(state_of(owner, cancel.with("in_ids", "'{NULL}'")), "FL400");
  EXPECT_EQ(state_of(owner, cancel.with("in_ids", "array_fill(gen_random_uuid(), '{100000}')")), "FL400");
  EXPECT_EQ(state_of(owner, set.with("in_bucket", "7::smallint")), "FL400");
  EXPECT_EQ(state_of(owner, set.with("in_bucket", "NULL")), "FL400");
  EXPECT_EQ(state_of(owner, set.with("in_name", "''")), "FL400");
  EXPECT_EQ(number("SELECT count(*) FROM faultline.queues"), 1);
}

}  // namespace
}  // namespace faultline::testing

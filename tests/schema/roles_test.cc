// The four roles, each by the real verbs of the store and by what raw SQL could do beside them.

#include <functional>
#include <map>
#include <memory>

#include <gmock/gmock.h>
#include <libpq-fe.h>

#include "sql/statements.h"
#include "store/fixture.h"

namespace faultline::testing {
namespace {

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
      {"enqueue by COPY", [&](Store& s) { return word_for(s.enqueue(many)); }, "owner producer worker"},
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
      {"prune", [](Store& s) { return word_for(s.prune()); }, "owner worker"},
      {"fold the counts", [](Store& s) { return word_for(s.fold_counts()); }, "owner worker"},
      {"resolve",
       [&](Store& s) {
         const Lease l = lease();
         return word_for(s.resolve({&l, 1}));
       },
       all},
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

TEST_F(RolesTest, nobody_rewrites_the_past_and_workers_change_only_what_a_lease_changes) {
  const Lease held = lease();
  complete(lease());
  const std::vector<std::tuple<std::string, std::string, std::string>> attempts{
      {"owner producer worker reader nobody", "update the ledger", "UPDATE faultline.ledger SET error = 'x'"},
      {"producer worker reader nobody", "delete from the ledger", "DELETE FROM faultline.ledger"},
      {"producer worker reader nobody", "empty the ledger", "TRUNCATE faultline.ledger"},
      {"owner producer worker reader nobody", "update the evidence",
       "UPDATE faultline.stale_writes SET verb = 'x'"},
      {"producer worker reader nobody", "delete the evidence", "DELETE FROM faultline.stale_writes"},
      {"producer reader nobody", "write to the ledger",
       "INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, state, requeues, queue)"
       " VALUES (0, 1, 'succeeded', gen_random_uuid(), 1, 'succeeded', 0, 'default')"},
      {"owner producer worker reader nobody", "rewrite the record of migrations",
       "UPDATE faultline.migrations SET checksum = 'x'"},
      {"owner producer worker reader nobody", "make a table", "CREATE TABLE faultline.mine (id integer)"},
      {"owner producer worker reader nobody", "change a table",
       "ALTER TABLE faultline.jobs ADD COLUMN mine integer"},
      {"owner producer worker reader nobody", "drop a table", "DROP TABLE faultline.jobs"},
      {"owner producer worker reader nobody", "replace the clock",
       "CREATE OR REPLACE FUNCTION faultline.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'"},
      {"producer worker reader nobody", "pause a queue", "UPDATE faultline.queues SET paused = true"},
      {"producer worker reader nobody", "touch a queue's times",
       "UPDATE faultline.queues SET updated_at = now()"},
      {"producer worker reader nobody", "make a queue",
       "INSERT INTO faultline.queues (bucket, name) VALUES (0, 'mine')"},
      {"producer worker reader nobody", "drop a queue", "DELETE FROM faultline.queues"},
      {"producer worker reader nobody", "raise the payload limit",
       "UPDATE faultline.meta SET payload_bytes_max = 9"},
      {"producer worker reader nobody", "change a payload", "UPDATE faultline.jobs SET payload = ''"},
      {"producer worker reader nobody", "change a queue of jobs",
       "UPDATE faultline.jobs SET queue = 'default'"},
      {"producer worker reader nobody", "change attempts", "UPDATE faultline.jobs SET attempts_max = 9"},
      {"producer worker reader nobody", "request a cancel",
       "UPDATE faultline.jobs SET cancel_requested_at = now()"},
      {"producer reader nobody", "steal a lease",
       "UPDATE faultline.jobs SET worker = 'me' WHERE worker IS NOT NULL"},
      {"producer reader nobody", "delete jobs", "DELETE FROM faultline.jobs"},
      {"producer reader nobody", "lock jobs", "SELECT 1 FROM faultline.jobs FOR KEY SHARE"},
      {"producer worker reader nobody", "add a job with a token of one's choice",
       "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload, token)"
       " VALUES (0, gen_random_uuid(), 'default', 'k', '', 7)"},
      {"producer worker reader nobody", "add a job that is dead",
       "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload, state)"
       " VALUES (0, gen_random_uuid(), 'default', 'k', '', 'dead')"},
      {"producer reader nobody", "prune", "SELECT faultline.prune_finished(0::smallint, 10)"},
      {"producer reader nobody", "delete keys", "DELETE FROM faultline.idempotency_keys"},
      {"reader nobody", "add a job",
       "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload) VALUES (0, gen_random_uuid(), "
       "'default', 'k', '')"},
      {"producer worker reader nobody", "hold finished jobs",
       "SELECT faultline.hold_finished(0::smallint, '{}')"},
      {"reader nobody", "drop resubmitted jobs", "SELECT faultline.drop_resubmitted(0::smallint, '{}')"},
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
      const auto result = connection.exec_script("BEGIN; " + text, soon());
      EXPECT_EQ(word_for(result), "denied") << role << ": " << name;
    }
  }
  EXPECT_TRUE(complete(held).committed());
}

TEST_F(RolesTest, the_right_to_lock_a_queue_cannot_change_what_it_says) {
  auto worker = connect_as("worker");
  const std::string before =
      query_text(sql_,
                 "SELECT string_agg((q.* )::text, ';') FROM (SELECT bucket, name, paused,"
                 " running_max, lease_ttl_ms, attempts_max, retention_ms, created_at, updated_at FROM "
                 "faultline.queues) AS q");

  EXPECT_EQ(word_for(worker.exec_script("SELECT 1 FROM faultline.queues FOR UPDATE", soon())), "allowed");
  EXPECT_EQ(word_for(worker.exec_script("UPDATE faultline.queues SET claim_turn = true", soon())), "allowed");

  EXPECT_EQ(query_text(sql_,
                       "SELECT string_agg((q.* )::text, ';') FROM (SELECT bucket, name, paused,"
                       " running_max, lease_ttl_ms, attempts_max, retention_ms, created_at, updated_at FROM "
                       "faultline.queues) AS q"),
            before);
  EXPECT_EQ(must(store_as("worker").claim({.worker = "w"})).size(), 0U);
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

  must(worker.exec_script("SELECT faultline.prune_finished(0::smallint, 100)", soon()));
  must(worker.exec_script("SELECT faultline.drop_resubmitted(0::smallint, '{}')", soon()));

  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger"), 1) << "its retention has not passed";
  EXPECT_EQ(number("SELECT count(*) FROM trap.sprung"), 0);

  // The trap is a real one: the same function without its own search_path falls into it.
  script("ALTER FUNCTION faultline.prune_finished(smallint, bigint) RESET search_path");
  must(worker.exec_script("SELECT faultline.prune_finished(0::smallint, 100)", soon()));
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger"), 0);
  EXPECT_GT(number("SELECT count(*) FROM trap.sprung WHERE who NOT LIKE 'login%'"), 0);
}

TEST_F(RolesTest, every_function_with_the_owners_rights_has_a_search_path_of_its_own) {
  EXPECT_EQ(
      number("SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'faultline'::regnamespace AND p.prosecdef"
             " AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)"),
      0);
  EXPECT_EQ(
      number(
          "SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'faultline'::regnamespace AND p.prosecdef"),
      3);
}

TEST_F(RolesTest, a_producer_can_take_back_a_resubmitted_job_and_no_other) {
  const JobId waiting = enqueue();
  const Lease running = [&] {
    enqueue({.priority = 0});
    return claim_one("w").lease;
  }();
  const Lease retried = [&] {
    enqueue({.priority = 0});
    return claim_one("w").lease;
  }();
  settle(retried, Outcome::failure("again"));
  const Lease done = [&] {
    enqueue({.priority = 0});
    return claim_one("w").lease;
  }();
  complete(done);
  auto producer = connect_as("producer");
  // The second submission of a job that has ended meanwhile.
  must(producer.exec({"",
                      "INSERT INTO faultline.jobs (bucket, id, queue, kind, payload)"
                      " VALUES (0, $1::uuid, 'default', 'test', 'null')"},
                     pg::Params{}.add(done.job.value), soon()));

  pg::Params params;
  params.add(std::int16_t{0})
      .add_array(pg::Type::uuid, std::vector{waiting, running.job, retried.job, done.job},
                 [](const JobId& id) { return id.value; });
  const auto dropped = must(producer.exec(sql::kJobsDropResubmitted, params, soon()));

  ASSERT_EQ(dropped.rows(), 1);
  EXPECT_EQ(dropped.get<Uuid>(0, 0), done.job.value);
  EXPECT_EQ(job(waiting).state, JobState::available);
  EXPECT_EQ(job(running.job).state, JobState::running);
  EXPECT_EQ(job(retried.job).state, JobState::scheduled);
  EXPECT_EQ(job(done.job).state, JobState::succeeded);
}

}  // namespace
}  // namespace faultline::testing

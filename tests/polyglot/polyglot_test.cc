// The examples in Python, in Node and in shell, as processes: through the real program, and in SQL without
// it. What became of the jobs is read from the tables.

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include "faultline/store.h"
#include "pg/dsn_parts.h"
#include "private_pg/binaries.h"
#include "silent_proxy.h"
#include "support/database.h"
#include "support/movable_clock.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Strings = std::vector<std::string>;

constexpr const char* kServerLanguages[] = {"python", "node", "curl"};
constexpr const char* kSqlLanguages[] = {"psycopg", "node_pg", "psql"};
constexpr const char* kLanguages[] = {"python", "node", "curl", "psycopg", "node_pg", "psql"};
constexpr auto kShortTtl = 4s;

/// Heartbeats wait in the database, before they look at anything, while somebody holds this lock.
constexpr const char* kHeldHeartbeats = R"(
  ALTER FUNCTION faultline.renew_leases RENAME TO renew_leases_now;
  CREATE FUNCTION faultline.renew_leases(smallint, uuid[], bigint[], uuid[], text[], bigint[], text, boolean[], boolean[])
  RETURNS TABLE (
      id uuid, status text, reason faultline.stale_reason, current_token bigint, current_worker text,
      current_state faultline.job_state, lease_expires_at timestamptz, cancel_requested boolean, cancel_reason text)
  LANGUAGE plpgsql AS $$
  BEGIN
      PERFORM pg_advisory_xact_lock_shared(1);
      RETURN QUERY SELECT * FROM faultline.renew_leases_now($1, $2, $3, $4, $5, $6, $7, $8, $9);
  END
  $$)";

std::string example(const std::string& file) { return FAULTLINE_SOURCE_DIR "/examples/" + file; }
std::string here(const std::string& file) { return FAULTLINE_SOURCE_DIR "/tests/polyglot/" + file; }

bool is_node(const std::string& language) { return language.starts_with("node"); }
/// Where a handler is a process of its own.
bool is_shell(const std::string& language) { return language == "curl" || language == "psql"; }

/// The program of a language; those for the tests alone are beside this file.
Strings program(const std::string& language, const std::string& which) {
  static const std::map<std::string, std::array<Strings, 3>> kPrograms{
      {"python",
       {Strings{PYTHON_PROGRAM, example("python/producer.py")},
        Strings{PYTHON_PROGRAM, example("python/worker.py")},
        Strings{PYTHON_PROGRAM, here("stubborn_worker.py")}}},
      {"node",
       {Strings{"node", example("node/producer.js")}, Strings{"node", example("node/worker.js")},
        Strings{"node", here("stubborn_worker.js")}}},
      {"curl",
       {Strings{example("http/enqueue.sh")}, Strings{example("http/worker.sh")},
        Strings{here("stubborn_worker.sh")}}},
      {"psycopg",
       {Strings{PYTHON_PROGRAM, example("sql/python/producer.py")},
        Strings{PYTHON_PROGRAM, example("sql/python/worker.py")},
        Strings{PYTHON_PROGRAM, here("stubborn_sql_worker.py")}}},
      {"node_pg",
       {Strings{"node", example("sql/node/producer.js")}, Strings{"node", example("sql/node/worker.js")},
        Strings{"node", here("stubborn_sql_worker.js")}}},
      {"psql",
       {Strings{example("sql/shell/enqueue.sh")}, Strings{example("sql/shell/worker.sh")},
        Strings{here("stubborn_sql_worker.sh")}}}};
  return kPrograms.at(language)[which == "producer" ? 0 : which == "worker" ? 1 : 2];
}

Strings numbered(const std::string& stem, int count) {
  Strings names;
  for (int i = 1; i <= count; ++i) names.push_back(stem + std::to_string(i));
  return names;
}

/// `faultline serve` on ports that nobody else has.
class ServerProcess {
 public:
  explicit ServerProcess(const std::string& database, const Strings& flags = {})
      : process_{{.argv = command_line(flags), .environment = {{"DATABASE_URL", database}}}} {
    static const std::regex announcement{R"(HTTP on (http://[0-9.:]+), gRPC on ([0-9.]+:[0-9]+)\.)"};
    std::smatch match;
    std::string said;
    const auto serves = [&] {
      said = process_.err();
      return std::regex_search(said, match, announcement);
    };
    if (!eventually([&] { return serves() || !process_.running(); }) || match.empty())
      throw std::runtime_error("the server does not say where it is:\n" + process_.err());
    url_ = match[1];
    grpc_ = match[2];
  }

  /// Where a program in this language finds it.
  [[nodiscard]] const std::string& address_for(const std::string& language) const {
    return language == "curl" ? url_ : grpc_;
  }

 private:
  static Strings command_line(const Strings& flags) {
    Strings argv{FAULTLINE_PROGRAM, "serve", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0"};
    argv.insert(argv.end(), flags.begin(), flags.end());
    return argv;
  }

  ChildProcess process_;
  std::string url_;
  std::string grpc_;
};

/// What keeps programs in Node from running here; empty: nothing. Their packages come from the network.
const std::string& node_problem() {
  static const std::string problem = [] {
    for (const auto& [from, to] :
         {std::pair{"node", NODE_DIRECTORY}, std::pair{"sql/node", NODE_PG_DIRECTORY}}) {
      const ProcessResult result =
          run_process({.argv = {FAULTLINE_SOURCE_DIR "/tools/npm_ci.sh", example(from), to}});
      if (result.exit_code != 0) return "nothing can be tried in Node: " + result.err;
    }
    return std::string{};
  }();
  return problem;
}

class PolyglotTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!uses_node() || node_problem().empty()) return;
    const char* ci = std::getenv("CI");
    if (ci != nullptr && *ci != '\0') FAIL() << node_problem();
    GTEST_SKIP() << node_problem();
  }
  [[nodiscard]] virtual bool uses_node() const { return true; }

  /// Runs a producer to its end; the ids that it says.
  Strings produce(const std::string& language, double seconds, const Strings& names) {
    Strings argv = program(language, "producer");
    argv.insert(argv.end(), {address_for(language), kQueue, std::to_string(seconds)});
    argv.insert(argv.end(), names.begin(), names.end());
    const ProcessResult result = run_process({.argv = argv, .environment = environment()});
    EXPECT_EQ(result.exit_code, 0) << language << ": " << result.err;
    Strings ids;
    std::istringstream lines{result.out};
    for (std::string id; std::getline(lines, id);) ids.push_back(id);
    return ids;
  }

  ChildProcess spawn_worker(const std::string& language) {
    return spawn_worker(language, address_for(language));
  }
  ChildProcess spawn_worker(const std::string& language, const std::string& address) {
    Strings argv = program(language, "worker");
    argv.insert(argv.end(), {address, kQueue});
    return ChildProcess{{.argv = argv, .environment = environment()}};
  }

  /// A worker whose handler ends only once `let_go` was called, and does not look whether to stop.
  ChildProcess spawn_stubborn(const std::string& language) {
    Strings argv = program(language, "stubborn");
    argv.insert(argv.end(), {address_for(language), kQueue, (scratch_ / "go").string()});
    return ChildProcess{{.argv = argv, .environment = environment()}};
  }
  /// A server, or for SQL the database itself.
  [[nodiscard]] std::string address_for(const std::string& language) const {
    return is_sql(language) ? database_.dsn() : server_->address_for(language);
  }
  void let_go() const { write_file(scratch_ / "go", ""); }
  [[nodiscard]] static bool is_sql(const std::string& language) {
    return std::ranges::find(kSqlLanguages, language) != std::end(kSqlLanguages);
  }
  /// What stands behind a proxy for workers in this language.
  [[nodiscard]] std::string behind_proxy(const std::string& language) const {
    if (!is_sql(language)) return address_for(language);
    const DsnParts dsn{database_.dsn()};
    const std::string host = dsn.get("host", "127.0.0.1");
    const std::string port = dsn.get("port", "5432");
    return host.starts_with('/') ? host + "/.s.PGSQL." + port : host + ":" + port;
  }
  /// Where such a worker finds it.
  [[nodiscard]] std::string through(const SilentProxy& proxy, const std::string& language) const {
    if (language == "curl") return "http://" + proxy.address();
    if (!is_sql(language)) return proxy.address();
    const DsnParts dsn{database_.dsn()};
    const std::string password = dsn.get("password", "");
    return "postgresql://" + dsn.get("user", "") + (password.empty() ? "" : ":" + password) + "@" +
           proxy.address() + "/" + dsn.get("dbname", "") + "?sslmode=disable";
  }

  /// Jobs of vanished workers come back soon, and as often as it takes.
  void set_short_leases() {
    must(store_.set_queue(
        kQueue, {.lease_ttl = kShortTtl, .attempts_max = 100, .backoff_base = 100ms, .backoff_max = 500ms}));
  }

  std::string ask(const std::string& sql) { return query_text(connection_, sql); }
  int count(const std::string& from) {
    return std::stoi(ask("SELECT count(*)::text FROM faultline." + from));
  }
  int succeeded() { return count("ledger WHERE outcome = 'succeeded'"); }
  static std::string by(const ChildProcess& worker) {
    return " worker LIKE '%-" + std::to_string(worker.pid()) + "'";
  }
  int running(const ChildProcess& worker) { return count("jobs WHERE state = 'running' AND" + by(worker)); }

  void expect_each_succeeded_once(const Strings& ids) {
    EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
    EXPECT_EQ(ask("SELECT count(*)::text || ' of ' || count(DISTINCT job_id)::text FROM faultline.ledger "
                  "WHERE state = 'succeeded'"),
              std::to_string(ids.size()) + " of " + std::to_string(ids.size()));
    EXPECT_EQ(count("jobs WHERE queue <> ''"), 0);
    for (const std::string& id : ids) {
      const auto history = must(store_.history(JobId{Uuid::parse(id).value()}));
      ASSERT_TRUE(history) << id;
      EXPECT_EQ(history->job.state, JobState::succeeded) << id;
      EXPECT_EQ(std::ranges::count(history->attempts, "succeeded", &Attempt::outcome), 1) << id;
    }
  }
  /// The greetings, by what said them.
  int greetings_from(const std::string& language) {
    return count("ledger WHERE convert_from(result, 'UTF8') LIKE '\"hello, %, from " + language + "\"'");
  }

  static void expect_drains(ChildProcess& worker) {
    worker.send(SIGTERM);
    const ProcessResult result = worker.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("has ended"));
  }

  /// Debian's psql is a script in Perl that looks for the newest one and starts it; here it stands first.
  static const std::string& path() {
    static const std::string path =
        must(private_pg::find_binaries(std::nullopt)).directory.string() + ":" + std::getenv("PATH");
    return path;
  }
  [[nodiscard]] std::vector<std::pair<std::string, std::optional<std::string>>> environment() const {
    return {{"PYTHONPATH", PYTHON_STUBS ":" + example("python") + ":" + example("sql/python")},
            {"PYTHONDONTWRITEBYTECODE", "1"},
            {"PATH", path()},
            {"NODE_PATH", NODE_DIRECTORY "/node_modules:" NODE_PG_DIRECTORY "/node_modules"},
            {"FAULTLINE_API_KEY", std::nullopt},
            {"TMPDIR", scratch_.path().string()}};
  }

  static constexpr const char* kQueue = "default";
  TestDatabase database_;
  ScratchDir scratch_;
  pg::Connection connection_ = database_.connect();
  Store store_ = must(Store::open({.database = database_.dsn()}));
  std::optional<ServerProcess> server_{std::in_place, database_.dsn()};
};

struct Pair {
  const char* producer;
  const char* worker;
};

class PolyglotPairTest : public PolyglotTest, public ::testing::WithParamInterface<Pair> {
 protected:
  [[nodiscard]] bool uses_node() const override {
    return is_node(GetParam().producer) || is_node(GetParam().worker);
  }
};

TEST_P(PolyglotPairTest, jobs_of_one_language_are_worked_in_another_one) {
  const Strings ids = produce(GetParam().producer, 0, numbered("ada ", 12));
  ASSERT_THAT(ids, SizeIs(12));
  ChildProcess worker = spawn_worker(GetParam().worker);
  ASSERT_TRUE(eventually([&] { return succeeded() >= 12; })) << worker.err();

  // And one that comes while the worker waits.
  const Strings more = produce(GetParam().producer, 0, {"grace"});
  ASSERT_TRUE(eventually([&] { return succeeded() >= 13; })) << worker.err();

  expect_drains(worker);
  Strings all = ids;
  all.insert(all.end(), more.begin(), more.end());
  expect_each_succeeded_once(all);
  EXPECT_EQ(greetings_from(GetParam().worker), 13);
}

INSTANTIATE_TEST_SUITE_P(Each, PolyglotPairTest,
                         ::testing::Values(Pair{"python", "node"}, Pair{"node", "python"},
                                           Pair{"curl", "curl"}, Pair{"psql", "psycopg"},
                                           Pair{"psycopg", "node_pg"}, Pair{"node_pg", "psql"}),
                         [](const auto& pair) {
                           return std::string{pair.param.producer} + "_to_" + pair.param.worker;
                         });

TEST_F(PolyglotTest, the_same_submission_again_adds_nothing_in_any_language) {
  for (const std::string language : kLanguages) {
    const Strings names{"ada " + language, "grace " + language};
    const Strings first = produce(language, 0.5, names);
    EXPECT_THAT(first, SizeIs(2));
    EXPECT_EQ(produce(language, 0.5, names), first) << language;
  }

  EXPECT_EQ(count("jobs WHERE queue <> ''"), 2 * std::ssize(kLanguages));
}

TEST_F(PolyglotTest, a_worker_in_python_ends_when_the_signal_came_to_another_thread) {
  produce("python", 0, {"ada"});

  const ProcessResult result =
      run_process({.argv = {PYTHON_PROGRAM, here("signalled_worker.py"), address_for("python"), kQueue},
                   .environment = environment()});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("has ended"));
  EXPECT_EQ(succeeded(), 1);
}

TEST_F(PolyglotTest, whatever_a_handler_does_its_slot_is_given_back) {
  must(store_.set_queue(kQueue, {.attempts_max = 1}));
  for (const auto& [language, file] :
       {std::pair{"python", "odd_worker.py"}, {"psycopg", "odd_sql_worker.py"}}) {
    // One slot: a job that keeps it would be the last one.
    ChildProcess worker{
        {.argv = {PYTHON_PROGRAM, here(file), address_for(language), kQueue}, .environment = environment()}};
    const auto ended_here = [&](const std::string& outcome) {
      return count("ledger WHERE outcome = '" + outcome + "' AND" + by(worker));
    };

    for (const std::string how : {"exits", "is not JSON", "has a surrogate", "has a null", "is good"})
      produce(language, 0, {how + " in " + language});

    EXPECT_TRUE(eventually([&] { return ended_here("succeeded") == 1 && ended_here("failed") == 4; }))
        << worker.err();
    // JSON allows it and jsonb does not: whether that is a success depends on the way it takes.
    produce(language, 0, {std::string{"returns a null in "} + language});
    EXPECT_TRUE(eventually([&] { return ended_here("succeeded") + ended_here("failed") == 6; }))
        << worker.err();
    expect_drains(worker);
  }
}

TEST_F(PolyglotTest, the_shortest_worker_works) {
  const Strings ids = produce("psycopg", 0, {"ada", "grace"});
  const ChildProcess worker{
      {.argv = {PYTHON_PROGRAM, example("sql/python/short_worker.py"), database_.dsn(), kQueue},
       .environment = environment()}};

  EXPECT_TRUE(eventually([&] { return succeeded() == 2; })) << worker.err();

  expect_each_succeeded_once(ids);
  // What its handler raises fails the attempt, and the worker goes on.
  ask("SELECT faultline.enqueue('default', 'greet', '[]')::text");
  EXPECT_TRUE(eventually([&] {
    return count("ledger WHERE outcome = 'failed' AND error LIKE 'TypeError%'") == 1;
  })) << worker.err();
  produce("psycopg", 0, {"alan"});
  EXPECT_TRUE(eventually([&] { return succeeded() == 3; })) << worker.err();
}

TEST_F(PolyglotTest, workers_of_all_languages_share_a_queue_and_some_are_killed_midway) {
  set_short_leases();
  Strings ids;
  for (const char* language : kLanguages) {
    const Strings added = produce(language, 0.1, numbered(std::string{language} + " ", 20));
    ids.insert(ids.end(), added.begin(), added.end());
  }
  const int all = 20 * static_cast<int>(std::size(kLanguages));
  ASSERT_THAT(ids, SizeIs(all));
  std::vector<ChildProcess> victims;
  for (const char* language : kLanguages) victims.push_back(spawn_stubborn(language));
  for (const ChildProcess& victim : victims) {
    // Their heartbeats keep what they hold past the first lease.
    const std::string renewed = "jobs WHERE state = 'running' AND" + by(victim) +
                                " AND lease_expires_at > claimed_at + interval '" +
                                std::to_string(kShortTtl.count()) + " s'";
    EXPECT_TRUE(eventually([&] { return count(renewed) > 0; })) << victim.err();
  }
  std::vector<ChildProcess> workers;
  for (const char* language : kLanguages) workers.push_back(spawn_worker(language));
  ASSERT_TRUE(eventually([&] { return succeeded() >= 15; }));

  for (ChildProcess& victim : victims) {
    ASSERT_GT(running(victim), 0) << victim.err();
    victim.send(SIGKILL);
    victim.wait();  // a process that nobody waited for still looks alive to its children
  }

  const auto all_have_greeted = [&] {
    return std::ranges::all_of(kLanguages,
                               [&](const char* language) { return greetings_from(language) > 0; });
  };
  EXPECT_TRUE(eventually([&] {
    if (succeeded() < std::ssize(ids)) return false;
    if (all_have_greeted()) return true;
    // One that came late found nothing left to do.
    const Strings more = produce("curl", 0.1, numbered("late ", 20));
    ids.insert(ids.end(), more.begin(), more.end());
    return false;
  }));
  for (ChildProcess& worker : workers) expect_drains(worker);
  expect_each_succeeded_once(ids);
  for (const ChildProcess& victim : victims)
    EXPECT_GT(count("ledger WHERE outcome = 'expired' AND" + by(victim)), 0);
  for (const char* language : kLanguages) EXPECT_GT(greetings_from(language), 0) << language;
}

class PolyglotLanguageTest : public PolyglotTest, public ::testing::WithParamInterface<const char*> {
 protected:
  [[nodiscard]] bool uses_node() const override { return is_node(GetParam()); }
  JobId added_for_an_hour() { return JobId{Uuid::parse(produce(GetParam(), 3600, {"ada"}).at(0)).value()}; }
};

TEST_P(PolyglotLanguageTest, a_running_job_that_is_cancelled_is_stopped_and_ends_as_cancelled) {
  set_short_leases();
  const JobId id = added_for_an_hour();
  ChildProcess worker = spawn_worker(GetParam());
  ASSERT_TRUE(eventually([&] { return running(worker) == 1; })) << worker.err();

  must(store_.cancel(std::vector{id}, "test", "not wanted any more"));

  EXPECT_TRUE(eventually([&] { return must(store_.job(id))->state == JobState::cancelled; })) << worker.err();
  EXPECT_EQ(count("ledger WHERE outcome = 'cancelled' AND" + by(worker)), 1);
  expect_drains(worker);
}

TEST_P(PolyglotLanguageTest, a_worker_that_was_frozen_past_its_lease_commits_nothing) {
  // The database's time is moved, so this need not be short, and the other one keeps its lease on a busy
  // machine.
  constexpr auto kTtl = 20s;
  must(store_.set_queue(kQueue, {.lease_ttl = kTtl, .attempts_max = 100, .backoff_base = 0ms}));
  MovableClock clock{database_.dsn()};
  const Strings ids = produce(GetParam(), 0, {"ada"});
  ChildProcess frozen = spawn_stubborn(GetParam());
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(scratch_ / "go.begun"); })) << frozen.err();
  ChildProcess other = spawn_worker(GetParam());
  ASSERT_TRUE(eventually([&] { return other.err().contains("works on"); })) << other.err();
  // Only the database's time passes, so the frozen one does not lose its connection, too.
  frozen.send_to_group(SIGSTOP);
  // It may be dealt to the frozen one again, whose stream is still open: that lease has to run out as well.
  // Once for each, or time would be too fast for the other one to keep its own.
  std::string ended;
  ASSERT_TRUE(eventually([&] {
    const std::string token = ask(
        "SELECT coalesce(max(token), 0)::text FROM faultline.jobs WHERE state = 'running' AND" + by(frozen));
    if (token != "0" && std::exchange(ended, token) != token) clock.advance(kTtl + 1s);
    return succeeded() == 1;
  })) << other.err();

  frozen.send_to_group(SIGCONT);

  // In a shell a handler is a process, and is ended. Elsewhere it may go on; what it returns is refused.
  const bool is_ended = is_shell(GetParam());
  if (!is_ended) let_go();
  const std::string says = is_ended ? "the lease is lost" : "refused";
  EXPECT_TRUE(eventually([&] { return frozen.err().find(says) != std::string::npos; })) << frozen.err();
  EXPECT_TRUE(is_ended || count("stale_writes WHERE" + by(frozen)) > 0);
  expect_drains(frozen);
  expect_drains(other);
  expect_each_succeeded_once(ids);
  EXPECT_EQ(greetings_from(GetParam()), 1);
}

TEST_P(PolyglotLanguageTest, an_outcome_waits_for_the_heartbeat_that_is_on_its_way) {
  // Otherwise the heartbeat may come after it, and is then kept as evidence of a worker that was late.
  must(store_.set_queue(kQueue, {.lease_ttl = 12s}));
  must(connection_.exec_script(kHeldHeartbeats, soon()));
  pg::Connection holder = database_.connect();
  (void)query_text(holder, "SELECT pg_advisory_lock(1)::text");
  produce(GetParam(), 0, {"ada"});
  ChildProcess worker = spawn_stubborn(GetParam());
  const auto on_their_way = [&] {
    return std::stoi(
        ask("SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"));
  };
  ASSERT_TRUE(eventually([&] { return on_their_way() > 0; })) << worker.err();

  let_go();
  // One that does not wait commits its outcome now. One that waits shows nothing.
  for (int looks = 0; looks < 100 && succeeded() == 0; ++looks) std::this_thread::sleep_for(10ms);
  (void)query_text(holder, "SELECT pg_advisory_unlock(1)::text");

  EXPECT_TRUE(eventually([&] { return succeeded() == 1; })) << worker.err();
  expect_drains(worker);
  EXPECT_TRUE(eventually([&] { return on_their_way() == 0; }));
  EXPECT_EQ(count("stale_writes"), 0) << worker.err();
}

INSTANTIATE_TEST_SUITE_P(Each, PolyglotLanguageTest, ::testing::ValuesIn(kLanguages),
                         [](const auto& language) { return std::string{language.param}; });

/// These wait for time to pass: a worker cannot know at once that nobody answers any more.
class PolyglotSilenceTest : public PolyglotLanguageTest {};

TEST_P(PolyglotSilenceTest, a_worker_comes_back_when_the_network_lost_its_connections_without_a_word) {
  set_short_leases();
  SilentProxy network{behind_proxy(GetParam())};
  ChildProcess worker = spawn_worker(GetParam(), through(network, GetParam()));
  Strings ids = produce(GetParam(), 0.2, numbered("ada ", 12));
  ASSERT_TRUE(eventually([&] { return succeeded() >= 2; })) << worker.err();

  // While it works, and until everything that it held has been taken from it.
  network.fall_silent();
  ASSERT_TRUE(eventually([&] { return running(worker) == 0; })) << worker.err();
  network.let_new_ones_through();
  ASSERT_TRUE(eventually([&] { return succeeded() >= 12; })) << worker.err();

  // While it waits.
  network.fall_silent();
  network.let_new_ones_through();
  const Strings more = produce(GetParam(), 0, numbered("grace ", 4));
  ids.insert(ids.end(), more.begin(), more.end());
  ASSERT_TRUE(eventually([&] { return succeeded() >= 16; })) << worker.err();

  // While it is told to end.
  network.fall_silent();
  expect_drains(worker);
  expect_each_succeeded_once(ids);
}

INSTANTIATE_TEST_SUITE_P(Each, PolyglotSilenceTest, ::testing::ValuesIn(kLanguages),
                         [](const auto& language) { return std::string{language.param}; });

/// Those that need a server.
class PolyglotServerTest : public PolyglotLanguageTest {};

TEST_P(PolyglotServerTest, without_a_good_key_it_says_so_and_ends) {
  const ServerProcess locked{database_.dsn(), {"--auth", "keys"}};

  const ProcessResult result = spawn_worker(GetParam(), locked.address_for(GetParam())).wait();

  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("key"));
}

INSTANTIATE_TEST_SUITE_P(Each, PolyglotServerTest, ::testing::ValuesIn(kServerLanguages),
                         [](const auto& language) { return std::string{language.param}; });

/// Those whose handlers look whether to stop.
class PolyglotStoppingTest : public PolyglotLanguageTest {};

TEST_P(PolyglotStoppingTest, a_worker_that_is_told_to_end_gives_back_what_it_has_not_done) {
  const JobId id = added_for_an_hour();
  ChildProcess worker = spawn_worker(GetParam());
  ASSERT_TRUE(eventually([&] { return running(worker) == 1; })) << worker.err();

  expect_drains(worker);

  const auto job = must(store_.job(id));
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state, JobState::available);
  EXPECT_EQ(job->attempt, 0);
}

INSTANTIATE_TEST_SUITE_P(Each, PolyglotStoppingTest,
                         ::testing::Values("python", "node", "psycopg", "node_pg"),
                         [](const auto& language) { return std::string{language.param}; });

/// Those with streams.
class PolyglotStreamTest : public PolyglotLanguageTest {};

TEST_P(PolyglotStreamTest, a_worker_goes_on_with_another_server_when_its_own_is_killed) {
  set_short_leases();
  std::optional<ServerProcess> first{std::in_place, database_.dsn()};
  ChildProcess worker =
      spawn_worker(GetParam(), "ipv4:" + first->address_for(GetParam()) + "," + address_for(GetParam()));
  const Strings ids = produce(GetParam(), 0.2, numbered("ada ", 40));
  ASSERT_TRUE(eventually([&] { return succeeded() >= 5; })) << worker.err();

  first.reset();  // kill -9

  EXPECT_TRUE(eventually([&] { return succeeded() >= 40; })) << worker.err();
  EXPECT_THAT(worker.err(), HasSubstr("the stream broke"));
  expect_drains(worker);
  expect_each_succeeded_once(ids);
}

INSTANTIATE_TEST_SUITE_P(Each, PolyglotStreamTest, ::testing::Values("python", "node"),
                         [](const auto& language) { return std::string{language.param}; });

/// A broken pipe has a code of five capital letters, as the errors of a database have.
TEST_F(PolyglotTest, in_node_a_broken_pipe_is_told_from_what_the_database_says) {
  const ProcessResult result = run_process(
      {.argv = {"node", "-e",
                "const { is_passing } = require('" + example("sql/node/faultline_sql.js") + "');" +
                    "const { DatabaseError } = require('pg');"
                    "const said = (code) => Object.assign(new DatabaseError('', 0, 'error'), { code });"
                    "const broke = (code) => Object.assign(new Error(''), { code });"
                    "console.log([broke('EPIPE'), broke('ECONNRESET'), new Error(''), said('57P01'),"
                    "             said('55P03'), said('42501'), said('FL400')].map(is_passing).join(' '));"},
       .environment = environment()});
  EXPECT_EQ(result.out, "true true true true true false false\n") << result.err;
}

/// Those in SQL, on a database without any server: nobody but they themselves looks after the leases.
class PolyglotSqlTest : public PolyglotLanguageTest {
 protected:
  PolyglotSqlTest() { server_.reset(); }
};

TEST_P(PolyglotSqlTest, without_a_server_the_jobs_of_a_killed_worker_go_on) {
  set_short_leases();
  const Strings ids = produce(GetParam(), 0, numbered("ada ", 5));
  ChildProcess victim = spawn_stubborn(GetParam());
  ASSERT_TRUE(eventually([&] { return running(victim) == 1; })) << victim.err();
  victim.send(SIGKILL);
  victim.wait();

  ChildProcess worker = spawn_worker(GetParam());

  EXPECT_TRUE(eventually([&] { return succeeded() >= 5; })) << worker.err();
  expect_drains(worker);
  expect_each_succeeded_once(ids);
  EXPECT_EQ(count("ledger WHERE outcome = 'expired' AND" + by(victim)), 1);
}

TEST_P(PolyglotSqlTest, a_worker_comes_back_when_its_connections_are_cut) {
  // Long enough for a worker that starts a psql for every call on a busy machine; a claim whose answer was
  // cut off waits as long.
  must(store_.set_queue(kQueue, {.lease_ttl = 15s}));
  ChildProcess worker = spawn_worker(GetParam());
  const Strings ids = produce(GetParam(), 0.2, numbered("ada ", 10));
  ASSERT_TRUE(eventually([&] { return succeeded() >= 2; })) << worker.err();

  for (int round = 0; round < 5; ++round) {
    ask("SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE '" +
        std::string{GetParam()} + "%'");
    const int before = succeeded();
    ASSERT_TRUE(eventually([&] { return succeeded() > before || succeeded() == 10; })) << worker.err();
  }

  EXPECT_TRUE(eventually([&] { return succeeded() == 10; })) << worker.err();
  expect_drains(worker);
  expect_each_succeeded_once(ids);
}

TEST_P(PolyglotSqlTest, without_the_right_it_says_so_and_ends) {
  must(connection_.exec_script("REVOKE EXECUTE ON FUNCTION faultline.claim FROM faultline_worker", soon()));
  const std::string login = "login_" + std::to_string(::getpid()) + "_polyglot";
  must(connection_.exec_script("CREATE ROLE " + login + " LOGIN IN ROLE faultline_worker", soon()));

  const ProcessResult result = spawn_worker(GetParam(), database_.dsn_as(login)).wait();

  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("permission denied for function claim"));
  must(connection_.exec_script("DROP ROLE " + login, soon()));
}

INSTANTIATE_TEST_SUITE_P(Each, PolyglotSqlTest, ::testing::ValuesIn(kSqlLanguages),
                         [](const auto& language) { return std::string{language.param}; });

}  // namespace
}  // namespace faultline::testing

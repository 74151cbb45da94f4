// The drill as people run it: the program itself.

#include <csignal>
#include <sstream>

#include "../cli/program.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string drill_databases() {
  auto admin = TestServer::instance().admin();
  return query_text(admin,
                    "SELECT coalesce(string_agg(datname::text, ' '), '') FROM pg_database"
                    " WHERE datname LIKE 'faultline\\_drill\\_%'");
}

/// Drills of other tests may run at the same time on the same server; each has a login of its own.
class LeaseRaceTest : public ::testing::Test {
 protected:
  ProcessResult drill(std::vector<std::string> arguments) {
    return run_faultline(words(std::move(arguments)));
  }
  std::vector<std::string> words(std::vector<std::string> arguments) {
    std::vector<std::string> all{"drill", "lease-race", "--database", database_.dsn()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
  static std::vector<nlohmann::json> lines_of(const std::string& text) {
    std::vector<nlohmann::json> lines;
    std::istringstream in{text};
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  TestDatabase database_;
};

TEST_F(LeaseRaceTest, one_race_shows_its_trace_and_its_facts) {
  const auto result = drill({});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("lease_acquired       token 1"), HasSubstr("lease_expired        token 1"),
                    HasSubstr("lease_acquired       token 2"), HasSubstr("job_settled          token 2"),
                    HasSubstr("stale_write_blocked  token 1  verb=complete reason=token_mismatch "
                              "current_token=2 current_worker=B current_state=succeeded"),
                    HasSubstr("worker_exit")));
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("✓ exactly one success in the ledger (1 of 1)"),
            HasSubstr("✓ its token is 2 or more: a reclaim did occur (1 of 1)"),
            HasSubstr("✓ the job's state is succeeded (1 of 1)"), HasSubstr("✓ stale writes accepted: 0"),
            HasSubstr("✓ stale writes blocked, with evidence that names both tokens (1 of 1)"),
            Not(HasSubstr("✗"))));
}

TEST_F(LeaseRaceTest, the_log_is_one_json_object_per_event_in_order) {
  const auto result = drill({"--log"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> told;
  for (const auto& line : lines_of(result.out)) {
    told.push_back(line.at("worker").get<std::string>() + " " + line.at("event").get<std::string>());
    if (line.at("event") != "stale_write_blocked") continue;
    EXPECT_EQ(line.at("token"), 1);
    EXPECT_EQ(line.at("current_token"), "2");
    EXPECT_EQ(line.at("current_worker"), "B");
    EXPECT_EQ(line.at("reason"), "token_mismatch");
  }
  EXPECT_THAT(told, ElementsAre("A lease_acquired", "A execution_started", "watchdog lease_expired",
                                "B lease_acquired", "B execution_started", "B job_settled",
                                "A stale_write_blocked", "A worker_exit", "B worker_exit"));
}

TEST_F(LeaseRaceTest, many_races_of_one_seed_are_clean_and_all_are_races) {
  const auto result = drill({"--runs", "200", "--seed", "42", "--json"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, IsEmpty());
  const auto summary = one_object(result.out);
  EXPECT_EQ(summary.at("runs"), 200);
  EXPECT_EQ(summary.at("races"), 200);
  EXPECT_EQ(summary.at("successes"), 200);
  EXPECT_EQ(summary.at("stale_accepted"), 0);
  EXPECT_EQ(summary.at("duplicates"), 0);
  EXPECT_EQ(summary.at("violations"), 0);
  EXPECT_EQ(summary.at("seed"), 42);
  EXPECT_GT(summary.at("seconds").get<double>(), 0);
  EXPECT_GE(summary.at("stale_blocked"), 200);
  EXPECT_EQ(summary.at("stale_blocked"), summary.at("stale_writes"));
  EXPECT_EQ(summary.at("by_timing").size(), 7U);
  EXPECT_EQ(summary.at("by_verb").size(), 14U);
}

TEST_F(LeaseRaceTest, the_same_seed_is_the_same_schedule) {
  const auto first = one_object(drill({"--runs", "30", "--seed", "9", "--json"}).out);
  const auto second = one_object(drill({"--runs", "30", "--seed", "9", "--json"}).out);

  for (const char* field : {"stale_writes", "by_verb", "by_timing", "shapes"})
    EXPECT_EQ(first.at(field), second.at(field)) << field;
}

TEST_F(LeaseRaceTest, leaves_the_database_it_is_given_as_it_was) {
  auto connection = database_.connect();
  const auto clock = [&] {
    return query_text(connection,
                      "SELECT string_agg(pg_get_functiondef(p.oid), '' ORDER BY p.proname) FROM pg_proc p"
                      " WHERE p.pronamespace = 'faultline'::regnamespace AND p.proname LIKE 'clock%'");
  };
  const auto rows = [&] {
    return query_text(connection,
                      "SELECT (SELECT count(*) FROM faultline.jobs) || ' ' || (SELECT count(*) FROM "
                      "faultline.ledger) || ' ' || (SELECT count(*) FROM faultline.queues)");
  };
  const std::string clock_before = clock();
  const std::string rows_before = rows();

  EXPECT_EQ(drill({"--runs", "3"}).exit_code, 0);

  EXPECT_EQ(clock(), clock_before);
  EXPECT_EQ(rows(), rows_before);
}

TEST_F(LeaseRaceTest, a_signal_ends_it_and_its_databases_go_with_it) {
  auto admin = TestServer::instance().admin();
  const std::string before = drill_databases();
  ChildProcess process{faultline_program(words({"--runs", "1000000"}))};
  std::string mine;
  ASSERT_TRUE(eventually([&] {
    // The session that keeps them alive has their name.
    mine = query_text(admin,
                      "SELECT coalesce(min(d.datname::text), '') FROM pg_database d"
                      " WHERE d.datname LIKE 'faultline\\_drill\\_%' AND strpos('" +
                          before + "', d.datname::text) = 0");
    return !mine.empty();
  }));

  process.send(SIGTERM);
  const auto result = process.wait();

  EXPECT_EQ(result.signal, SIGTERM);
  EXPECT_TRUE(eventually([&] { return drill_databases().find(mine) == std::string::npos; }));
}

TEST_F(LeaseRaceTest, in_real_time_a_stopped_process_comes_back_and_is_refused) {
  const auto result = drill({"--real-time", "--log", "--json"});

  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  auto lines = lines_of(result.out);
  ASSERT_FALSE(lines.empty());
  const auto summary = lines.back();
  EXPECT_EQ(summary.at("runs"), 1);
  EXPECT_EQ(summary.at("races"), 1);
  EXPECT_EQ(summary.at("stale_accepted"), 0);
  EXPECT_GE(summary.at("stale_blocked"), 1);
  std::vector<std::string> told;
  for (const auto& line : lines) {
    if (line.contains("event"))
      told.push_back(line.at("worker").get<std::string>() + " " + line.at("event").get<std::string>());
  }
  EXPECT_THAT(told,
              ::testing::IsSupersetOf({"A lease_acquired", "A execution_started", "watchdog lease_expired",
                                       "B lease_acquired", "B execution_started", "B job_settled",
                                       "A stale_write_blocked", "A worker_exit", "B worker_exit"}));
  EXPECT_LT(std::ranges::find(told, "B job_settled"), std::ranges::find(told, "A stale_write_blocked"));
}

TEST(DrillCommandTest, without_a_name_lists_the_drills) {
  const auto result = run_faultline({"drill"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("lease-race"), Not(HasSubstr("lease-race-worker"))));
  EXPECT_EQ(one_object(run_faultline({"drill", "--json"}).out).at("drills").at(0), "lease-race");
}

TEST(DrillCommandTest, wrong_usage_is_2) {
  EXPECT_EQ(run_faultline({"drill", "no-such-drill"}).exit_code, 2);
  EXPECT_EQ(run_faultline({"drill", "lease-race", "--runs", "0"}).exit_code, 2);
  EXPECT_EQ(run_faultline({"drill", "lease-race", "--runs", "many"}).exit_code, 2);
  EXPECT_EQ(run_faultline({"drill", "lease-race", "--no-such-option"}).exit_code, 2);
}

TEST(DrillCommandTest, a_database_that_cannot_be_reached_is_an_error_and_no_finding) {
  const auto result = run_faultline(
      {"drill", "lease-race", "--json", "--database", "postgresql://nobody:secret@127.0.0.1:1/none"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(one_object(result.err).at("error").at("code"), "drill_failed");
  EXPECT_THAT(result.err, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace faultline::testing

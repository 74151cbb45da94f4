// `faultline-dev bench`: that it measures, says what it promises, and leaves nothing behind. How fast it is
// shows elsewhere.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <sstream>

#include "cli/program.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// The databases of benchmarks on the run's server, of this test or another.
std::set<std::string> bench_databases() {
  auto admin = TestServer::instance().admin();
  const std::string names = query_text(admin,
                                       "SELECT coalesce(string_agg(datname::text, ' '), '') FROM pg_database "
                                       "WHERE datname LIKE 'faultline_bench_%'");
  std::istringstream in{names};
  return {std::istream_iterator<std::string>{in}, {}};
}

/// How many tables anybody has made in it.
std::string tables_in(const TestDatabase& database) {
  auto connection = database.connect();
  return query_text(connection,
                    "SELECT count(*)::text FROM pg_class WHERE relnamespace <> 'pg_catalog'::regnamespace "
                    "AND relkind = 'r' AND relname NOT LIKE 'sql_%'");
}

struct Benchmark {
  std::vector<std::string> arguments;
  std::vector<std::string> figures;  ///< all greater than 0
};

const std::vector<Benchmark>& small_ones() {
  static const std::vector<Benchmark> all{
      {{"drain", "--jobs", "300", "--workers", "2", "--slots", "2"},
       {"jobs_per_s", "baseline_jobs_per_s", "vs_baseline", "jobs", "workers", "slots", "connections"}},
      {{"sustained", "--seconds", "1", "--snapshot", "--retained", "50", "--batch", "20"},
       {"jobs_per_s", "baseline_jobs_per_s", "vs_baseline", "seconds", "retained"}},
      {{"latency", "--jobs", "5", "--pause-ms-max", "2"},
       {"p50_ms", "p99_ms", "baseline_p50_ms", "baseline_p99_ms", "p50_vs_baseline", "p99_vs_baseline",
        "jobs"}},
      {{"enqueue", "--batch", "500", "--connections", "2", "--jobs", "2000"},
       {"jobs_per_s", "baseline_jobs_per_s", "vs_baseline", "batch", "connections"}},
      {{"enqueue", "--batch", "7", "--connections", "1", "--jobs", "50"},
       {"jobs_per_s", "baseline_jobs_per_s"}},
      {{"http", "--jobs", "100", "--connections", "2"},
       {"jobs_per_s", "baseline_jobs_per_s", "vs_baseline", "batch", "connections"}},
      {{"http", "--jobs", "100", "--batch", "20", "--connections", "2"},
       {"jobs_per_s", "baseline_jobs_per_s"}},
      {{"grpc", "--jobs", "300", "--latency-jobs", "5"},
       {"jobs_per_s", "direct_jobs_per_s", "vs_direct", "p50_ms", "p99_ms", "direct_p50_ms",
        "direct_p99_ms"}},
      {{"store", "--rounds", "1", "--scale", "0.001"},
       {"claim_settle_vs_baseline_100", "claim_settle_vs_baseline_500", "enqueue_vs_copy",
        "snapshot_vs_plain", "retained_vs_plain", "enqueue_bulk_jobs_per_s"}},
      {{"big", "--live", "10000", "--finished", "10000", "--queues", "20", "--rounds", "1"},
       {"claim_10_ms", "claim_10_buffers", "claim_10_from_the_beginning_ms", "claim_10_capped_ms",
        "counts_of_all_queues_ms", "counts_of_all_queues_buffers", "prune_with_nothing_due_ms",
        "list_small_queue_ms", "list_dead_ms", "list_kind_nowhere_buffers", "audit_ms", "sweep_of_1000_ms",
        "running"}},
  };
  return all;
}

class BenchTest : public ::testing::Test {
 protected:
  /// Beside a database that nobody has migrated, so that a table in it would show.
  [[nodiscard]] ProcessResult bench(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "bench");
    arguments.insert(arguments.end(), {"--database", database_.dsn()});
    return run_faultline(arguments);
  }

  const TestDatabase database_{Template::empty};
};

class EachBenchTest : public BenchTest, public ::testing::WithParamInterface<std::size_t> {
 protected:
  [[nodiscard]] static const Benchmark& benchmark() { return small_ones()[GetParam()]; }
};

TEST_P(EachBenchTest, reports_its_figures_to_machines_and_leaves_nothing_behind) {
  auto arguments = benchmark().arguments;
  arguments.emplace_back("--json");
  const auto result = bench(arguments);

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto report = one_object(result.out);
  for (const std::string& figure : benchmark().figures) {
    ASSERT_TRUE(report.contains(figure)) << figure << " is not in " << report;
    EXPECT_GT(report.at(figure).get<double>(), 0) << figure;
  }
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(tables_in(database_), "0");
}

INSTANTIATE_TEST_SUITE_P(, EachBenchTest, ::testing::Range<std::size_t>(0, small_ones().size()));

TEST_F(BenchTest, a_percentile_is_not_below_a_lower_one) {
  const auto report = one_object(bench({"latency", "--jobs", "20", "--pause-ms-max", "1", "--json"}).out);

  EXPECT_GE(report.at("p99_ms").get<double>(), report.at("p50_ms").get<double>());
  EXPECT_GE(report.at("max_ms").get<double>(), report.at("p99_ms").get<double>());
  EXPECT_GE(report.at("p50_ms").get<double>(), report.at("after_commit_p50_ms").get<double>());
}

TEST_F(BenchTest, tells_people_the_same_figures) {
  const auto drained = bench({"drain", "--jobs", "50"});
  ASSERT_EQ(drained.exit_code, 0) << drained.err;
  for (const auto* figure : {"jobs_per_s", "baseline_jobs_per_s", "vs_baseline"})
    EXPECT_THAT(drained.out, HasSubstr(figure));
  EXPECT_THAT(drained.err, HasSubstr("draining 50 jobs"));

  const auto waited = bench({"latency", "--jobs", "2", "--pause-ms-max", "1"});
  ASSERT_EQ(waited.exit_code, 0) << waited.err;
  for (const auto* figure : {"p50_ms", "p99_ms", "baseline_p50_ms"})
    EXPECT_THAT(waited.out, HasSubstr(figure));
}

TEST_F(BenchTest, drops_its_scratch_database_at_the_end_and_at_an_interrupt) {
  const auto before = bench_databases();
  auto options = faultline_program({"bench", "sustained", "--seconds", "600", "--database", database_.dsn()});
  ChildProcess running{options};
  std::set<std::string> made;
  ASSERT_TRUE(eventually([&] {
    made = bench_databases();
    for (const std::string& name : before) made.erase(name);
    return !made.empty() && running.err().contains("adding and working");
  })) << running.err();

  running.send_to_group(SIGINT);

  EXPECT_EQ(running.wait().signal, SIGINT);
  // Among them may be those of another test, which drops its own in time.
  EXPECT_TRUE(eventually([&] {
    const auto after = bench_databases();
    return std::ranges::none_of(made, [&](const std::string& name) { return after.contains(name); });
  }));
}

TEST_F(BenchTest, has_a_server_of_its_own_when_no_database_is_named_and_leaves_nothing_of_it) {
  const ScratchDir scratch;
  const auto result = run_faultline({"bench", "enqueue", "--jobs", "10", "--batch", "10", "--json"},
                                    {{"TMPDIR", scratch.path()}});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(one_object(result.out).at("jobs_per_s").get<double>(), 0);
  EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST_F(BenchTest, wrong_usage_exits_with_2) {
  const std::vector<std::vector<std::string>> wrong{
      {"bench"},
      {"bench", "no-such-benchmark"},
      {"bench", "drain", "--jobs", "0"},
      {"bench", "drain", "--jobs", "many"},
      {"bench", "drain", "--workers", "-1"},
      {"bench", "sustained", "--seconds", "0"},
      {"bench", "latency", "--seconds", "1"},
      {"bench", "enqueue", "--batch", "0"},
      {"bench", "enqueue", "--connections", "1000000"},
      {"bench", "store", "--scale", "0"},
      {"bench", "drain", "--database", "not-a-url"},
  };
  for (const auto& arguments : wrong) {
    const auto result = run_faultline(arguments);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(arguments) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(BenchTest, an_unreachable_database_is_a_failure_that_hides_the_password) {
  const auto result =
      run_faultline({"bench", "drain", "--json", "--database", "postgresql://joe:hunter2@127.0.0.1:1/jobs"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(one_object(result.err).at("error").at("code"), "cannot_connect");
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("hunter2")));
}

}  // namespace
}  // namespace faultline::testing

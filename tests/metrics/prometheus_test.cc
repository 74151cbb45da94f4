// A real Prometheus scrapes a real server and real workers, and is asked what it has seen.

#include <cmath>

#include <gmock/gmock.h>

#include "faultline/store.h"
#include "faultline/worker.h"
#include "metrics/samples.h"
#include "server/serve_process.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

std::string url_encoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) {
      encoded += c;
      continue;
    }
    encoded += '%';
    encoded += kDigits[byte >> 4U];
    encoded += kDigits[byte & 0xFU];
  }
  return encoded;
}

/// A body that came in chunks, put together.
std::string whole_body(HttpResponse answer) {
  if (answer.header("transfer-encoding") != "chunked") return std::move(answer.body);
  std::string whole;
  std::string_view rest = answer.body;
  for (;;) {
    const auto end = rest.find("\r\n");
    if (end == std::string_view::npos) return whole;
    const std::size_t size = std::stoul(std::string{rest.substr(0, end)}, nullptr, 16);
    whole += rest.substr(end + 2, size);
    rest.remove_prefix(std::min(rest.size(), end + 2 + size + 2));
  }
}

/// Prometheus with the alert rules of ops/, on a port of its own.
class PrometheusProcess {
 public:
  PrometheusProcess(std::uint16_t server, const std::vector<std::uint16_t>& workers)
      : process_(options(scratch_, server, workers)) {
    if (!eventually([&] { return find_port() || !process_.running(); }) || port_ == 0)
      throw std::runtime_error("Prometheus does not listen:\n" + process_.err());
    if (!eventually([&] { return http_get(port_, "/-/ready").status == 200; }))
      throw std::runtime_error("Prometheus is not ready:\n" + process_.err());
  }

  /// The value of a query that gives one; not a number when it gives none.
  [[nodiscard]] double value(const std::string& query) const {
    const auto answer = ask("/api/v1/query?query=" + url_encoded(query));
    if (!answer.is_object() || answer.value("status", "") != "success") return std::nan("");
    const auto& result = answer.at("data").at("result");
    if (result.size() != 1) return std::nan("");
    return std::stod(result.at(0).at("value").at(1).get<std::string>());
  }
  [[nodiscard]] bool comes_to(const std::string& query, double expected) const {
    return eventually([&] { return value(query) == expected; });
  }
  [[nodiscard]] nlohmann::json rules() const { return ask("/api/v1/rules"); }
  [[nodiscard]] nlohmann::json everything() const {
    return ask("/api/v1/query?query=" + url_encoded("{__name__=~\"faultline.*\"}"));
  }

 private:
  [[nodiscard]] nlohmann::json ask(const std::string& target) const {
    return nlohmann::json::parse(whole_body(http_get(port_, target)), nullptr, false);
  }

  static ProcessOptions options(const ScratchDir& scratch, std::uint16_t server,
                                const std::vector<std::uint16_t>& workers) {
    std::string config =
        "global: {scrape_interval: 500ms, evaluation_interval: 500ms}\nrule_files: [\"" FAULTLINE_SOURCE_DIR
        "/ops/prometheus/alerts.yml\"]\nscrape_configs:\n";
    const auto scrape = [&](const std::string& job, const std::vector<std::uint16_t>& ports) {
      config += "  - job_name: " + job + "\n    static_configs:\n";
      for (const std::uint16_t port : ports)
        config += "      - targets: [\"127.0.0.1:" + std::to_string(port) + "\"]\n";
    };
    scrape("faultline-server", {server});
    scrape("faultline-worker", workers);
    write_file(scratch / "prometheus.yml", config);
    return {.argv = {"prometheus", "--config.file=" + (scratch / "prometheus.yml").string(),
                     "--storage.tsdb.path=" + (scratch / "data").string(),
                     "--web.listen-address=127.0.0.1:0"}};
  }

  bool find_port() {
    const std::string log = process_.err();
    const std::string before = "msg=\"Listening on\" address=127.0.0.1:";
    const auto at = log.find(before);
    if (at == std::string::npos || log.find('\n', at) == std::string::npos) return false;
    port_ = static_cast<std::uint16_t>(std::stoi(log.substr(at + before.size())));
    return true;
  }

  ScratchDir scratch_;
  ChildProcess process_;
  std::uint16_t port_ = 0;
};

class PrometheusTest : public ::testing::Test {
 protected:
  PrometheusTest() : store_(must(Store::open({.database = database_.dsn()}))) {
    for (const std::string queue : {"direct", "remote"}) must(store_.set_queue(queue, {}));
    server_.wait_until_ready();
  }

  [[nodiscard]] static WorkerOptions worker_options(const std::string& queue) {
    return {.name = queue,
            .queues = {{.queue = queue}},
            .watchdog = false,
            .log = [](const Event&) {},
            .metrics_listen = "127.0.0.1:0"};
  }
  void enqueue(const std::string& queue, int count) const {
    for (int i = 0; i < count; ++i) {
      const nlohmann::json job{{"queue", queue}, {"kind", "mail"}, {"payload", {{"card", "canary-payload"}}}};
      ASSERT_EQ(http_post(server_.http_port(), "/v1/jobs", job).status, 201);
    }
  }
  /// One that comes a second time, over HTTP.
  void write_late() const {
    const auto port = server_.http_port();
    enqueue("default", 1);
    HttpResponse claimed;
    ASSERT_TRUE(eventually([&] {
      claimed = http_post(port, "/v1/claim", {{"queue", "default"}, {"worker", "late"}});
      return claimed.status == 200 && !claimed.json().at("jobs").empty();
    }));
    const auto settle = [&](const std::string& outcome) {
      return http_post(
          port, "/v1/settle",
          {{"results", {{{"lease", claimed.json().at("jobs").at(0).at("lease")}, {"outcome", outcome}}}}});
    };
    ASSERT_EQ(settle("succeeded").status, 200);
    ASSERT_EQ(settle("buried").status, 409);
  }

  TestDatabase database_;
  Store store_;
  ServeProcess server_{database_.dsn(), {"--metrics-interval", "200ms", "--audit-interval", "1s"}};
};

TEST_F(PrometheusTest, it_sees_what_servers_and_workers_did_and_each_thing_once) {
  WorkerOptions on_database = worker_options("direct");
  on_database.database = database_.dsn();
  Worker direct{on_database};
  Worker remote = Worker::connect(server_.url(), worker_options("remote"));
  for (Worker* worker : {&direct, &remote}) {
    worker->handle("mail", [](Context&) { return Outcome::success("\"canary-result\""); });
    must(worker->start());
  }
  const PrometheusProcess prometheus{server_.http_port(), {direct.metrics_port(), remote.metrics_port()}};
  enqueue("direct", 5);
  enqueue("remote", 7);
  write_late();

  ASSERT_TRUE(prometheus.comes_to("count(up == 1)", 3));
  ASSERT_TRUE(prometheus.comes_to(R"(sum(faultline_jobs_enqueued_total{kind="mail"}))", 13));
  for (const auto& [queue, jobs, counted_by] :
       {std::tuple{"direct", 5, "faultline-worker"}, std::tuple{"remote", 7, "faultline-server"}}) {
    const std::string of = "{queue=\"" + std::string{queue} + "\"";
    EXPECT_TRUE(
        prometheus.comes_to("sum(faultline_jobs_settled_total" + of + ",outcome=\"succeeded\"})", jobs));
    EXPECT_TRUE(
        prometheus.comes_to("sum(faultline_jobs_settled_total" + of + ",job=\"" + counted_by + "\"})", jobs));
    ASSERT_TRUE(prometheus.comes_to("sum(faultline_lease_acquisitions_total" + of + "})", jobs));
    ASSERT_TRUE(prometheus.comes_to("sum(faultline_queue_wait_seconds_count" + of + "})", jobs));
    ASSERT_TRUE(prometheus.comes_to("sum(faultline_execution_seconds_count" + of + "})", jobs));
    ASSERT_TRUE(prometheus.comes_to("max(faultline_queue_jobs" + of + ",state=\"succeeded\"})", jobs));
  }
  ASSERT_TRUE(prometheus.comes_to("sum(faultline_stale_writes_blocked_total)", 1));
  ASSERT_TRUE(prometheus.comes_to(
      R"(faultline_stale_writes_blocked_total{verb="bury",reason="already_settled",job="faultline-server"})",
      1));
  ASSERT_TRUE(prometheus.comes_to("min(faultline_database_up)", 1));
  ASSERT_TRUE(prometheus.comes_to("min(faultline_worker_connected)", 1));
  ASSERT_TRUE(prometheus.comes_to("sum(faultline_watchdog_ticks_total) > bool 0", 1));
  ASSERT_TRUE(prometheus.comes_to("count(faultline_invariant_violations) > bool 10", 1));
  ASSERT_TRUE(prometheus.comes_to("sum(faultline_invariant_violations)", 0));
  ASSERT_TRUE(prometheus.comes_to("time() - max(faultline_audit_last_run_timestamp_seconds) < bool 600", 1));
  const std::string everything = prometheus.everything().dump();
  EXPECT_THAT(everything, HasSubstr("faultline_jobs_settled_total"));
  EXPECT_THAT(everything, Not(HasSubstr("canary")));

  EXPECT_TRUE(eventually([&] {
    const auto rules = prometheus.rules();
    if (!rules.is_object()) return false;
    const auto& all = rules.at("data").at("groups").at(0).at("rules");
    return std::ranges::all_of(all, [](const auto& rule) { return rule.value("health", "") == "ok"; });
  })) << prometheus.rules().dump();
}

TEST_F(PrometheusTest, a_broken_promise_and_an_old_snapshot_are_seen) {
  pg::Connection sql = database_.connect();
  pg::Connection reader = database_.connect();
  must(reader.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM faultline.queues",
                          soon()));
  const PrometheusProcess prometheus{server_.http_port(), {}};
  ASSERT_TRUE(prometheus.comes_to("sum(faultline_invariant_violations)", 0));
  ASSERT_TRUE(prometheus.comes_to("max(faultline_database_oldest_snapshot_age_seconds) > bool 0.5", 1));
  must(
      sql.exec_script("INSERT INTO faultline.tallies (bucket, queue, dead) VALUES (0, 'direct', 3)", soon()));
  EXPECT_TRUE(
      prometheus.comes_to(R"(faultline_invariant_violations{check="tallies_are_the_counts"} > bool 0)", 1));
  EXPECT_TRUE(
      prometheus.comes_to(R"(count(ALERTS{alertname="FaultlineInvariantViolated",alertstate="firing"}))", 1));
}

TEST(ServerMetricsTest, they_are_answered_while_the_database_is_away) {
  ServeProcess server{"postgresql://nobody@127.0.0.1:1/none", {"--metrics-interval", "200ms"}};
  server.wait_until_it_serves();
  std::string text;
  ASSERT_TRUE(eventually([&] {
    text = http_get(server.http_port(), "/metrics").body;
    return sample(text, "faultline_database_up") == 0;
  })) << text;
  EXPECT_EQ(lint(text), "");
  EXPECT_EQ(sample(text, "faultline_server_ready"), 0);
  EXPECT_EQ(sum_of(text, "faultline_queue_jobs"), 0);
  EXPECT_TRUE(eventually([&] {
    return sample(http_get(server.http_port(), "/metrics").body, "faultline_audit_errors_total") >= 1;
  }));
  EXPECT_EQ(server.terminate().exit_code, 0);
}

}  // namespace
}  // namespace faultline::testing

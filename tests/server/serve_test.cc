// `faultline serve` as people start and stop it.

#include <future>

#include "faultline/store.h"
#include "serve_process.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// The value of a metric without labels.
std::string metric_of(std::uint16_t port, const std::string& name,
                      const std::map<std::string, std::string>& headers) {
  const std::string text = "\n" + http(port, {.target = "/metrics", .headers = headers}).body;
  const std::size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 2;
  return text.substr(begin, text.find('\n', begin) - begin);
}

const nlohmann::json kJob = {{"kind", "greet"}, {"payload", {{"name", "world"}}}};

TEST(ServeTest, it_says_where_it_serves_and_that_it_can_be_reached_from_this_machine_only) {
  const TestDatabase database;
  ServeProcess server{database.dsn()};
  server.wait_until_ready();

  // It is said when it is so, and not before.
  EXPECT_TRUE(eventually([&] { return server.process().err().contains("from this machine only"); }));
  EXPECT_THAT(server.process().err(),
              AllOf(HasSubstr("http://127.0.0.1:" + std::to_string(server.http_port())),
                    HasSubstr("from this machine only, by everybody on it: no keys are asked for")));
}

TEST(ServeTest, it_ends_well_when_it_is_told_to_and_then_nobody_answers) {
  const TestDatabase database;
  ServeProcess server{database.dsn()};
  server.wait_until_ready();

  const ProcessResult result = server.terminate();

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("server_exit"));
  EXPECT_EQ(http_get(server.http_port(), "/health").status, 0);
}

TEST(ServeTest, without_a_database_it_serves_the_private_one_and_leaves_the_data_for_the_next_start) {
  const ScratchDir scratch;
  const std::vector<std::string> flags{"--data-dir", (scratch / "data").string()};
  // It runs until its last user ends: the server.
  const auto start_on_private = [&] {
    EXPECT_EQ(run_faultline({"pg", "start", flags[0], flags[1]}).exit_code, 0);
    auto server = std::make_unique<ServeProcess>("", flags);
    server->wait_until_ready();
    EXPECT_EQ(run_faultline({"pg", "stop", flags[0], flags[1]}).exit_code, 0);
    return server;
  };
  std::string id;
  {
    const auto serving = start_on_private();
    ServeProcess& server = *serving;
    const HttpResponse added = http_post(server.http_port(), "/v1/jobs", kJob);
    ASSERT_EQ(added.status, 201) << added.body;
    id = added.json().at("job_id");
    EXPECT_EQ(server.terminate().exit_code, 0);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "data" / "pgdata" / "postmaster.pid"));
  const auto serving = start_on_private();
  ServeProcess& server = *serving;

  const HttpResponse job = http_get(server.http_port(), "/v1/jobs/" + id);

  EXPECT_EQ(job.status, 200) << job.body;
  EXPECT_EQ(job.json().at("job").at("state"), "available");
  EXPECT_EQ(server.terminate().exit_code, 0);
}

TEST(ServeTest, a_wrong_setting_is_named_with_its_place_and_nothing_is_started) {
  const ProcessResult flag = run_faultline({"serve", "--http-body-max", "12q"});
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_THAT(flag.err, HasSubstr("http_body_max"));
  EXPECT_THAT(flag.err, HasSubstr("12q"));

  const ProcessResult variable = run_faultline({"serve"}, {{"FAULTLINE_WAITING_MAX", "many"}});
  EXPECT_EQ(variable.exit_code, 2);
  EXPECT_THAT(variable.err, HasSubstr("FAULTLINE_WAITING_MAX"));
}

TEST(ServeTest, it_does_not_listen_beyond_this_machine_without_keys_and_tls_unless_asked_to) {
  const ProcessResult open = run_faultline({"serve", "--listen", "0.0.0.0:0"});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.err, HasSubstr("allow_insecure"));

  const ProcessResult without_tls = run_faultline({"serve", "--listen", "0.0.0.0:0", "--auth", "keys"});
  EXPECT_EQ(without_tls.exit_code, 2) << without_tls.err;
  EXPECT_THAT(without_tls.err, HasSubstr("tls"));
}

TEST(ServeTest, a_port_that_is_taken_is_an_error_that_names_it) {
  const TestDatabase database;
  ServeProcess first{database.dsn()};
  first.wait_until_ready();
  const std::string taken = "127.0.0.1:" + std::to_string(first.http_port());

  const ProcessResult second =
      run_faultline({"serve", "--database", database.dsn(), "--listen", taken, "--grpc", "off"});

  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr(taken));
}

TEST(ServeTest, a_database_without_the_schema_is_not_ready_and_says_what_to_do) {
  const TestDatabase database{Template::empty};
  ServeProcess server{database.dsn()};
  server.wait_until_it_serves();
  ASSERT_TRUE(eventually([&] {
    return http_get(server.http_port(), "/ready").body.contains("faultline migrate");
  })) << http_get(server.http_port(), "/ready").body;
  EXPECT_EQ(http_get(server.http_port(), "/ready").status, 503);
  EXPECT_EQ(http_post(server.http_port(), "/v1/jobs", kJob).status, 503);

  ASSERT_EQ(run_faultline({"migrate", "--database", database.dsn()}).exit_code, 0);

  server.wait_until_ready();
  EXPECT_EQ(http_post(server.http_port(), "/v1/jobs", kJob).status, 201);
}

TEST(ServeTest, keys_are_asked_for_honoured_and_revoked_while_it_runs) {
  const TestDatabase database;
  ServeProcess server{database.dsn(), {"--auth", "keys"}};
  server.wait_until_ready();
  EXPECT_EQ(http_post(server.http_port(), "/v1/jobs", kJob).status, 401);

  const ProcessResult made = run_faultline(
      {"keys", "create", "--name", "shop", "--scope", "produce", "--json", "--database", database.dsn()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto key = one_object(made.out);
  const std::string secret = key.at("key").get<std::string>();
  const std::map<std::string, std::string> bearer{{"Authorization", "Bearer " + secret}};
  ASSERT_TRUE(eventually([&] {
    return http_post(server.http_port(), "/v1/jobs", kJob, bearer).status == 201;
  })) << http_post(server.http_port(), "/v1/jobs", kJob, bearer).body;
  EXPECT_EQ(http(server.http_port(), {.target = "/v1/queues", .headers = bearer}).status, 403);

  ASSERT_EQ(run_faultline({"keys", "revoke", key.at("id").get<std::string>(), "--database", database.dsn()})
                .exit_code,
            0);
  EXPECT_TRUE(
      eventually([&] { return http_post(server.http_port(), "/v1/jobs", kJob, bearer).status == 401; }));
  const ProcessResult result = server.terminate();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err + result.out, Not(HasSubstr(secret)));
}

TEST(ServeTest, who_watches_or_waits_for_jobs_is_told_that_the_key_was_revoked_and_gets_nothing_more) {
  const TestDatabase database;
  ServeProcess server{database.dsn(), {"--auth", "keys"}};
  server.wait_until_ready();
  const ProcessResult made = run_faultline({"keys", "create", "--name", "w", "--scope", "work", "--scope",
                                            "read", "--json", "--database", database.dsn()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const auto key = one_object(made.out);
  const std::map<std::string, std::string> bearer{
      {"Authorization", "Bearer " + key.at("key").get<std::string>()}};
  ASSERT_TRUE(eventually(
      [&] { return http(server.http_port(), {.target = "/v1/queues", .headers = bearer}).status == 200; }));
  auto watching = std::async(std::launch::async, [&] {
    return http(server.http_port(), {.target = "/v1/events", .headers = bearer});
  });
  auto claiming = std::async(std::launch::async, [&] {
    return http_post(server.http_port(), "/v1/claim",
                     {{"queue", "default"}, {"worker", "w"}, {"wait_ms", 30'000}}, bearer);
  });
  const auto consumers = [&] { return metric_of(server.http_port(), "faultline_server_consumers", bearer); };
  ASSERT_TRUE(eventually([&] { return consumers() == "1"; }));

  ASSERT_EQ(run_faultline({"keys", "revoke", key.at("id").get<std::string>(), "--database", database.dsn()})
                .exit_code,
            0);

  ASSERT_EQ(watching.wait_until(soon()), std::future_status::ready);
  EXPECT_THAT(watching.get().body, HasSubstr("event: ended\ndata: {\"code\":\"unauthenticated\""));
  EXPECT_EQ(claiming.get().status, 401);
  EXPECT_EQ(server.terminate().exit_code, 0);
}

TEST(ServeTest, callers_that_are_turned_away_leave_a_trace_and_every_answer_has_a_name) {
  const TestDatabase database;
  ServeProcess server{database.dsn(), {"--auth", "keys", "--access-log"}};
  server.wait_until_ready();
  const std::uint16_t port = server.http_port();
  const auto call = [&](const std::string& key, const std::string& id) {
    return http(port, {.target = "/v1/queues",
                       .headers = {{"Authorization", "Bearer " + key}, {"X-Request-Id", id}}});
  };
  const std::string made_up = "flk_0123456789ab_" + std::string(64, 'c');
  ASSERT_TRUE(eventually([&] { return call(made_up, "its-own.name:1").status == 401; }));

  EXPECT_EQ(call(made_up, "its-own.name:1").header("x-request-id"), "its-own.name:1");
  const std::string given = call(made_up, "a b\tc").header("x-request-id");
  EXPECT_EQ(given.size(), 36U) << given;
  EXPECT_FALSE(http_get(port, "/health").header("x-request-id").empty());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(call(made_up, "flood").status, 401);

  const std::string key = one_object(run_faultline({"keys", "create", "--name", "watcher", "--scope", "read",
                                                    "--json", "--database", database.dsn()})
                                         .out)
                              .at("key");
  ASSERT_TRUE(eventually([&] { return call(key, "good-one").status == 200; }));
  const HttpResponse metrics =
      http(port, {.target = "/metrics", .headers = {{"Authorization", "Bearer " + key}}});
  EXPECT_THAT(metrics.body,
              ContainsRegex("faultline_server_auth_refusals_total\\{reason=\"unknown\"\\} 1[0-9][0-9]"));
  EXPECT_THAT(metrics.body, HasSubstr("faultline_server_auth_refusals_total{reason=\"expired\"} 0"));
  EXPECT_TRUE(eventually([&] {
    return !one_object(run_faultline({"keys", "list", "--json", "--database", database.dsn()}).out)
                .at("keys")
                .at(0)
                .at("last_used_at")
                .is_null();
  }));
  const ProcessResult result = server.terminate();
  std::size_t refused = 0;
  bool named = false;
  bool answered = false;
  std::istringstream lines{result.err};
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    if (json.value("event", "") == "caller_refused") {
      ++refused;
      named = named ||
              (json.at("reason") == "unknown flk_0123456789ab" && json.at("request") == "its-own.name:1" &&
               json.at("peer").get<std::string>().starts_with("127.0.0.1:"));
    }
    if (json.value("event", "") == "call_answered" && json.value("request", "") == "good-one")
      answered = answered || (json.at("route") == "/v1/queues" && json.at("status") == "200" &&
                              json.at("key").get<std::string>().starts_with("watcher (flk_"));
  }
  EXPECT_TRUE(named) << result.err;
  EXPECT_TRUE(answered) << result.err;
  EXPECT_LT(refused, 100U) << "ten a second, at most";
  EXPECT_THAT(result.err + result.out, Not(HasSubstr(std::string(64, 'c'))));
}

TEST(ServeTest, neither_payloads_nor_results_nor_keys_are_in_logs_and_metrics) {
  const TestDatabase database;
  ServeProcess server{database.dsn(), {"--log-level", "debug"}};
  server.wait_until_ready();
  const std::string canary = "canary-7c1f3a";
  const std::uint16_t port = server.http_port();
  const std::map<std::string, std::string> bearer{{"Authorization", "Bearer " + canary}};
  const nlohmann::json job = {{"kind", "k"}, {"payload", {{"card", canary}}}};
  ASSERT_EQ(http_post(port, "/v1/jobs", job, bearer).status, 201);
  // What is refused is the more tempting thing to log.
  EXPECT_EQ(http(port, {.method = "POST", .target = "/v1/jobs", .body = "{\"payload\": \"" + canary}).status,
            415);
  EXPECT_EQ(http_post(port, "/v1/jobs", {{"kind", ""}, {"payload", canary}}).status, 422);
  const HttpResponse claimed = http_post(port, "/v1/claim", {{"queue", "default"}, {"worker", "w"}});
  ASSERT_EQ(claimed.status, 200) << claimed.body;
  const auto lease = claimed.json().at("jobs").at(0).at("lease");
  const nlohmann::json settle = {
      {"results", {{{"lease", lease}, {"outcome", "succeeded"}, {"result", canary}}}}};
  ASSERT_EQ(http_post(port, "/v1/settle", settle).status, 200);
  const nlohmann::json otherwise = {
      {"results", {{{"lease", lease}, {"outcome", "failed"}, {"error", canary}}}}};
  ASSERT_EQ(http_post(port, "/v1/settle", otherwise).status, 409);

  EXPECT_THAT(http_get(port, "/metrics").body, ContainsRegex("faultline_jobs_enqueued_total\\{.*\\} 1\n"));
  EXPECT_THAT(http_get(port, "/metrics").body, Not(HasSubstr(canary)));
  const ProcessResult result = server.terminate();
  EXPECT_THAT(result.err + result.out, Not(HasSubstr(canary)));
}

}  // namespace
}  // namespace faultline::testing

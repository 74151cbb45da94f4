#include "fixture.h"

namespace faultline::testing {
namespace {

class HttpWork : public HttpTest {
 protected:
  [[nodiscard]] Reply settle(const Json& lease, const std::string& outcome,
                             Json more = Json::object()) const {
    more["lease"] = lease;
    more["outcome"] = outcome;
    return post("/v1/settle", Json{{"results", {more}}});
  }
  [[nodiscard]] std::string state_of(const std::string& id) const {
    return get("/v1/jobs/" + id).json()["job"]["state"];
  }
};

TEST_F(HttpWork, a_script_claims_works_and_settles) {
  const std::string id = add({{"kind", "k"}, {"payload", {{"n", 1}}}, {"tags", {"t"}}});
  const Json job = claim("script");
  EXPECT_EQ(job["lease"]["job_id"], id);
  EXPECT_EQ(job["lease"]["worker"], "script");
  EXPECT_EQ(job["payload"], (Json{{"n", 1}}));
  EXPECT_EQ(job["attempt"], 1);
  const Reply beat = post("/v1/heartbeat", Json{{"leases", {job["lease"]}}, {"extend_ms", 60'000}});
  ASSERT_EQ(beat.status, 200) << beat.body;
  EXPECT_EQ(beat.json()["beats"][0]["status"], "renewed");
  const Reply progress = post(
      "/v1/progress", Json{{"reports", {{{"lease", job["lease"]}, {"fraction", 0.5}, {"note", "half"}}}}});
  EXPECT_EQ(progress.json()["verdicts"][0]["status"], "committed") << progress.body;
  EXPECT_EQ(post("/v1/check", Json{{"leases", {job["lease"]}}}).json()["verdicts"][0]["status"], "committed");
  const Reply settled = settle(job["lease"], "succeeded", {{"result", {{"answer", 42}}}});
  ASSERT_EQ(settled.status, 200) << settled.body;
  EXPECT_EQ(settled.json()["verdicts"][0]["status"], "committed");
  const Json history = get("/v1/jobs/" + id).json();
  EXPECT_EQ(history["job"]["state"], "succeeded");
  EXPECT_EQ(history["job"]["result"], (Json{{"answer", 42}}));
  EXPECT_EQ(history["attempts"][0]["outcome"], "succeeded");
  const Reply resolved = post("/v1/resolve", Json{{"leases", {job["lease"]}}});
  EXPECT_EQ(resolved.json()["resolved"][0]["committed"], true) << resolved.body;
  EXPECT_EQ(resolved.json()["resolved"][0]["outcome"], "succeeded");
}

TEST_F(HttpWork, every_outcome_can_be_reported) {
  const auto outcome = [&](const std::string& kind, const Json& more) {
    make_queue(kind);
    const std::string id = add({{"kind", "k"}, {"queue", kind}});
    const Reply reply = settle(claim("w", kind)["lease"], kind, more);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return state_of(id);
  };
  EXPECT_EQ(outcome("failed", {{"error", "e"}, {"delay_ms", 60'000}}), "scheduled");
  EXPECT_EQ(outcome("buried", {{"error", "e"}}), "dead");
  EXPECT_EQ(outcome("snoozed", {{"delay_ms", 60'000}}), "scheduled");
  EXPECT_EQ(outcome("released", Json::object()), "available");
  EXPECT_EQ(outcome("cancelled", {{"error", "e"}}), "cancelled");
  EXPECT_EQ(outcome("succeeded", {{"result_base64", "bm90IEpTT04="}}), "succeeded");
}

TEST_F(HttpWork, a_job_that_will_not_run_by_itself_has_no_moment_to_run_at) {
  const std::string id = add();
  EXPECT_TRUE(get("/v1/jobs/" + id).json()["job"]["run_at"].is_string());
  EXPECT_EQ(settle(claim("w")["lease"], "buried", {{"error", "e"}}).status, 200);

  const Json job = get("/v1/jobs/" + id).json()["job"];

  EXPECT_EQ(job["state"], "dead");
  ASSERT_TRUE(job.contains("run_at"));
  EXPECT_TRUE(job["run_at"].is_null()) << job["run_at"];
  EXPECT_TRUE(get("/v1/jobs?state=dead").json()["jobs"].at(0).at("run_at").is_null());
}

TEST_F(HttpWork, a_stale_settle_is_a_conflict_with_the_reason_and_both_tokens) {
  const std::string id = add();
  const Json first = claim("slow")["lease"];
  EXPECT_EQ(settle(first, "released").status, 200);
  const Json second = claim("quick")["lease"];
  const Reply stale = settle(first, "succeeded");
  ASSERT_EQ(stale.status, 409) << stale.body;
  EXPECT_EQ(stale.header("content-type"), "application/problem+json");
  const Json problem = stale.json();
  EXPECT_EQ(problem["code"], "stale");
  EXPECT_EQ(problem["reason"], "token_mismatch");
  EXPECT_EQ(problem["token"], first["token"]);
  EXPECT_EQ(problem["current_token"], second["token"]);
  EXPECT_EQ(problem["verdicts"][0]["stale"]["current_worker"], "quick");
  EXPECT_EQ(state_of(id), "running") << "nothing has changed";
  EXPECT_EQ(get("/v1/jobs/" + id).json()["stale_writes"].size(), 1U);
  EXPECT_EQ(get("/v1/stale?limit=5").json()["stale_writes"][0]["job_id"], id);
  EXPECT_EQ(get("/v1/stale?queue=x").status, 422);

  static_cast<void>(add());
  const Json third = claim()["lease"];
  const Reply mixed = post(
      "/v1/settle",
      Json{{"results",
            {{{"lease", first}, {"outcome", "succeeded"}}, {{"lease", third}, {"outcome", "succeeded"}}}}});
  EXPECT_EQ(mixed.status, 200) << mixed.body;
  EXPECT_EQ(mixed.json()["verdicts"][0]["status"], "stale");
  EXPECT_EQ(mixed.json()["verdicts"][1]["status"], "committed");
  EXPECT_FALSE(mixed.json()["verdicts"][1].contains("repeated"));
  const Reply again = settle(third, "succeeded");
  EXPECT_EQ(again.status, 200) << "what was committed is answered as committed";
  EXPECT_EQ(again.json()["verdicts"][0]["repeated"], true);
}

TEST_F(HttpWork, a_lost_lease_is_told_by_the_heartbeat) {
  static_cast<void>(add());
  const Json lease = claim()["lease"];
  EXPECT_EQ(settle(lease, "succeeded").status, 200);
  const Json beat = post("/v1/heartbeat", Json{{"leases", {lease}}}).json()["beats"][0];
  EXPECT_EQ(beat["status"], "lost");
  EXPECT_EQ(beat["stale"]["reason"], "already_settled");
}

TEST_F(HttpWork, an_effect_is_told_to_the_call_that_announced_it_again_and_to_no_other) {
  static_cast<void>(add());
  const Json lease = claim()["lease"];
  const auto keys = [&](const std::string& call) {
    return Json{{"keys", {{{"lease", lease}, {"key", "mail"}, {"call_id", call}}}}};
  };
  const std::string mine = Uuid::random().to_string();
  const std::string other = Uuid::random().to_string();

  EXPECT_EQ(post("/v1/effects/begin", keys(mine)).json()["effects"][0]["status"], "begun");
  EXPECT_EQ(post("/v1/effects/begin", keys(mine)).json()["effects"][0]["status"], "begun");
  EXPECT_EQ(post("/v1/effects/begin", keys(other)).json()["effects"][0]["status"], "unknown");
  EXPECT_EQ(post("/v1/effects/forget", keys(other)).status, 200);
  EXPECT_EQ(post("/v1/effects/begin", keys(other)).json()["effects"][0]["status"], "unknown");
  EXPECT_EQ(post("/v1/effects/forget", keys(mine)).status, 200);
  EXPECT_EQ(post("/v1/effects/begin", keys(other)).json()["effects"][0]["status"], "begun");
  const Reply bad = post("/v1/effects/begin", keys("x"));
  EXPECT_EQ(bad.status, 422);
  EXPECT_THAT(bad.body, ::testing::HasSubstr("keys[0].call_id"));
}

TEST_F(HttpWork, effects_are_begun_recorded_and_forgotten) {
  static_cast<void>(add());
  const Json lease = claim()["lease"];
  const Json keys{{"keys", {{{"lease", lease}, {"key", "mail"}}}}};
  EXPECT_EQ(post("/v1/effects/begin", keys).json()["effects"][0]["status"], "begun");
  EXPECT_EQ(post("/v1/effects/forget", keys).json()["verdicts"][0]["status"], "committed");
  EXPECT_EQ(post("/v1/effects/begin", keys).json()["effects"][0]["status"], "begun");
  const Reply recorded =
      post("/v1/effects/record",
           Json{{"results", {{{"lease", lease}, {"key", "mail"}, {"result", {{"id", 7}}}}}}});
  ASSERT_EQ(recorded.status, 200) << recorded.body;
  const Json again = post("/v1/effects/begin", keys).json()["effects"][0];
  EXPECT_EQ(again["status"], "recorded");
  EXPECT_EQ(again["result"], (Json{{"id", 7}}));
}

TEST_F(HttpWork, bad_calls_are_refused) {
  EXPECT_EQ(post("/v1/claim", R"({"queue":"default"})").status, 422) << "a worker has a name";
  EXPECT_EQ(post("/v1/claim", R"({"worker":"w","limit":0})").status, 422);
  EXPECT_EQ(post("/v1/claim", R"({"worker":"w","wait_ms":30001})").status, 422);
  EXPECT_EQ(post("/v1/claim", R"({"worker":"","wait_ms":0})").status, 422);
  for (const char* path : {"/v1/heartbeat", "/v1/settle", "/v1/progress", "/v1/check", "/v1/resolve",
                           "/v1/effects/begin", "/v1/effects/record", "/v1/effects/forget"}) {
    EXPECT_EQ(post(path, "{}").status, 422) << path;
    EXPECT_EQ(post(path, "{").status, 400) << path;
  }
  const Reply lease = post("/v1/check", R"({"leases":[{"job_id":"x"}]})");
  EXPECT_EQ(lease.status, 422);
  EXPECT_NE(lease.body.find("leases[0].job_id"), std::string::npos) << lease.body;
}

TEST_F(HttpWork, a_claim_waits_for_a_job_that_comes_later) {
  RawClient waiting = connect();
  const std::string body = R"({"worker":"w","wait_ms":30000})";
  waiting.send("POST /v1/claim HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(eventually([&] { return service_->counters().consumers == 1; }));
  const std::string id = add();
  const auto reply = waiting.read_reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->json()["jobs"][0]["lease"]["job_id"], id);
  EXPECT_TRUE(eventually([&] { return service_->counters().consumers == 0; }));
}

TEST_F(HttpWork, a_claim_that_finds_nothing_is_empty) {
  const Reply reply = post("/v1/claim", R"({"worker":"w","wait_ms":300})");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.json(), Json::parse(R"({"jobs":[]})"));
}

TEST_F(HttpWork, a_worker_that_went_away_while_it_waited_gets_no_job) {
  start_server({.threads = 1});
  RawClient waiting = connect();
  const std::string body = R"({"worker":"gone","wait_ms":30000})";
  waiting.send("POST /v1/claim HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(eventually([&] { return service_->counters().consumers == 1; }));
  waiting.close();
  // Another poll of the same thread that begins now and ends long before the first one would have.
  EXPECT_TRUE(post("/v1/claim", R"({"worker":"other","wait_ms":500})").json()["jobs"].empty());
  EXPECT_EQ(service_->counters().consumers, 0U) << "it still waits";
  const std::string id = add();
  EXPECT_EQ(claim("other")["lease"]["job_id"], id);
}

/// An answer that could not be written may have arrived all the same.
class HttpCutClaim : public HttpWork, public ::testing::WithParamInterface<Delivery> {};

TEST_P(HttpCutClaim, a_job_whose_answer_was_cut_is_given_to_others_only_if_it_may_run_twice) {
  // More than sockets hold.
  const NewJob large{.kind = "k",
                     .payload = std::string(1'000'000, 'x'),
                     .encoding = Encoding::bytes,
                     .delivery = GetParam()};
  Store looking = store();
  const auto added = must(looking.enqueue(std::vector<NewJob>(8, large)));
  RawClient cut = connect();
  cut.shrink_receive_buffer();
  const std::string body = R"({"worker":"cut","limit":8})";
  cut.send("POST /v1/claim HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(cut.read_until("\r\n\r\n"));  // the answer is being written

  cut.close();

  ASSERT_TRUE(eventually([&] { return server_->counters().connections == 0; }));
  service_->stop();  // which writes down what was released
  const JobState expected = may_run_twice(GetParam()) ? JobState::available : JobState::running;
  for (const Submission& each : added) EXPECT_EQ(must(looking.job(each.job))->state, expected);
}

INSTANTIATE_TEST_SUITE_P(, HttpCutClaim,
                         ::testing::Values(Delivery::at_least_once, Delivery::at_most_once, Delivery::hold),
                         [](const auto& info) { return std::string{to_string(info.param)}; });

TEST_F(HttpWork, a_request_behind_a_waiting_claim_is_answered_after_it) {
  RawClient client = connect();
  const std::string body = R"({"worker":"w","wait_ms":30000})";
  client.send("POST /v1/claim HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body + "GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return service_->counters().consumers == 1; }));
  client.send("GET /ready HTTP/1.1\r\nHost: t\r\n\r\n");
  static_cast<void>(add());
  EXPECT_EQ(client.read_reply()->json()["jobs"].size(), 1U);
  EXPECT_EQ(client.read_reply()->json()["status"], "ok");
  EXPECT_EQ(client.read_reply()->json()["ready"], true);
}

}  // namespace
}  // namespace faultline::testing

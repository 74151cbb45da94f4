#include <algorithm>
#include <set>

#include "codec/encode.h"
#include "fixture.h"
#include "pg/wire_proxy.h"
#include "store/unreachable.h"
#include "support/every_option.h"

namespace faultline::testing {
namespace {

class HttpJobs : public HttpTest {};

constexpr std::string_view kNobody = "019b0000-0000-7000-8000-000000000000";

TEST_F(HttpJobs, a_new_job_is_answered_with_its_address) {
  const Reply reply = post("/v1/jobs", R"({"kind":"greet","payload":{"name": "Ada",  "n":1.50}})");
  ASSERT_EQ(reply.status, 201) << reply.body;
  EXPECT_EQ(reply.json().at("status"), "created");
  const std::string id = reply.json().at("job_id");
  EXPECT_EQ(reply.header("location"), "/v1/jobs/" + id);

  const Reply job = get("/v1/jobs/" + id);
  ASSERT_EQ(job.status, 200) << job.body;
  EXPECT_EQ(job.header("content-type"), "application/json");
  EXPECT_EQ(job.json()["job"]["state"], "available");
  EXPECT_NE(job.body.find(R"("payload":{"name": "Ada",  "n":1.50})"), std::string::npos) << "kept as it came";
  EXPECT_TRUE(job.json()["attempts"].empty());
}

TEST_F(HttpJobs, the_same_key_is_the_same_job) {
  const std::string body = R"({"kind":"k","payload":[1]})";
  const Reply first = post("/v1/jobs", body, "Idempotency-Key: one\r\n");
  EXPECT_EQ(first.status, 201);
  const Reply again = post("/v1/jobs", R"({"kind":"k","payload":[1],"idempotency_key":"one"})");
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(again.json()["job_id"], first.json()["job_id"]);
  EXPECT_EQ(again.json()["status"], "existing");
  const Reply other = post("/v1/jobs", R"({"kind":"k","payload":[2],"idempotency_key":"one"})");
  EXPECT_EQ(other.status, 409);
  EXPECT_EQ(other.code(), "conflict");
  EXPECT_EQ(other.header("content-type"), "application/problem+json");
  EXPECT_EQ(other.json()["job_id"], first.json()["job_id"]);
  EXPECT_EQ(post("/v1/jobs", R"({"kind":"k","idempotency_key":"two"})", "Idempotency-Key: one\r\n").status,
            422);
  EXPECT_EQ(post("/v1/jobs", "[" + body + "]", "Idempotency-Key: one\r\n").status, 422);
}

TEST_F(HttpJobs, the_same_json_in_another_spelling_is_the_same_job) {
  const Reply first = post("/v1/jobs", R"({"kind":"k","payload":{"a":1,"b":"é"},"idempotency_key":"one"})");
  const Reply again =
      post("/v1/jobs", R"({"kind": "k", "payload": {"b": "\u00e9", "a": 1}, "idempotency_key": "one"})");
  EXPECT_EQ(again.status, 200) << again.body;
  EXPECT_EQ(again.json()["job_id"], first.json()["job_id"]);
}

TEST_F(HttpJobs, an_unknown_outcome_is_worth_sending_again_where_that_does_no_harm) {
  WireProxy proxy{database_.dsn()};
  stop();
  service_ =
      service::Service::start({.database = proxy.dsn(), .call_timeout = ms{500}, .log = lines_.sink()});
  start_server();
  const auto unknown = [&](const std::string& target, const std::string& body) {
    Reply reply;
    // A look of the server's own may be cut off instead.
    EXPECT_TRUE(eventually([&] {
      // It needs a connection that is open.
      if (post("/v1/jobs", R"({"kind":"known"})").status != 201) return false;
      const Unreachable unreachable{proxy};
      proxy.cut_after('S');
      reply = post(target, body);
      return reply.code() == "outcome_unknown";
    })) << reply.body;
    return reply;
  };

  const Reply with_key = unknown("/v1/jobs", R"({"kind":"k","idempotency_key":"one"})");
  EXPECT_EQ(with_key.status, 503);
  EXPECT_EQ(with_key.header("retry-after"), "1");
  EXPECT_THAT(with_key.json()["hint"].get<std::string>(), ::testing::HasSubstr("idempotency key"));
  const Reply without = unknown("/v1/jobs", R"([{"kind":"k","idempotency_key":"two"},{"kind":"other"}])");
  EXPECT_EQ(without.status, 500);
  EXPECT_EQ(without.header("retry-after"), "");
  EXPECT_THAT(without.json()["hint"].get<std::string>(), ::testing::HasSubstr("look before you repeat it"));

  EXPECT_TRUE(eventually([&] {
    const int status = post("/v1/jobs", R"({"kind":"k","idempotency_key":"one"})").status;
    return status == 200 || status == 201;
  }));
  Store store = this->store();
  EXPECT_EQ(must(store.list({.kind = "k"})).jobs.size(), 2U) << "one of each key";
}

TEST_F(HttpJobs, an_empty_key_is_no_key_that_was_meant) {
  for (const std::string header : {"Idempotency-Key:\r\n", "Idempotency-Key:  \r\n"}) {
    const Reply reply = post("/v1/jobs", R"({"kind":"k"})", header);
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_THAT(reply.body, ::testing::HasSubstr("Idempotency-Key is empty"));
  }
  EXPECT_EQ(get("/v1/jobs").json()["jobs"].size(), 0U);
}

TEST_F(HttpJobs, a_batch_has_one_answer_per_job) {
  const Reply array = post("/v1/jobs", R"([{"kind":"a","idempotency_key":"x"},{"kind":"b"}])");
  ASSERT_EQ(array.status, 201) << array.body;
  ASSERT_EQ(array.json()["submissions"].size(), 2U);
  const Reply lines = post(
      "/v1/jobs", "{\"kind\":\"a\",\"idempotency_key\":\"x\"}\n{\"kind\":\"c\",\"idempotency_key\":\"x\"}\n",
      "Content-Type: application/x-ndjson\r\n");
  ASSERT_EQ(lines.status, 207) << "one was not added, and whoever looks at the status alone knows it\n"
                               << lines.body;
  EXPECT_EQ(lines.json()["submissions"][0]["status"], "existing");
  EXPECT_EQ(lines.json()["submissions"][1]["status"], "conflict");
  const Reply mixed = post("/v1/jobs", R"([{"kind":"new"},{"kind":"c","idempotency_key":"x"}])");
  EXPECT_EQ(mixed.status, 207) << mixed.body;
  EXPECT_EQ(mixed.json()["submissions"][0]["status"], "created");
  EXPECT_EQ(post("/v1/jobs", "{\"kind\":\"a\"}\n{\"kind\":\"b\"}\n",
                 "Content-Type: Application/X-NDJSON ; charset=utf-8\r\n")
                .status,
            201)
      << "a media type is the same in capitals";
  EXPECT_EQ(post("/v1/jobs", "[]").status, 200);
  EXPECT_EQ(post("/v1/jobs", R"([{"kind":"a"},{"kind":"b","queue":"nowhere"}])").status, 404);
}

TEST_F(HttpJobs, what_is_wrong_is_refused_as_a_whole) {
  EXPECT_EQ(post("/v1/jobs", R"({"kind":)").status, 400);
  const Reply wrong = post("/v1/jobs", R"([{"kind":"a"},{"kind":"b","priority":"high"}])");
  EXPECT_EQ(wrong.status, 422);
  EXPECT_EQ(wrong.code(), "invalid");
  EXPECT_NE(wrong.json()["detail"].get<std::string>().find("[1].priority"), std::string::npos) << wrong.body;
  EXPECT_EQ(post("/v1/jobs", R"({"kind":"a","priority":17})").status, 422) << "the service's own bounds";
  EXPECT_EQ(post("/v1/jobs", R"({"kind":"a"})", "Content-Type: text/plain\r\n").status, 415);
  EXPECT_EQ(post("/v1/jobs", R"({"kind":"a"})", "Content-Encoding: gzip\r\n").status, 415);
  const std::string large =
      R"({"kind":"a","payload":")" + std::string(service_->options().payload_bytes_max, 'x') + "\"}";
  const Reply too_large = post("/v1/jobs", large);
  EXPECT_EQ(too_large.status, 413) << too_large.body;
  EXPECT_EQ(too_large.code(), "too_large");
  std::string many = "[";
  for (std::size_t i = 0; i <= service_->options().batch_max; ++i) many += R"({"kind":"a"},)";
  many.back() = ']';
  EXPECT_EQ(post("/v1/jobs", many).status, 413);
  std::string deep = R"({"kind":"a","payload":)" + std::string(1'000, '[') + std::string(1'000, ']') + "}";
  EXPECT_EQ(post("/v1/jobs", deep).status, 400);
  deep = R"({"kind":"a","payload":)" + std::string(129, '[') + std::string(129, ']') + "}";
  EXPECT_GE(post("/v1/jobs", deep).status, 400) << "the payload's own depth";
  EXPECT_EQ(get("/v1/jobs").json()["jobs"].size(), 0U) << "nothing of all that was added";
}

TEST_F(HttpJobs, bytes_come_back_as_base64) {
  const std::string id = add({{"kind", "k"}, {"payload_base64", "AP8="}});
  EXPECT_EQ(get("/v1/jobs/" + id).json()["job"]["payload_base64"], "AP8=");
}

TEST_F(HttpJobs, a_listing_goes_page_by_page) {
  make_queue("pages");
  std::set<std::string> added;
  for (int i = 0; i < 5; ++i) added.insert(add({{"kind", "k"}, {"queue", "pages"}}));
  static_cast<void>(add({{"kind", "other"}}));
  std::set<std::string> listed;
  std::string target = "/v1/jobs?queue=pages&state=available&kind=k&limit=2";
  std::string next = target;
  int pages = 0;
  while (!next.empty() && pages < 10) {
    const Reply page = get(next);
    ASSERT_EQ(page.status, 200) << page.body;
    const Json body = page.json();
    for (const Json& job : body["jobs"]) listed.insert(job["id"].get<std::string>());
    EXPECT_EQ(body["looked_at"], 5);
    const std::string cursor = body.value("next_cursor", "");
    next = cursor.empty() ? "" : target + "&cursor=" + cursor;
    ++pages;
  }
  EXPECT_EQ(listed, added);
  EXPECT_GE(pages, 3);
  for (const char* bad :
       {"?limit=0", "?limit=1001", "?limit=x", "?state=lost", "?qeue=a", "?queue=a&queue=b"}) {
    EXPECT_EQ(get(std::string{"/v1/jobs"} + bad).status, 422) << bad;
  }
  EXPECT_EQ(get("/v1/jobs?queue=%zz").status, 400);
  const int status = get("/v1/jobs?cursor=nonsense").status;
  EXPECT_TRUE(status == 400 || status == 422) << status;
}

TEST_F(HttpJobs, jobs_are_cancelled_and_requeued) {
  const std::string id = add();
  const Reply cancelled = post("/v1/jobs/" + id + "/cancel", R"({"reason":"not wanted"})");
  ASSERT_EQ(cancelled.status, 200) << cancelled.body;
  EXPECT_EQ(cancelled.json()["status"], "cancelled");
  EXPECT_EQ(cancelled.json()["job_id"], id);
  const Reply finished = post("/v1/jobs/" + id + "/cancel", "");
  EXPECT_EQ(finished.status, 409) << finished.body;
  EXPECT_EQ(finished.json()["state"], "cancelled");
  EXPECT_EQ(finished.json()["job_id"], id);
  EXPECT_EQ(get("/v1/jobs/" + id).json()["job"]["state"], "cancelled");
  EXPECT_EQ(post("/v1/jobs/" + id + "/requeue", "").json()["status"], "requeued");
  const Reply live = post("/v1/jobs/" + id + "/requeue", "{}");
  EXPECT_EQ(live.status, 409) << live.body;
  EXPECT_EQ(live.json()["state"], "available");
  EXPECT_EQ(post("/v1/jobs/" + id + "/requeue", R"({"a":1})").status, 422);
  EXPECT_EQ(post("/v1/jobs/" + id + "/cancel", R"({"raison":""})").status, 422);
  EXPECT_EQ(post("/v1/jobs/" + std::string{kNobody} + "/cancel", "").status, 404);
  EXPECT_EQ(post("/v1/jobs/" + std::string{kNobody} + "/requeue", "").status, 404);
  EXPECT_EQ(get("/v1/jobs/" + std::string{kNobody}).status, 404);
  EXPECT_EQ(get("/v1/jobs/nonsense").code(), "not_found");
}

TEST_F(HttpJobs, a_job_keeps_every_option) {
  make_queue("every_option");
  const NewJob job = job_with_every_option();

  const std::string id = add(Json::parse(codec::to_json(job)));

  EXPECT_EQ(differences(job, get("/v1/jobs/" + id).json()["job"].dump()), "");
  EXPECT_EQ(differences(job, must(store().job(JobId{Uuid::parse(id).value()})).value()), "");
  const Json schema = get("/openapi.json").json()["components"]["schemas"]["NewJob"]["properties"];
  const Json sent = Json::parse(codec::to_json(job));
  for (const auto& [name, value] : sent.items()) EXPECT_TRUE(schema.contains(name)) << name;
}

TEST_F(HttpJobs, what_is_sent_again_under_its_call_id_is_answered_the_same) {
  const std::string id = add();
  const auto twice = [&](const std::string& verb, Json body) {
    body["call_id"] = Uuid::random().to_string();
    const Reply first = post("/v1/jobs/" + id + "/" + verb, body);
    EXPECT_EQ(first.status, 200) << first.body;
    EXPECT_EQ(post("/v1/jobs/" + id + "/" + verb, body).body, first.body);
    body["ids"] = {id};
    EXPECT_EQ(post("/v1/jobs/" + verb, body).json()["items"][0]["status"], first.json()["status"]);
    return first.json()["status"];
  };

  EXPECT_EQ(twice("cancel", {{"reason", "not wanted"}}), "cancelled");
  EXPECT_EQ(twice("requeue", Json::object()), "requeued");
  const Json lease = claim()["lease"];
  const Json buried{{"results", {{{"lease", lease}, {"outcome", "buried"}, {"error", "e"}}}}};
  EXPECT_EQ(post("/v1/settle", buried).status, 200);
  EXPECT_EQ(twice("purge", Json::object()), "purged");

  EXPECT_EQ(get("/v1/jobs/" + id).json()["attempts"].size(), 4U) << "each act once";
  for (const std::string verb : {"cancel", "requeue", "purge"}) {
    for (const std::string bad : {"x", "00000000-0000-0000-0000-000000000000"}) {
      const Reply refused = post("/v1/jobs/" + id + "/" + verb, Json{{"call_id", bad}});
      EXPECT_EQ(refused.status, 422) << refused.body;
      EXPECT_THAT(refused.body, ::testing::HasSubstr("call_id"));
    }
  }
}

TEST_F(HttpJobs, dead_jobs_are_purged_and_no_others) {
  const std::string dead = add();
  const Json lease =
      post("/v1/claim", Json{{"worker", "w"}, {"wait_ms", 30'000}}).json()["jobs"].at(0)["lease"];
  ASSERT_EQ(post("/v1/settle", Json{{"results", {{{"lease", lease}, {"outcome", "buried"}, {"error", "e"}}}}})
                .status,
            200);
  const std::string waiting = add();

  const Reply not_dead = post("/v1/jobs/" + waiting + "/purge", "");
  EXPECT_EQ(not_dead.status, 409) << not_dead.body;
  EXPECT_EQ(not_dead.json()["state"], "available");
  EXPECT_EQ(post("/v1/jobs/" + std::string{kNobody} + "/purge", "").status, 404);
  EXPECT_EQ(post("/v1/jobs/purge", R"({"filter":{"queue":"default","state":"available"}})").status, 422);
  EXPECT_EQ(post("/v1/jobs/purge", R"({"filter":{"queue":"default"},"dry_run":true})").json()["matched"], 1);
  const Reply purged = post("/v1/jobs/purge", Json{{"ids", {dead, waiting}}});
  ASSERT_EQ(purged.status, 200) << purged.body;
  EXPECT_EQ(purged.json()["items"][0]["status"], "purged");
  EXPECT_EQ(purged.json()["items"][1]["status"], "not_dead");
  EXPECT_EQ(get("/v1/jobs/" + dead).json()["attempts"].back()["outcome"], "purged");
}

TEST_F(HttpJobs, many_jobs_are_changed_by_id_or_by_filter) {
  make_queue("bulk");
  const std::string a = add({{"kind", "k"}, {"queue", "bulk"}});
  const std::string b = add({{"kind", "k"}, {"queue", "bulk"}});
  const Reply counted = post("/v1/jobs/cancel", R"({"filter":{"queue":"bulk"},"dry_run":true})");
  ASSERT_EQ(counted.status, 200) << counted.body;
  EXPECT_EQ(counted.json()["matched"], 2);
  EXPECT_EQ(counted.json()["changed"], 0);
  const Reply by_id = post("/v1/jobs/cancel", Json{{"ids", {a, kNobody}}, {"reason", "r"}});
  EXPECT_EQ(by_id.json()["items"][0]["status"], "cancelled") << by_id.body;
  EXPECT_EQ(by_id.json()["items"][1]["status"], "not_found");
  const Reply by_filter = post("/v1/jobs/cancel", R"({"filter":{"queue":"bulk","state":"available"}})");
  EXPECT_EQ(by_filter.json()["changed"], 1) << by_filter.body;
  EXPECT_EQ(get("/v1/jobs/" + b).json()["job"]["state"], "cancelled");
  const Reply requeued = post("/v1/jobs/requeue", Json{{"ids", {a, b}}});
  EXPECT_EQ(requeued.json()["items"][1]["status"], "requeued") << requeued.body;
  EXPECT_EQ(post("/v1/jobs/requeue", "{}").status, 422);
}

TEST_F(HttpJobs, queues_are_shown_and_changed) {
  make_queue("mail");
  static_cast<void>(add({{"kind", "k"}, {"queue", "mail"}}));
  const Reply changed =
      connect().request("PATCH", "/v1/queues/mail",
                        R"({"paused":true,"running_max":3,"lease_ttl_ms":5000,"retention_ms":1000})");
  ASSERT_EQ(changed.status, 200) << changed.body;
  EXPECT_EQ(changed.json()["name"], "mail");
  EXPECT_EQ(changed.json()["paused"], true);
  EXPECT_EQ(changed.json()["running_max"], 3);
  const Reply uncapped =
      connect().request("PATCH", "/v1/queues/mail", R"({"running_max":null,"paused":false})");
  EXPECT_FALSE(uncapped.json().contains("running_max")) << uncapped.body;
  EXPECT_EQ(connect().request("PATCH", "/v1/queues/mail", R"({"lease_ttl_ms":1})").status, 422);
  EXPECT_EQ(connect().request("PUT", "/v1/queues/a%20b", R"({"paused":false})").json()["name"], "a b");
  const Reply queues = get("/v1/queues");
  ASSERT_EQ(queues.status, 200);
  const Json json = queues.json();
  const auto mail =
      std::ranges::find_if(json["queues"], [](const Json& queue) { return queue["name"] == "mail"; });
  ASSERT_NE(mail, json["queues"].end()) << queues.body;
  EXPECT_EQ((*mail)["available"], 1);
  EXPECT_EQ((*mail)["lease_ttl_ms"], 5'000);
}

TEST_F(HttpJobs, a_mistyped_name_makes_no_queue_and_a_put_does) {
  const Reply mistyped = connect().request("PATCH", "/v1/queues/mial", R"({"paused":true})");
  EXPECT_EQ(mistyped.status, 404) << mistyped.body;
  EXPECT_THAT(mistyped.body, ::testing::HasSubstr("mial"));
  EXPECT_EQ(connect().request("PUT", "/v1/queues/mail", R"({"attempts_max":3})").json()["attempts_max"], 3);
  EXPECT_EQ(connect().request("PUT", "/v1/queues/mail", R"({"paused":true})").json()["attempts_max"], 3);
  EXPECT_EQ(connect().request("PATCH", "/v1/queues/mail", R"({"paused":false})").json()["paused"], false);
}

TEST_F(HttpJobs, a_queue_is_deleted_once_it_has_no_live_jobs) {
  make_queue("mail");
  const std::string id = add({{"kind", "k"}, {"queue", "mail"}});
  const Reply refused = connect().request("DELETE", "/v1/queues/mail");
  EXPECT_EQ(refused.status, 409) << refused.body;
  EXPECT_THAT(refused.body, ::testing::HasSubstr("1 live job"));
  EXPECT_EQ(post("/v1/jobs/" + id + "/cancel", "").json()["status"], "cancelled");

  EXPECT_EQ(connect().request("DELETE", "/v1/queues/mail").json()["status"], "deleted");

  EXPECT_THAT(get("/v1/queues").body, ::testing::Not(::testing::HasSubstr("mail")));
  EXPECT_EQ(post("/v1/jobs", R"({"kind":"k","queue":"mail"})").status, 404);
  EXPECT_EQ(get("/v1/jobs/" + id).json()["job"]["state"], "cancelled") << "what has ended is kept";
  EXPECT_EQ(connect().request("DELETE", "/v1/queues/never").status, 404);
}

TEST_F(HttpJobs, an_effect_that_nobody_recorded_is_decided_about) {
  const std::string id = add({{"kind", "k"}});
  const Json lease = post("/v1/claim", R"({"worker":"w","wait_ms":30000})").json()["jobs"][0]["lease"];
  EXPECT_EQ(post("/v1/effects/begin", Json{{"keys", {{{"lease", lease}, {"key", "charge"}}}}}).status, 200);
  const Json decision{
      {"key", "charge"}, {"happened", true}, {"result", {{"receipt", 7}}}, {"reason", "seen"}};
  EXPECT_EQ(post("/v1/jobs/" + id + "/decide", decision).json()["status"], "running");
  EXPECT_EQ(post("/v1/settle", Json{{"results", {{{"lease", lease}, {"outcome", "buried"}, {"error", "e"}}}}})
                .status,
            200);

  EXPECT_EQ(post("/v1/jobs/" + id + "/decide", decision).json()["status"], "decided");
  EXPECT_EQ(post("/v1/jobs/" + id + "/decide", decision).json()["status"], "decided");
  Json other = decision;
  other["result"] = 8;
  EXPECT_EQ(post("/v1/jobs/" + id + "/decide", other).json()["status"], "otherwise");
  other["key"] = "never";
  EXPECT_EQ(post("/v1/jobs/" + id + "/decide", other).status, 404);
  EXPECT_EQ(post("/v1/jobs/" + id + "/decide", R"({"key":"charge","happened":true})").status, 422);

  const Json history = get("/v1/jobs/" + id).json();
  EXPECT_EQ(history["effects"][0]["result"], (Json{{"receipt", 7}}));
  EXPECT_EQ(history["decisions"][0]["reason"], "seen");
  EXPECT_EQ(history["decisions"][0]["decided_by"], "anybody");
}

TEST_F(HttpJobs, addresses_and_methods_that_do_not_exist_are_told) {
  const Reply nowhere = get("/v2/jobs");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(nowhere.code(), "not_found");
  const Reply wrong = connect().request("DELETE", "/v1/jobs");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.header("allow"), "POST, GET, HEAD");
  EXPECT_EQ(connect().request("OPTIONS", "/v1/jobs").status, 405) << "CORS is off";
  for (const char* odd : {"/", "//", "/v1/jobs/", "/v1/jobs//cancel", "/v1/queues/%zz", "/health/x"}) {
    EXPECT_GE(get(odd).status, 404) << odd;
  }
}

TEST_F(HttpJobs, the_server_tells_its_own_state) {
  EXPECT_EQ(get("/health").json()["status"], "ok");
  EXPECT_EQ(get("/ready").status, 200);
  const Reply metrics = get("/metrics");
  EXPECT_EQ(metrics.body, "faultline_up 1\n");
  EXPECT_TRUE(metrics.header("content-type").starts_with("text/plain"));
  service_->drain();
  const Reply draining = get("/ready");
  EXPECT_EQ(draining.status, 503);
  EXPECT_FALSE(draining.header("retry-after").empty());
  EXPECT_EQ(get("/health").status, 200);
}

}  // namespace
}  // namespace faultline::testing

#include <set>

#include "fixture.h"
#include "http/router.h"

namespace faultline::testing {
namespace {

class HttpOpenApi : public HttpTest {
 protected:
  void SetUp() override {
    HttpTest::SetUp();
    document_ = get("/openapi.json").json();
  }

  [[nodiscard]] const Json& resolved(const Json& schema) const {
    if (!schema.contains("$ref")) return schema;
    const std::string name =
        schema["$ref"].get<std::string>().substr(std::string_view{"#/components/schemas/"}.size());
    return document_["components"]["schemas"].at(name);
  }

  /// As much of JSON Schema as the document uses. Unlike a validator it also minds fields that are not
  /// documented.
  void expect_fits(const Json& value, const Json& reference, const std::string& where) const {
    const Json& schema = resolved(reference);
    if (schema.contains("anyOf")) {
      const bool batch = value.contains("submissions");
      return expect_fits(value, schema["anyOf"][batch ? 1 : 0], where);
    }
    if (schema.contains("enum")) {
      EXPECT_NE(std::ranges::find(schema["enum"], value), schema["enum"].end()) << where << ": " << value;
    }
    if (schema.contains("type")) {
      const Json& types = schema["type"];
      const auto is = [&](const std::string& type) {
        return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
               (type == "string" && value.is_string()) || (type == "integer" && value.is_number_integer()) ||
               (type == "number" && value.is_number()) || (type == "boolean" && value.is_boolean()) ||
               (type == "null" && value.is_null());
      };
      EXPECT_TRUE(types.is_array() ? std::ranges::any_of(types, is) : is(types))
          << where << " is no " << types << ": " << value;
    }
    for (const Json& name : schema.value("required", Json::array())) {
      EXPECT_TRUE(value.contains(name.get<std::string>())) << where << "." << name << " is missing";
    }
    if (schema.contains("properties")) {
      for (const auto& [name, member] : value.items()) {
        EXPECT_TRUE(schema["properties"].contains(name)) << where << "." << name << " is not documented";
        if (schema["properties"].contains(name))
          expect_fits(member, schema["properties"][name], where + "." + name);
      }
    }
    if (schema.contains("items")) {
      for (std::size_t i = 0; i < value.size(); ++i) expect_fits(value[i], schema["items"], where + "[]");
    }
  }

  /// Calls an address, and checks the answer against the document.
  Json documented(const std::string& method, const std::string& pattern, const std::string& target,
                  const Json& body = nullptr, bool filled = true) {
    const Reply reply = connect().request(method, target, body.is_null() ? std::string{} : body.dump());
    std::string lower = method;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const Json& answers = document_["paths"].at(pattern).at(lower)["responses"];
    const std::string status = std::to_string(reply.status);
    const Json& answer = answers.contains(status) ? answers[status] : answers["default"];
    const std::string media = answers.contains(status) ? "application/json" : "application/problem+json";
    EXPECT_EQ(reply.header("content-type"), media) << target;
    expect_fits(reply.json(), answer["content"][media]["schema"], method + " " + pattern);
    if (filled) seen_.insert(method + " " + pattern);
    return reply.json();
  }

  Json document_;
  std::set<std::string> seen_;
};

TEST_F(HttpOpenApi, documents_exactly_the_addresses_that_exist) {
  EXPECT_EQ(document_["openapi"], "3.1.0");
  std::set<std::string> documented;
  std::set<std::string> ids;
  for (const auto& [path, operations] : document_["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      std::string upper = method;
      for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      documented.insert(upper + " " + path);
      EXPECT_TRUE(ids.insert(operation["operationId"].get<std::string>()).second) << operation["operationId"];
      EXPECT_FALSE(operation["summary"].get<std::string>().empty()) << path;
      // An address that is documented is routed: it is not answered with "no such address" or "no such
      // method".
      std::string target = path;
      if (const auto at = target.find("{id}"); at != std::string::npos)
        target.replace(at, 4, "019b0000-0000-7000-8000-000000000000");
      if (const auto at = target.find("{name}"); at != std::string::npos) target.replace(at, 6, "q");
      if (path == "/v1/events") continue;
      const Reply reply = connect().request(upper, target, upper == "GET" ? "" : R"({"no such field":1})");
      EXPECT_NE(reply.status, 405) << upper << " " << path;
      if (reply.status == 404) {
        EXPECT_EQ(reply.body.find("address"), std::string::npos) << upper << " " << path;
      }
    }
  }
  std::set<std::string> routed;
  for (const http::Route& route : http::routes())
    routed.insert(std::string{route.method} + " " + std::string{route.pattern});
  EXPECT_EQ(documented, routed);
}

TEST_F(HttpOpenApi, has_no_reference_to_nowhere) {
  const std::function<void(const Json&)> visit = [&](const Json& value) {
    if (value.is_object() && value.contains("$ref")) {
      EXPECT_NO_THROW(static_cast<void>(resolved(value))) << value;
    }
    if (value.is_structured()) {
      for (const Json& member : value) visit(member);
    }
  };
  visit(document_);
}

TEST_F(HttpOpenApi, real_answers_are_as_documented) {
  documented("GET", "/health", "/health");
  documented("GET", "/ready", "/ready");
  documented("GET", "/openapi.json", "/openapi.json");
  const Json options{{"kind", "k"},
                     {"payload", {1}},
                     {"idempotency_key", "i"},
                     {"tags", {"t"}},
                     {"lease_ttl_ms", 60'000},
                     {"run_max_ms", 90'000},
                     {"attempts_max", 3},
                     {"backoff_base_ms", 10},
                     {"backoff_max_ms", 20},
                     {"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}};
  const std::string id = documented("POST", "/v1/jobs", "/v1/jobs", options)["job_id"];
  documented("POST", "/v1/jobs", "/v1/jobs", Json::array({options}));
  documented("POST", "/v1/jobs", "/v1/jobs", {{"kind", "another"}, {"idempotency_key", "i"}});
  const Json job =
      documented("POST", "/v1/claim", "/v1/claim", {{"worker", "w"}, {"wait_ms", 30'000}})["jobs"].at(0);
  const Json lease = job["lease"];
  const Json key{{"lease", lease}, {"key", "e"}, {"call_id", Uuid::random().to_string()}};
  const Json other_key{{"lease", lease}, {"key", "e"}};
  documented("POST", "/v1/heartbeat", "/v1/heartbeat", {{"leases", {lease}}});
  documented("POST", "/v1/progress", "/v1/progress",
             {{"reports", {{{"lease", lease}, {"fraction", 0.5}, {"note", "n"}}}}});
  documented("POST", "/v1/check", "/v1/check", {{"leases", {lease}}});
  documented("POST", "/v1/effects/begin", "/v1/effects/begin", {{"keys", {key}}});
  documented("POST", "/v1/effects/forget", "/v1/effects/forget", {{"keys", {key}}});
  documented("POST", "/v1/effects/begin", "/v1/effects/begin", {{"keys", {other_key}}});
  documented("POST", "/v1/effects/record", "/v1/effects/record",
             {{"results", {{{"lease", lease}, {"key", "e"}, {"result", 1}}}}});
  documented("POST", "/v1/effects/begin", "/v1/effects/begin",
             {{"keys", {{{"lease", lease}, {"key", "open"}}}}});
  const Json result{{"results", {{{"lease", lease}, {"outcome", "succeeded"}, {"result", {{"a", 1}}}}}}};
  documented("POST", "/v1/settle", "/v1/settle", result);
  documented("POST", "/v1/settle", "/v1/settle", result);
  documented("POST", "/v1/settle", "/v1/settle",
             {{"results", {{{"lease", lease}, {"outcome", "released"}}}}});
  documented("POST", "/v1/heartbeat", "/v1/heartbeat", {{"leases", {lease}}});
  documented("POST", "/v1/effects/begin", "/v1/effects/begin", {{"keys", {key}}});
  documented("POST", "/v1/resolve", "/v1/resolve", {{"leases", {lease}}});
  const Json decision{{"key", "open"}, {"happened", true}, {"result", {{"a", 1}}}, {"reason", "r"}};
  EXPECT_EQ(documented("POST", "/v1/jobs/{id}/decide", "/v1/jobs/" + id + "/decide", decision)["status"],
            "decided");
  const Json history = documented("GET", "/v1/jobs/{id}", "/v1/jobs/" + id);
  for (const char* list : {"attempts", "stale_writes", "effects", "decisions"})
    EXPECT_FALSE(history[list].empty()) << list;
  documented("GET", "/v1/jobs", "/v1/jobs?limit=1");
  documented("GET", "/v1/stale", "/v1/stale");
  documented("POST", "/v1/jobs/{id}/requeue", "/v1/jobs/" + id + "/requeue");
  documented("POST", "/v1/jobs/{id}/cancel", "/v1/jobs/" + id + "/cancel",
             {{"reason", "r"}, {"call_id", Uuid::random().to_string()}});
  documented("POST", "/v1/jobs/requeue", "/v1/jobs/requeue", {{"ids", {id}}});
  documented("POST", "/v1/jobs/cancel", "/v1/jobs/cancel", {{"filter", {{"kind", "k"}}}, {"dry_run", true}});
  documented("POST", "/v1/jobs/{id}/purge", "/v1/jobs/" + id + "/purge");
  documented("POST", "/v1/jobs/purge", "/v1/jobs/purge", {{"ids", {id}}});
  documented("PATCH", "/v1/queues/{name}", "/v1/queues/default", {{"running_max", 5}});
  documented("PATCH", "/v1/queues/{name}", "/v1/queues/none", {{"running_max", 5}});
  documented("PUT", "/v1/queues/{name}", "/v1/queues/short-lived", {{"running_max", 5}});
  documented("DELETE", "/v1/queues/{name}", "/v1/queues/short-lived");
  documented("GET", "/v1/queues", "/v1/queues");
  documented("GET", "/v1/jobs", "/v1/jobs?limit=nonsense");
  for (const http::Route& route : http::routes()) {
    if (route.response.empty()) continue;
    EXPECT_TRUE(seen_.contains(std::string{route.method} + " " + std::string{route.pattern}))
        << route.pattern;
  }
}

}  // namespace
}  // namespace faultline::testing

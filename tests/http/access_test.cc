#include <set>

#include "fixture.h"
#include "http/router.h"

namespace faultline::testing {
namespace {

using service::Code;
using service::Principal;
using service::Problem;
using service::Scope;

/// Hands out what the bearer says: scopes joined by "+", then maybe "@" and a queue.
class ByName : public service::Authenticator {
 public:
  [[nodiscard]] service::ServiceResult<Principal> authenticate(std::string_view bearer) const override {
    if (bearer.empty()) return refused("a key is needed");
    if (bearer.starts_with("canary")) return refused("there is no such key");
    Principal who{.name = "key", .scopes = {}};
    const std::size_t at = std::min(bearer.find('@'), bearer.size());
    if (at < bearer.size()) who.queues = {std::string{bearer.substr(at + 1)}};
    std::string_view scopes = bearer.substr(0, at);
    while (!scopes.empty()) {
      const std::size_t end = std::min(scopes.find('+'), scopes.size());
      if (const auto scope = service::parse_scope(scopes.substr(0, end))) who.scopes.add(*scope);
      scopes.remove_prefix(std::min(end + 1, scopes.size()));
    }
    return who;
  }

 private:
  static std::unexpected<Problem> refused(std::string why) {
    return std::unexpected(Problem{.code = Code::unauthenticated, .message = std::move(why)});
  }
};

class HttpAccess : public HttpTest {
 protected:
  [[nodiscard]] const service::Authenticator& authenticator() const override { return by_name_; }

  [[nodiscard]] Reply call(std::string_view method, const std::string& target, std::string_view body,
                           const std::string& bearer) const {
    RawClient client = connect();
    if (target.starts_with("/v1/events")) {  // its answer has no end
      client.send(std::string{method} + " " + target + " HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer " +
                  bearer + "\r\n\r\n");
      return *client.read_reply();
    }
    return client.request(method, target, body,
                          bearer.empty() ? "" : "Authorization: Bearer " + bearer + "\r\n");
  }

  ByName by_name_;
};

/// A request that reaches the service, for every address. The test fails for one that is not here.
struct Row {
  std::string_view method;
  std::string_view pattern;
  std::string_view scope;  ///< "": everybody
  std::string target;
  std::string_view body = {};
};
const std::vector<Row>& matrix() {
  static const std::string kJob = "/v1/jobs/019b0000-0000-7000-8000-000000000000";
  static const std::vector<Row> kRows{
      {"GET", "/health", "", "/health"},
      {"GET", "/ready", "", "/ready"},
      {"GET", "/metrics", "read", "/metrics"},
      {"GET", "/openapi.json", "", "/openapi.json"},
      {"POST", "/v1/jobs", "produce", "/v1/jobs", R"({"kind":"k"})"},
      {"GET", "/v1/jobs", "read", "/v1/jobs"},
      {"GET", "/v1/jobs/{id}", "read", kJob},
      {"POST", "/v1/jobs/cancel", "admin", "/v1/jobs/cancel", R"({"filter":{"queue":"q"},"dry_run":true})"},
      {"POST", "/v1/jobs/requeue", "admin", "/v1/jobs/requeue",
       R"({"filter":{"queue":"q","state":"dead"},"dry_run":true})"},
      {"POST", "/v1/jobs/purge", "admin", "/v1/jobs/purge", R"({"filter":{"queue":"q"},"dry_run":true})"},
      {"POST", "/v1/jobs/{id}/purge", "admin", kJob + "/purge"},
      {"POST", "/v1/jobs/{id}/cancel", "admin", kJob + "/cancel"},
      {"POST", "/v1/jobs/{id}/requeue", "admin", kJob + "/requeue"},
      {"POST", "/v1/jobs/{id}/decide", "admin", kJob + "/decide",
       R"({"key":"k","happened":true,"reason":"r"})"},
      {"GET", "/v1/queues", "read", "/v1/queues"},
      {"PATCH", "/v1/queues/{name}", "admin", "/v1/queues/q", R"({"paused":false})"},
      {"PUT", "/v1/queues/{name}", "admin", "/v1/queues/q", R"({"paused":false})"},
      {"DELETE", "/v1/queues/{name}", "admin", "/v1/queues/none"},
      {"GET", "/v1/stale", "read", "/v1/stale"},
      {"GET", "/v1/events", "read", "/v1/events"},
      {"POST", "/v1/claim", "work", "/v1/claim", R"({"worker":"w","queue":"empty"})"},
      {"POST", "/v1/heartbeat", "work", "/v1/heartbeat", R"({"leases":[]})"},
      {"POST", "/v1/settle", "work", "/v1/settle", R"({"results":[]})"},
      {"POST", "/v1/progress", "work", "/v1/progress", R"({"reports":[]})"},
      {"POST", "/v1/check", "work", "/v1/check", R"({"leases":[]})"},
      {"POST", "/v1/resolve", "work", "/v1/resolve", R"({"leases":[]})"},
      {"POST", "/v1/effects/begin", "work", "/v1/effects/begin", R"({"keys":[]})"},
      {"POST", "/v1/effects/record", "work", "/v1/effects/record", R"({"results":[]})"},
      {"POST", "/v1/effects/forget", "work", "/v1/effects/forget", R"({"keys":[]})"},
  };
  return kRows;
}

TEST_F(HttpAccess, every_address_has_a_row_in_the_matrix) {
  std::set<std::string> routed;
  for (const http::Route& route : http::routes())
    routed.insert(std::string{route.method} + " " + std::string{route.pattern});
  std::set<std::string> tested;
  for (const Row& row : matrix()) tested.insert(std::string{row.method} + " " + std::string{row.pattern});
  EXPECT_EQ(routed, tested);
}

TEST_F(HttpAccess, every_address_answers_every_scope_as_the_matrix_says) {
  for (const Row& row : matrix()) {
    for (const std::string scope : {"produce", "work", "read", "admin"}) {
      const Reply reply = call(row.method, row.target, row.body, scope);
      const bool allowed = row.scope.empty() || row.scope == scope;
      if (allowed) {
        EXPECT_NE(reply.status, 403) << row.method << " " << row.target << " as " << scope;
        EXPECT_NE(reply.status, 401) << row.method << " " << row.target << " as " << scope;
        EXPECT_LT(reply.status, 500) << row.method << " " << row.target << " as " << scope << reply.body;
        EXPECT_NE(reply.status, 422) << row.method << " " << row.target << " as " << scope << reply.body;
      } else {
        EXPECT_EQ(reply.status, 403) << row.method << " " << row.target << " as " << scope;
        EXPECT_EQ(reply.code(), "forbidden");
      }
    }
    // A key for everything except the one scope that is needed.
    std::string others;
    for (const std::string scope : {"produce", "work", "read", "admin"}) {
      if (scope != row.scope) others += scope + "+";
    }
    EXPECT_EQ(call(row.method, row.target, row.body, others).status == 403, !row.scope.empty()) << row.target;
  }
}

TEST_F(HttpAccess, without_a_good_key_nothing_is_answered_that_needs_one) {
  for (const Row& row : matrix()) {
    for (const std::string bearer : {"", "canary-bad"}) {
      const Reply reply = call(row.method, row.target, row.body, bearer);
      if (row.scope.empty()) {
        EXPECT_EQ(reply.status, 200) << row.target;
        continue;
      }
      EXPECT_EQ(reply.status, 401) << row.target;
      EXPECT_EQ(reply.code(), "unauthenticated");
      EXPECT_TRUE(reply.header("www-authenticate").starts_with("Bearer ")) << row.target;
    }
  }
}

TEST_F(HttpAccess, a_key_of_one_queue_does_not_reach_another) {
  make_queue("mine");
  make_queue("other");
  const std::string mine = "produce+work+read+admin@mine";
  EXPECT_EQ(call("POST", "/v1/jobs", R"({"kind":"k","queue":"mine"})", mine).status, 201);
  EXPECT_EQ(call("POST", "/v1/jobs", R"({"kind":"k","queue":"other"})", mine).status, 403);
  const std::string other =
      call("POST", "/v1/jobs", R"({"kind":"k","queue":"other"})", "produce").json()["job_id"];
  EXPECT_EQ(call("POST", "/v1/claim", R"({"worker":"w","queue":"other"})", mine).status, 403);
  EXPECT_EQ(call("GET", "/v1/jobs?queue=other", {}, mine).status, 403);
  EXPECT_GE(call("GET", "/v1/jobs/" + other, {}, mine).status, 403);
  EXPECT_EQ(call("PATCH", "/v1/queues/other", R"({"paused":true})", mine).status, 403);
  EXPECT_EQ(call("GET", "/v1/events?queue=other", {}, mine).status, 403);
  const Json queues = call("GET", "/v1/queues", {}, mine).json();
  for (const Json& queue : queues["queues"]) EXPECT_EQ(queue["name"], "mine");
}

TEST_F(HttpAccess, an_unknown_caller_is_turned_away_before_its_body_is_read) {
  RawClient client = connect();
  client.send(
      "POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
      "1000000\r\n\r\n");
  EXPECT_EQ(client.read_reply()->status, 401);
}

TEST_F(HttpAccess, neither_keys_nor_payloads_reach_the_log) {
  const std::string all = "produce+work+read+admin";
  static_cast<void>(call("POST", "/v1/jobs", R"({"kind":"k","payload":"canary-payload"})", all));
  static_cast<void>(call("POST", "/v1/jobs", R"({"kind":"k","payload":"canary-payload")", all));
  static_cast<void>(call("POST", "/v1/jobs", R"({"kind":"k","canary-field":"canary-payload"})", all));
  static_cast<void>(call("GET", "/v1/jobs?cursor=canary-cursor", {}, "canary-key"));
  static_cast<void>(call("GET", "/v1/jobs?canary-query=1", {}, all));
  static_cast<void>(call("GET", "/canary-path", {}, all));
  RawClient broken = connect();
  broken.send("canary-bytes\r\n\r\n");
  EXPECT_EQ(broken.read_reply()->body.find("canary"), std::string::npos);
  // With the database's answers gone, failures are logged, and still nothing of the request is in them.
  service_->stop();
  const Reply failed = call("POST", "/v1/jobs", R"({"kind":"k","payload":"canary-payload"})", all);
  EXPECT_EQ(failed.status, 503) << failed.body;
  EXPECT_FALSE(failed.header("retry-after").empty());
  EXPECT_NE(lines_.text().find("http_error"), std::string::npos);
  EXPECT_EQ(lines_.text().find("canary"), std::string::npos) << lines_.text();
}

}  // namespace
}  // namespace faultline::testing

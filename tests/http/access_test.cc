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

/// A request about a queue, or about a job of it and its lease.
struct About {
  std::string queue;
  Lease lease;

  [[nodiscard]] std::string job() const { return lease.job.to_string(); }
  [[nodiscard]] std::string lease_json() const {
    return Json{{"job_id", job()},
                {"token", lease.token.value},
                {"lease_id", lease.lease_id.to_string()},
                {"worker", lease.worker}}
        .dump();
  }
};
struct ForeignRow {
  std::string_view method;
  std::string_view pattern;
  std::string target;
  std::string body = {};
};
/// For every address a request about somebody else's queue. The test fails for one that is not here.
std::vector<ForeignRow> requests_about(const About& about) {
  const std::string job = "/v1/jobs/" + about.job();
  const std::string ids = R"({"ids":[")" + about.job() + R"("]})";
  const std::string lease = about.lease_json();
  const std::string leases = R"({"leases":[)" + lease + "]}";
  const std::string keys = R"({"keys":[{"lease":)" + lease + R"(,"key":"k"}]})";
  return {
      {"GET", "/health", "/health"},
      {"GET", "/ready", "/ready"},
      {"GET", "/metrics", "/metrics"},
      {"GET", "/openapi.json", "/openapi.json"},
      {"POST", "/v1/jobs", "/v1/jobs", R"({"kind":"k","queue":")" + about.queue + R"("})"},
      {"GET", "/v1/jobs", "/v1/jobs?queue=" + about.queue},
      {"GET", "/v1/jobs/{id}", job},
      {"POST", "/v1/jobs/cancel", "/v1/jobs/cancel", ids},
      {"POST", "/v1/jobs/requeue", "/v1/jobs/requeue", ids},
      {"POST", "/v1/jobs/purge", "/v1/jobs/purge", ids},
      {"POST", "/v1/jobs/{id}/cancel", job + "/cancel"},
      {"POST", "/v1/jobs/{id}/requeue", job + "/requeue"},
      {"POST", "/v1/jobs/{id}/purge", job + "/purge"},
      {"POST", "/v1/jobs/{id}/decide", job + "/decide", R"({"key":"k","happened":true,"reason":"r"})"},
      {"GET", "/v1/queues", "/v1/queues"},
      {"PATCH", "/v1/queues/{name}", "/v1/queues/" + about.queue, R"({"paused":true})"},
      {"PUT", "/v1/queues/{name}", "/v1/queues/" + about.queue, R"({"paused":true})"},
      {"DELETE", "/v1/queues/{name}", "/v1/queues/" + about.queue},
      {"GET", "/v1/stale", "/v1/stale"},
      {"GET", "/v1/events", "/v1/events?queue=" + about.queue},
      {"POST", "/v1/claim", "/v1/claim", R"({"worker":"w","queue":")" + about.queue + R"("})"},
      {"POST", "/v1/heartbeat", "/v1/heartbeat", leases},
      {"POST", "/v1/settle", "/v1/settle",
       R"({"results":[{"lease":)" + lease + R"(,"outcome":"succeeded","result":"forged"}]})"},
      {"POST", "/v1/progress", "/v1/progress",
       R"({"reports":[{"lease":)" + lease + R"(,"fraction":0.5,"note":"forged"}]})"},
      {"POST", "/v1/check", "/v1/check", leases},
      {"POST", "/v1/resolve", "/v1/resolve", leases},
      {"POST", "/v1/effects/begin", "/v1/effects/begin", keys},
      {"POST", "/v1/effects/record", "/v1/effects/record",
       R"({"results":[{"lease":)" + lease + R"(,"key":"k","result":"forged"}]})"},
      {"POST", "/v1/effects/forget", "/v1/effects/forget", keys},
  };
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST_F(HttpAccess, to_a_key_of_one_queue_another_queue_and_its_jobs_are_not_there_at_any_address) {
  make_queue("mine");
  make_queue("theirs");
  Store beside = store();
  const auto add_theirs = [&] {
    return must(beside.enqueue(NewJob{.queue = "theirs", .kind = "their-kind", .payload = "1"})).job;
  };
  const auto claim_theirs = [&] {
    return must(beside.claim({.queue = "theirs", .worker = "their-worker"})).at(0).lease;
  };
  const auto claim_here = [&] {
    const Reply reply = call("POST", "/v1/claim", R"({"queue":"theirs","worker":"their-worker"})", "work");
    const Json lease = reply.json().at("jobs").at(0).at("lease");
    return Lease{.job = {*Uuid::parse(lease.at("job_id").get<std::string>())},
                 .token = {lease.at("token")},
                 .lease_id = *Uuid::parse(lease.at("lease_id").get<std::string>()),
                 .worker = "their-worker"};
  };
  const auto settle_theirs = [&](const Lease& lease, Outcome outcome) {
    const Settlement settlement{.lease = lease, .outcome = std::move(outcome)};
    static_cast<void>(must(beside.settle({&settlement, 1})));
  };
  pg::Connection sql = database_.connect();
  const auto everything = [&] {
    return query_text(
        sql,
        "SELECT concat_ws(E'\\n', (SELECT string_agg(j::text, E'\\n' ORDER BY j.id) FROM"
        " faultline.jobs j WHERE j.queue <> ''),"
        " (SELECT string_agg(l::text, E'\\n' ORDER BY l.job_id, l.token) FROM faultline.ledger l),"
        " (SELECT count(*) FROM faultline.effects), (SELECT count(*) FROM"
        " faultline.stale_writes), (SELECT bool_or(q.paused) FROM faultline.queues q))");
  };

  std::vector<std::pair<std::string, Lease>> scenes;
  add_theirs();
  scenes.emplace_back("its lease was given out by this server", claim_here());
  add_theirs();
  scenes.emplace_back("its lease was given out by another one", claim_theirs());
  add_theirs();
  scenes.emplace_back("it has ended", claim_theirs());
  settle_theirs(scenes.back().second, Outcome::success("their result"));
  // Evidence, too, is somebody's.
  settle_theirs(scenes.back().second, Outcome::failure("late"));
  const std::string before = everything();

  for (const auto& [scene, lease] : scenes) {
    const About theirs{.queue = "theirs", .lease = lease};
    Lease made_up = lease;
    made_up.job.value = Uuid::random();
    made_up.job.value.bytes[14] = made_up.job.value.bytes[15] = 0;
    made_up.lease_id = Uuid::random();
    const About nothing{.queue = "nowhere", .lease = made_up};
    const auto about_theirs = requests_about(theirs);
    const auto about_nothing = requests_about(nothing);
    std::set<std::string> tested;
    for (std::size_t i = 0; i < about_theirs.size(); ++i) {
      const ForeignRow& row = about_theirs[i];
      SCOPED_TRACE(scene + ": " + std::string{row.method} + " " + row.target);
      tested.insert(std::string{row.method} + " " + std::string{row.pattern});
      const std::string mine = "produce+work+read+admin@mine";
      const Reply there = call(row.method, row.target, row.body, mine);
      const Reply nowhere = call(row.method, about_nothing[i].target, about_nothing[i].body, mine);
      EXPECT_EQ(there.status, nowhere.status) << there.body;
      EXPECT_EQ(replaced(replaced(there.body, theirs.job(), "JOB"), "theirs", "QUEUE"),
                replaced(replaced(nowhere.body, nothing.job(), "JOB"), "nowhere", "QUEUE"));
      EXPECT_EQ(there.body.find("their-"), std::string::npos) << there.body;
      EXPECT_LT(there.status, 500) << there.body;
    }
    std::set<std::string> routed;
    for (const http::Route& route : http::routes())
      routed.insert(std::string{route.method} + " " + std::string{route.pattern});
    EXPECT_EQ(routed, tested);
  }

  EXPECT_EQ(everything(), before);
  EXPECT_NE(lines_.text().find("foreign_leases_refused"), std::string::npos);
  // What is its own is there, and in company, too.
  must(beside.enqueue(NewJob{.queue = "mine", .kind = "k", .payload = "1"}));
  const About own{.queue = "mine", .lease = must(beside.claim({.queue = "mine", .worker = "w"})).at(0).lease};
  const About theirs{.queue = "theirs", .lease = scenes.at(0).second};
  const Reply both =
      call("POST", "/v1/heartbeat", R"({"leases":[)" + theirs.lease_json() + "," + own.lease_json() + "]}",
           "work@mine");
  EXPECT_EQ(both.json().at("beats").at(0).at("status"), "lost") << both.body;
  EXPECT_EQ(both.json().at("beats").at(1).at("status"), "renewed") << both.body;
}

TEST_F(HttpAccess, nothing_that_can_be_read_has_the_lease_id_of_anybody) {
  Store beside = store();
  const auto ids = must(beside.enqueue(std::vector<NewJob>(2, NewJob{.kind = "k", .payload = "1"})));
  // Two jobs of one claim share their lease id: what one of them leaves behind is good for the other.
  const auto jobs = must(beside.claim({.worker = "w", .limit = 2}));
  ASSERT_EQ(jobs.size(), 2U);
  const std::string secret = jobs.at(0).lease.lease_id.to_string();
  ASSERT_EQ(secret, jobs.at(1).lease.lease_id.to_string());
  const EffectKey effect{.lease = jobs.at(0).lease, .key = "step"};
  static_cast<void>(must(beside.begin_effects({&effect, 1})));
  const Settlement done{.lease = jobs.at(0).lease, .outcome = Outcome::success("r")};
  static_cast<void>(must(beside.settle({&done, 1})));
  for (const ClaimedJob& job : jobs) {
    Lease late = job.lease;
    late.token.value += 7;
    const Settlement refused{.lease = late, .outcome = Outcome::failure("late")};
    static_cast<void>(must(beside.settle({&refused, 1})));
  }
  for (const std::string& target :
       {std::string{"/v1/jobs"}, "/v1/jobs/" + ids.at(0).job.to_string(),
        "/v1/jobs/" + ids.at(1).job.to_string(), std::string{"/v1/stale"}, std::string{"/v1/queues"}}) {
    const Reply reply = call("GET", target, {}, "read");
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.body.find(secret), std::string::npos) << target << ": " << reply.body;
  }
  EXPECT_EQ(lines_.text().find(secret), std::string::npos);
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

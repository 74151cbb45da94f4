#include "http/router.h"

#include <algorithm>
#include <array>
#include <exception>

#include "codec/read_object.h"
#include "http/handlers.h"
#include "http/problem.h"

namespace faultline::http {
namespace {

using service::Operation;
using service::Problem;

constexpr std::array kRoutes{
    Route{.method = "GET",
          .pattern = "/health",
          .handler = &get_health,
          .summary = "Whether the process lives",
          .response = "Health"},
    Route{.method = "GET",
          .pattern = "/ready",
          .handler = &get_ready,
          .summary = "Whether it can work: the database is reachable and its schema current",
          .response = "Ready"},
    Route{.method = "GET",
          .pattern = "/metrics",
          .operation = Operation::metrics,
          .handler = &get_metrics,
          .summary = "Metrics in Prometheus' text format"},
    Route{.method = "GET",
          .pattern = "/openapi.json",
          .handler = &get_openapi,
          .summary = "This document",
          .response = "OpenApi"},
    Route{
        .method = "POST",
        .pattern = "/v1/jobs",
        .operation = Operation::enqueue,
        .handler = &post_jobs,
        .summary = "Adds a job, or a batch of them as an array or as NDJSON: all, or none if one is refused",
        .request = "NewJobs",
        .response = "Submissions",
        .ndjson = true},
    Route{.method = "GET",
          .pattern = "/v1/jobs",
          .operation = Operation::list_jobs,
          .handler = &get_jobs,
          .summary = "Jobs, newest first, without payloads and results",
          .response = "JobPage",
          .query = "queue state kind limit cursor"},
    Route{.method = "GET",
          .pattern = "/v1/jobs/{id}",
          .operation = Operation::get_job,
          .handler = &get_job,
          .summary = "A job with its whole history",
          .response = "JobHistory"},
    Route{.method = "POST",
          .pattern = "/v1/jobs/cancel",
          .operation = Operation::cancel,
          .handler = &post_cancel_many,
          .summary = "Cancels jobs by id, or all that match a filter",
          .request = "CancelJobs",
          .response = "Changed"},
    Route{.method = "POST",
          .pattern = "/v1/jobs/requeue",
          .operation = Operation::requeue,
          .handler = &post_requeue_many,
          .summary = "Puts ended jobs back into their queue, by id or by filter",
          .request = "RequeueJobs",
          .response = "Changed"},
    Route{.method = "POST",
          .pattern = "/v1/jobs/purge",
          .operation = Operation::purge,
          .handler = &post_purge_many,
          .summary = "Removes dead jobs for good, by id or by filter",
          .request = "PurgeJobs",
          .response = "Changed"},
    Route{.method = "POST",
          .pattern = "/v1/jobs/{id}/cancel",
          .operation = Operation::cancel,
          .handler = &post_cancel,
          .summary = "Cancels a job",
          .request = "CancelJob",
          .response = "ChangedItem"},
    Route{.method = "POST",
          .pattern = "/v1/jobs/{id}/requeue",
          .operation = Operation::requeue,
          .handler = &post_requeue,
          .summary = "Puts an ended job back into its queue",
          .request = "ChangeJob",
          .response = "ChangedItem"},
    Route{.method = "POST",
          .pattern = "/v1/jobs/{id}/purge",
          .operation = Operation::purge,
          .handler = &post_purge,
          .summary = "Removes a dead job for good",
          .request = "ChangeJob",
          .response = "ChangedItem"},
    Route{.method = "POST",
          .pattern = "/v1/jobs/{id}/decide",
          .operation = Operation::decide,
          .handler = &post_decide,
          .summary = "Says of an effect that was begun and never recorded whether it happened",
          .request = "DecideEffect",
          .response = "DecidedEffect"},
    Route{.method = "GET",
          .pattern = "/v1/queues",
          .operation = Operation::list_queues,
          .handler = &get_queues,
          .summary = "Queues with their settings, counts and ages",
          .response = "Queues"},
    Route{.method = "PATCH",
          .pattern = "/v1/queues/{name}",
          .operation = Operation::set_queue,
          .handler = &patch_queue,
          .summary = "Changes what is given of a queue that there is",
          .request = "QueueSettings",
          .response = "Queue"},
    Route{.method = "PUT",
          .pattern = "/v1/queues/{name}",
          .operation = Operation::set_queue,
          .handler = &put_queue,
          .summary = "Makes a queue, or changes what is given",
          .request = "QueueSettings",
          .response = "Queue"},
    Route{.method = "DELETE",
          .pattern = "/v1/queues/{name}",
          .operation = Operation::delete_queue,
          .handler = &delete_queue,
          .summary = "Deletes a queue that has no live jobs",
          .response = "DeletedQueue"},
    Route{.method = "GET",
          .pattern = "/v1/stale",
          .operation = Operation::list_stale,
          .handler = &get_stale,
          .summary = "Refused writes, newest first: the evidence",
          .response = "StalePage",
          .query = "limit cursor"},
    Route{.method = "GET",
          .pattern = "/v1/events",
          .operation = Operation::watch_events,
          .handler = &get_events,
          .summary = "What happens now, as server-sent events",
          .query = "queue"},
    Route{.method = "POST",
          .pattern = "/v1/claim",
          .operation = Operation::claim,
          .handler = &post_claim,
          .summary = "Gives jobs to a worker, and waits for some if there are none",
          .request = "Claim",
          .response = "ClaimedJobs"},
    Route{.method = "POST",
          .pattern = "/v1/heartbeat",
          .operation = Operation::heartbeat,
          .handler = &post_heartbeat,
          .summary = "Renews leases",
          .request = "Heartbeat",
          .response = "Beats"},
    Route{.method = "POST",
          .pattern = "/v1/settle",
          .operation = Operation::settle,
          .handler = &post_settle,
          .summary = "Ends attempts; 409 if every one of them was stale",
          .request = "Settle",
          .response = "Verdicts"},
    Route{.method = "POST",
          .pattern = "/v1/progress",
          .operation = Operation::progress,
          .handler = &post_progress,
          .summary = "How far running attempts are, for people",
          .request = "ProgressReports",
          .response = "Verdicts"},
    Route{.method = "POST",
          .pattern = "/v1/check",
          .operation = Operation::check,
          .handler = &post_check,
          .summary = "Whether leases are still good at this moment",
          .request = "Leases",
          .response = "Verdicts"},
    Route{.method = "POST",
          .pattern = "/v1/resolve",
          .operation = Operation::resolve,
          .handler = &post_resolve,
          .summary = "What the ledger says of attempts whose result was sent without an answer",
          .request = "Leases",
          .response = "Resolved"},
    Route{.method = "POST",
          .pattern = "/v1/effects/begin",
          .operation = Operation::effects,
          .handler = &post_effects_begin,
          .summary = "Announces effects before they are done",
          .request = "EffectKeys",
          .response = "Effects"},
    Route{.method = "POST",
          .pattern = "/v1/effects/record",
          .operation = Operation::effects,
          .handler = &post_effects_record,
          .summary = "Records what effects gave",
          .request = "EffectResults",
          .response = "Effects"},
    Route{.method = "POST",
          .pattern = "/v1/effects/forget",
          .operation = Operation::effects,
          .handler = &post_effects_forget,
          .summary = "Takes back announced effects that did not happen",
          .request = "EffectKeys",
          .response = "Verdicts"},
};

/// Takes the next segment off a path that begins with a slash.
std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);
  const std::size_t end = std::min(path.find('/'), path.size());
  const std::string_view segment = path.substr(0, end);
  path.remove_prefix(end);
  return segment;
}

/// The parameters, if the path is one of the pattern's.
std::optional<std::vector<std::string>> match(std::string_view pattern, std::string_view path) {
  std::vector<std::string> params;
  while (!pattern.empty() && path.starts_with('/')) {
    const std::string_view wanted = take_segment(pattern);
    const std::string_view found = take_segment(path);
    if (!wanted.starts_with('{')) {
      if (wanted != found) return std::nullopt;
      continue;
    }
    auto decoded = percent_decoded(found);
    if (!decoded || decoded->empty()) return std::nullopt;
    params.push_back(std::move(*decoded));
  }
  if (!pattern.empty() || !path.empty()) return std::nullopt;
  return params;
}

std::optional<Response> refuse_media_type(const Route& route, const Request& head) {
  if (!head.has_body || head.method == "GET" || head.method == "HEAD") return std::nullopt;
  const std::string_view type = media_type(head.header("Content-Type"));
  const bool known = equal_ignoring_case(type, "application/json") ||
                     (route.ndjson && equal_ignoring_case(type, "application/x-ndjson"));
  if (!known) {
    return problem_response(415, malformed("the body's Content-Type is not one that is understood here",
                                           route.ndjson ? "send application/json or application/x-ndjson"
                                                        : "send application/json"));
  }
  const std::string_view coding = head.header("Content-Encoding");
  if (coding.empty() || equal_ignoring_case(coding, "identity")) return std::nullopt;
  return problem_response(415, malformed("the body is compressed", "send it without Content-Encoding"));
}

std::string_view authority_of(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view{} : origin.substr(scheme + 3);
}

/// A page of another site must not make a browser call here, whatever the browser lets through.
bool is_foreign_page(const Request& head, std::string_view cors_origin) {
  const std::string_view origin = head.header("Origin");
  if (may_come_from(origin, cors_origin)) return false;
  if (head.header("Sec-Fetch-Site") == "cross-site") return true;
  if (origin.empty() || head.method == "GET" || head.method == "HEAD") return false;
  return !equal_ignoring_case(authority_of(origin), head.header("Host"));
}

/// A Host header without its port.
std::string_view host_of(std::string_view authority) {
  const std::size_t after = authority.starts_with('[') ? authority.find(']') : 0;
  return authority.substr(0, authority.find(':', after == std::string_view::npos ? 0 : after));
}

std::string_view bearer_of(const Request& head) {
  std::string_view authorization = head.header("Authorization");
  if (!equal_ignoring_case(authorization.substr(0, 7), "Bearer ")) return {};
  authorization.remove_prefix(7);
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  return authorization;
}

Response preflight_response(const std::string& methods) {
  Response response{.status = 204, .content_type = {}};
  response.headers.emplace_back("Access-Control-Allow-Methods", methods);
  response.headers.emplace_back("Access-Control-Allow-Headers",
                                "Authorization, Content-Type, Idempotency-Key, traceparent, X-Request-Id");
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

Response wrong_method(const std::string& methods) {
  Response response =
      problem_response(405, malformed("this address does not have that method", "it has " + methods));
  response.headers.emplace_back("Allow", methods);
  return response;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

Limits Call::limits() const {
  // The payload's own depth is the service's to judge; what is around it is at most three deep.
  constexpr std::size_t kAround = 3;
  return {.batch_max = service.options().batch_max, .depth_max = options.json_depth_max + kAround};
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      out += text[at];
      continue;
    }
    if (at + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[at + 1]);
    const int low = hex_value(text[at + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return out;
}

service::ServiceResult<std::vector<std::pair<std::string, std::string>>> parse_query(
    std::string_view query, std::span<const std::string_view> known) {
  std::vector<std::pair<std::string, std::string>> parameters;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view item = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    if (item.empty()) continue;
    const std::size_t equals = std::min(item.find('='), item.size());
    auto name = percent_decoded(item.substr(0, equals));
    std::string text{item.substr(std::min(equals + 1, item.size()))};
    std::ranges::replace(text, '+', ' ');
    auto value = percent_decoded(text);
    if (!name || !value)
      return std::unexpected(malformed("the query has a % without two hexadecimal digits after it"));
    if (std::ranges::find(known, *name) == known.end())
      return std::unexpected(invalid(codec::unknown_field(*name, known)));
    if (std::ranges::find(parameters, *name, &std::pair<std::string, std::string>::first) !=
        parameters.end()) {
      return std::unexpected(invalid(*name + ": it is given twice"));
    }
    parameters.emplace_back(std::move(*name), std::move(*value));
  }
  return parameters;
}

Router::Router(RouterOptions options, service::Service& service, const service::Authenticator& authenticator)
    : options_(std::move(options)), service_(service), authenticator_(authenticator) {}

std::expected<Router::Admitted, Response> Router::find(const Request& head) const {
  const std::string_view method = head.method == "HEAD" ? "GET" : head.method;
  std::string methods;
  for (const Route& route : kRoutes) {
    auto params = match(route.pattern, head.path);
    if (!params) continue;
    if (route.method == method) return Admitted{.route = &route, .params = std::move(*params)};
    if (methods.find(route.method) != std::string::npos) continue;
    if (!methods.empty()) methods += ", ";
    methods += route.method;
    if (route.method == "GET") methods += ", HEAD";
  }
  if (methods.empty()) {
    return std::unexpected(problem_response({.code = service::Code::not_found,
                                             .message = "there is no such address",
                                             .hint = "GET /openapi.json lists all of them"}));
  }
  const bool preflight = head.method == "OPTIONS" && !options_.cors_origin.empty();
  return std::unexpected(preflight ? preflight_response(methods) : wrong_method(methods));
}

std::optional<Response> Router::refuse_page(const Route& route, const Request& head) const {
  if (!route.operation) return std::nullopt;
  // A page whose name the attacker lets point to this machine is of the same origin as we are, to a browser.
  const std::string_view host = host_of(head.header("Host"));
  if (options_.hosts && !host.empty() && std::ranges::none_of(*options_.hosts, [&](const std::string& known) {
        return equal_ignoring_case(host, known);
      })) {
    return problem_response(421,
                            {.code = service::Code::forbidden,
                             .message = "this server is not known under that name",
                             .hint = "call it localhost, or name it in the setting hosts, or ask for keys"});
  }
  if (!is_foreign_page(head, options_.cors_origin)) return std::nullopt;
  return problem_response({.code = service::Code::forbidden,
                           .message = "a page of another origin may not call this",
                           .hint = "allow its origin with cors_origin"});
}

std::optional<Response> Router::refuse_caller(Admitted& admitted, const Request& head) const {
  if (!admitted.route->operation) return std::nullopt;
  const std::string_view bearer = bearer_of(head);
  auto who = authenticator_.authenticate(bearer);
  if (!who) {
    Response response = problem_response(who.error());
    if (who.error().code == service::Code::unauthenticated) {
      response.headers.emplace_back("WWW-Authenticate",
                                    bearer.empty() ? R"(Bearer realm="faultline")"
                                                   : R"(Bearer realm="faultline", error="invalid_token")");
    }
    return response;
  }
  if (const auto problem = check_access(*who, *admitted.route->operation)) return problem_response(*problem);
  admitted.who = std::move(*who);
  return std::nullopt;
}

std::expected<Router::Admitted, Response> Router::admit(const Request& head) const {
  auto admitted = find(head);
  if (!admitted) return admitted;
  if (auto refused = refuse_page(*admitted->route, head)) return std::unexpected(std::move(*refused));
  if (auto refused = refuse_caller(*admitted, head)) return std::unexpected(std::move(*refused));
  if (auto refused = refuse_media_type(*admitted->route, head)) return std::unexpected(std::move(*refused));
  return admitted;
}

void Router::handle(const Admitted& admitted, const Request& request,
                    const std::shared_ptr<HttpExchange>& exchange) const {
  try {
    admitted.route->handler({.service = service_,
                             .options = options_,
                             .who = admitted.who,
                             .request = request,
                             .params = admitted.params,
                             .exchange = exchange});
  } catch (const std::exception& error) {
    exchange->respond(problem_response(
        {.code = service::Code::internal, .message = "the server failed at this", .cause = error.what()}));
  }
}

void Router::handle(const Request& request, const std::shared_ptr<HttpExchange>& exchange) const {
  auto admitted = admit(request);
  if (!admitted) return exchange->respond(std::move(admitted.error()));
  handle(*admitted, request, exchange);
}

}  // namespace faultline::http

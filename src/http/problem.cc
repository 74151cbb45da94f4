#include "http/problem.h"

#include <algorithm>

namespace faultline::http {

using service::Code;
using service::Problem;

int status_of(Code code) {
  switch (code) {
    case Code::malformed:
      return 400;
    case Code::invalid:
      return 422;
    case Code::too_large:
      return 413;
    case Code::unauthenticated:
      return 401;
    case Code::forbidden:
      return 403;
    case Code::not_found:
      return 404;
    case Code::conflict:
    case Code::stale:
      return 409;
    case Code::overloaded:
      return 429;
    case Code::unavailable:
      return 503;
    case Code::outcome_unknown:
    case Code::internal:
      break;
  }
  return 500;
}

Response problem_response(const Problem& problem, const std::function<void(JsonWriter&)>& extend) {
  return problem_response(status_of(problem.code), problem, extend);
}

Response problem_response(int status, const Problem& problem,
                          const std::function<void(JsonWriter&)>& extend) {
  const std::string_view code = to_string(problem.code);
  JsonWriter out;
  out.begin_object();
  out.key("type").string("urn:faultline:problem:" + std::string{code});
  out.key("title").string(reason_of(status));
  out.key("status").integer(status);
  out.key("detail").string(problem.message);
  out.key("code").string(code);
  if (!problem.hint.empty()) out.key("hint").string(problem.hint);
  if (problem.job) out.key("job_id").string(problem.job->to_string());
  if (problem.retry_after) out.key("retry_after_ms").integer(problem.retry_after->count());
  if (extend) extend(out);
  out.end_object();

  Response response{.status = status,
                    .body = out.take(),
                    .content_type = "application/problem+json",
                    .code = code,
                    .cause = problem.cause.empty() ? problem.message : problem.cause};
  const bool retriable = problem.code == Code::overloaded || problem.code == Code::unavailable;
  if (problem.retry_after || retriable) {
    // The header knows whole seconds only.
    const auto wait =
        std::chrono::ceil<std::chrono::seconds>(problem.retry_after.value_or(std::chrono::seconds{1}));
    response.headers.emplace_back("Retry-After", std::to_string(std::max<std::int64_t>(1, wait.count())));
  }
  return response;
}

Response failed_response(Problem problem, SentAgain again) {
  if (problem.code != Code::outcome_unknown || again == SentAgain::is_another)
    return problem_response(problem);
  problem.hint =
      "it may have been done; send the same again, with its idempotency key or call_id: nothing is done "
      "twice";
  problem.retry_after = std::chrono::seconds{1};
  return problem_response(503, problem);
}

Problem malformed(std::string message, std::string hint) {
  return {.code = Code::malformed, .message = std::move(message), .hint = std::move(hint)};
}

Problem invalid(std::string message, std::string hint) {
  return {.code = Code::invalid, .message = std::move(message), .hint = std::move(hint)};
}

}  // namespace faultline::http

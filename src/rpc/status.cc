#include "rpc/status.h"

#include <string>

#include "wire/failure.h"

namespace faultline::rpc {
namespace {

grpc::StatusCode code_of(service::Code code) {
  using service::Code;
  switch (code) {
    case Code::malformed:
    case Code::invalid:
    case Code::too_large:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case Code::unauthenticated:
      return grpc::StatusCode::UNAUTHENTICATED;
    case Code::forbidden:
      return grpc::StatusCode::PERMISSION_DENIED;
    case Code::not_found:
      return grpc::StatusCode::NOT_FOUND;
    case Code::conflict:
      return grpc::StatusCode::ALREADY_EXISTS;
    case Code::stale:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case Code::overloaded:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case Code::unavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case Code::outcome_unknown:
      return grpc::StatusCode::UNKNOWN;
    case Code::internal:
      break;
  }
  return grpc::StatusCode::INTERNAL;
}

}  // namespace

grpc::Status to_status(const service::Problem& problem, const std::vector<faultline::v1::Verdict>& verdicts) {
  faultline::v1::Failure failure;
  failure.set_code(std::string{to_string(problem.code)});
  failure.set_hint(problem.hint);
  if (problem.retry_after) failure.set_retry_after_ms(problem.retry_after->count());
  if (problem.job) failure.set_job_id(problem.job->to_string());
  for (const auto& verdict : verdicts) *failure.add_verdicts() = verdict;
  const grpc::StatusCode code = code_of(problem.code);
  return {code, problem.message, wire::to_details(code, problem.message, failure)};
}

}  // namespace faultline::rpc

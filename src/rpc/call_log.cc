#include "rpc/call_log.h"

#include <utility>
#include <vector>

#include <grpcpp/server_context.h>

#include "base/request_id.h"

namespace faultline::rpc {
namespace {

constexpr const char* kRequestId = "x-request-id";

bool is_the_servers_own(service::Code code) {
  using service::Code;
  return code == Code::internal || code == Code::outcome_unknown || code == Code::unavailable;
}

}  // namespace

CallLog::CallLog(SharedState& shared, grpc::CallbackServerContext& context, std::string_view method)
    : shared_(&shared), method_(method), peer_(context.peer()) {
  const auto given = context.client_metadata().find(kRequestId);
  request_ = request_id(given == context.client_metadata().end()
                            ? std::string_view{}
                            : std::string_view{given->second.data(), given->second.size()});
  context.AddInitialMetadata(kRequestId, request_);
}

void CallLog::failed(const service::Problem& problem) const {
  const bool refused = problem.code == service::Code::unauthenticated;
  if (!refused && !is_the_servers_own(problem.code)) return;
  const auto untold =
      (refused ? shared_->refusals : shared_->failures).tell(std::chrono::steady_clock::now());
  if (!untold) return;
  std::vector<std::pair<std::string, std::string>> fields;
  if (refused)
    fields = {{"wire", "grpc"}, {"reason", problem.cause}};
  else
    fields = {{"method", method_},
              {"code", std::string{to_string(problem.code)}},
              {"cause", problem.cause.empty() ? problem.message : problem.cause}};
  if (*untold > 0) fields.emplace_back("untold", std::to_string(*untold));
  tell(refused ? "caller_refused" : "rpc_error",
       refused || problem.code == service::Code::unavailable ? Severity::warning : Severity::error,
       std::move(fields));
}

void CallLog::answered(const grpc::Status& status) const {
  if (!shared_->access_log) return;
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began_);
  tell("call_answered", Severity::info,
       {{"wire", "grpc"},
        {"method", method_},
        {"status", std::to_string(status.error_code())},
        {"key", key_},
        {"took_ms", std::to_string(took.count())}});
}

void CallLog::tell(std::string_view name, Severity severity,
                   std::vector<std::pair<std::string, std::string>> fields) const {
  fields.emplace_back("peer", peer_);
  fields.emplace_back("request", request_);
  shared_->log({.name = name,
                .severity = severity,
                .at = std::chrono::system_clock::now(),
                .fields = std::move(fields)});
}

}  // namespace faultline::rpc

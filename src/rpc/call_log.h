#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <grpcpp/support/status.h>

#include "rpc/shared_state.h"

namespace faultline::rpc {

/// What the log says of one call. Its name is the caller's `x-request-id`, if that has the form of one, and
/// is in the answer's metadata.
class CallLog {
 public:
  CallLog(SharedState& shared, grpc::CallbackServerContext& context, std::string_view method);

  void called_by(const service::Principal& who) { key_ = who.label(); }
  /// The call is refused, or has failed: the log has why, if that is the server's own business.
  void failed(const service::Problem& problem) const;
  /// The call has its answer.
  void answered(const grpc::Status& status) const;

 private:
  void tell(std::string_view name, Severity severity,
            std::vector<std::pair<std::string, std::string>> fields) const;

  SharedState* shared_;
  std::string method_;
  std::string peer_;
  std::string request_;
  std::string key_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace faultline::rpc

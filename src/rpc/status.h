#pragma once

#include <vector>

#include <grpcpp/support/status.h>

#include "faultline/v1/faultline.pb.h"
#include "service/problem.h"

namespace faultline::rpc {

/// A problem as gRPC says it, with a Failure among the details.
[[nodiscard]] grpc::Status to_status(const service::Problem& problem,
                                     const std::vector<faultline::v1::Verdict>& verdicts = {});

}  // namespace faultline::rpc

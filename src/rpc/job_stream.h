#pragma once

#include <grpcpp/support/server_callback.h>

#include "faultline/v1/faultline.pb.h"
#include "rpc/core.h"

namespace faultline::rpc {

/// One call of StreamJobs. It deletes itself when gRPC is done with it.
[[nodiscard]] grpc::ServerBidiReactor<faultline::v1::StreamJobsRequest, faultline::v1::StreamJobsResponse>*
open_job_stream(Core& core, grpc::CallbackServerContext& context);

/// Tells every stream that this server stops: what they have been given is still sent, then they end. Streams
/// that are opened from now on are refused.
void drain_job_streams(Core& core);

}  // namespace faultline::rpc

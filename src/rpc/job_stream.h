#pragma once

#include <grpcpp/support/server_callback.h>

#include "faultline/v1/faultline.pb.h"
#include "rpc/shared_state.h"

namespace faultline::rpc {

/// One call of StreamJobs. It deletes itself when gRPC is done with it.
[[nodiscard]] grpc::ServerBidiReactor<faultline::v1::StreamJobsRequest, faultline::v1::StreamJobsResponse>*
open_job_stream(SharedState& shared, grpc::CallbackServerContext& context);

/// Tells every stream that this server stops: what they have been given is still sent, then they end. Streams
/// that are opened from now on are refused.
void drain_job_streams(SharedState& shared);

}  // namespace faultline::rpc

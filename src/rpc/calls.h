#pragma once

#include <memory>

#include "rpc/shared_state.h"

namespace grpc {
class Service;
}

namespace faultline::rpc {

/// The service of proto/faultline/v1/faultline.proto. `shared` must outlive it.
[[nodiscard]] std::unique_ptr<grpc::Service> make_calls(SharedState& shared);

}  // namespace faultline::rpc

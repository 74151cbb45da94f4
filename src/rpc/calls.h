#pragma once

#include <memory>

#include "rpc/core.h"

namespace grpc {
class Service;
}

namespace faultline::rpc {

/// The service of proto/faultline/v1/faultline.proto. `core` must outlive it.
[[nodiscard]] std::unique_ptr<grpc::Service> make_calls(Core& core);

}  // namespace faultline::rpc

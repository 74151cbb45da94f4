#pragma once

#include <memory>

#include "faultline/event.h"

namespace faultline::rpc {

/// What gRPC and Protocol Buffers would print on standard error goes to this log instead, as `grpc_error`, at
/// most once a second. They have one log per process: the latest of these gets it, and without any it is
/// printed.
class GrpcLogRedirect {
 public:
  explicit GrpcLogRedirect(EventSink log);
  ~GrpcLogRedirect();
  GrpcLogRedirect(const GrpcLogRedirect&) = delete;
  GrpcLogRedirect& operator=(const GrpcLogRedirect&) = delete;

 private:
  std::shared_ptr<const EventSink> log_;
};

}  // namespace faultline::rpc

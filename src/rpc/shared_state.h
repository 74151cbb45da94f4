#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "base/line_limit.h"
#include "faultline/event.h"
#include "service/authenticator.h"
#include "service/service.h"
#include "service/shares.h"

namespace grpc {
class CallbackServerContext;
}

namespace faultline::rpc {

class JobStream;

/// What all calls of a server share. Thread-safe.
struct SharedState {
  service::Service& service;
  const service::Authenticator& authenticator;
  const EventSink log;
  const bool access_log;
  const std::function<void(const std::string& peer)> admitted;
  const bool certificates;  ///< every caller has shown one of the client authority

  std::atomic<std::uint64_t> calls = 0;
  LineLimit failures{};
  LineLimit refusals{};

  std::mutex mutex{};
  service::Shares places;                    ///< for streams, under the mutex
  std::unordered_set<JobStream*> streams{};  ///< under the mutex
  bool draining = false;                     ///< under the mutex
};

/// Who calls: the owner of the bearer key, or, where no keys are asked for, of the client's certificate.
[[nodiscard]] service::ServiceResult<service::Principal> caller(const SharedState& shared,
                                                                const grpc::CallbackServerContext& context);

}  // namespace faultline::rpc

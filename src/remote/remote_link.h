#pragma once

#include <memory>
#include <string>

#include "worker/link.h"

namespace faultline::remote {

struct RemoteLinkOptions {
  std::string server;  ///< as for `Worker::connect`
  std::string worker;
  std::string api_key{};  ///< empty: FAULTLINE_API_KEY of the environment
  std::string tls_ca{};
  std::string tls_cert{};
  std::string tls_key{};
};

/// The link of a worker that has its jobs through a server. Does not connect; `check_queues` does.
[[nodiscard]] Expected<std::unique_ptr<worker::Link>> open_remote_link(const RemoteLinkOptions& options);

}  // namespace faultline::remote

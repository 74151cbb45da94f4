#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "worker/link.h"

namespace faultline::worker {

struct StoreLinkOptions {
  std::string database;
  std::string worker;  ///< whose connections these are, for the database's own listings
  std::size_t connections = 2;
  std::size_t handler_connections = 4;
  /// A call that the database does not answer gives its settlements back after this, to be sent again.
  std::chrono::milliseconds call_timeout{10'000};
  std::function<void(const Error*)> on_reached{};  ///< as `StoreOptions::on_reached`
};

/// The link of a worker that has the database itself.
[[nodiscard]] Expected<std::unique_ptr<Link>> open_store_link(const StoreLinkOptions& options);

}  // namespace faultline::worker

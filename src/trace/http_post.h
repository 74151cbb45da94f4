#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <string>

#include "base/host_port.h"
#include "faultline/error.h"

namespace faultline::trace {

struct Url {
  HostPort address;
  std::string path;  ///< without a slash at its end
};
/// `http://host:port/path`; only in the clear.
[[nodiscard]] Expected<Url> parse_endpoint(std::string_view text);

/// Sends JSON to one address, one request at a time, on the caller's thread.
class HttpPost {
 public:
  HttpPost(Url url, std::string path);
  ~HttpPost();
  HttpPost(const HttpPost&) = delete;
  HttpPost& operator=(const HttpPost&) = delete;

  /// The status of the answer, or why there is none.
  [[nodiscard]] std::expected<int, std::string> send(std::string body, std::chrono::milliseconds timeout);
  /// Ends a request under way, and all that come later. From any thread.
  void cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline::trace

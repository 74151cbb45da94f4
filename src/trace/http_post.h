#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

#include "faultline/error.h"

namespace faultline::trace {

/// `http://host:port/path` or `https://…`, without a slash at its end; or what is wrong with it.
[[nodiscard]] Expected<std::string> parse_endpoint(std::string_view text);

/// Sends JSON to one address, one request at a time, on the caller's thread. With https the certificate must
/// be of an authority in `ca_file`, or of the system's if that is empty, and for the host.
class HttpPost {
 public:
  HttpPost(const std::string& url, const std::string& ca_file);
  ~HttpPost();
  HttpPost(const HttpPost&) = delete;
  HttpPost& operator=(const HttpPost&) = delete;

  /// The status of the answer, or why there is none.
  [[nodiscard]] std::expected<int, std::string> send(const std::string& body,
                                                     std::chrono::milliseconds timeout);
  /// Ends a request under way, and all that come later. From any thread.
  void cancel();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline::trace

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace faultline::bench {

/// The least that an HTTP client can be: one kept-alive connection to this machine, one request at a time.
/// Throws std::runtime_error.
class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sends a whole request and reads the whole answer, whose body must have a length. Returns the status.
  int exchange(std::string_view request);

 private:
  void send(std::string_view bytes) const;
  void receive_more();

  int socket_ = -1;
  std::string received_;
};

/// A POST of JSON.
[[nodiscard]] std::string post(std::string_view target, std::string_view body);

}  // namespace faultline::bench

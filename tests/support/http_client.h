#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace faultline::testing {

struct HttpResponse {
  int status = 0;  ///< 0: there was none, the connection could not be made or broke
  std::map<std::string, std::string> headers{};  ///< by name in lower case
  std::string body{};

  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  [[nodiscard]] std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct HttpRequest {
  std::string method = "GET";
  std::string target = "/";
  std::string body{};
  std::map<std::string, std::string> headers{};
};

/// One request to this machine on a connection of its own.
[[nodiscard]] HttpResponse http(std::uint16_t port, const HttpRequest& request);
[[nodiscard]] inline HttpResponse http_get(std::uint16_t port, std::string target) {
  return http(port, {.target = std::move(target)});
}
[[nodiscard]] inline HttpResponse http_post(std::uint16_t port, std::string target,
                                            const nlohmann::json& body,
                                            std::map<std::string, std::string> headers = {}) {
  headers.emplace("Content-Type", "application/json");
  return http(
      port,
      {.method = "POST", .target = std::move(target), .body = body.dump(), .headers = std::move(headers)});
}

}  // namespace faultline::testing

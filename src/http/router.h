#pragma once

#include <chrono>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/decode.h"
#include "http/message.h"
#include "service/authenticator.h"
#include "service/service.h"

namespace faultline::http {

struct RouterOptions {
  std::size_t json_depth_max = 128;
  std::string cors_origin{};
  std::optional<std::vector<std::string>> hosts{};
  std::function<std::string()> metrics{};
};

/// What a handler has: everything is good until it returns.
struct Call {
  service::Service& service;
  const RouterOptions& options;
  const service::Principal& who;
  const Request& request;
  const std::vector<std::string>& params;  ///< of the path, in order
  std::shared_ptr<HttpExchange> exchange;

  [[nodiscard]] Limits limits() const;
};

/// One address. The only list of them: the router, the OpenAPI document and the test of access all read it.
struct Route {
  std::string_view method;
  std::string_view pattern;                       ///< "/v1/jobs/{id}"
  std::optional<service::Operation> operation{};  ///< nothing: open to everybody
  void (*handler)(const Call& call) = nullptr;
  std::string_view summary{};
  // For the document.
  std::string_view request{};   ///< the schema of its body; empty: none
  std::string_view response{};  ///< the schema of its answer; empty: it is not JSON
  std::string_view query{};     ///< its parameters, separated by blanks
  bool ndjson = false;          ///< takes application/x-ndjson too
};
[[nodiscard]] std::span<const Route> routes();

/// The parameters of a query. Those that are not known, or stand twice, are refused.
[[nodiscard]] service::ServiceResult<std::vector<std::pair<std::string, std::string>>> parse_query(
    std::string_view query, std::span<const std::string_view> known);
[[nodiscard]] std::optional<std::string> percent_decoded(std::string_view text);

/// Finds the handler of a request. It knows no sockets. Thread-safe; does not throw.
class Router {
 public:
  Router(RouterOptions options, service::Service& service, const service::Authenticator& authenticator);

  struct Admitted {
    const Route* route = nullptr;
    service::Principal who{};
    std::vector<std::string> params{};
  };
  /// Judges a request by its head, before its body is read: is there such an address, who calls, may they.
  [[nodiscard]] std::expected<Admitted, Response> admit(const Request& head) const;
  /// Answers through the exchange, now or later.
  void handle(const Admitted& admitted, const Request& request,
              const std::shared_ptr<HttpExchange>& exchange) const;
  /// Both at once.
  void handle(const Request& request, const std::shared_ptr<HttpExchange>& exchange) const;

 private:
  [[nodiscard]] std::expected<Admitted, Response> find(const Request& head) const;
  [[nodiscard]] std::optional<Response> refuse_page(const Route& route, const Request& head) const;
  [[nodiscard]] std::optional<Response> refuse_caller(Admitted& admitted, const Request& head) const;

  RouterOptions options_;
  service::Service& service_;
  const service::Authenticator& authenticator_;
};

}  // namespace faultline::http

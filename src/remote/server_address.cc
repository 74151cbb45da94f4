#include "remote/server_address.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

namespace faultline::remote {
namespace {

constexpr std::string_view kPlain = "faultline://";
constexpr std::string_view kTls = "faultline+tls://";
constexpr std::string_view kDefaultPort = "8001";

Error wrong(std::string message) {
  return {.code = ErrorCode::invalid_argument,
          .message = std::move(message),
          .hint = "a server is faultline://host:port or faultline+tls://host:port"};
}

bool is_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), port);
  return problem == std::errc{} && end == text.data() + text.size() && port != 0;
}

bool is_host(std::string_view text) {
  constexpr std::string_view kOther = "-._:[]%";
  const auto good = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOther.find(c) != std::string_view::npos;
  };
  return !text.empty() && std::ranges::all_of(text, good);
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`, with the port.
std::optional<std::string> parse_target(std::string_view text) {
  const std::size_t bracket = text.rfind(']');
  const std::size_t colon = text.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  const std::string_view host = has_port ? text.substr(0, colon) : text;
  const std::string_view port = has_port ? text.substr(colon + 1) : kDefaultPort;
  const bool is_v6 = host.starts_with('[') && host.ends_with(']');
  if (!is_host(host) || !is_port(port) || (!is_v6 && host.find_first_of("[]:") != std::string_view::npos))
    return std::nullopt;
  return std::string{host} + ":" + std::string{port};
}

bool is_this_machine(std::string_view target) {
  const std::string_view host = target.substr(0, target.rfind(':'));
  const bool is_v4 = host.find_first_not_of("0123456789.") == std::string_view::npos;
  return host == "localhost" || host == "[::1]" || (is_v4 && host.starts_with("127."));
}

}  // namespace

bool ServerAddress::is_loopback() const { return std::ranges::all_of(targets, is_this_machine); }

Expected<ServerAddress> parse_server_address(std::string_view url) {
  ServerAddress address;
  std::string_view rest = url;
  if (rest.starts_with(kTls)) {
    address.tls = true;
    rest.remove_prefix(kTls.size());
  } else if (rest.starts_with(kPlain)) {
    rest.remove_prefix(kPlain.size());
  } else {
    return std::unexpected(wrong("the server's address does not begin with faultline://"));
  }
  // The text is not repeated here: there may be a secret in it.
  if (rest.find('@') != std::string_view::npos) {
    return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                                 .message = "there is something before an @ in the server's address",
                                 .hint = "give the key as WorkerOptions::api_key or FAULTLINE_API_KEY"});
  }
  if (const std::size_t question = rest.find('?'); question != std::string_view::npos) {
    if (rest.substr(question) != "?insecure=true")
      return std::unexpected(wrong("after the ? of a server's address only insecure=true is known"));
    address.insecure = true;
    rest = rest.substr(0, question);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  for (;;) {
    const std::size_t comma = rest.find(',');
    const auto target = parse_target(rest.substr(0, comma));
    if (!target)
      return std::unexpected(wrong("\"" + std::string{rest.substr(0, comma)} + "\" is no host:port"));
    address.targets.push_back(*target);
    if (comma == std::string_view::npos) return address;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace faultline::remote

#include "base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace faultline {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// With its zone, if it has one: fe80::1%eth0.
bool is_ipv6(std::string_view host) {
  const auto percent = host.find('%');
  const std::string digits{host.substr(0, percent)};
  in6_addr address{};
  // A NUL would end it early.
  if (digits.contains('\0') || inet_pton(AF_INET6, digits.c_str(), &address) != 1) return false;
  if (percent == std::string_view::npos) return true;
  const std::string_view zone = host.substr(percent + 1);
  return !zone.empty() && std::ranges::all_of(zone, [](char c) {
    return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_';
  });
}

/// Underscores are no part of the standard and of the names that containers have.
bool is_host_name(std::string_view host) {
  constexpr std::size_t kHostMax = 253;
  return !host.empty() && host.size() <= kHostMax && std::ranges::all_of(host, [](char c) {
    return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_';
  });
}

std::optional<std::uint16_t> parse_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return port;
}

struct Halves {
  std::string_view host;
  std::optional<std::string_view> port;
};

/// At the last colon that is not inside brackets.
Halves split(std::string_view text) {
  const auto bracket = text.rfind(']');
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || (bracket != std::string_view::npos && colon < bracket))
    return {.host = text, .port = std::nullopt};
  return {.host = text.substr(0, colon), .port = text.substr(colon + 1)};
}

/// A host that is there, without its brackets.
std::expected<std::string, std::string> parse_host(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) {
    const std::string_view inside = host.substr(1, host.size() - 2);
    if (is_ipv6(inside)) return std::string{inside};
    return std::unexpected("what is in brackets is not an IPv6 address");
  }
  if (host.contains(':')) return std::unexpected("an IPv6 address has to be in brackets, such as [::1]:8000");
  if (is_host_name(host)) return std::string{host};
  return std::unexpected("its host is neither a name nor an IP address");
}

}  // namespace

std::string HostPort::to_string() const {
  const std::string port_text = ":" + std::to_string(port);
  return host.contains(':') ? "[" + host + "]" + port_text : host + port_text;
}

bool HostPort::is_loopback() const {
  std::string lower = host;
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (lower == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24U) == 127U;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  const auto& bytes = v6.s6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && bytes[12] == 127U);
}

std::expected<HostPort, std::string> parse_listen_address(std::string_view text) {
  const auto [host_text, port_text] = split(text);
  if (!port_text) return std::unexpected("it has no port");
  const auto port = parse_port(*port_text);
  if (!port) return std::unexpected("a port is 0 to 65535, and 0 is any that is free");
  if (host_text.empty()) return HostPort{.host = "127.0.0.1", .port = *port};
  if (host_text == "*") return std::unexpected("all interfaces are 0.0.0.0:PORT or [::]:PORT");
  auto host = parse_host(host_text);
  if (!host) return std::unexpected(std::move(host.error()));
  return HostPort{.host = std::move(*host), .port = *port};
}

std::expected<HostPort, std::string> parse_connect_address(std::string_view text,
                                                           std::uint16_t default_port) {
  const auto [host_text, port_text] = split(text);
  if (host_text.empty()) return std::unexpected("it has no host");
  const auto port = port_text ? parse_port(*port_text) : default_port;
  if (!port || *port == 0) return std::unexpected("a port is 1 to 65535");
  auto host = parse_host(host_text);
  if (!host) return std::unexpected(std::move(host.error()));
  return HostPort{.host = std::move(*host), .port = *port};
}

}  // namespace faultline

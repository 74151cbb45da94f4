#include "config/values.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/dsn.h"
#include "base/utf8.h"
#include "config/settings.h"

namespace faultline::config {
namespace {

using std::chrono::milliseconds;

template <class Number>
using Unit = std::pair<std::string_view, Number>;

constexpr std::array<Unit<std::uint64_t>, 5> kDurations{
    {{"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};
constexpr std::array<Unit<std::uint64_t>, 4> kSizes{
    {{"GiB", 1U << 30U}, {"MiB", 1U << 20U}, {"KiB", 1U << 10U}, {"", 1}}};

/// A whole number and the unit after it.
template <class Units>
std::optional<std::uint64_t> parse_with_unit(std::string_view text, const Units& units, std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const std::string_view unit{rest, static_cast<std::size_t>(text.data() + text.size() - rest)};
  const auto found = std::ranges::find(units, unit, [](const auto& known) { return known.first; });
  if (found == units.end() || number > most / found->second) return std::nullopt;
  return number * found->second;
}

template <class Units>
std::string write_with_unit(std::uint64_t value, const Units& units) {
  for (const auto& [unit, worth] : units) {
    if (value >= worth && value % worth == 0) return std::to_string(value / worth) + std::string{unit};
  }
  return {};
}

Error not_an_address(std::string_view text, std::string hint) {
  return {.code = ErrorCode::invalid_argument,
          .message = quoted(text) + " is not an address",
          .hint = std::move(hint)};
}

bool is_v6(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool is_host_name(std::string_view host) {
  constexpr std::size_t kHostMax = 253;
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  };
  return !host.empty() && host.size() <= kHostMax && std::ranges::all_of(host, allowed);
}

}  // namespace

std::string ListenAddress::to_string() const {
  const std::string port_text = ":" + std::to_string(port);
  return host.contains(':') ? "[" + host + "]" + port_text : host + port_text;
}

bool ListenAddress::is_loopback() const {
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

Expected<ListenAddress> parse_listen_address(std::string_view text) {
  const std::string usual = "write HOST:PORT, such as 127.0.0.1:8000 or [::1]:8000";
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::unexpected(not_an_address(text, usual));
  std::string_view host = text.substr(0, colon);
  const auto port = parse_count(text.substr(colon + 1));
  if (!port || *port > std::numeric_limits<std::uint16_t>::max())
    return std::unexpected(not_an_address(text, usual + "; a port is 0 to 65535, and 0 is any that is free"));
  ListenAddress address{.host = "127.0.0.1", .port = static_cast<std::uint16_t>(*port)};
  if (host.empty()) return address;
  if (host == "*")
    return std::unexpected(
        not_an_address(text, "to listen on all interfaces write 0.0.0.0:PORT or [::]:PORT"));
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  address.host = std::string{host};
  if (in_brackets ? is_v6(address.host) : is_host_name(host)) return address;
  return std::unexpected(not_an_address(
      text, host.contains(':') ? "put an IPv6 address into brackets, such as [::1]:8000" : usual));
}

std::optional<milliseconds> parse_duration(std::string_view text) {
  const auto value = parse_with_unit(text, kDurations, std::numeric_limits<milliseconds::rep>::max());
  if (!value) return std::nullopt;
  return milliseconds{static_cast<milliseconds::rep>(*value)};
}

std::optional<std::size_t> parse_size(std::string_view text) {
  return parse_with_unit(text, kSizes, std::numeric_limits<std::size_t>::max());
}

std::optional<std::size_t> parse_count(std::string_view text) {
  constexpr std::array<Unit<std::uint64_t>, 1> kNone{{{"", 1}}};
  return parse_with_unit(text, kNone, std::numeric_limits<std::size_t>::max());
}

std::string write_duration(milliseconds duration) {
  if (duration <= milliseconds{0}) return "0s";
  return write_with_unit(static_cast<std::uint64_t>(duration.count()), kDurations);
}

std::string write_size(std::size_t bytes) { return bytes == 0 ? "0" : write_with_unit(bytes, kSizes); }

std::string quoted(std::string_view value) {
  constexpr std::size_t kShown = 60;
  std::string text = without_passwords(value);
  if (text.size() > kShown) {
    text.resize(first_bytes(text, kShown).size());
    text += "…";
  }
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20U || c == '\x7f'; }, ' ');
  return "\"" + text + "\"";
}

std::optional<double> parse_ratio(std::string_view text) {
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string write_ratio(double ratio) {
  std::array<char, 64> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), ratio);
  return {text.data(), error == std::errc{} ? end : text.data()};
}

}  // namespace faultline::config

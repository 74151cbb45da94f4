#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace faultline {

/// A host and a TCP port.
struct HostPort {
  std::string host;  ///< an IPv6 address stands here without its brackets
  std::uint16_t port = 0;

  /// HOST:PORT or [V6]:PORT, as the functions below read it.
  [[nodiscard]] std::string to_string() const;
  /// It is surely this machine and no other: 127.0.0.0/8, ::1, localhost.
  [[nodiscard]] bool is_loopback() const;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

/// How an address is written, for a message.
inline constexpr std::string_view kHostPortHint = "write HOST:PORT, such as 127.0.0.1:8000 or [::1]:8000";

/// Where to listen: HOST:PORT, [V6]:PORT, or :PORT (127.0.0.1). Port 0 is any that is free. The error says
/// why it is no address, as the end of a sentence.
[[nodiscard]] std::expected<HostPort, std::string> parse_listen_address(std::string_view text);
/// What to connect to: HOST:PORT or [V6]:PORT, or either without a port.
[[nodiscard]] std::expected<HostPort, std::string> parse_connect_address(std::string_view text,
                                                                         std::uint16_t default_port);

}  // namespace faultline

#include "remote/server_address.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace faultline::remote {
namespace {

constexpr std::string_view kPlain = "faultline://";
constexpr std::string_view kTls = "faultline+tls://";
constexpr std::uint16_t kDefaultPort = 8001;

Error wrong(std::string message) {
  return {.code = ErrorCode::invalid_argument,
          .message = std::move(message),
          .hint = "a server is faultline://host:port or faultline+tls://host:port"};
}

}  // namespace

bool ServerAddress::is_loopback() const { return std::ranges::all_of(targets, &HostPort::is_loopback); }

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
    const std::string_view text = rest.substr(0, comma);
    auto target = parse_connect_address(text, kDefaultPort);
    if (!target)
      return std::unexpected(wrong("\"" + std::string{text} + "\" is not an address: " + target.error()));
    address.targets.push_back(std::move(*target));
    if (comma == std::string_view::npos) return address;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace faultline::remote

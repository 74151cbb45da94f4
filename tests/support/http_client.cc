#include "support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace faultline::testing {
namespace {

class Socket {
 public:
  explicit Socket(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // A server that never answers is a failed test, not a stuck one.
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { ::close(fd_); }

  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Until the other side closes.
  [[nodiscard]] std::string receive() const {
    std::string all;
    std::array<char, 65'536> buffer{};
    for (;;) {
      const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (got <= 0) return all;
      all.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  int fd_;
  bool connected_ = false;
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string text_of(const HttpRequest& request) {
  std::string text = request.method + " " + request.target + " HTTP/1.1\r\nConnection: close\r\n";
  if (!request.headers.contains("Host")) text += "Host: localhost\r\n";
  for (const auto& [name, value] : request.headers)
    text.append(name).append(": ").append(value).append("\r\n");
  if (request.method != "GET") text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  return text + "\r\n" + request.body;
}

HttpResponse parse(const std::string& text) {
  const auto head_end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.1 ") || head_end == std::string::npos) return {};
  HttpResponse answer{.status = std::stoi(text.substr(9, 3)), .body = text.substr(head_end + 4)};
  auto at = text.find("\r\n") + 2;
  while (at < head_end) {
    const auto end = text.find("\r\n", at);
    const auto colon = text.find(": ", at);
    if (colon < end)
      answer.headers[lower(text.substr(at, colon - at))] = text.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  return answer;
}

}  // namespace

HttpResponse http(std::uint16_t port, const HttpRequest& request) {
  const Socket socket{port};
  if (!socket.connected() || !socket.send(text_of(request))) return {};
  return parse(socket.receive());
}

}  // namespace faultline::testing

#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace faultline::testing {

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers{};  ///< names in lower case
  std::string body{};

  [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(body); }
  [[nodiscard]] std::string code() const { return json().value("code", ""); }
  [[nodiscard]] std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string{} : found->second;
  }
};

/// A client that sends exactly the bytes that a test wants sent.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect to the server");
    }
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), pending_(std::move(other.pending_)) {}
  RawClient& operator=(RawClient&&) = delete;
  ~RawClient() { close(); }

  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void shrink_receive_buffer() const {
    const int bytes = 4'096;
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }

  /// False if the server does not take it any more.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  /// Everything until the server closes.
  std::string read_to_end() {
    while (receive()) {
    }
    return std::exchange(pending_, {});
  }
  /// What stands before `mark`, which is taken too.
  std::optional<std::string> read_until(std::string_view mark) {
    std::size_t at = 0;
    while ((at = pending_.find(mark)) == std::string::npos) {
      if (!receive()) return std::nullopt;
    }
    std::string found = pending_.substr(0, at);
    pending_.erase(0, at + mark.size());
    return found;
  }
  /// Nothing: the server closed before a whole answer came.
  std::optional<Reply> read_reply(bool has_body = true) {
    const auto head = read_until("\r\n\r\n");
    if (!head) return std::nullopt;
    Reply reply = parse_head(*head);
    if (reply.status == 100) return reply;
    const std::string length = reply.header("content-length");
    if (!has_body || length.empty()) return reply;
    const std::size_t bytes = std::stoul(length);
    while (pending_.size() < bytes) {
      if (!receive()) return std::nullopt;
    }
    reply.body = pending_.substr(0, bytes);
    pending_.erase(0, bytes);
    return reply;
  }

  Reply request(std::string_view method, std::string_view target, std::string_view body = {},
                std::string_view extra_headers = {}) {
    std::string bytes = std::string{method} + " " + std::string{target} + " HTTP/1.1\r\nHost: localhost\r\n";
    if (!body.empty()) {
      if (extra_headers.find("Content-Type") == std::string_view::npos)
        bytes += "Content-Type: application/json\r\n";
      bytes += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    }
    bytes += std::string{extra_headers} + "\r\n" + std::string{body};
    send(bytes);
    auto reply = read_reply(method != "HEAD");
    if (!reply) throw std::runtime_error("the server closed without an answer");
    return std::move(*reply);
  }

 private:
  static Reply parse_head(const std::string& head) {
    Reply reply{.status = std::stoi(head.substr(head.find(' ') + 1))};
    std::size_t at = head.find("\r\n");
    while (at != std::string::npos) {
      const std::size_t end = std::min(head.find("\r\n", at + 2), head.size());
      const std::string line = head.substr(at + 2, end - at - 2);
      const std::size_t colon = line.find(':');
      std::string name = line.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      reply.headers[name] = line.substr(std::min(colon + 2, line.size()));
      at = end == head.size() ? std::string::npos : end;
    }
    return reply;
  }

  bool receive() {
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 60'000) != 1) throw std::runtime_error("the server sends nothing for a minute");
    char bytes[16'384];
    const auto got = ::recv(socket_, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    pending_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }

  int socket_;
  std::string pending_;
};

}  // namespace faultline::testing

#pragma once

// A payment service in a hundred lines, so that an example has something outside the database to call. Not a
// model of how to write a server.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace example {

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    if (fd < 0) throw std::runtime_error("no socket");
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { ::close(fd_); }

  [[nodiscard]] int fd() const { return fd_; }
  void write(std::string_view text) const {
    if (::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
      throw std::runtime_error("the other side has gone");
  }
  /// Everything until `end`, or until the other side closes.
  [[nodiscard]] std::string read_until(std::string_view end) const {
    std::string text;
    char buffer[1024];
    while (!text.ends_with(end) || end.empty()) {
      const ssize_t count = ::recv(fd_, buffer, sizeof buffer, 0);
      if (count <= 0) break;
      text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
  }

 private:
  int fd_;
};

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

inline std::string request(std::uint16_t port, const std::string& head) {
  const Socket socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const sockaddr_in address = loopback(port);
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("the payment server is down");
  socket.write(head + "Host: localhost\r\nConnection: close\r\n\r\n");
  const std::string answer = socket.read_until("");
  const std::size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

inline std::string post(std::uint16_t port, const std::string& path, const std::string& idempotency_key) {
  return request(port, "POST " + path + " HTTP/1.1\r\nIdempotency-Key: " + idempotency_key + "\r\n");
}
inline std::string get(std::uint16_t port, const std::string& path) {
  return request(port, "GET " + path + " HTTP/1.1\r\n");
}

/// `POST /charges` charges once per Idempotency-Key and answers with the receipt; `GET /charges/KEY` looks it
/// up.
class PaymentServer {
 public:
  PaymentServer() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (::bind(listener_.fd(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        ::listen(listener_.fd(), 16) != 0 ||
        ::getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      throw std::runtime_error("the payment server cannot listen");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread{[this] { serve(); }};
  }
  PaymentServer(const PaymentServer&) = delete;
  PaymentServer& operator=(const PaymentServer&) = delete;
  ~PaymentServer() {
    ::shutdown(listener_.fd(), SHUT_RDWR);  // ends the accept
    thread_.join();
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::size_t charges() const {
    const std::lock_guard lock{mutex_};
    return receipts_.size();
  }

 private:
  void serve() {
    for (;;) {
      const int client = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) return;
      const Socket socket{client};
      const std::string body = answer(socket.read_until("\r\n\r\n"));
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    }
  }
  std::string answer(const std::string& head) {
    const auto after = [&](std::string_view words, std::string_view end) {
      const std::size_t at = head.find(words) + words.size();
      return head.substr(at, head.find(end, at) - at);
    };
    const std::lock_guard lock{mutex_};
    if (head.starts_with("GET ")) {
      const auto found = receipts_.find(after("/charges/", " "));
      return found == receipts_.end() ? "" : found->second;
    }
    return receipts_
        .try_emplace(after("Idempotency-Key: ", "\r"), "receipt-" + std::to_string(receipts_.size() + 1))
        .first->second;
  }

  Socket listener_;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> receipts_;  // guarded by mutex_; by idempotency key
  std::jthread thread_;
};

}  // namespace example

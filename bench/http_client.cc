#include "bench/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>

namespace faultline::bench {
namespace {

[[noreturn]] void failed(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

std::size_t number_after(std::string_view text, std::string_view name) {
  const auto at = text.find(name);
  if (at == std::string_view::npos) throw std::runtime_error("an answer without " + std::string{name});
  const std::string_view digits = text.substr(at + name.size());
  std::size_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

}  // namespace

HttpClient::HttpClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (socket_ < 0) failed("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) failed("connect");
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

HttpClient::~HttpClient() { ::close(socket_); }

int HttpClient::exchange(std::string_view request) {
  send(request);
  std::size_t head = 0;
  while ((head = received_.find("\r\n\r\n")) == std::string::npos) receive_more();
  const std::string_view text{received_.data(), head};
  const std::size_t whole = head + 4 + number_after(text, "Content-Length: ");
  const int status = static_cast<int>(number_after(text, "HTTP/1.1 "));
  while (received_.size() < whole) receive_more();
  received_.erase(0, whole);
  return status;
}

void HttpClient::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) failed("send");
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void HttpClient::receive_more() {
  std::array<char, 16'384> buffer{};
  const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (got < 0) failed("recv");
  if (got == 0) throw std::runtime_error("the server closed the connection");
  received_.append(buffer.data(), static_cast<std::size_t>(got));
}

std::string post(std::string_view target, std::string_view body) {
  std::string request{"POST "};
  request.append(target).append(
      " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ");
  request.append(std::to_string(body.size())).append("\r\n\r\n").append(body);
  return request;
}

}  // namespace faultline::bench

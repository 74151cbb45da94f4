#include "metrics/endpoint.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "base/host_port.h"
#include "base/interrupt.h"

namespace faultline::metrics {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kClientMax{3};
constexpr std::size_t kHeadMax = 8'192;
constexpr int kBacklog = 16;

/// Closes a descriptor, unless somebody took it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] int take() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Error cannot_listen(std::string_view listen, const std::string& why) {
  return {.code = ErrorCode::invalid_argument,
          .message = "metrics cannot be served at \"" + std::string{listen} + "\": " + why,
          .hint =
              "write HOST:PORT, such as 127.0.0.1:9100, with an address of this machine and a port that "
              "nobody has; port 0 takes a free one"};
}

std::string last_error() { return std::generic_category().message(errno); }

struct Listener {
  int fd = -1;
  std::uint16_t port = 0;
};

Expected<Listener> listen_at(std::string_view listen) {
  const auto address = parse_listen_address(listen);
  if (!address) return std::unexpected(cannot_listen(listen, address.error()));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int problem =
          ::getaddrinfo(address->host.c_str(), std::to_string(address->port).c_str(), &hints, &found);
      problem != 0)
    return std::unexpected(cannot_listen(listen, ::gai_strerror(problem)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> freed{found, &::freeaddrinfo};
  Descriptor fd{::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const int yes = 1;
  if (fd.get() < 0 || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return std::unexpected(cannot_listen(listen, last_error()));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  std::array<char, NI_MAXSERV> port{};
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port.data(), port.size(),
                    NI_NUMERICSERV) != 0)
    return std::unexpected(cannot_listen(listen, last_error()));
  return Listener{.fd = fd.take(), .port = static_cast<std::uint16_t>(std::stoi(port.data()))};
}

/// Waits for one of these events. False: `stop` was fired, or the time is over.
bool ready(int fd, short events, const Interrupt& stop, Deadline until) {
  for (;;) {
    std::array<pollfd, 2> both{
        {{.fd = fd, .events = events, .revents = 0}, {.fd = stop.fd(), .events = POLLIN, .revents = 0}}};
    const int found = ::poll(both.data(), both.size(), poll_timeout_ms(until));
    if (found < 0 && errno == EINTR) continue;
    if (found < 0 || both[1].revents != 0) return false;
    if (both[0].revents != 0) return true;
    if (found == 0 && Clock::now() >= until) return false;
  }
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

std::string answer(std::string_view status, std::string_view body) {
  std::string text = "HTTP/1.1 " + std::string{status} +
                     "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close\r\n"
                     "Content-Length: ";
  text.append(std::to_string(body.size())).append("\r\n\r\n").append(body);
  return text;
}

/// A request's head, or nothing when it did not come in time or is too long.
std::optional<std::string> read_head(int client, const Interrupt& stop, Deadline until) {
  std::string head;
  std::array<char, 1'024> buffer{};
  while (!head.contains("\r\n\r\n")) {
    if (head.size() > kHeadMax || !ready(client, POLLIN, stop, until)) return std::nullopt;
    const auto got = ::recv(client, buffer.data(), buffer.size(), 0);
    if (got == 0 || (got < 0 && !would_block())) return std::nullopt;
    if (got > 0) head.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return head;
}

void write_all(int client, std::string_view text, const Interrupt& stop, Deadline until) {
  while (!text.empty() && ready(client, POLLOUT, stop, until)) {
    const auto sent = ::send(client, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && !would_block()) return;
    if (sent > 0) text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

}  // namespace

Expected<std::unique_ptr<Endpoint>> Endpoint::start(std::string_view listen,
                                                    std::function<std::string()> text) try {
  auto listener = listen_at(listen);
  if (!listener) return std::unexpected(std::move(listener.error()));
  Descriptor fd{listener->fd};
  std::unique_ptr<Endpoint> endpoint{new Endpoint{fd.get(), listener->port, std::move(text)}};
  static_cast<void>(fd.take());
  return endpoint;
} catch (const std::system_error& error) {
  return std::unexpected(cannot_listen(listen, error.what()));
}

Endpoint::Endpoint(int listener, std::uint16_t port, std::function<std::string()> text)
    : listener_(listener), port_(port), text_(std::move(text)), thread_([this] { run(); }) {}

Endpoint::~Endpoint() {
  stop_.fire();
  thread_.join();
  ::close(listener_);
}

void Endpoint::run() const {
  while (ready(listener_, POLLIN, stop_, Deadline::max())) {
    const Descriptor client{::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (client.get() >= 0) {
      serve(client.get());
      continue;
    }
    // Out of descriptors: the connection stays where it is, and asking again at once would be a busy loop.
    if (!would_block() && errno != ECONNABORTED)
      static_cast<void>(stop_.wait(Clock::now() + std::chrono::milliseconds{100}));
  }
}

void Endpoint::serve(int client) const {
  const Deadline until = Clock::now() + kClientMax;
  const auto head = read_head(client, stop_, until);
  if (!head) return;
  const std::string_view line = std::string_view{*head}.substr(0, head->find("\r\n"));
  const std::string_view method = line.substr(0, line.find(' '));
  const std::string_view rest = line.substr(std::min(method.size() + 1, line.size()));
  const std::string_view target = rest.substr(0, rest.find_first_of(" ?"));
  std::string reply;
  if (target != "/metrics")
    reply = answer("404 Not Found", "only /metrics is here\n");
  else if (method != "GET")
    reply = answer("405 Method Not Allowed", "only GET is answered\n");
  else
    reply = answer("200 OK", text_());
  write_all(client, reply, stop_, until);
  // Unread bytes at the close would make it a reset, which takes the answer with it.
  ::shutdown(client, SHUT_WR);
  std::array<char, 1'024> rest_of_it{};
  while (ready(client, POLLIN, stop_, until) && ::recv(client, rest_of_it.data(), rest_of_it.size(), 0) > 0) {
  }
}

}  // namespace faultline::metrics

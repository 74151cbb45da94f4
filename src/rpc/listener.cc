#include "rpc/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include <grpcpp/server_builder.h>

#include "base/host_port.h"

namespace faultline::rpc {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// How many that were cut may still be open; then nobody is accepted until gRPC has closed some.
constexpr std::size_t kLeavingMax = 32;
/// Bytes that came since gRPC last wrote something, of one connection, and of all strangers together. Flow
/// control keeps honest clients far below: gRPC must write to let them send more than 64 KiB. A stream that
/// is opened and reset takes 28 bytes or more, and 20 KB of memory until gRPC writes.
constexpr std::uint64_t kUnansweredMax = 1'048'576;
/// Of one stranger, who has no calls beside his first ones.
constexpr std::uint64_t kStrangerMax = 131'072;
constexpr auto kLookEvery = 50ms;
constexpr auto kTellEvery = 1s;
/// Until some descriptor is free again, or gRPC has closed what was cut.
constexpr auto kPause = 10ms;

Error cannot_listen(const ListenerOptions& options, const std::string& why) {
  return {
      .code = ErrorCode::unavailable,
      .message = "cannot listen for gRPC on " + HostPort{options.host, options.port}.to_string() + ": " + why,
      .hint =
          "another program may listen there, or this machine may not have the address; choose another one"};
}

std::string last_error() { return std::generic_category().message(errno); }

bool set(int socket, int level, int option) {
  const int yes = 1;
  return ::setsockopt(socket, level, option, &yes, sizeof yes) == 0;
}

/// -1, and errno says why.
int listening_socket(const addrinfo& address, std::uint16_t port) {
  sockaddr_storage bound{};
  std::memcpy(&bound, address.ai_addr, address.ai_addrlen);
  // Port and place of it are the same in both families.
  if (port != 0) reinterpret_cast<sockaddr_in*>(&bound)->sin_port = htons(port);
  const int made = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return -1;
  if (set(made, SOL_SOCKET, SO_REUSEADDR) && set(made, IPPROTO_TCP, TCP_NODELAY) &&
      ::bind(made, reinterpret_cast<const sockaddr*>(&bound), address.ai_addrlen) == 0 &&
      ::listen(made, SOMAXCONN) == 0)
    return made;
  const int why = errno;
  ::close(made);
  errno = why;
  return -1;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

/// As gRPC names it.
std::string peer_name(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&address);
  const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&address);
  const std::string port = ":" + std::to_string(ntohs(v4->sin_port));
  if (address.ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    return "ipv6:%5B" + std::string{text.data()} + "%5D" + port;
  }
  const void* const number =
      address.ss_family == AF_INET ? static_cast<const void*>(&v4->sin_addr) : &v6->sin6_addr.s6_addr[12];
  ::inet_ntop(AF_INET, number, text.data(), text.size());
  return "ipv4:" + std::string{text.data()} + port;
}

struct Traffic {
  std::uint64_t received = 0;
  std::uint64_t sent = 0;
};

Traffic traffic_of(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return {.received = info.tcpi_bytes_received, .sent = info.tcpi_bytes_sent};
}

/// 0: it is no socket any more.
std::uint64_t cookie_of(int fd) {
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

}  // namespace

bool Listener::Connection::open() const { return cookie_of(fd) == cookie; }

void Listener::Connection::reset() const {
  // Through a descriptor of our own: theirs could become another socket's between the look and the deed.
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return;
  // Not a shutdown, after which gRPC would still read, and keep, what has come.
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  if (cookie_of(own) == cookie) static_cast<void>(::connect(own, &nobody, sizeof nobody));
  ::close(own);
}

Expected<std::unique_ptr<Listener>> Listener::bind(ListenerOptions options) try {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int problem =
      ::getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &hints, &found);
  if (problem != 0) return std::unexpected(cannot_listen(options, ::gai_strerror(problem)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> freed{found, &::freeaddrinfo};
  const int socket = listening_socket(*found, options.port);
  if (socket < 0) return std::unexpected(cannot_listen(options, last_error()));
  return std::unique_ptr<Listener>{new Listener{std::move(options), socket}};
} catch (const std::system_error& error) {
  return std::unexpected(cannot_listen({}, error.what()));
}

Listener::Listener(ListenerOptions options, int socket)
    : options_(std::move(options)), socket_(socket), port_(port_of(socket)) {}

Listener::~Listener() {
  stop();
  ::close(socket_);
}

void Listener::start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::jthread{[this] { run(); }};
}

void Listener::stop() {
  stop_.fire();
  if (thread_.joinable()) thread_.join();
}

void Listener::run() {
  Clock::time_point look{};
  bool quiet = true;  // there is nobody to look at
  while (true) {
    std::array<pollfd, 2> both{{{.fd = socket_, .events = POLLIN, .revents = 0},
                                {.fd = stop_.fd(), .events = POLLIN, .revents = 0}}};
    if (const auto now = Clock::now(); now >= look) {
      look = now + kLookEvery;
      quiet = !cut_floods();
    }
    ::poll(both.data(), both.size(), quiet ? -1 : poll_timeout_ms(look));
    if (both[1].revents != 0) return;
    if (both[0].revents != 0) quiet = false;
    if (both[0].revents != 0 && !accept_one() && stop_.wait(Clock::now() + kPause)) return;
  }
}

bool Listener::accept_one() {
  const Room room = make_room();
  if (room == Room::soon) return false;
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  const int fd = ::accept4(socket_, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return errno == EINTR || errno == EAGAIN || errno == ECONNABORTED;
  if (room == Room::none) {
    ::close(fd);
    return true;
  }
  {
    const std::lock_guard lock{mutex_};
    connections_[peer_name(peer)] = {.fd = fd, .cookie = cookie_of(fd), .number = ++accepted_};
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters handed;
  handed.listener_fd = socket_;
  handed.fd = fd;
  acceptor_->HandleNewConnection(&handed);
  return true;
}

Listener::Room Listener::make_room() {
  const std::lock_guard lock{mutex_};
  if (connections_.size() < options_.connections_max) return Room::some;
  forget_closed();
  std::size_t leaving = 0;
  Connection* longest = nullptr;
  for (auto& [peer, connection] : connections_) {
    if (connection.cut) ++leaving;
    if (connection.cut || connection.admitted) continue;
    if (!longest || connection.number < longest->number) longest = &connection;
  }
  if (connections_.size() - leaving < options_.connections_max)
    return leaving < kLeavingMax ? Room::some : Room::soon;
  if (!longest && leaving == 0) {
    ++refused_;
    return Room::none;
  }
  if (!longest || leaving >= kLeavingMax) return Room::soon;
  longest->reset();
  longest->cut = true;
  ++refused_;
  return Room::some;
}

void Listener::forget_closed() {
  std::erase_if(connections_, [](const auto& entry) { return !entry.second.open(); });
}

bool Listener::cut_floods() {
  const std::lock_guard lock{mutex_};
  forget_closed();
  std::size_t cut = 0;
  const auto cut_one = [&](Connection& connection) {
    connection.reset();
    connection.cut = true;
    ++cut;
  };
  std::vector<std::pair<std::uint64_t, Connection*>> strangers;
  std::uint64_t of_strangers = 0;
  for (auto& [peer, connection] : connections_) {
    if (connection.cut) continue;
    const Traffic now = traffic_of(connection.fd);
    if (now.sent != connection.sent || now.received < connection.answered) {
      connection.sent = now.sent;
      connection.answered = now.received;
    }
    const std::uint64_t unanswered = now.received - connection.answered;
    if (unanswered > (connection.admitted ? kUnansweredMax : kStrangerMax)) {
      cut_one(connection);
    } else if (!connection.admitted) {
      strangers.emplace_back(unanswered, &connection);
      of_strangers += unanswered;
    }
  }
  std::ranges::sort(strangers, std::greater{}, &std::pair<std::uint64_t, Connection*>::first);
  for (const auto& [unanswered, connection] : strangers) {
    if (of_strangers <= kUnansweredMax) break;
    cut_one(*connection);
    of_strangers -= unanswered;
  }
  tell_cut(cut);
  return !connections_.empty() || untold_ > 0;
}

void Listener::tell_cut(std::size_t connections) {
  if (connections > 0 && untold_ == 0) tell_from_ = Clock::now() + kTellEvery;
  refused_ += connections;
  untold_ += connections;
  if (untold_ == 0 || Clock::now() < tell_from_) return;
  // What they had is free by now, and would stay with the process.
  ::malloc_trim(0);
  options_.log({.name = "grpc_flood_cut",
                .severity = Severity::warning,
                .at = std::chrono::system_clock::now(),
                .fields = {{"connections", std::to_string(std::exchange(untold_, 0))}}});
}

void Listener::admitted(const std::string& peer) {
  const std::lock_guard lock{mutex_};
  if (const auto found = connections_.find(peer); found != connections_.end()) found->second.admitted = true;
}

Listener::Counters Listener::counters() {
  const std::lock_guard lock{mutex_};
  forget_closed();
  return {.connections = connections_.size(), .refused = refused_};
}

}  // namespace faultline::rpc

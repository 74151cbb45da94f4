#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace faultline::testing {

/// Stands between clients and a server on a TCP port of its own, and passes on whatever they say. Can turn
/// into a network that loses everything without a word: nobody is told, no connection ends. Thread-safe: one
/// thread of its own does the work.
class SilentProxy {
 public:
  /// The server is at HOST:PORT of this machine (by number), or at a unix socket's path.
  explicit SilentProxy(std::string server) : server_(std::move(server)) {
    wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (bind(listener_, generic(address), sizeof address) != 0 || listen(listener_, 64) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("the proxy cannot listen");
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread{[this](const std::stop_token& stop) { serve(stop); }};
  }

  ~SilentProxy() {
    thread_.request_stop();
    wake();
    thread_.join();
    links_.clear();
    close(listener_);
    close(wake_);
  }

  SilentProxy(const SilentProxy&) = delete;
  SilentProxy& operator=(const SilentProxy&) = delete;

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  /// From now on everything is lost, also what goes over new connections.
  void fall_silent() {
    std::unique_lock lock{mutex_};
    silent_ = true;
    all_silenced_ = false;
    wake();
    silenced_.wait(lock, [&] { return all_silenced_; });
  }
  /// New connections work again. Those that were there are lost for good, and nobody has told their ends.
  void let_new_ones_through() {
    const std::lock_guard lock{mutex_};
    silent_ = false;
  }

 private:
  struct Link {
    Link(int client_fd, int server_fd) : client(client_fd), server(server_fd) {}
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    ~Link() {
      close(client);
      if (server >= 0) close(server);
    }
    int client;
    int server;
    bool lost = false;   // what is said here reaches nobody
    bool ended = false;  // an end that hangs up on a lost link is not heard by the other one
  };

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  template <class Address>
  static const sockaddr* generic(const Address& address) {
    return reinterpret_cast<const sockaddr*>(&address);
  }

  [[nodiscard]] int connect_to_server() const {
    const bool is_unix = server_.starts_with('/');
    const int fd = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int failed = 0;
    if (is_unix) {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      if (server_.size() >= sizeof address.sun_path) throw std::runtime_error("too long: " + server_);
      std::memcpy(address.sun_path, server_.c_str(), server_.size() + 1);
      failed = connect(fd, generic(address), sizeof address);
    } else {
      const sockaddr_in address =
          loopback(static_cast<std::uint16_t>(std::stoi(server_.substr(server_.rfind(':') + 1))));
      failed = connect(fd, generic(address), sizeof address);
    }
    if (failed == 0) return fd;
    close(fd);
    return -1;
  }

  void wake() const {
    const std::uint64_t one = 1;
    if (write(wake_, &one, sizeof one) < 0) return;  // already awake
  }

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const Link& link : links_) {
        // Nobody listens to a lost one. Its buffers take what is said to it, and that is little.
        polled.push_back({link.lost ? -1 : link.client, POLLIN, 0});
        polled.push_back({link.lost ? -1 : link.server, POLLIN, 0});
      }
      poll(polled.data(), polled.size(), -1);
      std::uint64_t drained = 0;
      if (read(wake_, &drained, sizeof drained) < 0) drained = 0;
      const bool silent = lose_links_if_silent();
      std::size_t at = 2;
      for (Link& link : links_) {
        const bool client_spoke = polled[at].revents != 0;
        const bool server_spoke = polled[at + 1].revents != 0;
        at += 2;
        if (link.lost) continue;
        if (client_spoke && !pass(link.client, link.server)) link.ended = true;
        if (server_spoke && !pass(link.server, link.client)) link.ended = true;
      }
      links_.remove_if([](const Link& link) { return link.ended; });
      if (polled[1].revents != 0) accept_client(silent);
    }
  }

  bool lose_links_if_silent() {
    const std::lock_guard lock{mutex_};
    if (!silent_) return false;
    for (Link& link : links_) link.lost = true;
    all_silenced_ = true;
    silenced_.notify_all();
    return true;
  }

  void accept_client(bool silent) {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    links_.emplace_back(client, silent ? -1 : connect_to_server());
    links_.back().lost = silent;
    if (!silent && links_.back().server < 0) links_.pop_back();
  }

  /// False: one of them has hung up.
  static bool pass(int from, int to) {
    std::array<char, 65536> chunk{};
    const ssize_t got = recv(from, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    ssize_t sent = 0;
    while (sent < got) {
      const ssize_t put = send(to, chunk.data() + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
      if (put < 0 && errno != EINTR) return false;
      if (put > 0) sent += put;
    }
    return got > 0;
  }

  const std::string server_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  int wake_ = -1;
  std::list<Link> links_;  // of the proxy's thread alone
  std::mutex mutex_;       // guards what follows
  std::condition_variable silenced_;
  bool silent_ = false;
  bool all_silenced_ = false;
  std::jthread thread_;
};

}  // namespace faultline::testing

#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace faultline::testing {

/// Stands between a worker and a server: can stall, lose answers, cut, and lead new connections elsewhere.
class TcpProxy {
 public:
  explicit TcpProxy(std::uint16_t server_port) : server_port_(server_port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (bind(listener_, generic(&address), size) != 0 || ::listen(listener_, 64) != 0 ||
        getsockname(listener_, generic(&address), &size) != 0)
      throw std::runtime_error("the proxy cannot listen");
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread{[this](const std::stop_token& stop) { serve(stop); }};
  }
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;
  ~TcpProxy() {
    thread_.request_stop();
    wake();
    thread_.join();
    links_.clear();
    close(listener_);
    close(wake_);
  }

  [[nodiscard]] std::string url() const { return "faultline://127.0.0.1:" + std::to_string(port_); }

  /// Where connections from now on are led.
  void lead_to(std::uint16_t server_port) { server_port_ = server_port; }
  /// Passes nothing on in either direction, and no connection is made, until `resume`.
  void stall() { set(stalled_, true); }
  void resume() { set(stalled_, false); }
  /// What servers say is thrown away. What clients say arrives.
  void lose_answers() { set(losing_, true); }
  void lose_no_answers() { set(losing_, false); }
  [[nodiscard]] std::size_t bytes_lost() const { return bytes_lost_; }
  /// Ends all connections of now.
  void cut() { set(cut_, true); }
  /// Keeps what clients say on the connections of now, until `deliver_late`.
  void hold_requests() { set(hold_, true); }
  /// Whether this is part of what is kept.
  [[nodiscard]] bool holds(std::string_view text) const {
    const std::lock_guard lock{held_mutex_};
    return held_.contains(text);
  }
  /// Ends, for their clients, the connections of which requests are kept. The server notices nothing.
  void cut_clients() { set(cut_clients_, true); }
  /// The server gets what was kept. Nobody hears its answers.
  void deliver_late() { set(deliver_, true); }
  /// Whether this is part of an answer to a client that was cut.
  [[nodiscard]] bool answered_nobody(std::string_view text) const {
    const std::lock_guard lock{held_mutex_};
    return unheard_.contains(text);
  }

 private:
  struct Link {
    Link(int client_fd, int server_fd) : client(client_fd), server(server_fd) {}
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    ~Link() {
      if (client >= 0) close(client);
      close(server);
    }
    int client;  ///< -1: it was cut
    int server;
    std::string to_client{};
    std::string to_server{};
    bool held = false;
    bool ended = false;
  };

  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static sockaddr* generic(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

  void set(std::atomic<bool>& flag, bool value) {
    flag = value;
    wake();
  }
  void wake() const {
    const std::uint64_t one = 1;
    if (write(wake_, &one, sizeof one) < 0) return;  // already awake
  }

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
      if (stalled_) polled[1].events = 0;
      for (const Link& link : links_) {
        polled.push_back({link.client, interest(link.to_client), 0});
        polled.push_back({link.server, interest(link.held ? "" : link.to_server), 0});
      }
      poll(polled.data(), polled.size(), -1);
      std::uint64_t drained = 0;
      if (read(wake_, &drained, sizeof drained) < 0) drained = 0;
      if (cut_.exchange(false)) {
        links_.clear();
        continue;
      }
      if (hold_.exchange(false)) hold_links(true);
      if (cut_clients_.exchange(false)) cut_held_clients();
      if (deliver_.exchange(false)) hold_links(false);
      if (stalled_) continue;
      for (Link& link : links_) pass(link);
      links_.remove_if([](const Link& link) { return link.ended; });
      if ((polled[1].revents & POLLIN) != 0) accept_client();
    }
  }
  [[nodiscard]] short interest(const std::string& pending) const {
    if (stalled_) return 0;
    return static_cast<short>(POLLIN | (pending.empty() ? 0 : POLLOUT));
  }
  void accept_client() {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(server_port_);
    if (connect(server, generic(&address), sizeof address) != 0) {
      close(client);
      close(server);
      return;
    }
    links_.emplace_back(client, server);
  }
  void hold_links(bool held) {
    for (Link& link : links_) link.held = held;
  }
  void cut_held_clients() {
    for (Link& link : links_) {
      if (!link.held || link.client < 0) continue;
      close(link.client);
      link.client = -1;  // which poll passes over
    }
  }
  void pass(Link& link) {
    const std::size_t before = link.to_client.size();
    const bool gone = link.client < 0;
    const bool both_live =
        (gone || receive(link.client, link.to_server)) && receive(link.server, link.to_client);
    if (losing_) {
      bytes_lost_ += link.to_client.size() - before;
      link.to_client.resize(before);
    }
    if (gone || link.held) {
      const std::lock_guard lock{held_mutex_};
      if (gone) unheard_ += std::exchange(link.to_client, {});
      if (link.held) held_ = link.to_server;
    }
    const bool both_written =
        (link.held || send_on(link.server, link.to_server)) && (gone || send_on(link.client, link.to_client));
    link.ended = !both_live || !both_written;
  }
  static bool receive(int fd, std::string& buffer) {
    char chunk[65536];
    const ssize_t got = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    buffer.append(chunk, static_cast<std::size_t>(got));
    return got > 0;
  }
  static bool send_on(int fd, std::string& buffer) {
    if (buffer.empty()) return true;
    const ssize_t put = send(fd, buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0) return errno == EAGAIN || errno == EINTR;
    buffer.erase(0, static_cast<std::size_t>(put));
    return true;
  }

  std::atomic<std::uint16_t> server_port_;
  std::uint16_t port_ = 0;
  int listener_ = -1;
  int wake_ = -1;
  std::list<Link> links_;  // of the proxy's thread alone
  std::atomic<bool> stalled_ = false;
  std::atomic<bool> losing_ = false;
  std::atomic<bool> cut_ = false;
  std::atomic<bool> hold_ = false;
  std::atomic<bool> cut_clients_ = false;
  std::atomic<bool> deliver_ = false;
  mutable std::mutex held_mutex_;
  std::string held_;     // guarded by held_mutex_; what is kept of the connection that spoke last
  std::string unheard_;  // guarded by held_mutex_
  std::atomic<std::size_t> bytes_lost_ = 0;
  std::jthread thread_;
};

}  // namespace faultline::testing

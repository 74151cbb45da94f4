#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "pg/dsn_parts.h"

namespace faultline::testing {

/// Stands between a client and a PostgreSQL server, knows where the wire's messages begin and end, and
/// can cut the connection at a chosen message. Everything is counted, nothing is timed, so a cut always
/// falls in the same place. Messages are named by the byte that they have on the wire: 'S' Sync (which
/// commits a unit, or carries the COMMIT of a transaction), 'Q' a script, 'c' the end of a COPY.
/// Thread-safe: one thread of its own does the work.
class WireProxy {
 public:
  explicit WireProxy(const std::string& server_dsn) : server_(server_dsn) {
    std::string pattern = (std::filesystem::temp_directory_path() / "faultline-proxy-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no directory for the proxy's socket");
    directory_ = pattern;
    wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = unix_address(directory_ + "/.s.PGSQL.5432");
    if (bind(listener_, generic(address), sizeof address) != 0 || listen(listener_, 64) != 0) {
      throw std::runtime_error("the proxy cannot listen in " + directory_);
    }
    thread_ = std::jthread{[this](const std::stop_token& stop) { serve(stop); }};
  }

  ~WireProxy() {
    thread_.request_stop();
    wake();
    thread_.join();
    links_.clear();
    for (const auto& [server, unit] : held_) close(server);
    close(listener_);
    close(wake_);
    std::filesystem::remove_all(directory_);
  }

  WireProxy(const WireProxy&) = delete;
  WireProxy& operator=(const WireProxy&) = delete;

  /// The server's DSN, led through the proxy.
  [[nodiscard]] std::string dsn() const {
    DsnParts parts = server_;
    parts.erase("hostaddr");
    parts["host"] = directory_;
    parts["port"] = "5432";
    parts["sslmode"] = "disable";
    parts["gssencmode"] = "disable";
    return parts.dsn();
  }

  /// Cuts instead of forwarding the nth such message of a client from now: the server never sees it.
  void cut_before(char message, int nth = 1) { arm({Plan::Kind::before, message, nth, 0}); }
  /// Forwards the nth such message from now, waits until the server has answered it completely, and cuts
  /// without returning a byte of the answer: the server has done it, the client cannot know.
  void cut_after(char message, int nth = 1) { arm({Plan::Kind::after, message, nth, 0}); }
  /// Cuts as soon as the server's nth such message from now has been returned to the client: 'E' an error,
  /// 'C' the end of a statement, neither of which is the answer to a commit.
  void cut_after_returning(char message, int nth = 1) { arm({Plan::Kind::returned, message, nth, 0}); }
  /// Takes the next unit of a client, up to its Sync, and cuts: the server sees it only when `deliver_held`
  /// says so, on the connection that it was meant for.
  void hold_unit() { arm({Plan::Kind::hold, 0, 0, 0}); }
  /// Delivers what was held, and waits until the server has answered it; nobody gets the answers.
  void deliver_held() {
    deliver_ = true;
    wake();
    deliver_.wait(true);
  }
  /// Delivers the next unit of a client twice, in one go. The client gets the first answer. The statements of
  /// the unit must have been prepared before.
  void deliver_twice() { arm({Plan::Kind::twice, 0, 0, 0}); }
  /// Cuts when clients have sent this many bytes from now.
  void cut_after_client_bytes(std::size_t bytes) { arm({Plan::Kind::bytes, 0, 0, bytes}); }
  /// Passes nothing on in either direction, as a network that drops every packet, until `resume`.
  void stall() { set_stalled(true); }
  void resume() { set_stalled(false); }

  [[nodiscard]] int connections() const { return connections_; }              ///< accepted so far
  [[nodiscard]] int cuts() const { return cuts_; }                            ///< made so far
  [[nodiscard]] int second_deliveries() const { return second_deliveries_; }  ///< answered so far

 private:
  struct Plan {
    enum class Kind { before, after, returned, bytes, hold, twice };
    Kind kind;
    char message;
    int left;
    std::size_t bytes_left;
  };

  static constexpr std::size_t kPendingMax = 256 * 1024;

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
    std::string from_client, from_server;  // read, not yet a whole message
    std::string to_client, to_server;      // to be written
    std::string unit;                      // the messages of a client since its last Sync
    bool started = false;                  // the first message of a client has no type byte
    bool answer_withheld = false;
    bool held = false;        // nothing of the unit is passed on
    bool sent_twice = false;  // the answer after the next one goes to nobody
    bool swallowing = false;  // that is this one
    bool ended = false;
  };

  static sockaddr_un unix_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) throw std::runtime_error("too long for a socket: " + path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
  }

  template <class Address>
  static const sockaddr* generic(const Address& address) {
    return reinterpret_cast<const sockaddr*>(&address);
  }

  [[nodiscard]] int connect_to_server() const {
    const std::string host = server_.get("host", "127.0.0.1");
    const std::string port = server_.get("port", "5432");
    if (host.starts_with('/')) {
      const sockaddr_un address = unix_address(host + "/.s.PGSQL." + port);
      return connected(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), generic(address), sizeof address);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), generic(address), sizeof address);
  }

  static int connected(int fd, const sockaddr* address, socklen_t size) {
    if (connect(fd, address, size) == 0) return fd;
    close(fd);
    return -1;
  }

  void wake() const {
    const std::uint64_t one = 1;
    if (write(wake_, &one, sizeof one) < 0) return;  // already awake
  }

  void arm(Plan plan) {
    const std::lock_guard lock{mutex_};
    plan_ = plan;
  }

  void set_stalled(bool stalled) {
    stalled_ = stalled;
    wake();
  }

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
      for (const Link& link : links_) {
        polled.push_back({link.client, interest(link.to_server, link.to_client), 0});
        polled.push_back({link.server, interest(link.to_client, link.to_server), 0});
      }
      // Stalled, nobody else is looked at: a caller that waits or hangs up would end each poll at once.
      poll(polled.data(), stalled_ ? 1 : polled.size(), -1);
      std::uint64_t drained = 0;
      if (read(wake_, &drained, sizeof drained) < 0) drained = 0;
      if (deliver_) {
        for (auto& [server, unit] : held_) deliver(server, unit);
        held_.clear();
        deliver_ = false;
        deliver_.notify_all();
      }
      if (stalled_) continue;
      std::size_t at = 2;
      for (Link& link : links_) {
        pass(link, polled[at].revents, polled[at + 1].revents);
        at += 2;
      }
      links_.remove_if([](const Link& link) { return link.ended; });
      if (polled[1].revents != 0) accept_client();
    }
  }

  // Reads on while what was read before can still be passed on.
  [[nodiscard]] static short interest(const std::string& forward, const std::string& backward) {
    return static_cast<short>((forward.size() < kPendingMax ? POLLIN : 0) | (backward.empty() ? 0 : POLLOUT));
  }

  void accept_client() {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) return;
    ++connections_;
    links_.emplace_back(client, connect_to_server());
    if (links_.back().server < 0) links_.pop_back();
  }

  void pass(Link& link, short client_events, short server_events) {
    if ((client_events & ~POLLOUT) != 0 && !read_into(link.client, link.from_client, /*from_client=*/true)) {
      link.ended = true;
    }
    if ((server_events & ~POLLOUT) != 0 && !read_into(link.server, link.from_server, /*from_client=*/false)) {
      // What the server said last still reaches the client.
      forward_answers(link);
      write_from(link.client, link.to_client);
      link.ended = true;
    }
    if (bytes_reached_) cut(link);
    if (link.ended) return;
    forward_requests(link);
    if (!link.ended) forward_answers(link);
    if (link.ended) return;
    if (!write_from(link.server, link.to_server)) link.to_server.clear();
    if (!write_from(link.client, link.to_client)) link.ended = true;
  }

  bool read_into(int fd, std::string& buffer, bool from_client) {
    char chunk[65536];
    const ssize_t got = recv(fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    buffer.append(chunk, static_cast<std::size_t>(got));
    if (from_client) count_bytes(static_cast<std::size_t>(got));
    return true;
  }

  static bool write_from(int fd, std::string& buffer) {
    if (buffer.empty()) return true;
    const ssize_t put = send(fd, buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0) return errno == EAGAIN || errno == EINTR;
    buffer.erase(0, static_cast<std::size_t>(put));
    return true;
  }

  void count_bytes(std::size_t got) {
    const std::lock_guard lock{mutex_};
    if (!plan_ || plan_->kind != Plan::Kind::bytes) return;
    bytes_reached_ = got >= plan_->bytes_left;
    plan_->bytes_left -= std::min(got, plan_->bytes_left);
    if (bytes_reached_) plan_.reset();
  }

  void cut(Link& link) {
    bytes_reached_ = false;
    link.ended = true;
    ++cuts_;
  }

  // The length of the whole message at the front of the buffer, once all of it is there.
  static std::optional<std::size_t> whole_message(std::string_view buffer, bool typed) {
    const std::size_t header = typed ? 5 : 4;
    if (buffer.size() < header) return std::nullopt;
    std::uint32_t length = 0;
    std::memcpy(&length, buffer.data() + header - 4, 4);
    const std::size_t size = ntohl(length) + (typed ? 1U : 0U);
    if (buffer.size() < size) return std::nullopt;
    return size;
  }

  void forward_requests(Link& link) {
    std::size_t done = 0;
    while (const auto size = whole_message(std::string_view{link.from_client}.substr(done), link.started)) {
      const std::string_view message{link.from_client.data() + done, *size};
      const std::optional<Plan::Kind> due =
          link.started ? reached(message[0], /*from_client=*/true) : std::nullopt;
      const bool first_message = !std::exchange(link.started, true);
      if (!first_message) {
        if (link.unit.empty() && take_plan(Plan::Kind::hold)) link.held = true;
        link.unit.append(message);
      }
      const bool unit_ends = !first_message && message[0] == 'S';
      if (link.held) {
        done += *size;
        if (!unit_ends) continue;
        held_.emplace_back(std::exchange(link.server, -1), std::move(link.unit));
        return cut(link);
      }
      if (due == Plan::Kind::before) {
        // Whatever the client sent before this message does reach the server.
        write_all(link.server, link.to_server);
        return cut(link);
      }
      link.to_server.append(message);
      done += *size;
      if (due == Plan::Kind::after) link.answer_withheld = true;
      if (!unit_ends) continue;
      if (take_plan(Plan::Kind::twice)) {
        link.to_server.append(link.unit);
        link.sent_twice = true;
      }
      link.unit.clear();
    }
    link.from_client.erase(0, done);
  }

  static void write_all(int fd, std::string& buffer) {
    while (!buffer.empty()) {
      pollfd writable{fd, POLLOUT, 0};
      poll(&writable, 1, -1);
      if ((writable.revents & (POLLERR | POLLHUP)) != 0 || !write_from(fd, buffer)) return;
    }
  }

  [[nodiscard]] bool take_plan(Plan::Kind kind) {
    const std::lock_guard lock{mutex_};
    if (!plan_ || plan_->kind != kind) return false;
    plan_.reset();
    return true;
  }

  /// Sends a unit to the server, reads until it is answered, and hangs up.
  static void deliver(int server, std::string& unit) {
    write_all(server, unit);
    std::string answers;
    bool answered = false;
    while (!answered) {
      pollfd readable{server, POLLIN, 0};
      poll(&readable, 1, -1);
      char chunk[65536];
      const ssize_t got = recv(server, chunk, sizeof chunk, 0);
      if (got <= 0) break;
      answers.append(chunk, static_cast<std::size_t>(got));
      while (const auto size = whole_message(answers, true)) {
        answered = answered || answers[0] == 'Z';
        answers.erase(0, *size);
      }
    }
    close(server);
  }

  [[nodiscard]] std::optional<Plan::Kind> reached(char message, bool from_client) {
    const std::lock_guard lock{mutex_};
    if (!plan_ || plan_->kind == Plan::Kind::bytes || plan_->message != message) return std::nullopt;
    if (from_client == (plan_->kind == Plan::Kind::returned) || --plan_->left > 0) return std::nullopt;
    const Plan::Kind kind = plan_->kind;
    plan_.reset();
    return kind;
  }

  void forward_answers(Link& link) {
    std::size_t done = 0;
    while (const auto size = whole_message(std::string_view{link.from_server}.substr(done), true)) {
      const std::string_view message{link.from_server.data() + done, *size};
      done += *size;
      if (link.swallowing) {
        if (message[0] != 'Z') continue;
        link.swallowing = false;
        ++second_deliveries_;
        continue;
      }
      if (message[0] == 'Z' && std::exchange(link.sent_twice, false)) link.swallowing = true;
      if (!link.answer_withheld) {
        link.to_client.append(message);
        if (reached(message[0], /*from_client=*/false)) {
          write_all(link.client, link.to_client);
          return cut(link);
        }
      } else if (message[0] == 'Z') {
        return cut(link);
      }
    }
    link.from_server.erase(0, done);
  }

  const DsnParts server_;
  std::string directory_;
  int listener_ = -1;
  int wake_ = -1;
  std::list<Link> links_;  // of the proxy's thread alone
  bool bytes_reached_ = false;
  std::atomic<bool> stalled_ = false;
  std::atomic<int> connections_ = 0;
  std::atomic<int> cuts_ = 0;
  std::atomic<int> second_deliveries_ = 0;
  std::atomic<bool> deliver_ = false;
  std::list<std::pair<int, std::string>>
      held_;          // the server's connection and the unit; of the proxy's thread alone
  std::mutex mutex_;  // guards plan_
  std::optional<Plan> plan_;
  std::jthread thread_;
};

}  // namespace faultline::testing

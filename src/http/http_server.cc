#include "http/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "http/connection.h"
#include "http/transport_asio.h"

namespace faultline::http {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using Tcp = asio::ip::tcp;
using SystemError = boost::system::error_code;

Error cannot_listen(const HttpServerOptions& options, const std::string& why) {
  return {.code = ErrorCode::invalid_argument,
          .message = "cannot listen on " + options.host + ":" + std::to_string(options.port) + ": " + why,
          .hint = "give an address of this machine and a port that is free"};
}

/// Answers of other threads for the connections of one thread: those that come together wake it once.
class LoopMailbox : public Mailbox {
 public:
  explicit LoopMailbox(asio::io_context& context) : context_(&context) {}

  void post(Work work) override {
    std::unique_lock lock{mutex_};
    if (!context_) {
      lock.unlock();
      return work(false);
    }
    waiting_.push_back(std::move(work));
    if (waiting_.size() == 1) asio::post(*context_, [this] { empty(true); });
  }
  /// Afterwards nothing is posted any more. What waits is called off.
  void close() {
    {
      const std::scoped_lock lock{mutex_};
      context_ = nullptr;
    }
    empty(false);
  }

 private:
  void empty(bool here) {
    std::vector<Work> taken;
    {
      const std::scoped_lock lock{mutex_};
      taken.swap(waiting_);
    }
    for (Work& work : taken) work(here);
  }

  std::mutex mutex_;
  asio::io_context* context_;
  std::vector<Work> waiting_;
};

/// One thread with its connections. A connection never leaves its thread, so it needs no lock.
class Loop {
 public:
  explicit Loop(SharedState& shared) : shared_(shared), mailbox_(std::make_shared<LoopMailbox>(context_)) {}
  ~Loop() { stop(); }

  [[nodiscard]] asio::io_context& context() { return context_; }

  void start() {
    schedule_tick();
    thread_ = std::jthread{[this] { context_.run(); }};
  }
  /// Closes all connections and ends the thread.
  void stop() {
    if (!thread_.joinable()) return;
    asio::post(context_, [this] {
      for (const auto& connection : all()) connection->close();
      context_.stop();
    });
    thread_.join();
    mailbox_->close();
  }

  /// On any thread.
  void adopt(Tcp::socket socket) {
    asio::post(context_, [this, socket = std::move(socket)]() mutable {
      const auto& tls = shared_.options.certificates;
      auto transport = tls ? tls_transport(std::move(socket), tls->current()->context.get())
                           : plain_transport(std::move(socket));
      const std::uint64_t number = next_number_++;
      auto connection = make_connection(std::move(transport), shared_, mailbox_, [this, number] {
        connections_.erase(number);
        --shared_.connections;
      });
      connections_.emplace(number, connection);
      connection->start();
    });
  }
  void drain() {
    asio::post(context_, [this] {
      for (const auto& connection : all()) connection->drain();
    });
  }

 private:
  [[nodiscard]] std::vector<std::shared_ptr<HttpConnection>> all() const {
    std::vector<std::shared_ptr<HttpConnection>> connections;
    connections.reserve(connections_.size());
    for (const auto& entry : connections_) connections.push_back(entry.second);
    return connections;
  }

  void schedule_tick() {
    constexpr auto kTick = 50ms;  // how late a timeout may be
    timer_.expires_after(kTick);
    timer_.async_wait([this](const SystemError& error) {
      if (error) return;
      tick();
      schedule_tick();
    });
  }
  void tick() {
    const auto now = HttpConnection::Clock::now();
    for (const auto& connection : all()) connection->tick(now);
  }

  SharedState& shared_;
  asio::io_context context_{1};
  asio::steady_timer timer_{context_};
  std::shared_ptr<LoopMailbox> mailbox_;
  std::unordered_map<std::uint64_t, std::shared_ptr<HttpConnection>> connections_;
  std::uint64_t next_number_ = 0;
  std::jthread thread_;
};

class RunningHttpServer : public HttpServer {
 public:
  RunningHttpServer(HttpServerOptions options, service::Service& service,
                    const service::Authenticator& authenticator)
      : shared_{.options = options,
                .router = Router{{.json_depth_max = options.json_depth_max,
                                  .cors_origin = options.cors_origin,
                                  .hosts = options.hosts,
                                  .metrics = options.metrics},
                                 service,
                                 authenticator}},
        loops_(make_loops(shared_)) {}
  ~RunningHttpServer() override {
    stop_accepting();
    // The acceptor runs in the first loop, and hands sockets to the others.
    for (const auto& loop : loops_) loop->stop();
  }

  Expected<void> listen() {
    if (auto bound = bind(); !bound) return bound;
    for (const auto& loop : loops_) loop->start();
    asio::post(loops_.front()->context(), [this] { accept(); });
    return {};
  }

  [[nodiscard]] std::uint16_t port() const override { return port_; }

  void drain(std::chrono::steady_clock::time_point until) override {
    shared_.draining = true;
    stop_accepting();
    for (const auto& loop : loops_) loop->drain();
    // Connections end on their own threads, rarely and not for long.
    while (shared_.connections > 0 && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(5ms);
    }
  }

  [[nodiscard]] Counters counters() const override {
    return {.requests = shared_.requests,
            .refused_connections = shared_.refused_connections,
            .timeouts = shared_.timeouts,
            .connections = shared_.connections};
  }

 private:
  static std::vector<std::unique_ptr<Loop>> make_loops(SharedState& shared) {
    std::vector<std::unique_ptr<Loop>> loops;
    const std::size_t count = std::max<std::size_t>(1, shared.options.threads);
    for (std::size_t i = 0; i < count; ++i) loops.push_back(std::make_unique<Loop>(shared));
    return loops;
  }

  Expected<void> bind() {
    const HttpServerOptions& options = shared_.options;
    SystemError error;
    Tcp::resolver resolver{loops_.front()->context()};
    const auto found =
        resolver.resolve(options.host, std::to_string(options.port), Tcp::resolver::passive, error);
    if (error) return std::unexpected(cannot_listen(options, error.message()));
    const Tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address{true}, error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return std::unexpected(cannot_listen(options, error.message()));
    port_ = acceptor_.local_endpoint(error).port();
    return {};
  }

  void accept() {
    // Those that were told to go are gone soon.
    constexpr std::size_t kLeavingMax = 32;
    if (shared_.connections >= shared_.options.connections_max + kLeavingMax) return accept_later();
    Loop& loop = *loops_[next_loop_++ % loops_.size()];
    acceptor_.async_accept(loop.context(), [this, &loop](const SystemError& error, Tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (error) return accept_later();
      if (make_room()) {
        ++shared_.connections;
        loop.adopt(std::move(socket));
      } else {
        refuse(socket);
      }
      accept();
    });
  }
  /// For one more. At the limit, who waits longest without a request goes.
  bool make_room() {
    if (shared_.connections < shared_.options.connections_max) return true;
    if (!shared_.idle.close_longest()) return false;
    ++shared_.refused_connections;
    return true;
  }
  /// Out of file descriptors, or of connections, most likely: some will be free soon.
  void accept_later() {
    retry_.expires_after(10ms);
    retry_.async_wait([this](const SystemError& error) {
      if (!error && acceptor_.is_open()) accept();
    });
  }
  /// One word, if the system takes it at once, and closed.
  void refuse(Tcp::socket& socket) {
    ++shared_.refused_connections;
    if (shared_.options.certificates) return;
    constexpr std::string_view kBusy =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: "
        "close\r\n\r\n";
    static_cast<void>(
        ::send(socket.native_handle(), kBusy.data(), kBusy.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
  }
  void stop_accepting() {
    if (std::exchange(stopped_accepting_, true)) return;
    asio::post(loops_.front()->context(), [this] {
      SystemError ignored;
      acceptor_.close(ignored);
      retry_.cancel();
    });
  }

  SharedState shared_;
  std::vector<std::unique_ptr<Loop>> loops_;
  Tcp::acceptor acceptor_{loops_.front()->context()};
  asio::steady_timer retry_{loops_.front()->context()};
  std::uint16_t port_ = 0;
  std::size_t next_loop_ = 0;
  bool stopped_accepting_ = false;
};

}  // namespace

Expected<std::unique_ptr<HttpServer>> HttpServer::start(HttpServerOptions options, service::Service& service,
                                                        const service::Authenticator& authenticator) {
  auto server = std::make_unique<RunningHttpServer>(std::move(options), service, authenticator);
  if (auto listening = server->listen(); !listening) return std::unexpected(std::move(listening.error()));
  return server;
}

}  // namespace faultline::http

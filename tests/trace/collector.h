#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>
#include <openssl/ssl.h>

#include "support/process.h"

namespace faultline::testing {

using Json = nlohmann::json;

/// An OpenTelemetry collector that remembers what it was sent. Given the files of a certificate and its key,
/// it speaks TLS. Thread-safe.
class Collector {
 public:
  struct Request {
    std::string head;
    std::string body;
  };

  Collector() : Collector("", "") {}
  Collector(const std::string& certificate, const std::string& key)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (!certificate.empty()) {
      tls_.reset(SSL_CTX_new(TLS_server_method()));
      if (SSL_CTX_use_certificate_file(tls_.get(), certificate.c_str(), SSL_FILETYPE_PEM) != 1 ||
          SSL_CTX_use_PrivateKey_file(tls_.get(), key.c_str(), SSL_FILETYPE_PEM) != 1)
        throw std::runtime_error("the collector cannot use its certificate");
    }
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {::htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(socket_, generic, size) != 0 || ::listen(socket_, 64) != 0 ||
        ::getsockname(socket_, generic, &size) != 0) {
      throw std::runtime_error("the collector cannot listen");
    }
    port_ = ::ntohs(address.sin_port);
    thread_ = std::thread{[this] {
      // OpenSSL writes here, too. Only here: that the exporter is not ended by it is tested.
      sigset_t pipe{};
      sigemptyset(&pipe);
      sigaddset(&pipe, SIGPIPE);
      pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
      run();
    }};
  }
  ~Collector() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    for (const int held : held_) ::close(held);
    ::close(socket_);
  }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  [[nodiscard]] std::string endpoint() const {
    return (tls_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
  }

  /// The next answers have these statuses; then all is well again. 0: there is no answer.
  void answer_with(std::deque<int> statuses) {
    const std::lock_guard lock{mutex_};
    statuses_ = std::move(statuses);
  }

  [[nodiscard]] std::vector<Request> requests() const {
    const std::lock_guard lock{mutex_};
    return requests_;
  }
  /// Of the requests that were answered well.
  [[nodiscard]] std::vector<Json> spans() const {
    const std::lock_guard lock{mutex_};
    return spans_;
  }
  [[nodiscard]] std::vector<Json> wait_for_spans(std::size_t count) const {
    static_cast<void>(eventually([&] { return spans().size() >= count; }));
    return spans();
  }
  [[nodiscard]] std::string everything() const {
    std::string text;
    for (const Request& request : requests()) text += request.body;
    return text;
  }

 private:
  struct FreeSession {
    void operator()(SSL* session) const { SSL_free(session); }
  };
  using Session = std::unique_ptr<SSL, FreeSession>;

  void run() {
    for (;;) {
      const int client = ::accept(socket_, nullptr, nullptr);
      if (client < 0) return;
      if (serve(client))
        ::close(client);
      else
        held_.push_back(client);
    }
  }

  /// False: the client is left waiting.
  bool serve(int client) {
    Session session{tls_ ? SSL_new(tls_.get()) : nullptr};
    if (session && (SSL_set_fd(session.get(), client) != 1 || SSL_accept(session.get()) != 1)) return true;
    Request request;
    std::string text;
    std::size_t length = 0;
    for (std::size_t head = std::string::npos;
         head == std::string::npos || text.size() < head + 4 + length;) {
      char buffer[16'384];
      const ssize_t got =
          session ? SSL_read(session.get(), buffer, sizeof buffer) : ::recv(client, buffer, sizeof buffer, 0);
      if (got <= 0) return true;
      text.append(buffer, static_cast<std::size_t>(got));
      head = text.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      request.head = text.substr(0, head);
      length = std::stoul(request.head.substr(request.head.find("Content-Length:") + 15));
      request.body = text.substr(head + 4);
    }
    const int status = take(std::move(request));
    if (status == 0) return false;
    const std::string answer = "HTTP/1.1 " + std::to_string(status) +
                               " Said\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
                               "Connection: close\r\n\r\n{}";
    if (session)
      static_cast<void>(SSL_write(session.get(), answer.data(), static_cast<int>(answer.size())));
    else
      static_cast<void>(::send(client, answer.data(), answer.size(), MSG_NOSIGNAL));
    return true;
  }

  int take(Request request) {
    const std::lock_guard lock{mutex_};
    int status = 200;
    if (!statuses_.empty()) {
      status = statuses_.front();
      statuses_.pop_front();
    }
    if (status == 200) {
      const Json body = Json::parse(request.body);
      for (const Json& resource : body["resourceSpans"]) {
        for (const Json& scope : resource["scopeSpans"]) {
          for (const Json& span : scope["spans"]) spans_.push_back(span);
        }
      }
    }
    requests_.push_back(std::move(request));
    return status;
  }

  int socket_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> tls_{nullptr, &SSL_CTX_free};
  std::uint16_t port_ = 0;
  std::vector<int> held_;  ///< of the thread alone
  mutable std::mutex mutex_;
  std::deque<int> statuses_;  // guarded by mutex_, as is all below
  std::vector<Request> requests_;
  std::vector<Json> spans_;
  std::thread thread_;
};

/// An attribute's value as text; empty if there is none.
inline std::string attribute(const Json& span, const std::string& key) {
  for (const Json& attribute : span.at("attributes")) {
    if (attribute["key"] == key) return attribute["value"].begin().value();
  }
  return "";
}

/// The traceparent of a span that is exported.
inline std::string traceparent_of(const Json& span) {
  return "00-" + span.at("traceId").get<std::string>() + "-" + span.at("spanId").get<std::string>() + "-01";
}

constexpr auto kTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr auto kTraceId = "0af7651916cd43dd8448eb211c80319c";
constexpr auto kParentId = "b7ad6b7169203331";
constexpr auto kNotSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

}  // namespace faultline::testing

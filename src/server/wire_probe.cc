#include "server/wire_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include <openssl/err.h>
#include <openssl/ssl.h>

namespace faultline::server {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::string_view_literals;

/// A busy machine may miss one.
constexpr int kMissesMax = 2;

constexpr std::string_view kHttpRequest =
    "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
constexpr std::string_view kHttpAnswer = "HTTP/1.1 200";
/// The preface of a client, with settings of which there are none.
constexpr std::string_view kHttp2Request = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"sv;
constexpr std::size_t kHttp2FrameHead = 9;
constexpr char kHttp2Settings = 4;
constexpr char kTlsHandshake = 22;

std::string reason(int error) { return std::generic_category().message(error); }

/// One connection to a server of this process, which nobody needs to trust. Every step throws a
/// std::runtime_error that says why it failed.
class Call {
 public:
  Call(const HostPort& address, const Interrupt& stop, Deadline until) : stop_(stop), until_(until) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int problem =
            ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
        problem != 0)
      throw std::runtime_error(::gai_strerror(problem));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> freed{found, &::freeaddrinfo};
    fd_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0) throw std::runtime_error(reason(errno));
    if (::connect(fd_, found->ai_addr, found->ai_addrlen) == 0 || errno == EINPROGRESS) return;
    const int error = errno;
    ::close(fd_);
    throw std::runtime_error(reason(error));
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() { ::close(fd_); }

  void send(std::string_view bytes) {
    wait(POLLOUT);
    // So few bytes always fit.
    if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error(reason(errno));
  }
  std::string read(std::size_t bytes) {
    std::string got;
    std::array<char, 256> buffer{};
    while (got.size() < bytes) {
      wait(POLLIN);
      const auto count = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (count == 0) throw std::runtime_error("it hung up");
      if (count < 0 && errno != EAGAIN && errno != EINTR) throw std::runtime_error(reason(errno));
      if (count > 0) got.append(buffer.data(), static_cast<std::size_t>(count));
    }
    return got;
  }
  void greet() {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()),
                                                                    &SSL_CTX_free};
    constexpr std::array<unsigned char, 12> kProtocols{2,   'h', '2', 8,   'h', 't',
                                                       't', 'p', '/', '1', '.', '1'};
    SSL_CTX_set_alpn_protos(context.get(), kProtocols.data(), kProtocols.size());
    const std::unique_ptr<SSL, decltype(&SSL_free)> tls{SSL_new(context.get()), &SSL_free};
    SSL_set_fd(tls.get(), fd_);
    wait(POLLOUT);
    // Only our hello and the server's, which shows that it is served: it may want a certificate that we have
    // not.
    static_cast<void>(SSL_connect(tls.get()));
    ERR_clear_error();
    if (read(1).front() != kTlsHandshake) throw std::runtime_error("there is no TLS handshake");
  }

 private:
  void wait(short events) const {
    while (true) {
      std::array<pollfd, 2> both{
          {{.fd = fd_, .events = events, .revents = 0}, {.fd = stop_.fd(), .events = POLLIN, .revents = 0}}};
      const int found = ::poll(both.data(), both.size(), poll_timeout_ms(until_));
      if (found > 0 && both[1].revents != 0) throw std::runtime_error("this server stops");
      if (found > 0) return;
      if (found == 0 && Clock::now() >= until_) throw std::runtime_error("there is no answer");
    }
  }

  const Interrupt& stop_;
  const Deadline until_;
  int fd_ = -1;
};

void check(const WireProbe::Wire& wire, const Interrupt& stop, Deadline until) {
  Call call{wire.address, stop, until};
  if (wire.tls) return call.greet();
  if (wire.protocol == WireProbe::Protocol::http) {
    call.send(kHttpRequest);
    if (!call.read(kHttpAnswer.size()).starts_with(kHttpAnswer)) throw std::runtime_error("it refuses");
  } else {
    call.send(kHttp2Request);
    if (call.read(kHttp2FrameHead)[3] != kHttp2Settings) throw std::runtime_error("it does not speak HTTP/2");
  }
}

std::string describe(const WireProbe::Wire& wire, const std::exception& problem) {
  return std::string{wire.protocol == WireProbe::Protocol::http ? "HTTP" : "gRPC"} + " does not answer on " +
         wire.address.to_string() + ": " + problem.what();
}

}  // namespace

WireProbe::WireProbe(Options options) : options_(std::move(options)), thread_([this] { run(); }) {}

WireProbe::~WireProbe() { stop_.fire(); }

void WireProbe::run() {
  std::vector<int> misses(options_.wires.size());
  std::string told;
  while (!stop_.wait(Clock::now() + options_.every)) {
    std::string why;
    for (std::size_t i = 0; i < options_.wires.size(); ++i) {
      const Wire& wire = options_.wires[i];
      try {
        check(wire, stop_, Clock::now() + options_.patience);
        misses[i] = 0;
      } catch (const std::exception& problem) {
        if (++misses[i] >= kMissesMax) why += (why.empty() ? "" : "; ") + describe(wire, problem);
      }
    }
    if (!stop_.fired() && std::exchange(told, why) != why) options_.changed(why);
  }
}

}  // namespace faultline::server

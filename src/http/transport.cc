#include "http/transport.h"

#include <array>
#include <type_traits>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include "http/transport_asio.h"

namespace faultline::http {
namespace {

namespace asio = boost::asio;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using TlsStream = asio::ssl::stream<Tcp::socket>;

template <class Socket>
class AsioTransport : public Transport {
 public:
  explicit AsioTransport(Tcp::socket socket)
    requires std::same_as<Socket, Tcp::socket>
      : socket_(std::move(socket)) {
    prepare();
  }
  AsioTransport(Tcp::socket socket, asio::ssl::context&& context)
    requires std::same_as<Socket, TlsStream>
      : socket_(std::move(socket), context) {
    prepare();
  }

  void handshake(Handshaken done) override {
    if constexpr (std::same_as<Socket, TlsStream>) {
      socket_.async_handshake(asio::ssl::stream_base::server,
                              [done = std::move(done)](const ErrorCode& error) mutable { done(!error); });
    } else {
      asio::post(socket_.get_executor(), [done = std::move(done)]() mutable { done(true); });
    }
  }

  void read_some(std::span<char> into, Read done) override {
    socket_.async_read_some(asio::buffer(into.data(), into.size()),
                            [done = std::move(done)](const ErrorCode& error, std::size_t bytes) mutable {
                              done(error ? 0 : bytes);
                            });
  }

  void write(std::string head, std::string body, Written done) override {
    head_ = std::move(head);
    body_ = std::move(body);
    const std::array<asio::const_buffer, 2> both{asio::buffer(head_), asio::buffer(body_)};
    asio::async_write(socket_, both,
                      [this, done = std::move(done)](const ErrorCode& error, std::size_t) mutable {
                        // The connection that owns this lives as long as the callback. A large body is not
                        // kept for an idle client.
                        body_ = {};
                        done(!error);
                      });
  }

  void linger(Written done) override {
    if constexpr (std::same_as<Socket, TlsStream>) {
      // It fails when there is more to read than the client's goodbye.
      socket_.async_shutdown([this, done = std::move(done)](const ErrorCode& error) mutable {
        if (!error) return done(true);
        end_and_discard(std::move(done));
      });
    } else {
      end_and_discard(std::move(done));
    }
  }

  void close() override {
    ErrorCode ignored;
    tcp().close(ignored);
  }

  [[nodiscard]] std::string peer() const override { return peer_; }

 private:
  void end_and_discard(Written done) {
    ErrorCode ignored;
    tcp().shutdown(Tcp::socket::shutdown_send, ignored);
    discard(std::move(done));
  }
  /// Below TLS: nobody looks at it.
  void discard(Written done) {
    tcp().async_read_some(asio::buffer(discarded_),
                          [this, done = std::move(done)](const ErrorCode& error, std::size_t) mutable {
                            if (error) return done(true);
                            discard(std::move(done));
                          });
  }
  Tcp::socket& tcp() {
    if constexpr (std::same_as<Socket, TlsStream>) {
      return socket_.next_layer();
    } else {
      return socket_;
    }
  }
  void prepare() {
    ErrorCode ignored;
    tcp().set_option(Tcp::no_delay{true}, ignored);
    const Tcp::endpoint from = tcp().remote_endpoint(ignored);
    if (!ignored) peer_ = from.address().to_string() + ":" + std::to_string(from.port());
  }

  Socket socket_;
  std::string peer_;
  std::string head_;
  std::string body_;
  std::array<char, 1'024> discarded_{};
};

}  // namespace

std::unique_ptr<Transport> plain_transport(Tcp::socket socket) {
  return std::make_unique<AsioTransport<Tcp::socket>>(std::move(socket));
}

std::unique_ptr<Transport> tls_transport(Tcp::socket socket, SSL_CTX* context) {
  SSL_CTX_up_ref(context);  // the wrapper gives it back, and the stream has its own
  return std::make_unique<AsioTransport<TlsStream>>(std::move(socket), asio::ssl::context{context});
}

}  // namespace faultline::http

#include "trace/http_post.h"

#include <atomic>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

namespace faultline::trace {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kAnswerBytesMax = 65'536;

Error invalid(std::string message) {
  return {
      .code = ErrorCode::invalid_argument,
      .message = std::move(message),
      .hint = "write it as http://127.0.0.1:4318; a collector beside this process passes spans on with TLS"};
}

}  // namespace

Expected<Url> parse_endpoint(std::string_view text) {
  const auto wrong = [&](const std::string& why) {
    return std::unexpected(invalid("the OTLP endpoint \"" + std::string{text} + "\" " + why));
  };
  constexpr std::string_view scheme = "http://";
  if (text.starts_with("https://")) return wrong("asks for TLS, which is not spoken here");
  if (!text.starts_with(scheme)) return wrong("is not an http:// URL");
  for (const char c : text) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == '\x7f')
      return wrong("has a blank or a control character in it");
  }
  std::string_view rest = text.substr(scheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view path = rest.substr(slash);
  const std::string_view authority = rest.substr(0, slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.find_first_of("?#") != std::string_view::npos || authority.contains('@'))
    return wrong("has more in it than a host, a port and a path");
  constexpr std::uint16_t http_port = 80;
  auto address = parse_connect_address(authority, http_port);
  if (!address) return wrong("is not one: " + address.error());
  return Url{.address = std::move(*address), .path = std::string{path}};
}

/// Asynchronous operations that are waited for, because only those can be given a time and be cancelled.
class HttpPost::Impl {
 public:
  Impl(Url url, std::string path) : url_(std::move(url)), target_(url_.path + std::move(path)) {}

  [[nodiscard]] std::expected<int, std::string> send(std::string body, std::chrono::milliseconds timeout) {
    if (cancelled_) return std::unexpected("it was cancelled");
    tcp::socket socket{context_};
    tcp::resolver resolver{context_};
    socket_ = &socket;
    bool late = false;
    asio::steady_timer timer{context_, timeout};
    timer.async_wait([&](error_code error) {
      if (error) return;
      late = true;
      resolver.cancel();
      close();
    });
    http::request<http::string_body> request{http::verb::post, target_, 11};
    request.set(http::field::host, url_.address.to_string());
    request.set(http::field::content_type, "application/json");
    request.set(http::field::user_agent, "faultline");
    request.set(http::field::connection, "close");
    request.body() = std::move(body);
    request.prepare_payload();
    http::response_parser<http::string_body> response;
    response.body_limit(kAnswerBytesMax);
    boost::beast::flat_buffer buffer;
    error_code result;

    const auto over = [&](error_code error) {
      result = error;
      timer.cancel();
    };
    resolver.async_resolve(
        url_.address.host, std::to_string(url_.address.port),
        [&](error_code error, const tcp::resolver::results_type& found) {
          if (error || cancelled_) return over(error ? error : asio::error::operation_aborted);
          asio::async_connect(socket, found, [&](error_code connected, const tcp::endpoint&) {
            if (connected) return over(connected);
            http::async_write(socket, request, [&](error_code written, std::size_t) {
              if (written) return over(written);
              http::async_read(socket, buffer, response, [&](error_code read, std::size_t) { over(read); });
            });
          });
        });
    context_.restart();
    context_.run();
    socket_ = nullptr;
    if (late) return std::unexpected("no answer in " + std::to_string(timeout.count()) + " ms");
    if (result) return std::unexpected(result.message());
    return response.get().result_int();
  }

  void cancel() {
    cancelled_ = true;
    asio::post(context_, [this] { close(); });
  }

 private:
  /// On the thread that sends.
  void close() {
    error_code ignored;
    if (socket_ != nullptr) socket_->close(ignored);
  }

  const Url url_;
  const std::string target_;
  asio::io_context context_{1};
  tcp::socket* socket_ = nullptr;  ///< of the request under way; used by the sending thread alone
  std::atomic<bool> cancelled_{false};
};

HttpPost::HttpPost(Url url, std::string path)
    : impl_(std::make_unique<Impl>(std::move(url), std::move(path))) {}
HttpPost::~HttpPost() = default;
std::expected<int, std::string> HttpPost::send(std::string body, std::chrono::milliseconds timeout) {
  return impl_->send(std::move(body), timeout);
}
void HttpPost::cancel() { impl_->cancel(); }

}  // namespace faultline::trace

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace faultline::http {

/// A request as it came. Everything points into the connection's memory, and is good while it is handled.
struct Request {
  std::string_view method{};
  std::string_view path{};   ///< percent-encoded, without the query
  std::string_view query{};  ///< percent-encoded, after the question mark
  std::vector<std::pair<std::string_view, std::string_view>> headers{};
  bool has_body = false;  ///< known before the body has been read
  std::string_view body{};

  /// The first of that name, in any case; empty if there is none.
  [[nodiscard]] std::string_view header(std::string_view name) const;
  /// The same, where an empty one and none are two things.
  [[nodiscard]] std::optional<std::string_view> find_header(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string body{};
  std::string_view content_type = "application/json";  ///< empty: there is no body
  std::vector<std::pair<std::string, std::string>> headers{};
  bool close = false;       ///< the connection is closed after it
  std::string_view code{};  ///< of a problem
  std::string cause{};      ///< of a problem, for the server's own log alone
  /// Called once, on any thread, if it could not be handed to the client's TCP connection as a whole.
  /// `begun`: some of it was, or all of it, and nobody knows how much has arrived.
  std::move_only_function<void(bool begun)> lost{};
};

/// Frames that go to a client one by one, without an end.
class Stream {
 public:
  virtual ~Stream() = default;
  /// From any thread; does not block. False: the client is gone, or so slow that it has been given up. Then
  /// `last` of `HttpExchange::stream` is its final frame.
  [[nodiscard]] virtual bool send(std::string frame) = 0;
  /// Ends it with this frame after all that was sent. From any thread; does not block.
  virtual void end(std::string frame) = 0;
};

/// The way back to the client of one request.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  /// Once, from any thread.
  virtual void respond(Response response) = 0;

  // While the request is being handled, before it is answered.

  /// Lives until the request has been answered or its client is gone, and ends on the connection's thread.
  virtual void keep(std::shared_ptr<void> what) = 0;
  /// The answer comes late. `over` is called on the connection's thread, once and unless it was answered
  /// before, when the time is up, the client is gone, or the server drains.
  virtual void wait(std::chrono::milliseconds most, std::move_only_function<void()> over) = 0;
  /// Instead of `respond`: the head now, and frames until the client is gone or the server drains. `last` is
  /// what a client that is given up reads at its end; `idle` is sent when nothing else was for a while.
  [[nodiscard]] virtual std::shared_ptr<Stream> stream(Response head, std::string idle, std::string last) = 0;
};

/// What comes before the body on the wire.
struct Framing {
  bool keep_alive = true;
  bool with_length = true;   ///< false: the body ends with the connection
  std::string_view extra{};  ///< complete header lines
};
[[nodiscard]] std::string compose_head(const Response& response, const Framing& framing);
[[nodiscard]] std::string_view reason_of(int status);

/// Whether an Accept-Encoding header allows gzip.
[[nodiscard]] bool accepts_gzip(std::string_view accept_encoding);
/// Nothing if it fails.
[[nodiscard]] std::string gzip(std::string_view bytes);

/// Whether pages of this origin may call, when `allowed` is what the settings allow: an origin, * or nothing.
[[nodiscard]] bool may_come_from(std::string_view origin, std::string_view allowed);
/// A Content-Type without its parameters.
[[nodiscard]] std::string_view media_type(std::string_view content_type);

[[nodiscard]] bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace faultline::http

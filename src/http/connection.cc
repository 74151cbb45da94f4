#include "http/connection.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>

#include "base/request_id.h"
#include "http/handlers.h"
#include "http/problem.h"

namespace faultline::http {
namespace {

namespace beast = boost::beast;
using namespace std::chrono_literals;
using TimePoint = HttpConnection::Clock::time_point;

/// A body in memory, which is taken as bytes come: what a client announces costs nothing.
struct GrowingBody {
  using value_type = std::string;
  class reader {  // NOLINT(readability-identifier-naming): Beast looks for it under this name
   public:
    template <bool isRequest, class Fields>
    reader(beast::http::header<isRequest, Fields>& /*head*/, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>& /*length*/, beast::error_code& error) { error = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, beast::error_code& error) {
      error = {};
      std::size_t bytes = 0;
      for (const boost::asio::const_buffer buffer : beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
        bytes += buffer.size();
      }
      return bytes;
    }
    void finish(beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};
using Parser = beast::http::request_parser<GrowingBody>;

constexpr std::size_t kReadBytes = 16'384;
constexpr std::size_t kPipelinedBytesMax = 65'536;  ///< read ahead while a client waits for its answer
constexpr std::size_t kSmallBody = 65'536;          ///< up to this a body is not counted
constexpr std::size_t kGzipBytesMin = 1'024;
constexpr std::size_t kStreamBytesMax = 262'144;  ///< unread events of one client
constexpr auto kLingerTime = 2s;  ///< for a client to read why its request is refused before it is cut off
constexpr auto kStreamIdle = 15s;

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

class ClientConnection;

/// The way back from other threads. Knows its connection weakly: a client that is gone costs nothing.
class ConnectionHandle {
 public:
  ConnectionHandle(std::weak_ptr<ClientConnection> connection, std::shared_ptr<Mailbox> mailbox)
      : connection_(std::move(connection)), mailbox_(std::move(mailbox)) {}

  /// Runs `work(connection)` on its thread, or `work(nullptr)` anywhere if there is none any more.
  template <class Work>
  void run(Work work);

 private:
  std::weak_ptr<ClientConnection> connection_;
  std::shared_ptr<Mailbox> mailbox_;
};

class ClientStream : public Stream {
 public:
  ClientStream(ConnectionHandle way, std::string last) : handle_(std::move(way)), last_(std::move(last)) {}

  bool send(std::string frame) override;
  void end(std::string frame) override;
  void written(std::size_t bytes) { queued_ -= bytes; }
  void take_no_more() { over_ = true; }

 private:
  ConnectionHandle handle_;
  std::string last_;
  std::atomic<std::size_t> queued_ = 0;
  std::atomic<bool> over_ = false;
};

class ClientExchange : public HttpExchange, public std::enable_shared_from_this<ClientExchange> {
 public:
  ClientExchange(std::weak_ptr<ClientConnection> connection, std::shared_ptr<Mailbox> mailbox)
      : connection_(connection), handle_(std::move(connection), std::move(mailbox)) {}
  ~ClientExchange() override {
    // Whoever let go of it without a word has failed, and the client must not wait for ever.
    if (!answered_) {
      respond(problem_response({.code = service::Code::internal, .message = "the server did not answer"}));
    }
  }

  void respond(Response response) override;
  void keep(std::shared_ptr<void> what) override;
  void wait(std::chrono::milliseconds most, std::move_only_function<void()> over) override;
  std::shared_ptr<Stream> stream(Response head, std::string idle, std::string last) override;

 private:
  std::weak_ptr<ClientConnection> connection_;
  ConnectionHandle handle_;
  std::atomic<bool> answered_ = false;
};

/// A client goes through these phases, request by request. Reading is separate: it may be under way in most
/// of them.
enum class Phase {
  handshake,
  head,       ///< a request's head is awaited
  body,       ///< its body
  handling,   ///< its answer
  writing,    ///< the answer is on its way
  streaming,  ///< the answer has no end
  lingering,  ///< the answer was the last one, and the client has not closed yet
  closed,
};

class ClientConnection : public HttpConnection, public std::enable_shared_from_this<ClientConnection> {
 public:
  ClientConnection(std::unique_ptr<Transport> transport, SharedState& shared,
                   std::shared_ptr<Mailbox> mailbox, std::move_only_function<void()> closed)
      : transport_(std::move(transport)),
        shared_(shared),
        mailbox_(std::move(mailbox)),
        closed_(std::move(closed)) {}
  ~ClientConnection() override { lose_answer(); }

  void start() override {
    due_in(shared_.options.header_timeout);
    wait_for_request();
    transport_->handshake([self = shared_from_this()](bool good) {
      if (self->phase_ == Phase::closed) return;
      if (!good) return self->close();
      self->next_request();
    });
  }

  void tick(TimePoint now) override {
    if (phase_ == Phase::handling && wait_until_ <= now) return stop_waiting();
    if (phase_ == Phase::streaming && !writing_ && idle_at_ <= now) return stream_write(idle_frame_, 0);
    if (due_ <= now) time_out();
  }

  void drain() override {
    const bool idle = phase_ == Phase::head && buffer_.size() == 0;
    if (idle || phase_ == Phase::handshake) return close();
    if (phase_ == Phase::handling) return stop_waiting();
    if (phase_ == Phase::streaming) stream_end();
  }

  void close() override {
    if (phase_ == Phase::closed) return;
    const auto self = shared_from_this();
    phase_ = Phase::closed;
    shared_.idle.leave(place_);
    transport_->close();
    release_body();
    lose_answer();
    end_request();
    closed_();
  }

  void close_if_idle() override {
    // A client that nobody knows has no request that is worth more than another client.
    if (!known_ || (phase_ == Phase::head && buffer_.size() == 0)) close();
  }

  // What an exchange asks for, on this thread.

  void answer(Response response) {
    if (phase_ != Phase::handling) {
      if (response.lost) response.lost(/*begun=*/false);
      return;
    }
    end_request();
    write_answer(std::move(response));
  }
  void keep(std::shared_ptr<void> what) { kept_ = std::move(what); }
  void wait(std::chrono::milliseconds most, std::move_only_function<void()> over) {
    wait_until_ = Clock::now() + most;
    over_ = std::move(over);
    if (shared_.draining) wait_until_ = Clock::now();
    read();  // only so does it show that the client goes away
  }
  void begin_stream(const Response& head, std::string idle, std::shared_ptr<ClientStream> stream) {
    phase_ = Phase::streaming;
    stream_ = std::move(stream);
    idle_frame_ = std::move(idle);
    due_ = TimePoint::max();
    tell_of_answer(head);
    stream_write(compose_head(head, {.keep_alive = false, .with_length = false, .extra = extra_lines_}), 0);
    read();
    if (shared_.draining || head_only_) stream_end();
  }
  /// `counted` bytes of it count against the stream's limit.
  void stream_write(std::string_view frame, std::size_t counted) {
    if (phase_ != Phase::streaming) return;
    outbox_ += frame;
    outbox_counted_ += counted;
    stream_flush();
  }
  void stream_end() {
    if (phase_ != Phase::streaming || stream_over_) return;
    stream_over_ = true;
    stream_->take_no_more();
    stream_flush();
  }
  /// Ends it with a last word, instead of what was not sent yet.
  void stream_drop(std::string_view last) {
    if (phase_ != Phase::streaming || stream_over_) return;
    outbox_ = last;
    shared_.options.log({.name = "event_reader_dropped",
                         .severity = Severity::warning,
                         .at = std::chrono::system_clock::now(),
                         .fields = {{"route", std::string{route_->pattern}}}});
    stream_end();
  }

 private:
  // Time.

  void due_in(std::chrono::milliseconds time) { due_ = Clock::now() + time; }

  void time_out() {
    ++shared_.timeouts;
    const bool asked = (phase_ == Phase::head && buffer_.size() > 0) || phase_ == Phase::body;
    if (!asked) return close();
    // Not worth lingering for: whoever is this slow would keep the socket.
    write_answer(last_word(problem_response(408, malformed("the request took too long to come"))), false);
  }

  /// Nobody waits any longer for what a handler waits for.
  void stop_waiting() {
    wait_until_ = TimePoint::max();
    if (auto over = std::exchange(over_, nullptr)) over();
  }

  // Reading.

  void read() {
    if (reading_ || peer_done_ || phase_ == Phase::closed) return;
    reading_ = true;
    // While a request is handled the buffer may be read from before this read is over, so it must not go
    // there.
    read_aside_ = phase_ != Phase::head && phase_ != Phase::body;
    const auto space = read_aside_ ? boost::asio::buffer(aside_) : buffer_.prepare(kReadBytes);
    transport_->read_some({static_cast<char*>(space.data()), space.size()},
                          [self = shared_from_this()](std::size_t bytes) { self->on_read(bytes); });
  }

  void on_read(std::size_t bytes) {
    reading_ = false;
    if (phase_ == Phase::closed) return;
    if (bytes == 0) return on_peer_done();
    if (read_aside_) {
      boost::asio::buffer_copy(buffer_.prepare(bytes), boost::asio::buffer(aside_.data(), bytes));
    }
    buffer_.commit(bytes);
    switch (phase_) {
      case Phase::head:
        return parse_head();
      case Phase::body:
        return parse_body();
      case Phase::handling:  // a pipelined request; its turn comes
        if (over_ && buffer_.size() < kPipelinedBytesMax) read();
        return;
      case Phase::streaming:
        buffer_.consume(buffer_.size());
        return read();
      default:
        return;
    }
  }

  void on_peer_done() {
    peer_done_ = true;
    switch (phase_) {
      case Phase::handling:
        // A client that only said that it has nothing more to ask still wants its answer; one that waits for
        // jobs is taken for gone, because jobs that nobody reads about would wait for their leases to end.
        if (over_) close();
        return;
      case Phase::writing:
        return;
      default:
        return close();
    }
  }

  /// Until its head has come it may be closed to make room.
  void wait_for_request() {
    place_ = shared_.idle.enter({.connection = weak_from_this(), .mailbox = mailbox_}, known_);
  }

  void next_request() {
    phase_ = Phase::head;
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(shared_.options.header_max));
    parser_->body_limit(shared_.options.body_max);
    parser_->eager(false);
    head_only_ = false;
    extra_lines_.clear();
    request_id_.clear();
    began_ = {};
    admitted_ = {};
    route_ = nullptr;
    method_.clear();
    // A client that has just connected has no reason to be idle.
    due_in(buffer_.size() == 0 && handled_ ? shared_.options.idle_timeout : shared_.options.header_timeout);
    shared_.idle.leave(place_);
    wait_for_request();
    if (buffer_.size() == 0) {
      if (shared_.draining || peer_done_) return close();
      shrink_buffer();
      return read();
    }
    parse_head();
  }

  /// A client that once sent much does not keep the memory.
  void shrink_buffer() {
    if (!reading_ && buffer_.capacity() > 2 * kReadBytes) buffer_ = beast::flat_buffer{};
  }

  /// Feeds the parser. False: it needs more, or has refused.
  bool feed() {
    if (buffer_.size() == 0) return need_more();
    beast::error_code error;
    const std::size_t used = parser_->put(buffer_.data(), error);
    buffer_.consume(used);
    if (!error) return true;
    if (error == beast::http::error::need_more) return need_more();
    refuse_bytes(error);
    return false;
  }
  bool need_more() {
    if (peer_done_) {
      close();
    } else {
      read();
    }
    return false;
  }

  void refuse_bytes(const beast::error_code& error) {
    if (error == beast::http::error::header_limit) {
      return refuse(
          problem_response(431, {.code = service::Code::too_large,
                                 .message = "the request's head is over the limit of " +
                                            std::to_string(shared_.options.header_max) + " bytes"}));
    }
    if (error == beast::http::error::body_limit) return refuse(body_too_large());
    refuse(problem_response(malformed("this is not an HTTP/1.1 request: " + error.message())));
  }

  void parse_head() {
    if (handled_) due_ = std::min(due_, Clock::now() + shared_.options.header_timeout);
    while (!parser_->is_header_done()) {
      if (!feed()) return;
    }
    ++shared_.requests;
    handled_ = true;
    take_request();
    if (auto refusal = judge_head()) return refuse(std::move(*refusal));
    auto admitted = shared_.router.admit(request_);
    if (!admitted) {
      return request_.has_body ? refuse(std::move(admitted.error()))
                               : write_answer(std::move(admitted.error()));
    }
    admitted_ = std::move(*admitted);
    route_ = admitted_.route;
    if (route_->operation) {
      known_ = true;
      shared_.idle.leave(place_);
    }
    phase_ = Phase::body;
    due_in(shared_.options.body_timeout);
    parser_->eager(true);
    if (expects_continue() && !parser_->is_done() && buffer_.size() == 0) return send_continue();
    parse_body();
  }

  /// Points `request_` at what the parser holds.
  void take_request() {
    const auto& message = parser_->get();
    method_ = view(message.method_string());
    head_only_ = method_ == "HEAD";
    const std::string_view target = view(message.target());
    const std::size_t mark = std::min(target.find('?'), target.size());
    request_ = {.method = method_,
                .path = target.substr(0, mark),
                .query = target.substr(std::min(mark + 1, target.size()))};
    for (const auto& field : message)
      request_.headers.emplace_back(view(field.name_string()), view(field.value()));
    const auto length = parser_->content_length();
    request_.has_body = parser_->chunked() || (length && *length > 0);
    name_request(request_.header("X-Request-Id"));
    if (may_come_from(request_.header("Origin"), shared_.options.cors_origin)) {
      extra_lines_ +=
          "Access-Control-Allow-Origin: " + shared_.options.cors_origin +
          "\r\nAccess-Control-Expose-Headers: Location, Retry-After, X-Request-Id\r\nVary: Origin\r\n";
    }
    gzip_ = accepts_gzip(request_.header("Accept-Encoding"));
    keep_alive_ = parser_->keep_alive() && message.version() >= 11;
  }

  void name_request(std::string_view given) {
    request_id_ = request_id(given);
    extra_lines_ = "X-Request-Id: " + request_id_ + "\r\n";
    began_ = Clock::now();
  }

  std::optional<Response> judge_head() {
    const auto& message = parser_->get();
    if (message.version() >= 11 && message.count(beast::http::field::host) != 1) {
      return problem_response(malformed("an HTTP/1.1 request has one Host header"));
    }
    const std::string_view expect = request_.header("Expect");
    if (!expect.empty() && !equal_ignoring_case(expect, "100-continue")) {
      return problem_response(417, malformed("only 100-continue can be expected"));
    }
    if (auto refusal = judge_transfer_coding()) return refusal;
    const auto length = parser_->content_length();
    if (length && *length > shared_.options.body_max) return body_too_large();
    return std::nullopt;
  }

  /// The parser knows `chunked` alone, and takes what is coded otherwise for a request without a body: what
  /// follows would be the next request.
  std::optional<Response> judge_transfer_coding() const {
    const auto& message = parser_->get();
    const auto count = message.count(beast::http::field::transfer_encoding);
    if (count == 0) return std::nullopt;
    if (message.version() < 11 || !parser_->chunked()) {
      return problem_response(malformed("the end of the body cannot be known",
                                        "send Content-Length, or Transfer-Encoding: chunked in HTTP/1.1"));
    }
    if (count == 1 && equal_ignoring_case(request_.header("Transfer-Encoding"), "chunked"))
      return std::nullopt;
    return problem_response(501, malformed("chunked is the only transfer coding that is understood here",
                                           "send the body without another"));
  }

  Response body_too_large() const {
    return problem_response(
        {.code = service::Code::too_large,
         .message = "the body is over the limit of " + std::to_string(shared_.options.body_max) + " bytes",
         .hint = "send it in several requests"});
  }

  /// Counts what has come of the body, if it is large. Not what was announced: who sends slowly, or nothing,
  /// takes no memory, and must not take that of others.
  bool reserve_body() {
    const std::uint64_t bytes = parser_->get().body().size();
    if (bytes <= kSmallBody || bytes <= body_reserved_) return true;
    const std::uint64_t more = bytes - body_reserved_;
    body_reserved_ = bytes;
    return shared_.body_bytes.fetch_add(more) + more <= shared_.body_bytes_max();
  }
  void release_body() { shared_.body_bytes -= std::exchange(body_reserved_, 0); }

  bool expects_continue() const {
    return !request_.header("Expect").empty() && parser_->get().version() >= 11;
  }

  void send_continue() {
    writing_ = true;
    transport_->write("HTTP/1.1 100 Continue\r\n\r\n", {}, [self = shared_from_this()](bool good) {
      self->writing_ = false;
      if (self->phase_ == Phase::closed) return;
      if (!good) return self->close();
      self->parse_body();
    });
  }

  void parse_body() {
    while (!parser_->is_done()) {
      if (!feed()) return;
      if (!reserve_body()) {
        return refuse(problem_response({.code = service::Code::overloaded,
                                        .message = "too many large requests are under way",
                                        .hint = "try again, or send smaller batches"}));
      }
    }
    phase_ = Phase::handling;
    due_ = TimePoint::max();  // the service has a limit of its own
    request_.body = parser_->get().body();
    const auto exchange = std::make_shared<ClientExchange>(weak_from_this(), mailbox_);
    shared_.router.handle(admitted_, request_, exchange);
    request_ = {};
    parser_.reset();
    release_body();
  }

  // Answering.

  /// The handler's things are not needed any more.
  void end_request() {
    over_ = nullptr;
    wait_until_ = TimePoint::max();
    if (stream_) stream_->take_no_more();
    // May wait for a delivery that is under way on another thread; nothing of this connection is locked.
    kept_.reset();
  }

  static Response last_word(Response response) {
    response.close = true;
    return response;
  }
  /// For a request of which not everything was read: what follows it cannot be understood.
  void refuse(Response response) { write_answer(last_word(std::move(response))); }

  void write_answer(Response response, bool linger = true) {
    // What could not be read has no name yet.
    if (request_id_.empty()) name_request({});
    tell_of_answer(response);
    release_body();
    phase_ = Phase::writing;
    due_in(shared_.options.write_timeout);
    linger_ = linger;
    keep_alive_ = keep_alive_ && !response.close && !shared_.draining;
    if (gzip_ && response.body.size() > kGzipBytesMin) compress(response);
    std::string head = compose_head(response, {.keep_alive = keep_alive_, .extra = extra_lines_});
    lost_ = std::move(response.lost);
    writing_ = true;
    transport_->write(std::move(head), head_only_ ? std::string{} : std::move(response.body),
                      [self = shared_from_this()](bool good) { self->on_answered(good); });
  }

  static void compress(Response& response) {
    std::string packed = gzip(response.body);
    if (packed.empty()) return;
    response.body = std::move(packed);
    response.headers.emplace_back("Content-Encoding", "gzip");
    response.headers.emplace_back("Vary", "Accept-Encoding");
  }

  void on_answered(bool good) {
    writing_ = false;
    if (phase_ == Phase::closed) return;
    if (!good) return close();
    lost_ = nullptr;
    if (keep_alive_) return next_request();
    if (!linger_ || peer_done_) return close();
    linger();
  }

  /// Closed at once, with bytes unread, the system would reset the connection, and the answer might be lost
  /// on its way.
  void linger() {
    phase_ = Phase::lingering;
    due_ = Clock::now() + kLingerTime;
    transport_->linger([self = shared_from_this()](bool) { self->close(); });
  }

  void lose_answer() {
    if (auto lost = std::exchange(lost_, nullptr)) lost(/*begun=*/true);
  }

  // Lines in the log: no body, no path, no query, no key but the part of it that is no secret.

  using Fields = std::vector<std::pair<std::string, std::string>>;

  void tell_of_answer(const Response& response) const {
    if (response.status >= 500) tell_of_failure(response);
    if (response.status == 401) tell_of_refusal(response);
    if (!shared_.options.access_log) return;
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began_);
    tell("call_answered", Severity::info,
         {{"wire", "http"},
          {"method", route_ ? std::string{route_->method} : std::string{}},
          {"route", route_ ? std::string{route_->pattern} : std::string{}},
          {"status", std::to_string(response.status)},
          {"key", admitted_.who.label()},
          {"took_ms", std::to_string(took.count())}});
  }

  void tell_of_failure(const Response& response) const {
    // Who asks whether it is ready asks often, and gets the answer; why it is not is logged once, elsewhere.
    if (route_ && route_->handler == &get_ready) return;
    const auto untold = shared_.failures.tell(Clock::now());
    if (!untold) return;
    Fields fields{{"method", route_ ? std::string{route_->method} : std::string{}},
                  {"route", route_ ? std::string{route_->pattern} : std::string{}},
                  {"status", std::to_string(response.status)},
                  {"code", std::string{response.code}},
                  {"cause", response.cause}};
    if (*untold > 0) fields.emplace_back("untold", std::to_string(*untold));
    tell("http_error", response.status == 503 ? Severity::warning : Severity::error, std::move(fields));
  }

  void tell_of_refusal(const Response& response) const {
    const auto untold = shared_.refusals.tell(Clock::now());
    if (!untold) return;
    Fields fields{{"wire", "http"}, {"reason", response.cause}};
    if (*untold > 0) fields.emplace_back("untold", std::to_string(*untold));
    tell("caller_refused", Severity::warning, std::move(fields));
  }

  void tell(std::string_view name, Severity severity, Fields fields) const {
    fields.emplace_back("peer", transport_->peer());
    fields.emplace_back("request", request_id_);
    shared_.options.log({.name = name,
                         .severity = severity,
                         .at = std::chrono::system_clock::now(),
                         .fields = std::move(fields)});
  }

  void stream_flush() {
    if (writing_) return;
    if (outbox_.empty()) {
      if (stream_over_) linger();
      return;
    }
    writing_ = true;
    due_in(shared_.options.write_timeout);
    idle_at_ = Clock::now() + kStreamIdle;
    const std::size_t counted = std::exchange(outbox_counted_, 0);
    transport_->write(std::exchange(outbox_, {}), {}, [self = shared_from_this(), counted](bool good) {
      self->writing_ = false;
      self->stream_->written(counted);
      if (self->phase_ == Phase::closed) return;
      if (!good) return self->close();
      self->due_ = TimePoint::max();
      self->stream_flush();
    });
  }

  std::unique_ptr<Transport> transport_;
  SharedState& shared_;
  std::shared_ptr<Mailbox> mailbox_;
  std::move_only_function<void()> closed_;

  Phase phase_ = Phase::handshake;
  TimePoint due_ = TimePoint::max();
  beast::flat_buffer buffer_;
  std::array<char, 256> aside_{};
  bool reading_ = false;
  bool read_aside_ = false;
  bool writing_ = false;
  bool peer_done_ = false;  ///< it sends nothing more
  bool handled_ = false;    ///< it has had a request before
  bool known_ = false;      ///< a call of it was admitted
  IdleConnections::Place place_ = 0;

  // The request.
  std::optional<Parser> parser_;
  Request request_;
  std::string method_;
  Router::Admitted admitted_;
  const Route* route_ = nullptr;
  bool head_only_ = false;
  bool keep_alive_ = true;
  bool gzip_ = false;
  std::string extra_lines_;  ///< of the answer's head
  std::string request_id_;
  TimePoint began_{};
  std::uint64_t body_reserved_ = 0;
  std::shared_ptr<void> kept_;
  std::move_only_function<void()> over_;
  TimePoint wait_until_ = TimePoint::max();

  // The answer.
  bool linger_ = false;
  std::move_only_function<void(bool begun)> lost_;  ///< of the answer that is being written
  std::shared_ptr<ClientStream> stream_;
  std::string idle_frame_;
  TimePoint idle_at_ = TimePoint::max();
  std::string outbox_;
  std::size_t outbox_counted_ = 0;
  bool stream_over_ = false;
};

template <class Work>
void ConnectionHandle::run(Work work) {
  mailbox_->post([connection = connection_, work = std::move(work)](bool here) mutable {
    const auto alive = here ? connection.lock() : nullptr;
    work(alive.get());
  });
}

void ClientExchange::respond(Response response) {
  if (answered_.exchange(true)) return;
  handle_.run([response = std::move(response)](ClientConnection* connection) mutable {
    if (connection) {
      connection->answer(std::move(response));
    } else if (response.lost) {
      response.lost(/*begun=*/false);
    }
  });
}

void ClientExchange::keep(std::shared_ptr<void> what) {
  if (const auto connection = connection_.lock()) connection->keep(std::move(what));
}

void ClientExchange::wait(std::chrono::milliseconds most, std::move_only_function<void()> over) {
  if (const auto connection = connection_.lock()) connection->wait(most, std::move(over));
}

std::shared_ptr<Stream> ClientExchange::stream(Response head, std::string idle, std::string last) {
  answered_ = true;
  auto stream = std::make_shared<ClientStream>(handle_, std::move(last));
  if (const auto connection = connection_.lock()) connection->begin_stream(head, std::move(idle), stream);
  return stream;
}

bool ClientStream::send(std::string frame) {
  if (over_) return false;
  const std::size_t bytes = frame.size();
  if (queued_.fetch_add(bytes) + bytes > kStreamBytesMax) {
    over_ = true;
    handle_.run([last = last_](ClientConnection* connection) {
      if (connection) connection->stream_drop(last);
    });
    return false;
  }
  handle_.run([frame = std::move(frame)](ClientConnection* connection) {
    if (connection) connection->stream_write(frame, frame.size());
  });
  return true;
}

void ClientStream::end(std::string frame) {
  if (over_.exchange(true)) return;
  handle_.run([frame = std::move(frame)](ClientConnection* connection) {
    if (!connection) return;
    connection->stream_write(frame, 0);
    connection->stream_end();
  });
}

}  // namespace

std::shared_ptr<HttpConnection> make_connection(std::unique_ptr<Transport> transport, SharedState& shared,
                                                std::shared_ptr<Mailbox> mailbox,
                                                std::move_only_function<void()> closed) {
  return std::make_shared<ClientConnection>(std::move(transport), shared, std::move(mailbox),
                                            std::move(closed));
}

}  // namespace faultline::http

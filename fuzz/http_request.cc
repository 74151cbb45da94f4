// A connection's bytes, as they come in pieces from a client that may be hostile, slow or gone: every answer
// is good HTTP, none is too many, and in the end the connection is closed. The first four bytes choose what
// the client and the service do.

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "fuzz/answers.h"
#include "fuzz/service_double.h"
#include "fuzz/target.h"
#include "http/connection.h"

namespace faultline::fuzz {
namespace {

/// The one thread of the connection.
class Loop : public http::Mailbox {
 public:
  void post(Work work) override { work_.push_back(std::move(work)); }
  void run() {
    while (!work_.empty()) {
      Work work = std::move(work_.front());
      work_.pop_front();
      work(true);
    }
  }

 private:
  std::deque<Work> work_;
};

struct Answers {
  std::uint64_t final = 0;
  std::uint64_t interim = 0;
};

/// Takes a head apart again. Nothing in it may come from the request in a way that ends a line.
http::Response read_head(std::string_view head, std::string& content_type) {
  http::Response response{.content_type = {}};
  require(head.starts_with("HTTP/1.1 ") && head.ends_with("\r\n\r\n"), "a head begins and ends as HTTP says");
  response.status = std::stoi(std::string{head.substr(9, 3)});
  head.remove_prefix(head.find("\r\n") + 2);
  while (head != "\r\n") {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(line.size() + 2);
    const std::size_t colon = line.find(": ");
    require(colon != std::string_view::npos && colon > 0, "a head has a header in every line");
    response.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
    if (line.starts_with("Content-Type")) content_type = line.substr(colon + 2);
  }
  return response;
}

void require_good_bytes(const std::string& head, const std::string& body) {
  std::string content_type;
  http::Response response = read_head(head, content_type);
  const auto header = [&](std::string_view name) -> const std::string* {
    const auto found = std::ranges::find(response.headers, name, &std::pair<std::string, std::string>::first);
    return found == response.headers.end() ? nullptr : &found->second;
  };
  const std::string* length = header("Content-Length");
  if (length) require(body.empty() || *length == std::to_string(body.size()), "a body is as long as it says");
  response.body = body;
  response.content_type = content_type;
  require_good_answer(response, body.empty() || header("Content-Encoding") != nullptr);
}

/// A client that sends its bytes in pieces, and then goes, or only stops sending.
class Client : public http::Transport {
 public:
  Client(std::string_view bytes, std::size_t piece, unsigned writes_max, Loop& loop, Answers& answers)
      : bytes_(bytes), piece_(piece), writes_left_(writes_max), loop_(loop), answers_(answers) {}

  void handshake(Handshaken done) override {
    loop_.post([done = std::move(done)](bool) mutable { done(true); });
  }
  void read_some(std::span<char> into, Read done) override {
    require(!std::exchange(reading_, true), "one read at a time");
    loop_.post([this, into, done = std::move(done)](bool) mutable {
      reading_ = false;
      const std::size_t count = closed_ ? 0 : std::min({piece_, into.size(), bytes_.size()});
      std::ranges::copy(bytes_.substr(0, count), into.begin());
      bytes_.remove_prefix(count);
      done(count);
    });
  }
  void write(std::string head, std::string body, Written done) override {
    require(!std::exchange(writing_, true), "one write at a time");
    if (head.starts_with("HTTP/1.1 100 ")) {
      ++answers_.interim;
    } else if (!streaming_) {
      ++answers_.final;
      require_good_bytes(head, body);
      streaming_ = head.contains("text/event-stream");
    }
    const bool good = !closed_ && writes_left_ > 0;
    if (good) --writes_left_;
    loop_.post([this, good, done = std::move(done)](bool) mutable {
      writing_ = false;
      done(good && !closed_);
    });
  }
  void linger(Written done) override {
    loop_.post([done = std::move(done)](bool) mutable { done(true); });
  }
  void close() override { closed_ = true; }

 private:
  std::string_view bytes_;
  std::size_t piece_;
  unsigned writes_left_;
  Loop& loop_;
  Answers& answers_;
  bool reading_ = false;
  bool writing_ = false;
  bool streaming_ = false;
  bool closed_ = false;
};

}  // namespace

void run(std::string_view input) {
  ServiceDouble service;
  service.problem = take_byte(input) % 16;
  const std::size_t piece = take_byte(input) + 1;
  const unsigned writes_max = take_byte(input);
  const bool slow = take_byte(input) % 2 != 0;
  service.echo = input.substr(0, 64);
  const AuthenticatorDouble authenticator;
  const std::string origin = "https://app.example";
  // Bodies of more than 64 KiB are counted, and so are those whose length is not said.
  http::SharedState shared{
      .options = {.header_max = 512, .body_max = 65'537, .cors_origin = origin, .log = [](const Event&) {}},
      .router =
          http::Router{{.json_depth_max = 8, .cors_origin = origin, .metrics = [] { return std::string{}; }},
                       service,
                       authenticator}};
  const auto loop = std::make_shared<Loop>();
  Answers answers;
  int closed = 0;
  {
    const auto connection = http::make_connection(
        std::make_unique<Client>(input, piece, writes_max, *loop, answers), shared, loop, [&] { ++closed; });
    connection->start();
    loop->run();
    service.happen();
    loop->run();
    // Long after everything that it may wait for.
    if (slow) connection->tick(http::HttpConnection::Clock::now() + std::chrono::hours{1});
    loop->run();
    connection->drain();
    loop->run();
    connection->close();
    loop->run();
  }
  require(closed == 1, "a connection is closed once");
  require(shared.body_bytes == 0, "no memory stays reserved");
  // One more than there were heads: the bytes that were no head, or the head that took too long.
  require(answers.final <= shared.requests + 1, "a request is answered once");
  require(answers.interim <= shared.requests, "a request is asked to go on once");
}

}  // namespace faultline::fuzz

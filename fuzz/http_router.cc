// Requests that are HTTP already: every one is answered exactly once, and well.

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/answers.h"
#include "fuzz/service_double.h"
#include "fuzz/target.h"
#include "http/router.h"

namespace faultline::fuzz {
namespace {

class StreamDouble : public http::Stream {
 public:
  bool send(std::string frame) override {
    require(frame.ends_with("\n\n"), "an event ends with a blank line");
    return ++sent_ < 2;
  }
  void end(std::string frame) override {
    require(frame.ends_with("\n\n"), "an event ends with a blank line");
  }

 private:
  int sent_ = 0;
};

class ExchangeDouble : public http::HttpExchange {
 public:
  void respond(http::Response response) override {
    require(answers++ == 0, "a request is answered once");
    require_good_answer(response, false);
    // Some are lost before their first byte was sent, and some after it.
    if (response.lost) response.lost(response.body.size() % 2 == 0);
  }
  void keep(std::shared_ptr<void> what) override { kept_ = std::move(what); }
  void wait(std::chrono::milliseconds most, std::move_only_function<void()> over) override {
    require(most <= std::chrono::seconds{30}, "nobody waits for ever");
    over_ = std::move(over);
  }
  std::shared_ptr<http::Stream> stream(http::Response head, std::string idle, std::string last) override {
    require(answers++ == 0, "a request is answered once");
    require(head.body.empty() && idle.ends_with("\n\n") && last.ends_with("\n\n"), "a stream is of events");
    return std::make_shared<StreamDouble>();
  }
  /// As the connection does when the time is up, or when it has answered.
  void end() {
    if (auto over = std::exchange(over_, nullptr); over && answers == 0) over();
    kept_.reset();
  }

  int answers = 0;

 private:
  std::shared_ptr<void> kept_;
  std::move_only_function<void()> over_;
};

/// Up to the separator, which is taken too.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return taken;
}

/// A line with method, path and query, lines of headers, a blank line, the body.
http::Request request_of(std::string_view text) {
  std::string_view line = take_until(text, '\n');
  http::Request request{.method = take_until(line, ' '), .path = take_until(line, '?'), .query = line};
  while (!text.empty()) {
    line = take_until(text, '\n');
    if (line.empty()) break;
    const std::string_view name = take_until(line, ':');
    request.headers.emplace_back(name, line);
  }
  request.has_body = !text.empty();
  request.body = text;
  return request;
}

}  // namespace

void run(std::string_view input) {
  ServiceDouble service;
  service.problem = take_byte(input) % 16;
  service.echo = input.substr(0, 64);
  const AuthenticatorDouble authenticator;
  const http::Router router{
      {.json_depth_max = 8, .cors_origin = "https://app.example", .metrics = [] { return std::string{}; }},
      service,
      authenticator};
  const http::Request request = request_of(input);
  const auto exchange = std::make_shared<ExchangeDouble>();
  router.handle(request, exchange);
  service.happen();
  exchange->end();
  require(exchange->answers == 1, "a request is answered");
}

}  // namespace faultline::fuzz

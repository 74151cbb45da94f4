#include "metrics/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "support/http_client.h"

namespace faultline::testing {
namespace {

using metrics::Endpoint;
using ::testing::HasSubstr;

std::unique_ptr<Endpoint> started(std::string text = "faultline_up 1\n") {
  auto endpoint = Endpoint::start("127.0.0.1:0", [text = std::move(text)] { return text; });
  if (!endpoint) throw std::runtime_error(endpoint.error().describe());
  return std::move(*endpoint);
}

/// A client that connects and then says nothing.
class SilentClient {
 public:
  explicit SilentClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  SilentClient(const SilentClient&) = delete;
  SilentClient& operator=(const SilentClient&) = delete;
  ~SilentClient() { ::close(fd_); }
  [[nodiscard]] bool connected() const { return connected_; }

 private:
  int fd_;
  bool connected_ = false;
};

TEST(MetricsEndpointTest, it_answers_what_the_text_is_now) {
  int calls = 0;
  auto endpoint = Endpoint::start(":0", [&calls] { return "calls " + std::to_string(++calls) + "\n"; });
  ASSERT_TRUE(endpoint) << endpoint.error().describe();
  const HttpResponse first = http_get((*endpoint)->port(), "/metrics");
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "calls 1\n");
  EXPECT_EQ(first.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(http_get((*endpoint)->port(), "/metrics?x=y").body, "calls 2\n");
}

TEST(MetricsEndpointTest, a_large_answer_comes_whole) {
  const std::string text(8 * 1'024 * 1'024, 'x');
  const auto endpoint = started(text);
  EXPECT_EQ(http_get(endpoint->port(), "/metrics").body.size(), text.size());
}

TEST(MetricsEndpointTest, there_is_nothing_else) {
  const auto endpoint = started();
  EXPECT_EQ(http_get(endpoint->port(), "/").status, 404);
  EXPECT_EQ(http_get(endpoint->port(), "/metrics/x").status, 404);
  EXPECT_EQ(http(endpoint->port(), {.method = "POST", .target = "/metrics", .body = "{}"}).status, 405);
  EXPECT_EQ(
      http(endpoint->port(), {.target = "/metrics", .headers = {{"X", std::string(20'000, 'x')}}}).status, 0);
  EXPECT_EQ(http_get(endpoint->port(), "/metrics").status, 200);
}

TEST(MetricsEndpointTest, silent_clients_do_not_keep_others_out_for_long) {
  const auto endpoint = started();
  const SilentClient first{endpoint->port()};
  const SilentClient second{endpoint->port()};
  ASSERT_TRUE(first.connected() && second.connected());
  EXPECT_EQ(http_get(endpoint->port(), "/metrics").status, 200);
}

TEST(MetricsEndpointTest, it_ends_while_a_client_is_there) {
  auto endpoint = started();
  const std::uint16_t port = endpoint->port();
  const SilentClient client{port};
  ASSERT_TRUE(client.connected());
  endpoint.reset();
  EXPECT_EQ(http_get(port, "/metrics").status, 0);
}

TEST(MetricsEndpointTest, an_address_that_cannot_be_had_is_refused_with_the_reason) {
  const auto text = [] { return std::string{}; };
  const auto taken = started();
  for (const std::string& address : {"127.0.0.1:" + std::to_string(taken->port()), std::string{"127.0.0.1"},
                                     std::string{"127.0.0.1:99999"}, std::string{"127.0.0.1:"},
                                     std::string{"::1:9100"}, std::string{"192.0.2.1:0"}}) {
    const auto endpoint = Endpoint::start(address, text);
    ASSERT_FALSE(endpoint) << address;
    EXPECT_THAT(endpoint.error().message, HasSubstr(address));
    EXPECT_THAT(endpoint.error().hint, HasSubstr("127.0.0.1:9100"));
  }
}

}  // namespace
}  // namespace faultline::testing

#include "base/host_port.h"

#include <utility>
#include <vector>

#include <gmock/gmock.h>

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;

using Cases = std::vector<std::pair<std::string, HostPort>>;
using Refusals = std::vector<std::pair<std::string, std::string>>;

constexpr std::uint16_t kDefaultPort = 8001;

TEST(HostPortTest, an_address_to_listen_on_is_read_in_every_spelling_and_written_as_it_can_be_read) {
  const Cases cases{
      {"127.0.0.1:8000", {"127.0.0.1", 8000}},
      {"0.0.0.0:80", {"0.0.0.0", 80}},
      {":8000", {"127.0.0.1", 8000}},
      {"localhost:0", {"localhost", 0}},
      {"[::1]:8000", {"::1", 8000}},
      {"[::]:65535", {"::", 65535}},
      {"[fe80::1%eth0]:80", {"fe80::1%eth0", 80}},
      {"queue-1.example.com:1", {"queue-1.example.com", 1}},
      {"my_queue:1", {"my_queue", 1}},
  };
  for (const auto& [text, address] : cases) {
    const auto parsed = parse_listen_address(text);
    ASSERT_TRUE(parsed.has_value()) << text << ": " << parsed.error();
    EXPECT_EQ(*parsed, address) << text;
    EXPECT_EQ(parse_listen_address(address.to_string()).value(), address);
  }
}

TEST(HostPortTest, an_address_to_connect_to_may_have_no_port) {
  const Cases cases{
      {"queue.internal:9001", {"queue.internal", 9001}},
      {"queue.internal", {"queue.internal", kDefaultPort}},
      {"10.0.0.1", {"10.0.0.1", kDefaultPort}},
      {"[2001:db8::1]:3", {"2001:db8::1", 3}},
      {"[::1]", {"::1", kDefaultPort}},
  };
  for (const auto& [text, address] : cases) {
    const auto parsed = parse_connect_address(text, kDefaultPort);
    ASSERT_TRUE(parsed.has_value()) << text << ": " << parsed.error();
    EXPECT_EQ(*parsed, address) << text;
    EXPECT_EQ(parse_connect_address(address.to_string(), kDefaultPort).value(), address);
  }
}

TEST(HostPortTest, what_is_no_address_to_listen_on_is_refused_with_the_reason) {
  const Refusals cases{
      {"", "no port"},
      {"8000", "no port"},
      {"127.0.0.1", "no port"},
      {"[::1]", "no port"},
      {"127.0.0.1:", "0 to 65535"},
      {"127.0.0.1:65536", "0 to 65535"},
      {"127.0.0.1:99999999999999999999", "0 to 65535"},
      {"127.0.0.1:-1", "0 to 65535"},
      {"127.0.0.1:+1", "0 to 65535"},
      {"127.0.0.1:http", "0 to 65535"},
      {"127.0.0.1:80 ", "0 to 65535"},
      {"*:80", "0.0.0.0:PORT"},
      {"::1:8000", "has to be in brackets"},
      {"[::1:8000", "has to be in brackets"},
      {"http://localhost:8000", "has to be in brackets"},
      {"[]:8000", "not an IPv6 address"},
      {"[127.0.0.1]:8000", "not an IPv6 address"},
      {"[zz::1]:8000", "not an IPv6 address"},
      {"[fe80::1%]:8000", "not an IPv6 address"},
      {std::string{"[::1\0]:8000", 11}, "not an IPv6 address"},
      {"[:80", "neither a name nor an IP address"},
      {"]:80", "neither a name nor an IP address"},
      {"host name:1", "neither a name nor an IP address"},
      {std::string{"a\0b:1", 5}, "neither a name nor an IP address"},
      {std::string(300, 'a') + ":1", "neither a name nor an IP address"},
  };
  for (const auto& [text, says] : cases) {
    const auto parsed = parse_listen_address(text);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error(), HasSubstr(says)) << text;
  }
}

TEST(HostPortTest, what_nobody_can_connect_to_is_refused_with_the_reason) {
  const Refusals cases{
      {"", "no host"},
      {":8001", "no host"},
      {"host:", "1 to 65535"},
      {"host:0", "1 to 65535"},
      {"host:70000", "1 to 65535"},
      {"host:80x", "1 to 65535"},
      {"::1:8001", "has to be in brackets"},
      {"[::1", "has to be in brackets"},
      {"*:80", "neither a name nor an IP address"},
      {"a b:1", "neither a name nor an IP address"},
  };
  for (const auto& [text, says] : cases) {
    const auto parsed = parse_connect_address(text, kDefaultPort);
    ASSERT_FALSE(parsed.has_value()) << text;
    EXPECT_THAT(parsed.error(), HasSubstr(says)) << text;
  }
}

TEST(HostPortTest, only_what_is_surely_this_machine_alone_is_loopback) {
  for (const std::string host :
       {"127.0.0.1", "127.9.9.9", "localhost", "LocalHost", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE((HostPort{host, 1}.is_loopback())) << host;
  for (const std::string host : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "126.255.255.255", "::2",
                                 "example.com", "localhost.example.com", "127.1", "0", "::ffff:10.0.0.1", ""})
    EXPECT_FALSE((HostPort{host, 1}.is_loopback())) << host;
}

}  // namespace
}  // namespace faultline::testing

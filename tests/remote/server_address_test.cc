#include "remote/server_address.h"

#include <gmock/gmock.h>

namespace faultline::remote {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ServerAddressTest, a_server_is_host_and_port) {
  const auto address = parse_server_address("faultline://queue.internal:9001");
  ASSERT_TRUE(address);
  EXPECT_THAT(address->targets, ElementsAre(HostPort{"queue.internal", 9001}));
  EXPECT_FALSE(address->tls);
}

TEST(ServerAddressTest, without_a_port_it_is_the_usual_one) {
  EXPECT_THAT(parse_server_address("faultline://localhost")->targets,
              ElementsAre(HostPort{"localhost", 8001}));
  EXPECT_THAT(parse_server_address("faultline://[::1]/")->targets, ElementsAre(HostPort{"::1", 8001}));
}

TEST(ServerAddressTest, there_may_be_several_servers) {
  const auto address = parse_server_address("faultline+tls://a:1,b:2,[2001:db8::1]:3");
  ASSERT_TRUE(address);
  EXPECT_THAT(address->targets, ElementsAre(HostPort{"a", 1}, HostPort{"b", 2}, HostPort{"2001:db8::1", 3}));
  EXPECT_TRUE(address->tls);
}

TEST(ServerAddressTest, only_this_machine_is_loopback) {
  EXPECT_TRUE(parse_server_address("faultline://127.0.0.1:1,localhost:2,[::1]:3")->is_loopback());
  EXPECT_FALSE(parse_server_address("faultline://127.0.0.1:1,10.0.0.1:2")->is_loopback());
  EXPECT_FALSE(parse_server_address("faultline://127.example.org.evil:1").value().is_loopback());
}

TEST(ServerAddressTest, what_is_no_address_is_refused_with_what_one_looks_like) {
  for (const char* text : {"", "localhost:8001", "http://localhost:8001", "faultline://", "faultline://:8001",
                           "faultline://host:", "faultline://host:0", "faultline://host:70000",
                           "faultline://host:80x", "faultline://::1:8001", "faultline://a b:1",
                           "faultline://a:1,,b:2", "faultline://host:1?tls=1", "faultline://host:1/path"}) {
    const auto address = parse_server_address(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(address.error().hint, HasSubstr("faultline+tls://host:port"));
  }
}

TEST(ServerAddressTest, a_key_in_the_address_is_refused_and_not_repeated) {
  const auto address = parse_server_address("faultline://SECRET@host:8001");
  ASSERT_FALSE(address);
  EXPECT_THAT(address.error().describe(), HasSubstr("FAULTLINE_API_KEY"));
  EXPECT_THAT(address.error().describe(), Not(HasSubstr("SECRET")));
}

}  // namespace
}  // namespace faultline::remote

// Certificates that are replaced under a running server, well and badly.

#include "support/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve_process.h"
#include "support/database.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

class ServeTlsTest : public ::testing::Test {
 protected:
  ServeTlsTest() {
    write(TlsPair{1});
    server_.emplace(database_.dsn(), std::vector<std::string>{"--tls-cert", cert_, "--tls-key", key_,
                                                              "--tls-client-ca", authority_});
    server_->wait_until_it_serves();
  }

  void write(const TlsPair& pair) const {
    write_file(cert_, pair.cert);
    write_file(key_, pair.key);
    write_file(authority_, pair.cert);
  }
  [[nodiscard]] std::size_t told(std::string_view event) {
    const std::string log = server_->process().err();
    std::size_t count = 0;
    for (std::size_t at = log.find(event); at != std::string::npos; at = log.find(event, at + 1)) ++count;
    return count;
  }
  [[nodiscard]] bool both_show(long serial) {
    return served_serial(server_->http_port()) == serial && served_serial(server_->grpc_port()) == serial;
  }

  TestDatabase database_;
  ScratchDir dir_;
  const std::string cert_ = dir_ / "server.pem";
  const std::string key_ = dir_ / "server.key";
  const std::string authority_ = dir_ / "clients.pem";
  std::optional<ServeProcess> server_;
};

TEST_F(ServeTlsTest, files_that_cannot_be_used_are_told_once_and_the_last_good_ones_stay) {
  ASSERT_TRUE(both_show(1));
  const TlsPair second{2};
  struct Bad {
    const std::string& file;
    std::string content;
    std::string_view problem;
  };
  const std::vector<Bad> all{{cert_, "", "it is empty"},
                             {cert_, "nonsense", "there is no certificate in it"},
                             {cert_, second.cert, "is not the one of the certificate"},
                             {key_, "", "it is empty"},
                             {authority_, "", "it is empty"}};
  const TlsPair first{1};
  write(first);
  ASSERT_TRUE(eventually([&] { return told("\"tls_reloaded\"") == 1; }));
  std::size_t failures = 0;
  for (const Bad& bad : all) {
    SCOPED_TRACE(bad.problem);
    write(first);
    write_file(bad.file, bad.content);  // as cp does: the file is emptied, then filled
    ++failures;
    ASSERT_TRUE(eventually([&] { return told("\"tls_reload_failed\"") == failures; }))
        << server_->process().err();
    EXPECT_THAT(server_->process().err(), ::testing::HasSubstr(bad.problem));
    EXPECT_TRUE(both_show(1));
  }

  write(second);
  EXPECT_TRUE(eventually([&] { return both_show(2); })) << server_->process().err();
  EXPECT_EQ(told("\"tls_reload_failed\""), failures) << "once for each, however often it was looked at";
  EXPECT_EQ(server_->terminate().exit_code, 0);
}

TEST_F(ServeTlsTest, suites_of_old_are_refused_by_both_wires) {
  const auto shakes_hands = [&](std::uint16_t port, std::vector<std::string> options) {
    std::vector<std::string> argv{"openssl", "s_client", "-connect", "127.0.0.1:" + std::to_string(port),
                                  "-alpn",   "h2",       "-cert",    cert_,
                                  "-key",    key_};
    argv.insert(argv.end(), options.begin(), options.end());
    return run_process({.argv = std::move(argv)}).exit_code == 0;
  };
  for (const std::uint16_t port : {server_->http_port(), server_->grpc_port()}) {
    SCOPED_TRACE(port == server_->http_port() ? "HTTP" : "gRPC");
    EXPECT_TRUE(shakes_hands(port, {"-tls1_3"}));
    for (const char* suite : {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"})
      EXPECT_TRUE(shakes_hands(port, {"-tls1_2", "-cipher", suite})) << suite;
    for (const char* suite : {"ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"})
      EXPECT_FALSE(shakes_hands(port, {"-tls1_2", "-cipher", suite})) << suite;
    EXPECT_FALSE(shakes_hands(port, {"-tls1_1", "-cipher", "ALL:@SECLEVEL=0"}));
  }
}

TEST_F(ServeTlsTest, an_ordinary_copy_over_the_files_is_taken_up_by_both_wires) {
  for (long serial = 2; serial <= 4; ++serial) {
    const TlsPair next{serial};
    write_file(dir_ / "next.pem", next.cert);
    write_file(dir_ / "next.key", next.key);
    for (const auto& [from, to] :
         {std::pair{"next.pem", cert_}, {"next.pem", authority_}, {"next.key", key_}}) {
      ASSERT_EQ(run_process({.argv = {"cp", dir_ / from, to}}).exit_code, 0);
    }
    EXPECT_TRUE(eventually([&] { return both_show(serial); })) << server_->process().err();
  }
}

}  // namespace
}  // namespace faultline::testing

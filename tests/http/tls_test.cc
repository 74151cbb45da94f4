#include "support/tls.h"

#include <filesystem>

#include "fixture.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

class HttpTls : public HttpTest {
 protected:
  void SetUp() override {
    start_service();
    const TlsPair pair{1};
    write_file(cert_, pair.cert);
    write_file(key_, pair.key);
    start_server({.certificates = certificates()});
  }

  [[nodiscard]] std::shared_ptr<const tls::Certificates> certificates() {
    return must(tls::Certificates::load({.files = {.cert = cert_, .key = key_}, .log = lines_.sink()}));
  }
  [[nodiscard]] ProcessResult curl(std::vector<std::string> arguments, const std::string& path) const {
    std::vector<std::string> argv{"curl", "-sS", "-k", "--http1.1", "-v"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    argv.push_back("https://localhost:" + std::to_string(server_->port()) + path);
    return run_process({.argv = std::move(argv)});
  }
  ScratchDir directory_;
  std::filesystem::path cert_ = directory_ / "cert.pem";
  std::filesystem::path key_ = directory_ / "key.pem";
};

TEST_F(HttpTls, requests_are_served_over_tls) {
  const ProcessResult added = curl({"-H", "Content-Type: application/json", "-d",
                                    R"({"kind":"k","payload":")" + std::string(50'000, 'x') + "\"}"},
                                   "/v1/jobs");
  ASSERT_EQ(added.exit_code, 0) << added.err;
  EXPECT_EQ(Json::parse(added.out)["status"], "created");
  const ProcessResult job =
      curl({"--compressed"}, "/v1/jobs/" + Json::parse(added.out)["job_id"].get<std::string>());
  EXPECT_EQ(Json::parse(job.out)["job"]["payload"].get<std::string>().size(), 50'000U);
}

TEST_F(HttpTls, old_versions_and_plain_text_are_refused) {
  EXPECT_NE(curl({"--tls-max", "1.1", "--ciphers", "DEFAULT:@SECLEVEL=0"}, "/health").exit_code, 0);
  EXPECT_EQ(curl({"--tls-max", "1.2"}, "/health").exit_code, 0);
  RawClient plain = connect();
  plain.send("GET /health HTTP/1.1\r\nHost: t\r\n\r\n");
  EXPECT_FALSE(plain.read_reply());
}

TEST_F(HttpTls, a_client_that_sends_before_it_reads_is_told_why_its_body_is_refused) {
  start_server({.body_max = 100'000, .certificates = certificates()});
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free};
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> stream{BIO_new_ssl_connect(context.get()),
                                                             &BIO_free_all};
  BIO_set_conn_hostname(stream.get(), ("127.0.0.1:" + std::to_string(server_->port())).c_str());
  ASSERT_EQ(BIO_do_handshake(stream.get()), 1);
  const auto send = [&](const std::string& text) {
    return BIO_write(stream.get(), text.data(), static_cast<int>(text.size())) ==
           static_cast<int>(text.size());
  };
  ASSERT_TRUE(
      send("POST /v1/jobs HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: "
           "20000000\r\n\r\n"));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(send(std::string(100'000, ' '))) << "after " << i << " pieces";
  std::string reply(1'000, '\0');
  reply.resize(static_cast<std::size_t>(std::max(BIO_read(stream.get(), reply.data(), 1'000), 0)));
  EXPECT_THAT(reply, ::testing::StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(reply, ::testing::HasSubstr("Connection: close\r\n"));
}

TEST_F(HttpTls, a_client_that_does_not_shake_hands_is_cut_off) {
  start_server({.header_timeout = ms{200}, .certificates = certificates()});
  RawClient silent = connect();
  EXPECT_EQ(silent.read_to_end(), "");
}

TEST_F(HttpTls, suites_without_forward_secrecy_or_authenticated_encryption_are_refused) {
  for (const char* suite :
       {"AES128-GCM-SHA256", "AES256-SHA", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384"})
    EXPECT_NE(curl({"--tls-max", "1.2", "--ciphers", suite}, "/health").exit_code, 0) << suite;
  for (const char* suite : {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"})
    EXPECT_EQ(curl({"--tls-max", "1.2", "--ciphers", suite}, "/health").exit_code, 0) << suite;
}

}  // namespace
}  // namespace faultline::testing

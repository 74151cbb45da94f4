#include <cstdio>
#include <filesystem>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "fixture.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using File = std::unique_ptr<std::FILE, decltype(&std::fclose)>;

/// Writes a self-signed pair for localhost with this serial number, each file replaced in one step.
void write_pair(const std::filesystem::path& cert_file, const std::filesystem::path& key_file, long serial) {
  const Key key{EVP_EC_gen("P-256"), &EVP_PKEY_free};
  const Certificate cert{X509_new(), &X509_free};
  X509_set_version(cert.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), -3'600);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), 86'400);
  X509_set_pubkey(cert.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(cert.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"),
                             -1, -1, 0);
  X509_set_issuer_name(cert.get(), name);
  X509_sign(cert.get(), key.get(), EVP_sha256());
  const std::filesystem::path cert_new = cert_file.string() + ".new";
  const std::filesystem::path key_new = key_file.string() + ".new";
  {
    const File out{std::fopen(cert_new.c_str(), "w"), &std::fclose};
    PEM_write_X509(out.get(), cert.get());
  }
  {
    const File out{std::fopen(key_new.c_str(), "w"), &std::fclose};
    PEM_write_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  }
  std::filesystem::rename(key_new, key_file);
  std::filesystem::rename(cert_new, cert_file);
}

class HttpTls : public HttpTest {
 protected:
  void SetUp() override {
    start_service();
    write_pair(cert_, key_, 1);
    start_server({.tls_cert = cert_, .tls_key = key_});
  }

  [[nodiscard]] ProcessResult curl(std::vector<std::string> arguments, const std::string& path) const {
    std::vector<std::string> argv{"curl", "-sS", "-k", "--http1.1", "-v"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    argv.push_back("https://localhost:" + std::to_string(server_->port()) + path);
    return run_process({.argv = std::move(argv)});
  }
  /// The serial number of the certificate that the server shows.
  [[nodiscard]] long serial() const {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()),
                                                                    &SSL_CTX_free};
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> stream{BIO_new_ssl_connect(context.get()),
                                                               &BIO_free_all};
    BIO_set_conn_hostname(stream.get(), ("127.0.0.1:" + std::to_string(server_->port())).c_str());
    SSL* ssl = nullptr;
    BIO_get_ssl(stream.get(), &ssl);
    if (BIO_do_handshake(stream.get()) != 1) return -1;
    const Certificate cert{SSL_get1_peer_certificate(ssl), &X509_free};
    return ASN1_INTEGER_get(X509_get0_serialNumber(cert.get()));
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
  start_server({.body_max = 100'000, .tls_cert = cert_, .tls_key = key_});
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
  start_server({.header_timeout = ms{200}, .tls_cert = cert_, .tls_key = key_});
  RawClient silent = connect();
  EXPECT_EQ(silent.read_to_end(), "");
}

TEST_F(HttpTls, a_new_certificate_is_taken_up_without_a_restart) {
  EXPECT_EQ(serial(), 1);
  write_pair(cert_, key_, 2);
  EXPECT_TRUE(eventually([&] { return serial() == 2; }));
  EXPECT_NE(lines_.text().find("tls_reloaded"), std::string::npos);
  write_file(cert_, "nonsense");
  EXPECT_TRUE(eventually([&] { return lines_.text().find("tls_reload_failed") != std::string::npos; }));
  EXPECT_EQ(serial(), 2) << "the last good one stays";
}

TEST_F(HttpTls, a_pair_that_does_not_fit_is_refused_at_the_start) {
  const std::filesystem::path other = directory_ / "other.pem";
  write_pair(directory_ / "other-cert.pem", other, 3);
  const http::HttpServerOptions options{.tls_cert = cert_, .tls_key = other, .log = lines_.sink()};
  const auto server = http::HttpServer::start(options, *service_, allow_all_);
  ASSERT_FALSE(server);
  EXPECT_NE(server.error().message.find("other.pem"), std::string::npos) << server.error().message;
}

}  // namespace
}  // namespace faultline::testing

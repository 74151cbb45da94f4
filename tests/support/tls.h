#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace faultline::testing {

/// A self-signed pair for localhost with this serial number, as PEM.
struct TlsPair {
  std::string cert;
  std::string key;

  explicit TlsPair(long serial) {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> pair{EVP_EC_gen("P-256"), &EVP_PKEY_free};
    const std::unique_ptr<X509, decltype(&X509_free)> made{X509_new(), &X509_free};
    X509_set_version(made.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), serial);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -3'600);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), 86'400);
    X509_set_pubkey(made.get(), pair.get());
    X509_NAME* const name = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"),
                               -1, -1, 0);
    X509_set_issuer_name(made.get(), name);
    X509_sign(made.get(), pair.get(), EVP_sha256());
    cert = pem([&](BIO* out) { PEM_write_bio_X509(out, made.get()); });
    key = pem(
        [&](BIO* out) { PEM_write_bio_PrivateKey(out, pair.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  }

 private:
  template <class Write>
  static std::string pem(const Write& write) {
    const std::unique_ptr<BIO, decltype(&BIO_free)> out{BIO_new(BIO_s_mem()), &BIO_free};
    write(out.get());
    char* text = nullptr;
    const long size = BIO_get_mem_data(out.get(), &text);
    return {text, static_cast<std::size_t>(size)};
  }
};

/// The serial number of the certificate that a server on this machine shows to who speaks HTTP/2 or HTTP/1.1;
/// -1: there is no handshake.
inline long served_serial(std::uint16_t port) {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context{SSL_CTX_new(TLS_client_method()),
                                                                  &SSL_CTX_free};
  constexpr unsigned char kProtocols[] = "\x02h2\x08http/1.1";
  SSL_CTX_set_alpn_protos(context.get(), kProtocols, sizeof kProtocols - 1);
  const std::unique_ptr<BIO, decltype(&BIO_free_all)> stream{BIO_new_ssl_connect(context.get()),
                                                             &BIO_free_all};
  BIO_set_conn_hostname(stream.get(), ("127.0.0.1:" + std::to_string(port)).c_str());
  SSL* ssl = nullptr;
  BIO_get_ssl(stream.get(), &ssl);
  if (BIO_do_handshake(stream.get()) != 1) return -1;
  const std::unique_ptr<X509, decltype(&X509_free)> cert{SSL_get1_peer_certificate(ssl), &X509_free};
  return ASN1_INTEGER_get(X509_get0_serialNumber(cert.get()));
}

}  // namespace faultline::testing

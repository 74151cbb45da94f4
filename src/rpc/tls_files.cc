#include "rpc/tls_files.h"

#include <memory>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

namespace faultline::rpc {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

Error bad(std::string message, std::string hint) {
  ERR_clear_error();
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .hint = std::move(hint)};
}

int no_passphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

/// The first object of a PEM file, by one of OpenSSL's readers.
template <class T, class Read>
Expected<std::unique_ptr<T, Free>> read_pem(const std::string& file, const char* what, const Read& read) {
  const std::unique_ptr<BIO, Free> bio{BIO_new_file(file.c_str(), "r")};
  if (!bio)
    return std::unexpected(bad("cannot read " + file, "it must be a PEM file with " + std::string{what}));
  std::unique_ptr<T, Free> object{read(bio.get(), nullptr, no_passphrase, nullptr)};
  if (!object)
    return std::unexpected(bad("there is no " + std::string{what} + " in " + file, "it must be a PEM file"));
  return object;
}

}  // namespace

std::optional<Error> check_tls_files(const std::string& cert, const std::string& key,
                                     const std::string& client_ca) {
  const auto certificate = read_pem<X509>(cert, "certificate", PEM_read_bio_X509);
  if (!certificate) return certificate.error();
  const auto private_key =
      read_pem<EVP_PKEY>(key, "private key without a passphrase", PEM_read_bio_PrivateKey);
  if (!private_key) return private_key.error();
  if (X509_check_private_key(certificate->get(), private_key->get()) != 1) {
    return bad("the private key in " + key + " is not the one of the certificate in " + cert,
               "name the two files that belong together");
  }
  if (client_ca.empty()) return std::nullopt;
  const auto authority = read_pem<X509>(client_ca, "certificate", PEM_read_bio_X509);
  return authority ? std::nullopt : std::optional{authority.error()};
}

}  // namespace faultline::rpc

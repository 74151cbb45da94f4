#include "tls/certificates.h"

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace faultline::tls {
namespace {

/// Forward secrecy and authenticated encryption only; what gRPC takes, too. Those of TLS 1.3 all have both.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";
/// A chain, or a bundle of authorities, is far smaller.
constexpr std::streamsize kFileMax = 1'048'576;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

/// Takes the reason from OpenSSL's queue, and empties it.
std::string openssl_reason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  ERR_clear_error();
  return reason ? ": " + std::string{reason} : std::string{};
}

Error unusable(const std::string& file, const std::string& why, std::string hint) {
  return {.code = ErrorCode::invalid_argument,
          .message = "the TLS file " + file + " cannot be used: " + why,
          .hint = std::move(hint)};
}

Expected<std::string> read_file(const std::string& file) {
  const std::string hint = "name a PEM file that this user may read";
  errno = 0;
  std::ifstream in{file, std::ios::binary};
  std::string text(kFileMax + 1, '\0');
  in.read(text.data(), kFileMax + 1);
  if (in.bad() || (errno != 0 && in.gcount() == 0))
    return std::unexpected(unusable(file, std::generic_category().message(errno), hint));
  if (in.gcount() == 0) return std::unexpected(unusable(file, "it is empty", hint));
  if (in.gcount() > kFileMax) return std::unexpected(unusable(file, "it is over 1 MiB", hint));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

Owned<BIO> reader_of(const std::string& text) {
  return Owned<BIO>{BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))};
}

int no_passphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

/// Every certificate of a PEM text, each handed to `take`, which says whether it serves.
template <class Take>
std::optional<Error> read_certificates(const std::string& file, const std::string& text, const Take& take) {
  const Owned<BIO> bio = reader_of(text);
  std::size_t count = 0;
  while (Owned<X509> cert{PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr)}) {
    if (!take(std::move(cert), count))
      return unusable(file, "its certificate " + std::to_string(count + 1) + " is refused" + openssl_reason(),
                      "make one with a key and a signature of today's strength");
    ++count;
  }
  const auto last = ERR_peek_last_error();
  const bool at_end = ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
  const std::string reason = openssl_reason();
  if (count == 0) return unusable(file, "there is no certificate in it", "give certificates as PEM");
  if (!at_end)
    return unusable(file, "what follows its certificate " + std::to_string(count) + " is no other" + reason,
                    "give certificates as PEM, one after the other");
  return std::nullopt;
}

std::shared_ptr<SSL_CTX> server_context() {
  std::shared_ptr<SSL_CTX> context{SSL_CTX_new(TLS_server_method()), &SSL_CTX_free};
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(context.get(), kCiphers);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);  // tickets do it without memory of ours
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);          // an idle connection keeps little
  return context;
}

std::optional<Error> load_pair(SSL_CTX* context, const Files& files, const Files& text) {
  const auto take = [&](Owned<X509> cert, std::size_t index) {
    if (index == 0) return SSL_CTX_use_certificate(context, cert.get()) == 1;
    if (SSL_CTX_add0_chain_cert(context, cert.get()) != 1) return false;
    static_cast<void>(cert.release());  // it is the context's now
    return true;
  };
  if (auto problem = read_certificates(files.cert, text.cert, take)) return problem;
  const Owned<BIO> bio = reader_of(text.key);
  const Owned<EVP_PKEY> key{PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr)};
  ERR_clear_error();
  if (!key)
    return unusable(files.key, "there is no private key without a passphrase in it",
                    "give the certificate's private key as PEM");
  const bool fits =
      SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1;
  ERR_clear_error();
  if (fits) return std::nullopt;
  return Error{
      .code = ErrorCode::invalid_argument,
      .message = "the private key in " + files.key + " is not the one of the certificate in " + files.cert,
      .hint = "give the two files that belong together"};
}

Expected<std::shared_ptr<const Identity>> judge(const Files& files, const Files& text) {
  Identity identity{.text = text, .context = server_context()};
  if (auto problem = load_pair(identity.context.get(), files, text))
    return std::unexpected(std::move(*problem));
  if (!files.client_ca.empty()) {
    if (auto problem = read_certificates(files.client_ca, text.client_ca,
                                         [](const Owned<X509>&, std::size_t) { return true; }))
      return std::unexpected(std::move(*problem));
  }
  return std::make_shared<const Identity>(std::move(identity));
}

/// The texts of all files.
Expected<Files> read_all(const Files& files) {
  Files text;
  for (const auto member : {&Files::cert, &Files::key, &Files::client_ca}) {
    if ((files.*member).empty()) continue;
    auto read_text = read_file(files.*member);
    if (!read_text) return std::unexpected(std::move(read_text.error()));
    text.*member = std::move(*read_text);
  }
  return text;
}

}  // namespace

Certificates::Certificates(CertificatesOptions options, Content content,
                           std::shared_ptr<const Identity> identity)
    : options_(std::move(options)),
      identity_(std::move(identity)),
      seen_(content),
      judged_(std::move(content)),
      watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

Expected<std::shared_ptr<const Certificates>> Certificates::load(CertificatesOptions options) {
  auto text = read_all(options.files);
  if (!text) return std::unexpected(std::move(text.error()));
  auto identity = judge(options.files, *text);
  if (!identity) return std::unexpected(std::move(identity.error()));
  return std::shared_ptr<const Certificates>{
      new Certificates{std::move(options), std::move(*text), std::move(*identity)}};
}

std::shared_ptr<const Identity> Certificates::current() const {
  const std::lock_guard lock{mutex_};
  return identity_;
}

void Certificates::watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock{mutex};
  while (!stopped.wait_for(lock, stop, options_.look_every, [] { return false; }) && !stop.stop_requested())
    look();
}

Certificates::Content Certificates::read() const {
  auto text = read_all(options_.files);
  if (!text) return text.error().describe();
  return std::move(*text);
}

void Certificates::look() {
  // Files are written one after the other, and each not at once: what changes from look to look is not ready.
  Content now = read();
  if (std::exchange(seen_, now) != now || now == judged_) return;
  judged_ = std::move(now);
  if (const auto* problem = std::get_if<std::string>(&judged_)) return tell_failure(*problem);
  auto identity = judge(options_.files, std::get<Files>(judged_));
  if (!identity) return tell_failure(identity.error().describe());
  {
    const std::lock_guard lock{mutex_};
    identity_ = std::move(*identity);
  }
  options_.log({.name = "tls_reloaded",
                .at = std::chrono::system_clock::now(),
                .fields = {{"certificate", options_.files.cert}}});
}

void Certificates::tell_failure(const std::string& problem) const {
  options_.log({.name = "tls_reload_failed",
                .severity = Severity::warning,
                .at = std::chrono::system_clock::now(),
                .fields = {{"problem", problem}}});
}

}  // namespace faultline::tls

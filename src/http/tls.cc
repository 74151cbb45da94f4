#include "http/tls.h"

#include <sys/stat.h>

#include <utility>

#include <openssl/ssl.h>

namespace faultline::http {
namespace {

namespace ssl = boost::asio::ssl;

Error unusable(const std::string& file, const boost::system::error_code& error) {
  return {.code = ErrorCode::invalid_argument,
          .message = "the TLS file " + file + " cannot be used: " + error.message(),
          .hint = "give a certificate (with its chain) and its private key, both as PEM"};
}

Expected<std::shared_ptr<ssl::context>> make_context(const std::string& cert_file,
                                                     const std::string& key_file) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  SSL_CTX* const native = context->native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);  // tickets do it without memory of ours
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);          // an idle connection keeps little
  boost::system::error_code error;
  context->use_certificate_chain_file(cert_file, error);
  if (error) return std::unexpected(unusable(cert_file, error));
  context->use_private_key_file(key_file, ssl::context::pem, error);
  if (error) return std::unexpected(unusable(key_file, error));
  if (SSL_CTX_check_private_key(native) != 1) {
    return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                                 .message = "the key in " + key_file + " is not that of " + cert_file,
                                 .hint = "give the private key that the certificate was made with"});
  }
  return context;
}

std::string stamp_of(const std::string& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) return "-";
  return std::to_string(status.st_ino) + "/" + std::to_string(status.st_size) + "/" +
         std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
}

}  // namespace

Certificate::Certificate(std::string cert_file, std::string key_file)
    : cert_file_(std::move(cert_file)), key_file_(std::move(key_file)), version_(version()) {}

std::string Certificate::version() const { return stamp_of(cert_file_) + " " + stamp_of(key_file_); }

Expected<std::unique_ptr<Certificate>> Certificate::load(std::string cert_file, std::string key_file) {
  std::unique_ptr<Certificate> certificate{new Certificate{std::move(cert_file), std::move(key_file)}};
  auto context = make_context(certificate->cert_file_, certificate->key_file_);
  if (!context) return std::unexpected(std::move(context.error()));
  certificate->context_ = std::move(*context);
  return certificate;
}

std::shared_ptr<ssl::context> Certificate::context() const {
  const std::scoped_lock lock{mutex_};
  return context_;
}

void Certificate::refresh(const EventSink& log) {
  std::string now = version();
  if (std::exchange(version_, now) == now) return;
  auto context = make_context(cert_file_, key_file_);
  if (!context) {
    // The two files are replaced one after the other, so this is usual for a moment.
    log({.name = "tls_reload_failed",
         .severity = Severity::warning,
         .at = std::chrono::system_clock::now(),
         .fields = {{"problem", context.error().describe()}}});
    return;
  }
  {
    const std::scoped_lock lock{mutex_};
    context_ = std::move(*context);
  }
  log({.name = "tls_reloaded",
       .at = std::chrono::system_clock::now(),
       .fields = {{"certificate", cert_file_}}});
}

}  // namespace faultline::http

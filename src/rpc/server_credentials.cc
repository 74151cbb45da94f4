#include "rpc/server_credentials.h"

#include <mutex>
#include <string>
#include <utility>

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

namespace faultline::rpc {
namespace {

/// gRPC's own watcher of files aborts the process when it finds an empty one, so gRPC never sees a file: it
/// asks here at every handshake, and gets what was read and checked. gRPC's C++ has no such credentials; its
/// C has.
class WatchedCredentials final : public grpc::ServerCredentials {
 public:
  explicit WatchedCredentials(std::shared_ptr<const tls::Certificates> certificates)
      : certificates_(std::move(certificates)) {
    auto* const options = grpc_ssl_server_credentials_create_options_using_config_fetcher(
        certificates_->ask_clients() ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                     : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
        &WatchedCredentials::fetch, this);
    credentials_ = grpc_ssl_server_credentials_create_with_options(options);
  }
  ~WatchedCredentials() override { grpc_server_credentials_release(credentials_); }
  WatchedCredentials(const WatchedCredentials&) = delete;
  WatchedCredentials& operator=(const WatchedCredentials&) = delete;

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  static grpc_ssl_certificate_config_reload_status fetch(void* self,
                                                         grpc_ssl_server_certificate_config** config) {
    return static_cast<WatchedCredentials*>(self)->fetch(*config);
  }
  grpc_ssl_certificate_config_reload_status fetch(grpc_ssl_server_certificate_config*& config) {
    auto identity = certificates_->current();
    const std::lock_guard lock{mutex_};
    if (identity == given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const tls::Files& text = identity->text;
    const grpc_ssl_pem_key_cert_pair pair{.private_key = text.key.c_str(), .cert_chain = text.cert.c_str()};
    // It insists on an authority, also where clients are not asked and nothing is compared with it.
    const std::string& authority = certificates_->ask_clients() ? text.client_ca : text.cert;
    config = grpc_ssl_server_certificate_config_create(authority.c_str(), &pair, 1);
    given_ = std::move(identity);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<const tls::Certificates> certificates_;
  grpc_server_credentials* credentials_ = nullptr;
  std::mutex mutex_;
  std::shared_ptr<const tls::Identity> given_;  // guarded by mutex_
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> server_credentials(
    std::shared_ptr<const tls::Certificates> certificates) {
  if (!certificates) return grpc::InsecureServerCredentials();
  return std::make_shared<WatchedCredentials>(std::move(certificates));
}

}  // namespace faultline::rpc

#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>

#include <openssl/types.h>

#include "faultline/error.h"
#include "faultline/event.h"

namespace faultline::tls {

/// PEM files. `cert` has the chain, too; `client_ca` is empty if clients are not asked for a certificate.
struct Files {
  std::string cert{};
  std::string key{};
  std::string client_ca{};
  friend bool operator==(const Files&, const Files&) = default;
};

/// What the files held when they were found to be good together.
struct Identity {
  Files text{};                        ///< their PEM texts
  std::shared_ptr<SSL_CTX> context{};  ///< a server's, for who speaks TLS through OpenSSL. Knows no clients
};

struct CertificatesOptions {
  Files files{};
  std::chrono::milliseconds look_every{1'000};
  EventSink log{};  ///< required
};

/// A server's certificate and key, read again when the files change. What is served was read and checked
/// first: a file that is being written, is empty, or does not fit is never taken, and the last good set
/// stays. Thread-safe.
class Certificates {
 public:
  [[nodiscard]] static Expected<std::shared_ptr<const Certificates>> load(CertificatesOptions options);

  /// Another pointer when there is another set.
  [[nodiscard]] std::shared_ptr<const Identity> current() const;
  [[nodiscard]] bool ask_clients() const { return !options_.files.client_ca.empty(); }

 private:
  /// The texts of the files, or why they cannot be read.
  using Content = std::variant<Files, std::string>;

  Certificates(CertificatesOptions options, Content content, std::shared_ptr<const Identity> identity);
  [[nodiscard]] Content read() const;
  void watch(const std::stop_token& stop);
  void look();
  void tell_failure(const std::string& problem) const;

  const CertificatesOptions options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Identity> identity_;  ///< guarded by mutex_
  Content seen_;                              ///< at the last look; of the watching thread alone, as the next
  Content judged_;
  std::jthread watcher_;
};

}  // namespace faultline::tls

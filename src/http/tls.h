#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include <boost/asio/ssl/context.hpp>

#include "faultline/error.h"
#include "faultline/event.h"

namespace faultline::http {

/// A server's certificate and key, read again when the files change. Thread-safe.
class Certificate {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<Certificate>> load(std::string cert_file,
                                                                   std::string key_file);

  [[nodiscard]] std::shared_ptr<boost::asio::ssl::context> context() const;
  /// Looks whether the files have changed. A pair that cannot be used is reported once, and the old one
  /// stays.
  void refresh(const EventSink& log);

 private:
  Certificate(std::string cert_file, std::string key_file);
  /// Changes with the files.
  [[nodiscard]] std::string version() const;

  std::string cert_file_;
  std::string key_file_;
  mutable std::mutex mutex_;
  std::string version_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace faultline::http

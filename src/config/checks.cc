#include "config/checks.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "config/values.h"

namespace faultline::config {
namespace {

Error wrong(const Loaded& loaded, const std::string& name, const std::string& message, std::string hint) {
  return {.code = ErrorCode::invalid_argument,
          .message = name + " (" + loaded.origins.at(name).text + "): " + message,
          .hint = std::move(hint)};
}

std::optional<Error> check_tls(const Loaded& loaded) {
  const Settings& settings = loaded.settings;
  if (settings.tls_cert.empty() != settings.tls_key.empty()) {
    const bool cert_alone = settings.tls_key.empty();
    return wrong(loaded, cert_alone ? "tls_cert" : "tls_key",
                 cert_alone ? "a certificate needs its key" : "a key needs its certificate",
                 "set tls_cert and tls_key, or neither");
  }
  if (!settings.tls_client_ca.empty() && settings.tls_cert.empty())
    return wrong(loaded, "tls_client_ca", "clients can only show a certificate where the server has one",
                 "set tls_cert and tls_key too");
  if (!settings.tls_client_ca.empty() && !settings.grpc)
    return wrong(loaded, "tls_client_ca", "it is for gRPC, and grpc is off", "leave it out, or set grpc");
  return std::nullopt;
}

/// Whether strangers could use, or overhear, what listens there.
std::optional<Error> check_exposure(const Loaded& loaded, const std::string& name,
                                    const std::optional<HostPort>& address, bool asks_who_calls) {
  const Settings& settings = loaded.settings;
  const bool encrypted = !settings.tls_cert.empty();
  if (!address || address->is_loopback() || settings.allow_insecure || (asks_who_calls && encrypted))
    return std::nullopt;
  std::string missing;
  if (!asks_who_calls) missing = "everybody could use it, because auth is none";
  if (!encrypted)
    missing +=
        std::string{missing.empty() ? "" : ", and "} + "all could be overheard, because there is no TLS";
  std::string fix;
  if (!asks_who_calls) fix = "set auth to keys";
  if (!encrypted) fix += std::string{fix.empty() ? "set" : ", and"} + " tls_cert and tls_key";
  return wrong(
      loaded, name, address->to_string() + " can be reached from other machines: " + missing,
      fix + "; or listen on 127.0.0.1; or, if something else keeps strangers out, set allow_insecure");
}

}  // namespace

std::optional<Error> find_contradiction(const Loaded& loaded) {
  const Settings& settings = loaded.settings;
  if (!settings.listen && !settings.grpc)
    return wrong(loaded, "listen", "listen and grpc are both off, so there is nothing to serve",
                 "give at least one of them an address");
  if (settings.listen && settings.listen == settings.grpc && settings.grpc->port != 0)
    return wrong(loaded, "grpc", settings.grpc->to_string() + " is where HTTP listens",
                 "give listen and grpc a port each");
  if (auto problem = check_tls(loaded)) return problem;
  const bool keys = settings.auth == Auth::keys;
  if (auto problem = check_exposure(loaded, "listen", settings.listen, keys)) return problem;
  return check_exposure(loaded, "grpc", settings.grpc, keys || !settings.tls_client_ca.empty());
}

std::optional<Error> find_unreadable_file(const Loaded& loaded) {
  const Settings& settings = loaded.settings;
  for (const auto& [name, file] : {std::pair{"tls_cert", settings.tls_cert},
                                   {"tls_key", settings.tls_key},
                                   {"tls_client_ca", settings.tls_client_ca},
                                   {"otlp_ca", settings.otlp_ca}}) {
    if (file.empty()) continue;
    errno = 0;
    std::ifstream in{file};
    // A directory can be opened, and not be read.
    if (in && in.peek() != std::ifstream::traits_type::eof()) continue;
    const std::string why = errno == 0 ? "it is empty" : std::generic_category().message(errno);
    return wrong(loaded, name, "the file " + quoted(file) + " cannot be read: " + why,
                 "name a PEM file that this user may read");
  }
  return std::nullopt;
}

}  // namespace faultline::config

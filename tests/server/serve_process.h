#pragma once

#include <csignal>

#include "cli/program.h"
#include "support/http_client.h"

namespace faultline::testing {

/// `faultline serve` as a process, on ports that nobody else has.
class ServeProcess {
 public:
  /// `before`: words of another program that starts it.
  explicit ServeProcess(const std::string& database, const std::vector<std::string>& flags = {},
                        const Environment& environment = {}, const std::vector<std::string>& before = {})
      : process_{started_by(before, faultline_program(command_line(database, flags), environment))} {}

  /// Throws if it does not say where it serves.
  ServeProcess& wait_until_it_serves() {
    if (!eventually([&] { return find_ports() || !process_.running(); }) || grpc_port_ == 0)
      throw std::runtime_error("the server does not serve:\n" + process_.err());
    return *this;
  }
  ServeProcess& wait_until_ready() {
    wait_until_it_serves();
    if (!eventually([&] { return http_get(http_port_, "/ready").status == 200; }))
      throw std::runtime_error("the server is not ready:\n" + process_.err());
    return *this;
  }

  [[nodiscard]] ChildProcess& process() { return process_; }
  [[nodiscard]] std::uint16_t http_port() const { return http_port_; }
  [[nodiscard]] std::uint16_t grpc_port() const { return grpc_port_; }
  [[nodiscard]] std::string url() const { return "faultline://127.0.0.1:" + std::to_string(grpc_port_); }
  /// An exit by itself after SIGTERM.
  ProcessResult terminate() {
    process_.send(SIGTERM);
    return process_.wait();
  }

 private:
  static std::vector<std::string> command_line(const std::string& database,
                                               const std::vector<std::string>& flags) {
    std::vector<std::string> words{"serve",       "--listen",     "127.0.0.1:0", "--grpc",
                                   "127.0.0.1:0", "--log-format", "json"};
    if (!database.empty()) words.insert(words.end(), {"--database", database});
    words.insert(words.end(), flags.begin(), flags.end());
    return words;
  }

  static ProcessOptions started_by(const std::vector<std::string>& before, ProcessOptions options) {
    options.argv.insert(options.argv.begin(), before.begin(), before.end());
    return options;
  }

  static std::uint16_t port_of(const std::string& address) {
    return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  }

  bool find_ports() {
    std::istringstream lines{process_.err()};
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object() || json.value("event", "") != "server_started") continue;
      http_port_ = port_of(json.at("http").get<std::string>());
      grpc_port_ = port_of(json.at("grpc").get<std::string>());
      return true;
    }
    return false;
  }

  ChildProcess process_;
  std::uint16_t http_port_ = 0;
  std::uint16_t grpc_port_ = 0;
};

}  // namespace faultline::testing

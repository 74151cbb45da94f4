#pragma once

#include <filesystem>

#include "pg/wire_proxy.h"

namespace faultline::testing {

/// No new connection comes through, until the guard ends; open ones go on.
class Unreachable {
 public:
  explicit Unreachable(const WireProxy& proxy)
      : socket_(std::filesystem::path{DsnParts{proxy.dsn()}.get("host", "")} / ".s.PGSQL.5432"),
        away_(socket_.string() + ".away") {
    std::filesystem::rename(socket_, away_);
  }
  Unreachable(const Unreachable&) = delete;
  Unreachable& operator=(const Unreachable&) = delete;
  ~Unreachable() { std::filesystem::rename(away_, socket_); }

 private:
  std::filesystem::path socket_;
  std::filesystem::path away_;
};

}  // namespace faultline::testing

#pragma once

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

#include "pg/dsn_parts.h"
#include "support/database.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {

/// PgBouncer in transaction mode in front of a database's server, on a unix socket, with one server
/// connection, which all clients take turns on.
class PgBouncer {
 public:
  explicit PgBouncer(const std::string& server_dsn) : server_dsn_(server_dsn), process_(options()) {
    const auto answers = [&] { return pg::Connection::open({.dsn = dsn()}, soon()).has_value(); };
    if (!eventually(answers)) throw std::runtime_error("PgBouncer does not answer: " + process_.err());
  }

  /// The same database through the pooler.
  [[nodiscard]] std::string dsn() const {
    DsnParts parts{server_dsn_};
    parts["host"] = directory_.path().string();
    parts["port"] = "6432";
    return parts.dsn();
  }

 private:
  [[nodiscard]] ProcessOptions options() const {
    DsnParts server{server_dsn_};
    std::ofstream{directory_ / "users.txt"} << '"' << server["user"] << "\" \"\"\n";
    std::ofstream{directory_ / "pgbouncer.ini"}
        << "[databases]\n* = host=" << server["host"] << " port=" << server.get("port", "5432")
        << "\n[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = "
        << directory_.path().string()
        << "\nauth_type = trust\nauth_file = " << (directory_ / "users.txt").string()
        << "\npool_mode = transaction\ndefault_pool_size = 1\nserver_login_retry = 0\n";
    ProcessOptions options{.argv = {"/usr/sbin/pgbouncer", (directory_ / "pgbouncer.ini").string()}};
    // PgBouncer refuses to run as root, and only the server's own user can enter its socket's directory.
    if (geteuid() == 0) {
      struct stat owner{};
      stat(server["host"].c_str(), &owner);
      if (chown(directory_.path().c_str(), owner.st_uid, owner.st_gid) != 0)
        throw std::runtime_error("chown");
      std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
      options.user = getpwuid(owner.st_uid)->pw_name;
    }
    return options;
  }

  std::string server_dsn_;
  ScratchDir directory_;
  ChildProcess process_;
};

}  // namespace faultline::testing

#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <sstream>

#include <gmock/gmock.h>

#include "private_pg/private_postgres.h"
#include "support/database.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {

inline PrivatePostgresOptions quick_options(const std::filesystem::path& data_dir) {
  PrivatePostgresOptions options;
  options.data_dir = data_dir;
  options.durable = false;
  return options;
}

/// The same, where a server was made and stopped before.
inline PrivatePostgresOptions made_before(const std::filesystem::path& data_dir) {
  provide_private_server(data_dir);
  return quick_options(data_dir);
}

/// A process that has ended and waits for init to collect it is not alive.
inline bool alive(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const auto name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

inline uid_t owner_of(const std::filesystem::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? info.st_uid : static_cast<uid_t>(-1);
}

/// All processes that work inside `directory`.
inline std::vector<pid_t> processes_in(const std::filesystem::path& directory) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::error_code error;
    const auto cwd = std::filesystem::read_symlink(entry.path() / "cwd", error);
    if (!error && cwd.string().starts_with(directory.string()))
      found.push_back(static_cast<pid_t>(std::stol(entry.path().filename().string())));
  }
  return found;
}

/// Another process that uses the private PostgreSQL in a directory.
class OtherUser {
 public:
  explicit OtherUser(const std::filesystem::path& data_dir, std::optional<std::string> user = {},
                     const std::string& barrier = {})
      : process_({.argv = barrier.empty()
                              ? std::vector<std::string>{program(user), data_dir.string()}
                              : std::vector<std::string>{program(user), data_dir.string(), barrier},
                  .environment = {{"XDG_STATE_HOME", std::nullopt}},
                  .user = std::move(user)}) {}

  struct Report {
    pid_t postmaster_pid = 0;
    bool started_here = false;
    std::string dsn;
  };
  /// Waits until it uses the server.
  Report ready() {
    if (!eventually(
            [&] { return process_.out().find("ready ") != std::string::npos || !process_.running(); }) ||
        !process_.running())
      throw std::runtime_error("the other process did not get a server: " + process_.err());
    std::istringstream line{process_.out().substr(process_.out().find("ready ") + 6)};
    Report report;
    line >> report.postmaster_pid >> report.started_here >> report.dsn;
    return report;
  }
  ChildProcess& process() { return process_; }

 private:
  /// What is built in a home that is closed to others, no other user can run.
  static std::string program(const std::optional<std::string>& user) {
    if (!user) return PRIVATE_PG_USER;
    static const ScratchDir open_to_all;
    const std::filesystem::path copy = open_to_all / "private_pg_user";
    if (!std::filesystem::exists(copy)) std::filesystem::copy_file(PRIVATE_PG_USER, copy);
    return copy;
  }

  ChildProcess process_;
};

}  // namespace faultline::testing

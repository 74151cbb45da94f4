#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "faultline/time.h"
#include "private_pg/error.h"
#include "private_pg/file.h"

namespace faultline::private_pg {

/// The user that the server's processes run as.
struct ServerUser {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
  std::string name;
  bool drop_privileges = false;  ///< this process is root and the server must not be
};

/// Ourselves, except for root, whom PostgreSQL refuses: then the owner of an existing cluster, else the
/// user `postgres` that Debian's package makes, else `nobody`.
[[nodiscard]] Expected<ServerUser> choose_server_user(const std::filesystem::path& cluster);

/// The first directory on the way to `path` that `user` may not pass, if any.
[[nodiscard]] std::optional<std::filesystem::path> first_unreachable_directory(
    const ServerUser& user, const std::filesystem::path& path);

/// A handle on one process that stays on it when its number is reused.
class Process {
 public:
  [[nodiscard]] static std::optional<Process> open(pid_t pid);

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool exited() const;
  /// True once it has exited, false at the deadline or when asked to stop.
  [[nodiscard]] bool wait_exited(Deadline deadline, const std::stop_token& stop = {}) const;
  void send(int signal) const;
  /// Collects the exit status if the process happens to be our child (we may be a container's init).
  void reap() const;

 private:
  Process(pid_t pid, FileDescriptor handle) : pid_(pid), handle_(std::move(handle)) {}
  pid_t pid_ = 0;
  FileDescriptor handle_;
};

/// `pid` if it is alive, is a `postgres` of `user`, and works in the directory `cluster`.
[[nodiscard]] std::optional<Process> open_postgres_process(pid_t pid, const ServerUser& user,
                                                           const std::filesystem::path& cluster);

/// All processes for which the above holds.
[[nodiscard]] std::vector<Process> postgres_processes(const ServerUser& user,
                                                      const std::filesystem::path& cluster);

struct Command {
  std::vector<std::string> argv;  ///< argv[0] is an absolute path
  const ServerUser* user = nullptr;
  int output = -1;  ///< where stdout and stderr go; -1 is /dev/null
};

/// Runs a program that outlives this process: in a session of its own, so that the terminal's Ctrl-C
/// and hang-up do not reach it, adopted by init, with a clean environment and no inherited file but
/// `output`. Returns once the program is executing.
[[nodiscard]] std::expected<Process, std::string> spawn_detached(const Command& command);

struct ToolResult {
  bool succeeded = false;
  std::string problem;  ///< how it ended, when it did not succeed
};

/// Runs a program to its end; it dies with this thread, at the deadline and when asked to stop.
[[nodiscard]] ToolResult run_tool(const Command& command, Deadline deadline, const std::stop_token& stop);

/// A short program's standard output, empty when it failed. argv[0] is searched in PATH.
[[nodiscard]] std::string capture_output(const std::vector<std::string>& argv);

}  // namespace faultline::private_pg

#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "private_pg/error.h"
#include "private_pg/file.h"
#include "private_pg/process.h"

namespace faultline::private_pg {

/// What postmaster.pid says.
struct PostmasterFile {
  pid_t pid = 0;
  std::filesystem::path socket_dir;
  bool ready = false;
};

/// The layout of a data directory, and the checks before anything is written to it:
///
///     FAULTLINE_PRIVATE_POSTGRES  says whose directory this is; made before anything else
///     start.lock                  held while the server is started or stopped
///     users.lock                  held shared by every process that uses the server
///     keep_running                present: the server outlives its last user
///     server.log, server.log.1    what initdb and the server said
///     pgdata/                     the cluster; belongs to the server's user
///     socket/                     its socket, if the path is short enough; belongs to the server's user
///
/// The directory itself belongs to whoever runs Faultline, so that the server's user cannot make root
/// follow a link of its choice.
class DataDir {
 public:
  /// Makes the directory if it is absent or empty. A directory that somebody else owns, or that holds
  /// files without being marked as ours, is refused and left as it is.
  [[nodiscard]] static Expected<DataDir> open_or_create(const std::filesystem::path& path);
  /// Nothing when there is no directory at `path`, or it is empty.
  [[nodiscard]] static Expected<std::optional<DataDir>> open_existing(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  [[nodiscard]] std::filesystem::path start_lock() const { return root_ / "start.lock"; }
  [[nodiscard]] std::filesystem::path users_lock() const { return root_ / "users.lock"; }
  [[nodiscard]] std::filesystem::path keep_running() const { return root_ / "keep_running"; }
  [[nodiscard]] std::filesystem::path log() const { return root_ / "server.log"; }
  [[nodiscard]] std::filesystem::path cluster() const { return root_ / "pgdata"; }

  [[nodiscard]] bool has_cluster() const;
  /// The cluster's major version, from its PG_VERSION.
  [[nodiscard]] Expected<int> cluster_version() const;
  [[nodiscard]] std::optional<PostmasterFile> postmaster_file() const;

  /// A new, empty directory of the server's user for initdb to fill. Leftovers of an initdb that was
  /// interrupted are removed first.
  [[nodiscard]] Expected<std::filesystem::path> make_cluster_draft(const ServerUser& user) const;
  /// Makes a finished draft the cluster, in one step that survives a crash.
  [[nodiscard]] Expected<void> adopt_cluster_draft(const std::filesystem::path& draft) const;

  /// The directory of the server's socket, made if absent: mode 0700 and the server user's own. It is
  /// the only thing that stands between the server and others on this machine, since roles need no
  /// password on it. Outside the data directory if the socket's path would be too long for the kernel.
  [[nodiscard]] Expected<std::filesystem::path> make_socket_dir(const ServerUser& user) const;
  /// Removes what a dead server left: its pid file and its socket. Only when it is certain that
  /// no server runs here.
  void remove_traces_of_dead_server(const std::filesystem::path& socket_dir) const;
  /// Removes an empty socket directory outside the data directory.
  void remove_socket_dir(const std::filesystem::path& socket_dir) const;

  /// Opened for appending. A log that has grown large is first moved to server.log.1, in a way that also
  /// works while a server writes to it.
  [[nodiscard]] Expected<FileDescriptor> open_log() const;
  /// The last lines that were logged after the file had `from` bytes.
  [[nodiscard]] std::string log_tail(std::uintmax_t from) const;

  [[nodiscard]] bool kept_running() const;
  [[nodiscard]] Expected<void> set_keep_running(bool keep) const;

 private:
  explicit DataDir(std::filesystem::path root) : root_(std::move(root)) {}
  std::filesystem::path root_;
};

}  // namespace faultline::private_pg

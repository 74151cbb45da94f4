#include "private_pg/data_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <sstream>
#include <vector>

namespace faultline::private_pg {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMarker = "FAULTLINE_PRIVATE_POSTGRES";
constexpr std::string_view kMarkerText =
    "This directory holds the private PostgreSQL of Faultline. Stop it with: faultline pg stop\n";
constexpr std::string_view kDraftPrefix = "pgdata.draft-";
constexpr std::string_view kSocketName = "/.s.PGSQL.5432";
constexpr std::uintmax_t kLogBytesMax = 8 << 20;

std::unexpected<PrivatePostgresError> unusable(std::string message, std::string hint) {
  return fail(PrivatePostgresErrc::data_dir_unusable, std::move(message), std::move(hint));
}

std::unexpected<PrivatePostgresError> cannot(const std::string& what, const fs::path& path, int error) {
  std::string hint = "choose another directory with --data-dir";
  if (error == ENOSPC || error == EDQUOT) hint = "free some space on this disk, or " + hint;
  if (error == EACCES || error == EPERM) hint = "make it writable for this user, or " + hint;
  if (error == EROFS) hint = "the file system is read-only: " + hint;
  return unusable(what + " " + path.string() + ": " + errno_text(error), hint);
}

Expected<void> check_owner(const fs::path& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return cannot("cannot look at", path, errno);
  if (!S_ISDIR(info.st_mode))
    return unusable(path.string() + " is not a directory", "choose another directory with --data-dir");
  if (info.st_uid != ::geteuid())
    return unusable(path.string() + " belongs to the user with id " + std::to_string(info.st_uid) +
                        ", not to the one running Faultline (id " + std::to_string(::geteuid()) + ")",
                    "run Faultline as that user, or choose another directory with --data-dir");
  return {};
}

/// An empty directory is free to take; so is the root of a fresh ext4 file system.
Expected<bool> is_empty_directory(const fs::path& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.path().filename() != "lost+found") return false;
  if (error) return cannot("cannot read the directory", path, error.value());
  return true;
}

/// The marker is always the first file made, so whoever sees any file of ours also sees the marker.
Expected<bool> is_ours_or_empty(const fs::path& path) {
  const auto empty = is_empty_directory(path);
  if (!empty) return std::unexpected(empty.error());
  std::error_code ignored;
  if (*empty) return false;
  if (fs::exists(path / kMarker, ignored)) return true;
  return unusable(
      path.string() + " holds files that are not of a private PostgreSQL of Faultline; nothing was changed",
      "choose an empty or a new directory with --data-dir");
}

Expected<void> write_marker(const fs::path& root) {
  const fs::path path = root / kMarker;
  const FileDescriptor file{::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644)};
  if (!file.valid()) return cannot("cannot write", path, errno);
  if (::pwrite(file.get(), kMarkerText.data(), kMarkerText.size(), 0) < 0)
    return cannot("cannot write", path, errno);
  return {};
}

/// False if there is something of that name. A file system that cannot tell (NFS) replaces an empty
/// directory.
bool rename_to_free_name(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  return errno == EINVAL && ::rename(from.c_str(), to.c_str()) == 0;
}

Expected<void> make_directory(const fs::path& path) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) return cannot("cannot make the directory", path.parent_path(), error.value());
  struct stat there{};
  if (::stat(path.c_str(), &there) == 0) return {};
  // Under its name it has its mode from the first moment: another process may come upon it at any time.
  std::string made = path.string() + ".new-XXXXXX";
  if (::mkdtemp(made.data()) == nullptr) return cannot("cannot make the directory", path, errno);
  // Root's server runs as another user, who must be able to pass but not to list.
  const mode_t mode = ::geteuid() == 0 ? 0711 : 0700;
  if (::chmod(made.c_str(), mode) == 0 && rename_to_free_name(made, path)) return {};
  const int problem = errno;
  ::rmdir(made.c_str());
  if (problem != ENOTEMPTY && problem != EEXIST) return cannot("cannot make the directory", path, problem);
  return {};
}

std::string stable_hash(std::string_view text) {
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  std::array<char, 16> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  return {digits.data(), end};
}

/// libpq splits a host at commas, and the kernel bounds the length of a socket's path.
bool fits_for_socket(const std::string& directory) {
  const bool plain = std::ranges::all_of(directory, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::string_view{"/._-+"}.contains(c);
  });
  return plain && directory.size() + kSocketName.size() < sizeof(sockaddr_un::sun_path);
}

/// Mode 0700 and owned by the server's user, or an error: a directory that somebody else made in a
/// shared place is never trusted.
Expected<void> make_private_directory(const fs::path& path, const ServerUser& user) {
  const bool made = ::mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return cannot("cannot make the directory", path, errno);
  const FileDescriptor directory{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  if (!directory.valid()) return cannot("cannot open the directory", path, errno);
  struct stat info{};
  if (::fstat(directory.get(), &info) != 0) return cannot("cannot look at", path, errno);
  if (info.st_uid == ::geteuid() && info.st_uid != user.uid) {
    // Made by root just now, or by a root that was killed before the next line.
    if (::fchown(directory.get(), user.uid, user.gid) != 0) return cannot("cannot give away", path, errno);
  } else if (info.st_uid != user.uid) {
    return unusable(path.string() + " belongs to another user (id " + std::to_string(info.st_uid) +
                        "), so it cannot hold the server's socket",
                    "remove it, or choose another directory with --data-dir");
  }
  if (::fchmod(directory.get(), 0700) != 0) return cannot("cannot make private", path, errno);
  return {};
}

void sync_directory(const fs::path& path) {
  const FileDescriptor directory{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (directory.valid()) ::fsync(directory.get());
}

}  // namespace

Expected<DataDir> DataDir::open_or_create(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error).lexically_normal();
  if (error) return cannot("cannot find", path, error.value());
  if (auto made = make_directory(absolute); !made) return std::unexpected(made.error());
  if (auto checked = check_owner(absolute); !checked) return std::unexpected(checked.error());
  const fs::path root = fs::canonical(absolute, error);
  if (error) return cannot("cannot find", absolute, error.value());
  const auto ours = is_ours_or_empty(root);
  if (!ours) return std::unexpected(ours.error());
  if (!*ours)
    if (auto written = write_marker(root); !written) return std::unexpected(written.error());
  return DataDir{root};
}

Expected<std::optional<DataDir>> DataDir::open_existing(const fs::path& path) {
  std::error_code error;
  const fs::path root = fs::canonical(fs::absolute(path), error);
  if (error == std::errc::no_such_file_or_directory) return std::nullopt;
  if (error) return cannot("cannot find", path, error.value());
  if (auto checked = check_owner(root); !checked) return std::unexpected(checked.error());
  const auto ours = is_ours_or_empty(root);
  if (!ours) return std::unexpected(ours.error());
  if (!*ours) return std::nullopt;
  return DataDir{root};
}

bool DataDir::has_cluster() const {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(cluster(), ignored));
}

Expected<int> DataDir::cluster_version() const {
  const auto text = read_small_file(cluster() / "PG_VERSION");
  int version = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), version);
  if (version > 0) return version;
  return unusable(cluster().string() + " is not a PostgreSQL cluster: its PG_VERSION cannot be read",
                  "restore it from a backup, or choose another directory with --data-dir");
}

std::optional<PostmasterFile> DataDir::postmaster_file() const {
  const auto text = read_small_file(cluster() / "postmaster.pid");
  if (!text) return std::nullopt;
  // Lines: pid, data directory, start time, port, socket directory, listen address, shared memory, status.
  std::vector<std::string> lines;
  std::istringstream stream{*text};
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  lines.resize(std::max<std::size_t>(lines.size(), 8));
  PostmasterFile file;
  std::from_chars(lines[0].data(), lines[0].data() + lines[0].size(), file.pid);
  file.socket_dir = lines[4];
  file.ready = lines[7].starts_with("ready");
  return file;
}

Expected<fs::path> DataDir::make_cluster_draft(const ServerUser& user) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root_, error))
    if (entry.path().filename().string().starts_with(kDraftPrefix)) fs::remove_all(entry.path(), error);
  std::string draft = (root_ / kDraftPrefix).string() + "XXXXXX";
  if (::mkdtemp(draft.data()) == nullptr) return cannot("cannot make the directory", draft, errno);
  if (user.drop_privileges && ::chown(draft.c_str(), user.uid, user.gid) != 0)
    return cannot("cannot give away", draft, errno);
  return draft;
}

Expected<void> DataDir::adopt_cluster_draft(const fs::path& draft) const {
  if (::rename(draft.c_str(), cluster().c_str()) != 0) return cannot("cannot rename", draft, errno);
  sync_directory(root_);
  return {};
}

Expected<fs::path> DataDir::make_socket_dir(const ServerUser& user) const {
  fs::path directory = root_ / "socket";
  if (!fits_for_socket(directory.string())) directory = "/tmp/faultline-" + stable_hash(root_.string());
  if (auto made = make_private_directory(directory, user); !made) return std::unexpected(made.error());
  return directory;
}

void DataDir::remove_traces_of_dead_server(const fs::path& socket_dir) const {
  std::error_code ignored;
  fs::remove(cluster() / "postmaster.pid", ignored);
  fs::remove(socket_dir.string() + std::string{kSocketName}, ignored);
  fs::remove(socket_dir.string() + std::string{kSocketName} + ".lock", ignored);
}

void DataDir::remove_socket_dir(const fs::path& socket_dir) const {
  if (socket_dir.parent_path() != root_) ::rmdir(socket_dir.c_str());
}

Expected<FileDescriptor> DataDir::open_log() const {
  std::error_code error;
  if (const auto size = fs::file_size(log(), error); !error && size > kLogBytesMax) {
    // A server that runs keeps its file open for appending: copy and truncate serves it too.
    fs::copy_file(log(), root_ / "server.log.1", fs::copy_options::overwrite_existing, error);
    fs::resize_file(log(), 0, error);
  }
  FileDescriptor file{::open(log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (!file.valid()) return cannot("cannot open", log(), errno);
  return file;
}

std::string DataDir::log_tail(std::uintmax_t from) const {
  constexpr std::size_t kLinesMax = 10;
  std::ifstream file{log()};
  file.seekg(static_cast<std::streamoff>(from));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > kLinesMax) lines.pop_front();
  }
  std::string tail;
  for (const auto& line : lines) tail += (tail.empty() ? "" : "\n") + line;
  return tail;
}

bool DataDir::kept_running() const {
  std::error_code ignored;
  return fs::exists(keep_running(), ignored);
}

Expected<void> DataDir::set_keep_running(bool keep) const {
  if (!keep) {
    std::error_code error;
    fs::remove(keep_running(), error);
    if (error) return cannot("cannot remove", keep_running(), error.value());
    return {};
  }
  const FileDescriptor file{
      ::open(keep_running().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (!file.valid()) return cannot("cannot write", keep_running(), errno);
  return {};
}

}  // namespace faultline::private_pg

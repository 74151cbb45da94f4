#include "private_pg/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

namespace faultline::private_pg {

int FileDescriptor::release() { return std::exchange(fd_, -1); }

void FileDescriptor::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

std::string errno_text(int error) { return std::generic_category().message(error); }

std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (!file.valid()) return std::nullopt;
  std::array<char, 8192> buffer{};
  std::string content;
  while (content.size() < 65'536) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    content.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return content;
}

bool pause_before_next_look(Deadline deadline, const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kInterval{10};
  if (stop.stop_requested() || std::chrono::steady_clock::now() >= deadline) return false;
  std::this_thread::sleep_for(kInterval);
  return true;
}

Expected<FileLock> FileLock::acquire(const std::filesystem::path& path, Mode mode, Deadline deadline,
                                     const std::stop_token& stop) {
  FileDescriptor file{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (!file.valid())
    return fail(PrivatePostgresErrc::data_dir_unusable,
                "cannot open the lock file " + path.string() + ": " + errno_text(errno),
                "check the permissions of the directory and the free space on its disk");
  const int operation = (mode == Mode::shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  while (::flock(file.get(), operation) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail(PrivatePostgresErrc::data_dir_unusable,
                  "cannot lock " + path.string() + ": " + errno_text(errno),
                  "the data directory must be on a local file system that supports flock");
    if (pause_before_next_look(deadline, stop)) continue;
    if (stop.stop_requested()) return fail(PrivatePostgresErrc::interrupted, "interrupted");
    return fail(PrivatePostgresErrc::timed_out,
                "another Faultline process is starting or stopping the private PostgreSQL and has not "
                "finished (it holds " +
                    path.string() + ")",
                "wait for it and try again");
  }
  return FileLock{std::move(file)};
}

bool FileLock::try_upgrade() { return ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0; }

}  // namespace faultline::private_pg

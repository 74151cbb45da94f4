#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "faultline/time.h"
#include "private_pg/error.h"

namespace faultline::private_pg {

/// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~FileDescriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  int release();
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// "No such file or directory" and so on, for the given errno.
[[nodiscard]] std::string errno_text(int error);

/// Empty when the file cannot be read. Never blocks on a FIFO and never follows a symbolic link.
[[nodiscard]] std::optional<std::string> read_small_file(const std::filesystem::path& path);

/// A lock on a file that the kernel releases when its holder dies, however it dies.
class FileLock {
 public:
  enum class Mode { shared, exclusive };

  FileLock() = default;  ///< holds nothing

  /// Waits until `deadline`; `interrupted` or `timed_out` if it was not to be had.
  [[nodiscard]] static Expected<FileLock> acquire(const std::filesystem::path& path, Mode mode,
                                                  Deadline deadline, const std::stop_token& stop);
  /// True when nobody else holds the lock. On false the shared lock may be lost: give it up.
  [[nodiscard]] bool try_upgrade();
  void release() { file_.reset(); }
  [[nodiscard]] bool held() const { return file_.valid(); }

 private:
  explicit FileLock(FileDescriptor file) : file_(std::move(file)) {}
  FileDescriptor file_;
};

/// Sleeps a little between two looks at a condition; false once `deadline` has passed or `stop` was asked.
[[nodiscard]] bool pause_before_next_look(Deadline deadline, const std::stop_token& stop);

}  // namespace faultline::private_pg

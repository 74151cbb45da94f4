#pragma once

#include <filesystem>
#include <string>

#include "cli/support/output.h"
#include "private_pg/file.h"

namespace faultline::cli {

/// A running `faultline up`, as others on the same data directory see it.
struct RunningUp {
  int pid = 0;
  std::string http{};  ///< its URL; empty: none
  std::string grpc{};
};

/// There is one `faultline up` per data directory: the one that holds the lock on `up.lock` in it. The kernel
/// lets go of it when the process ends, however it ends.
class UpLock {
 public:
  /// A failure names the other one. Does not make the directory, and without it there is none.
  [[nodiscard]] static Expected<void> check(const std::filesystem::path& data_dir);
  [[nodiscard]] static Expected<UpLock> take(const std::filesystem::path& data_dir);

  /// Says where it can be reached, for the failure of another.
  void tell(const RunningUp& info) const;

 private:
  explicit UpLock(private_pg::FileDescriptor file) : file_(std::move(file)) {}
  private_pg::FileDescriptor file_;
};

}  // namespace faultline::cli

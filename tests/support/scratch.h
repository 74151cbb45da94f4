#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace faultline::testing {

/// Where tests keep what lives no longer than they do: $TMPDIR if it is set, else memory (/dev/shm) if there
/// is plenty of it, else the system's temporary directory. Every test makes a database, and on a disk's file
/// system making and removing its files is most of what a run does.
[[nodiscard]] std::filesystem::path scratch_root();

/// A directory of this test alone that other users can pass, removed at the end.
class ScratchDir {
 public:
  ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  ~ScratchDir();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Sets or removes an environment variable until the end of the scope.
class ScopedEnvironment {
 public:
  ScopedEnvironment(std::string name, const std::optional<std::string>& value);
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;
  ~ScopedEnvironment();

 private:
  std::string name_;
  std::optional<std::string> before_;
};

void write_file(const std::filesystem::path& path, std::string_view content);
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

}  // namespace faultline::testing

#include "support/scratch.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace faultline::testing {
namespace {

void set_environment(const std::string& name, const std::optional<std::string>& value) {
  if (value) {
    ::setenv(name.c_str(), value->c_str(), 1);
  } else {
    ::unsetenv(name.c_str());
  }
}

}  // namespace

std::filesystem::path scratch_root() {
  constexpr const char* kMemory = "/dev/shm";
  constexpr std::uint64_t kPlenty = 4ULL << 30U;
  const char* chosen = std::getenv("TMPDIR");
  struct statfs found{};
  if ((chosen == nullptr || *chosen == '\0') && ::access(kMemory, W_OK) == 0 &&
      ::statfs(kMemory, &found) == 0 && found.f_type == TMPFS_MAGIC &&
      found.f_bavail * static_cast<std::uint64_t>(found.f_bsize) >= kPlenty) {
    return kMemory;
  }
  return std::filesystem::temp_directory_path();
}

ScratchDir::ScratchDir() {
  std::string path = (scratch_root() / "faultline-scratch-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr || ::chmod(path.c_str(), 0755) != 0)
    throw std::runtime_error("cannot make a directory like " + path);
  path_ = std::filesystem::canonical(path);
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ScopedEnvironment::ScopedEnvironment(std::string name, const std::optional<std::string>& value)
    : name_(std::move(name)) {
  if (const char* before = std::getenv(name_.c_str()); before != nullptr) before_ = before;
  set_environment(name_, value);
}

ScopedEnvironment::~ScopedEnvironment() { set_environment(name_, before_); }

void write_file(const std::filesystem::path& path, std::string_view content) {
  std::ofstream file{path, std::ios::binary};
  file << content;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace faultline::testing

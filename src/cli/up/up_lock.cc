#include "cli/up/up_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

namespace faultline::cli {
namespace {

using private_pg::FileDescriptor;

constexpr const char* kFile = "up.lock";

Failure another_runs(const std::filesystem::path& data_dir) {
  const auto text = private_pg::read_small_file(data_dir / kFile);
  const auto json = nlohmann::json::parse(text.value_or(""), nullptr, false);
  Failure failure{.code = "already_up",
                  .message = "Faultline is up already on the data directory " + data_dir.string(),
                  .hint = "use that one, or start another with --data-dir DIR and other ports"};
  // It writes this down a moment after it has the lock.
  if (!json.is_object()) return failure;
  const std::string http = json.value("http", "");
  const std::string grpc = json.value("grpc", "");
  const std::string pid = std::to_string(json.value("pid", 0));
  failure.message += ": process " + pid;
  if (!http.empty()) failure.message += ", HTTP on " + http;
  if (!grpc.empty()) failure.message += ", gRPC on " + grpc;
  failure.hint = "use that one" + (http.empty() ? "" : ": curl " + http + "/v1/queues") +
                 "; or stop it: kill -INT " + pid +
                 "; or start another with --data-dir DIR, --listen and --grpc of its own";
  return failure;
}

Expected<void> lock(const FileDescriptor& file, const std::filesystem::path& data_dir) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno == EWOULDBLOCK) return std::unexpected(another_runs(data_dir));
  return std::unexpected(
      Failure{.code = "data_dir_unusable",
              .message = "cannot lock " + (data_dir / kFile).string() + ": " + private_pg::errno_text(errno),
              .hint = "choose another directory with --data-dir"});
}

}  // namespace

Expected<void> UpLock::check(const std::filesystem::path& data_dir) {
  const FileDescriptor file{::open((data_dir / kFile).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
  if (!file.valid()) return {};
  return lock(file, data_dir);
}

Expected<UpLock> UpLock::take(const std::filesystem::path& data_dir) {
  FileDescriptor file{::open((data_dir / kFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)};
  if (!file.valid())
    return std::unexpected(Failure{
        .code = "data_dir_unusable",
        .message = "cannot write " + (data_dir / kFile).string() + ": " + private_pg::errno_text(errno),
        .hint = "choose another directory with --data-dir"});
  if (auto locked = lock(file, data_dir); !locked) return std::unexpected(std::move(locked.error()));
  return UpLock{std::move(file)};
}

void UpLock::tell(const RunningUp& info) const {
  const std::string text = nlohmann::json{{"pid", info.pid}, {"http", info.http}, {"grpc", info.grpc}}.dump();
  // For people: one who is refused is told less if this could not be written.
  if (::ftruncate(file_.get(), 0) != 0 || ::pwrite(file_.get(), text.data(), text.size(), 0) < 0) return;
}

}  // namespace faultline::cli

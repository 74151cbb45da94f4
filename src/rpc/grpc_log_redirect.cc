#include "rpc/grpc_log_redirect.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

namespace faultline::rpc {
namespace {

constexpr std::chrono::seconds kEvery{1};

/// Never destroyed: the libraries' threads may speak after all else is gone.
struct Hub {
  std::mutex mutex;
  std::shared_ptr<const EventSink> log{};  // guarded by mutex, as is all below
  std::chrono::steady_clock::time_point tell_from{};
  std::uint64_t left_out = 0;
};

Hub& hub() {
  static const std::unique_ptr<Hub, void (*)(Hub*)> made{std::make_unique<Hub>().release(), [](Hub*) {}};
  return *made;
}

void tell(const char* library, const std::string& message) {
  Hub& shared = hub();
  // Held while the log is called, so that who owns the log can wait for that.
  const std::lock_guard lock{shared.mutex};
  if (!shared.log) {
    std::fprintf(stderr, "%s: %s\n", library, message.c_str());
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < shared.tell_from) {
    ++shared.left_out;
    return;
  }
  shared.tell_from = now + kEvery;
  Event event{.name = "grpc_error",
              .severity = Severity::error,
              .at = std::chrono::system_clock::now(),
              .fields = {{"library", library}, {"message", message}}};
  if (shared.left_out > 0)
    event.fields.emplace_back("left_out", std::to_string(std::exchange(shared.left_out, 0)));
  (*shared.log)(event);
}

void from_grpc(gpr_log_func_args* args) {
  if (args->severity == GPR_LOG_SEVERITY_ERROR) tell("grpc", args->message);
}

void from_protobuf(google::protobuf::LogLevel level, const char* /*file*/, int /*line*/,
                   const std::string& message) {
  if (level >= google::protobuf::LOGLEVEL_ERROR) tell("protobuf", message);
}

}  // namespace

GrpcLogRedirect::GrpcLogRedirect(EventSink log) : log_(std::make_shared<const EventSink>(std::move(log))) {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function(from_grpc);
    google::protobuf::SetLogHandler(from_protobuf);
  });
  Hub& shared = hub();
  const std::lock_guard lock{shared.mutex};
  shared.log = log_;
}

GrpcLogRedirect::~GrpcLogRedirect() {
  Hub& shared = hub();
  const std::lock_guard lock{shared.mutex};
  if (shared.log == log_) shared.log.reset();
}

}  // namespace faultline::rpc

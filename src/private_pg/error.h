#pragma once

#include <expected>
#include <string>
#include <string_view>

namespace faultline {

enum class PrivatePostgresErrc {
  binaries_missing,   ///< no usable PostgreSQL server is installed
  data_dir_unusable,  ///< the data directory cannot be made, is not ours, or cannot be reached
  version_mismatch,   ///< the cluster was made by a major version that is not installed
  start_failed,       ///< the server was started and did not come up
  timed_out,          ///< it may still come up: the same call may succeed later
  stop_failed,        ///< the server would not stop
  interrupted,        ///< the caller asked to stop waiting; nothing that was begun here was left behind
};

[[nodiscard]] std::string_view to_string(PrivatePostgresErrc code);

struct PrivatePostgresError {
  PrivatePostgresErrc code = PrivatePostgresErrc::start_failed;
  std::string message;   ///< what was wrong
  std::string hint;      ///< what to do
  std::string log_tail;  ///< the server's last words, when it had any

  /// Message, log and hint on lines of their own.
  [[nodiscard]] std::string describe() const;
};

namespace private_pg {

template <class T>
using Expected = std::expected<T, PrivatePostgresError>;

[[nodiscard]] inline std::unexpected<PrivatePostgresError> fail(PrivatePostgresErrc code, std::string message,
                                                                std::string hint = {},
                                                                std::string log_tail = {}) {
  return std::unexpected(
      PrivatePostgresError{code, std::move(message), std::move(hint), std::move(log_tail)});
}

}  // namespace private_pg
}  // namespace faultline

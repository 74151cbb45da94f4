#include "private_pg/error.h"

namespace faultline {

std::string_view to_string(PrivatePostgresErrc code) {
  switch (code) {
    case PrivatePostgresErrc::binaries_missing:
      return "binaries_missing";
    case PrivatePostgresErrc::data_dir_unusable:
      return "data_dir_unusable";
    case PrivatePostgresErrc::version_mismatch:
      return "version_mismatch";
    case PrivatePostgresErrc::start_failed:
      return "start_failed";
    case PrivatePostgresErrc::timed_out:
      return "timed_out";
    case PrivatePostgresErrc::stop_failed:
      return "stop_failed";
    case PrivatePostgresErrc::interrupted:
      return "interrupted";
  }
  return "unknown";
}

std::string PrivatePostgresError::describe() const {
  std::string text = message;
  if (!log_tail.empty()) text += "\n" + log_tail;
  if (!hint.empty()) text += "\nhint: " + hint;
  return text;
}

}  // namespace faultline

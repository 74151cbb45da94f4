#include "wire/failure.h"

#include "wire/status_details.pb.h"

namespace faultline::wire {

std::string to_details(int code, const std::string& message, const faultline::v1::Failure& failure) {
  details::Status status;
  status.set_code(code);
  status.set_message(message);
  status.add_details()->PackFrom(failure);
  return status.SerializeAsString();
}

std::optional<faultline::v1::Failure> failure_of(const std::string& error_details) {
  details::Status status;
  if (!status.ParseFromString(error_details)) return std::nullopt;
  for (const auto& detail : status.details()) {
    faultline::v1::Failure failure;
    if (detail.UnpackTo(&failure)) return failure;
  }
  return std::nullopt;
}

}  // namespace faultline::wire

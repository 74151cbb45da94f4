#pragma once

#include <optional>
#include <string>

#include "faultline/v1/faultline.pb.h"

namespace faultline::wire {

/// The details of a gRPC status with a Failure among them: what `grpc::Status::error_details` is made with,
/// and what travels as `grpc-status-details-bin`. `code` and `message` are the status's own.
[[nodiscard]] std::string to_details(int code, const std::string& message,
                                     const faultline::v1::Failure& failure);
/// The Failure of a status's `error_details`; nothing if there is none, as in what gRPC itself answers.
[[nodiscard]] std::optional<faultline::v1::Failure> failure_of(const std::string& error_details);

}  // namespace faultline::wire

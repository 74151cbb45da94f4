#pragma once

#include <string>
#include <utility>
#include <vector>

namespace faultline::codec {

/// The public structs and enumerations as JSON Schema, by name, made from their field tables. They refer to
/// each other as OpenAPI does, and to `Time`, `Id`, `Token`, `Traceparent` and `AttemptOutcome`.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> struct_schemas();

}  // namespace faultline::codec

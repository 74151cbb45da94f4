#pragma once

#include <string>
#include <string_view>

#include "faultline/error.h"

namespace faultline::config {

/// Errors about names that no setting has, with the one that was probably meant.
[[nodiscard]] Error unknown_in_file(std::string_view name, const std::string& where);
[[nodiscard]] Error unknown_flag(std::string_view name);
[[nodiscard]] Error unknown_variable(std::string_view variable);

/// Variables that begin with FAULTLINE_ and are no settings of a server.
[[nodiscard]] bool is_another_variable(std::string_view variable, std::string_view value);

}  // namespace faultline::config

#pragma once

#include <string_view>

namespace faultline::fuzz {

/// What a target does with one input. It returns if all is well, whether the input was accepted or refused.
void run(std::string_view input);

/// Ends the process if `holds` is false, so that the input is kept as one that breaks a promise.
void require(bool holds, std::string_view promise);

/// Takes the first byte off the input, for targets that have several things to do. 0 if there is none.
[[nodiscard]] unsigned take_byte(std::string_view& input);

}  // namespace faultline::fuzz

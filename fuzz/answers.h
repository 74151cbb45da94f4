#pragma once

#include <string_view>

#include "http/message.h"

namespace faultline::fuzz {

/// Checks an answer against what all answers promise. `head_only`: it has no body to look at.
void require_good_answer(const http::Response& response, bool head_only);

/// Ends the run unless bytes are one JSON text.
void require_json(std::string_view text);

}  // namespace faultline::fuzz

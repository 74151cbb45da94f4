#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "http/message.h"
#include "service/problem.h"

namespace faultline::http {

[[nodiscard]] int status_of(service::Code code);

/// RFC 9457 problem+json. `extend` may write further members into the object.
[[nodiscard]] Response problem_response(const service::Problem& problem,
                                        const std::function<void(JsonWriter&)>& extend = {});
/// With a status of its own, where the code alone would say too little, such as 405 and 415.
[[nodiscard]] Response problem_response(int status, const service::Problem& problem,
                                        const std::function<void(JsonWriter&)>& extend = {});

[[nodiscard]] service::Problem malformed(std::string message, std::string hint = {});
[[nodiscard]] service::Problem invalid(std::string message, std::string hint = {});

/// Whether a request that is sent again, word for word, does nothing twice.
enum class SentAgain { is_the_same, is_another };
/// Of a call that failed. Clients send a 503 again by themselves: so is an unknown outcome answered only
/// where that does no harm.
[[nodiscard]] Response failed_response(service::Problem problem, SentAgain again);

}  // namespace faultline::http

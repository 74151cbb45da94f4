#include "fuzz/answers.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/json_check.h"
#include "fuzz/target.h"

namespace faultline::fuzz {
namespace {

constexpr std::array kStatuses{200, 201, 204, 400, 401, 403, 404, 405, 408,
                               409, 413, 415, 417, 422, 429, 431, 500, 503};

bool is_header_text(std::string_view text) {
  return std::ranges::none_of(text,
                              [](char c) { return static_cast<unsigned char>(c) < 0x20U || c == '\x7f'; });
}

}  // namespace

void require_json(std::string_view text) {
  constexpr std::size_t kDepthMax = 1'000;
  require(!find_json_problem(std::as_bytes(std::span{text}), kDepthMax), "what is called JSON is JSON");
}

void require_good_answer(const http::Response& response, bool head_only) {
  require(std::ranges::find(kStatuses, response.status) != kStatuses.end(),
          "the status is one that is documented");
  for (const auto& [name, value] : response.headers)
    require(is_header_text(name) && is_header_text(value), "a header is one line");
  const bool failed = response.status >= 400;
  if (failed) require(response.content_type == "application/problem+json", "a failure is a problem");
  if (!head_only && response.content_type.ends_with("json")) require_json(response.body);
}

}  // namespace faultline::fuzz

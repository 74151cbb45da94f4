#include "base/traceparent.h"

#include <algorithm>
#include <span>

#include "base/sha256.h"

namespace faultline {
namespace {

constexpr std::size_t kLength = 55;

/// The value of a lowercase hexadecimal digit; -1: it is none.
int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool read_hex(std::string_view text, std::span<std::uint8_t> into) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    into[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return true;
}

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0; });
}

/// The 52 characters after the version and its dash.
std::optional<TraceContext> read_fields(std::string_view text) {
  TraceContext context;
  if (text[32] != '-' || text[49] != '-') return std::nullopt;
  if (!read_hex(text, context.trace_id) || !read_hex(text.substr(33), context.span_id) ||
      !read_hex(text.substr(50), {&context.flags, 1})) {
    return std::nullopt;
  }
  if (is_zero(context.trace_id) || is_zero(context.span_id)) return std::nullopt;
  return context;
}

}  // namespace

std::optional<TraceContext> TraceContext::parse(std::string_view text) {
  if (text.size() != kLength || !text.starts_with("00-")) return std::nullopt;
  return read_fields(text.substr(3));
}

std::optional<TraceContext> TraceContext::parse_header(std::string_view text) {
  if (text.starts_with("00")) return parse(text);
  std::uint8_t version = 0;
  if (text.size() < kLength || !read_hex(text, {&version, 1}) || version == 0xff || text[2] != '-')
    return std::nullopt;
  if (text.size() > kLength && text[kLength] != '-') return std::nullopt;
  auto context = read_fields(text.substr(3, kLength - 3));
  // Of the flags only this one is known to mean the same.
  if (context) context->flags &= kSampled;
  return context;
}

std::string TraceContext::to_string() const {
  const auto hex = [](std::span<const std::uint8_t> bytes) { return to_hex(std::as_bytes(bytes)); };
  return "00-" + hex(trace_id) + "-" + hex(span_id) + "-" + hex({&flags, 1});
}

}  // namespace faultline

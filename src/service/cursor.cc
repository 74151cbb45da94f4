#include "service/cursor.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/sha256.h"

namespace faultline::service {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The first byte says what kind of cursor it is, and of which version.
enum class Kind : std::uint8_t { jobs = 1, stale_writes = 2 };

using Bytes = std::vector<std::uint8_t>;

std::string encode(const Bytes& bytes) {
  std::string text;
  std::uint32_t bits = 0;
  int count = 0;
  for (const std::uint8_t byte : bytes) {
    bits = (bits << 8U) | byte;
    for (count += 8; count >= 6; count -= 6)
      text += kAlphabet[(bits >> static_cast<unsigned>(count - 6)) & 63U];
  }
  if (count > 0) text += kAlphabet[(bits << static_cast<unsigned>(6 - count)) & 63U];
  return text;
}

std::optional<Bytes> decode(std::string_view text) {
  constexpr std::size_t longest = 64;
  if (text.size() > longest) return std::nullopt;
  Bytes bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = kAlphabet.find(c);
    if (value == std::string_view::npos) return std::nullopt;
    bits = (bits << 6U) | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<std::uint8_t>(bits >> static_cast<unsigned>(count)));
  }
  // Only what `encode` gives is a cursor.
  if (encode(bytes) != text) return std::nullopt;
  return bytes;
}

constexpr std::size_t kHashBytes = 8;

/// What must be the same on every page.
std::array<std::uint8_t, kHashBytes> hash(const ListRequest& filter) {
  const auto part = [](const std::optional<std::string>& text) {
    return text ? "=" + *text : std::string{"-"};
  };
  std::string state = filter.state ? "=" + std::string{to_string(*filter.state)} : "-";
  // Names have no control characters in them.
  const std::string all = part(filter.queue) + '\n' + part(filter.kind) + '\n' + state;
  const Sha256 digest = sha256({bytes_of(all)});
  std::array<std::uint8_t, kHashBytes> first{};
  for (std::size_t i = 0; i < kHashBytes; ++i) first[i] = std::to_integer<std::uint8_t>(digest[i]);
  return first;
}

Problem bad_cursor(std::string message, std::string hint) {
  return {.code = Code::invalid, .message = std::move(message), .hint = std::move(hint)};
}

Problem no_cursor() {
  return bad_cursor("this is not a cursor of this list",
                    "pass on the cursor of the page before as it came, or leave it out for the first page");
}

}  // namespace

std::string to_cursor(const ListRequest& filter, JobId before) {
  Bytes bytes{static_cast<std::uint8_t>(Kind::jobs)};
  std::ranges::copy(before.value.bytes, std::back_inserter(bytes));
  std::ranges::copy(hash(filter), std::back_inserter(bytes));
  return encode(bytes);
}

ServiceResult<JobId> from_cursor(const ListRequest& filter, std::string_view cursor) {
  JobId before;
  const std::size_t id_bytes = before.value.bytes.size();
  const auto bytes = decode(cursor);
  if (!bytes || bytes->size() != 1 + id_bytes + kHashBytes ||
      bytes->front() != static_cast<std::uint8_t>(Kind::jobs)) {
    return std::unexpected(no_cursor());
  }
  const std::span rest = std::span{*bytes}.subspan(1);
  std::ranges::copy(rest.first(id_bytes), before.value.bytes.begin());
  if (!std::ranges::equal(rest.subspan(id_bytes), hash(filter))) {
    return std::unexpected(
        bad_cursor("the cursor was made for another filter",
                   "keep queue, kind and state as they were on the first page, or begin again"));
  }
  return before;
}

std::string to_cursor(DatabaseTime before) {
  Bytes bytes{static_cast<std::uint8_t>(Kind::stale_writes)};
  const auto count = static_cast<std::uint64_t>(before.time_since_epoch().count());
  for (unsigned shift = 64; shift > 0; shift -= 8)
    bytes.push_back(static_cast<std::uint8_t>(count >> (shift - 8)));
  return encode(bytes);
}

ServiceResult<DatabaseTime> stale_writes_from_cursor(std::string_view cursor) {
  const auto bytes = decode(cursor);
  if (!bytes || bytes->size() != 9 || bytes->front() != static_cast<std::uint8_t>(Kind::stale_writes)) {
    return std::unexpected(no_cursor());
  }
  std::uint64_t count = 0;
  for (const std::uint8_t byte : std::span{*bytes}.subspan(1)) count = (count << 8U) | byte;
  const DatabaseTime before{std::chrono::microseconds{static_cast<std::int64_t>(count)}};
  // What no refused write can have: the years before 1970 and after 9999.
  constexpr DatabaseTime latest{std::chrono::seconds{253'402'300'799}};
  if (before < DatabaseTime{} || before > latest) return std::unexpected(no_cursor());
  return before;
}

}  // namespace faultline::service

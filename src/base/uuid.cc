#include "faultline/uuid.h"

#include <sys/random.h>

#include <cstring>
#include <ostream>
#include <stdexcept>

namespace faultline {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr bool dash_before(std::size_t byte) { return byte == 4 || byte == 6 || byte == 8 || byte == 10; }

}  // namespace

std::ostream& operator<<(std::ostream& out, const Uuid& uuid) { return out << uuid.to_string(); }

std::string Uuid::to_string() const {
  std::string text;
  text.reserve(36);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (dash_before(i)) text.push_back('-');
    text.push_back(kHexDigits[bytes[i] >> 4]);
    text.push_back(kHexDigits[bytes[i] & 0x0f]);
  }
  return text;
}

std::optional<Uuid> Uuid::parse(std::string_view text) {
  if (text.size() != 36) return std::nullopt;
  Uuid uuid;
  std::size_t at = 0;
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (dash_before(i) && text[at++] != '-') return std::nullopt;
    const int high = hex_value(text[at]);
    const int low = hex_value(text[at + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    uuid.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
    at += 2;
  }
  return uuid;
}

Uuid Uuid::random() {
  Uuid uuid;
  // 16 bytes never return short once the kernel's pool is ready, and getrandom waits until it is.
  if (getrandom(uuid.bytes.data(), uuid.bytes.size(), 0) != static_cast<ssize_t>(uuid.bytes.size())) {
    throw std::runtime_error("the operating system gave no random bytes");
  }
  uuid.bytes[6] = static_cast<std::uint8_t>((uuid.bytes[6] & 0x0f) | 0x40);
  uuid.bytes[8] = static_cast<std::uint8_t>((uuid.bytes[8] & 0x3f) | 0x80);
  return uuid;
}

}  // namespace faultline

std::size_t std::hash<faultline::Uuid>::operator()(const faultline::Uuid& uuid) const noexcept {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  std::memcpy(&high, uuid.bytes.data(), sizeof high);
  std::memcpy(&low, uuid.bytes.data() + sizeof high, sizeof low);
  return static_cast<std::size_t>(high ^ (low * 0x9e3779b97f4a7c15ULL));
}

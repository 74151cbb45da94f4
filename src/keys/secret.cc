#include "keys/secret.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <openssl/crypto.h>
#include <openssl/rand.h>

namespace faultline::keys {
namespace {

constexpr std::string_view kPrefix = "flk_";
constexpr std::size_t kIdDigits = 12;
constexpr std::size_t kSecretDigits = 64;

template <std::size_t digits>
std::string random_hex() {
  std::array<unsigned char, digits / 2> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw std::runtime_error("OpenSSL gave no random bytes");
  return to_hex(std::as_bytes(std::span{bytes}));
}

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string public_part(std::string_view id) { return std::string{kPrefix} + std::string{id}; }

std::optional<std::string_view> id_of(std::string_view public_part) {
  if (!public_part.starts_with(kPrefix)) return std::nullopt;
  return public_part.substr(kPrefix.size());
}

std::string KeyText::whole() const { return public_part(id) + "_" + secret; }

KeyText random_key() { return {.id = random_hex<kIdDigits>(), .secret = random_hex<kSecretDigits>()}; }

std::optional<KeyText> parse_key(std::string_view text) {
  if (text.size() != kPrefix.size() + kIdDigits + 1 + kSecretDigits || !text.starts_with(kPrefix))
    return std::nullopt;
  text.remove_prefix(kPrefix.size());
  const std::string_view id = text.substr(0, kIdDigits);
  const std::string_view secret = text.substr(kIdDigits + 1);
  if (text[kIdDigits] != '_' || !is_hex(id) || !is_hex(secret)) return std::nullopt;
  return KeyText{.id = std::string{id}, .secret = std::string{secret}};
}

Sha256 hash_of(std::string_view secret) { return sha256({bytes_of(secret)}); }

bool same(const Sha256& one, const Sha256& other) {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace faultline::keys

#include "base/sha256.h"

#include <memory>
#include <stdexcept>

#include <openssl/evp.h>

namespace faultline {

Sha256 sha256(std::initializer_list<std::span<const std::byte>> parts) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const auto part : parts) {
    good = good && EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
  }
  std::array<unsigned char, 32> digest{};
  if (!good || EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) != 1) {
    throw std::runtime_error("OpenSSL could not compute a SHA-256");
  }
  Sha256 result;
  for (std::size_t i = 0; i < digest.size(); ++i) result[i] = static_cast<std::byte>(digest[i]);
  return result;
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    text.push_back(digits[static_cast<std::size_t>(byte) >> 4]);
    text.push_back(digits[static_cast<std::size_t>(byte) & 0x0f]);
  }
  return text;
}

}  // namespace faultline

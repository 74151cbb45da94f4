#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace faultline::keys {

/// The two parts of a key, flk_ID_SECRET: 12 and 64 hexadecimal digits.
struct KeyText {
  std::string id;
  std::string secret;
  [[nodiscard]] std::string whole() const;
};

/// What may be shown of a key: flk_ID.
[[nodiscard]] std::string public_part(std::string_view id);

/// The id in it; nothing if it is no such part.
[[nodiscard]] std::optional<std::string_view> id_of(std::string_view public_part);

/// A key that nobody has seen.
[[nodiscard]] KeyText random_key();

/// Nothing if it has not the form of a key, to the letter.
[[nodiscard]] std::optional<KeyText> parse_key(std::string_view text);

/// What is kept of a secret. One round of SHA-256, and no salt, is enough: a secret is 256 random bits, not a
/// word that somebody chose, so there is no list to try and nothing to slow down.
[[nodiscard]] Sha256 hash_of(std::string_view secret);

/// Takes the same time wherever the two differ, so that time tells nothing.
[[nodiscard]] bool same(const Sha256& one, const Sha256& other);

}  // namespace faultline::keys

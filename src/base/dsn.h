#pragma once

#include <string>
#include <string_view>

namespace faultline {

/// Whether text may name a database: a URL of PostgreSQL's, or a keyword string.
[[nodiscard]] bool looks_like_a_dsn(std::string_view text);

/// A database URL or keyword string that is fit to be shown: its passwords are replaced by `***`.
[[nodiscard]] std::string without_passwords(std::string_view dsn);
/// `text` with every password of `dsn` in it replaced: libpq's messages quote what they were given.
[[nodiscard]] std::string without_passwords_of(std::string_view dsn, std::string text);

}  // namespace faultline

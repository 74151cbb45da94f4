#include "base/dsn.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace faultline {
namespace {

constexpr std::string_view kMask = "***";
constexpr std::string_view kSpace = " \t\n\v\f\r";

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned char byte = 0;
    const std::string_view digits = text.substr(std::min(at + 1, text.size()), 2);
    const char* const end = digits.data() + digits.size();
    const bool escape =
        text[at] == '%' && digits.size() == 2 && std::from_chars(digits.data(), end, byte, 16).ptr == end;
    decoded += escape ? static_cast<char>(byte) : text[at];
    if (escape) at += 2;
  }
  return decoded;
}

/// A value of a keyword string without its quotes and backslashes.
std::string unquoted(std::string_view value) {
  const bool quoted = value.starts_with('\'');
  std::string plain;
  for (std::size_t at = quoted ? 1 : 0; at < value.size(); ++at) {
    if (quoted && value[at] == '\'') break;
    if (value[at] == '\\' && ++at == value.size()) break;
    plain += value[at];
  }
  return plain;
}

/// The passwords of a DSN, in every spelling in which they may be met: as they stand there, and as PostgreSQL
/// reads them. It does not matter what the text is; rather too much is found than too little.
class Passwords {
 public:
  explicit Passwords(std::string_view dsn) : dsn_(dsn) {
    collect_userinfo();
    collect_keyword_values();
    collect_query_values();
  }
  [[nodiscard]] const std::vector<std::string>& all() const { return found_; }

 private:
  [[nodiscard]] bool is_url() const { return dsn_.contains("://"); }

  void add(std::string_view raw) {
    for (std::string each : {std::string{raw}, percent_decoded(raw), unquoted(raw)}) {
      if (!each.empty() && std::ranges::find(found_, each) == found_.end()) found_.push_back(std::move(each));
    }
  }

  /// The text between `user:` and `@`: the last one, since a password may hold `@` and even `/`; and the
  /// first one, which is PostgreSQL's, since it may hold `?`. Also without a scheme.
  void collect_userinfo() {
    const std::string_view rest = is_url() ? dsn_.substr(dsn_.find("://") + 3) : dsn_;
    for (const auto at :
         {rest.substr(0, rest.find('?')).rfind('@'), rest.substr(0, rest.find('/')).find('@')}) {
      if (at == std::string_view::npos) continue;
      const std::string_view userinfo = rest.substr(0, at);
      if (const auto colon = userinfo.find(':'); colon != std::string_view::npos)
        add(userinfo.substr(colon + 1));
    }
  }

  /// `password=` and `sslpassword=`, with space around the sign in keyword strings.
  void collect_keyword_values() {
    constexpr std::string_view kKeyword = "password";
    for (auto at = dsn_.find(kKeyword); at != std::string_view::npos; at = dsn_.find(kKeyword, at + 1)) {
      const auto sign = dsn_.find_first_not_of(kSpace, at + kKeyword.size());
      if (sign == std::string_view::npos || dsn_[sign] != '=') continue;
      const auto begin = std::min(dsn_.find_first_not_of(kSpace, sign + 1), dsn_.size());
      add(dsn_.substr(begin, end_of_word(begin) - begin));
      if (is_url()) add(dsn_.substr(sign + 1, dsn_.find('&', sign) - sign - 1));
    }
  }

  /// Where the value of a keyword string that starts at `begin` ends: after its quotes, or at a space.
  [[nodiscard]] std::size_t end_of_word(std::size_t begin) const {
    const bool quoted = dsn_.substr(begin).starts_with('\'');
    std::size_t end = quoted ? begin + 1 : begin;
    while (end < dsn_.size() && !(quoted ? dsn_[end] == '\'' : kSpace.contains(dsn_[end])))
      end += dsn_[end] == '\\' ? 2U : 1U;
    return std::min(quoted ? end + 1 : end, dsn_.size());
  }

  /// Names in a URL may be escaped too. Nobody does, and so such a value is hidden whatever its name is.
  void collect_query_values() {
    if (!is_url()) return;
    for (auto sign = dsn_.find('='); sign != std::string_view::npos; sign = dsn_.find('=', sign + 1)) {
      const auto name = dsn_.find_last_of("?&", sign);
      if (name != std::string_view::npos && dsn_.substr(name, sign - name).contains('%'))
        add(dsn_.substr(sign + 1, dsn_.find('&', sign) - sign - 1));
    }
  }

  std::string_view dsn_;
  std::vector<std::string> found_;
};

}  // namespace

bool looks_like_a_dsn(std::string_view text) {
  return text.starts_with("postgresql://") || text.starts_with("postgres://") ||
         (text.contains('=') && text.find('=') < text.find("://"));
}

std::string without_passwords_of(std::string_view dsn, std::string text) {
  const Passwords passwords{dsn};
  // First find all, then hide: passwords may overlap, and none may be taken apart by another's mask.
  std::vector<bool> hidden(text.size());
  for (const std::string& password : passwords.all()) {
    for (auto at = text.find(password); at != std::string::npos; at = text.find(password, at + 1))
      std::fill_n(hidden.begin() + static_cast<std::ptrdiff_t>(at), password.size(), true);
  }
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!hidden[at]) {
      shown += text[at];
    } else if (at == 0 || !hidden[at - 1]) {
      shown += kMask;
    }
  }
  return shown;
}

std::string without_passwords(std::string_view dsn) { return without_passwords_of(dsn, std::string{dsn}); }

}  // namespace faultline

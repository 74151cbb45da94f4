#include "cli/output.h"

#include <algorithm>
#include <ostream>
#include <vector>

namespace faultline::cli {
namespace {

constexpr std::string_view kMask = "***";

bool is_url(std::string_view dsn) { return dsn.contains("://"); }

/// The text between `user:` and the last `@`: a password may hold `@` and even `/`. Also without a
/// scheme: rather too much is hidden than too little.
void collect_userinfo(std::string_view dsn, std::vector<std::string_view>& found) {
  if (is_url(dsn)) dsn.remove_prefix(dsn.find("://") + 3);
  const auto at = dsn.substr(0, dsn.find('?')).rfind('@');
  if (at == std::string_view::npos) return;
  const auto userinfo = dsn.substr(0, at);
  const auto colon = userinfo.find(':');
  if (colon != std::string_view::npos) found.push_back(userinfo.substr(colon + 1));
}

/// Where the value that starts at `begin` ends: at `&` in a URL, else after its quotes or at a space.
std::size_t end_of_value(std::string_view dsn, std::size_t begin, bool url) {
  if (url) return std::min(dsn.find('&', begin), dsn.size());
  if (begin < dsn.size() && dsn[begin] == '\'') {
    std::size_t end = begin + 1;
    while (end < dsn.size() && dsn[end] != '\'') end += dsn[end] == '\\' ? 2U : 1U;
    return std::min(end + 1, dsn.size());
  }
  return std::min(dsn.find_first_of(" \t\n", begin), dsn.size());
}

/// `password=` and `sslpassword=`, with spaces around the sign in keyword strings.
void collect_keyword_values(std::string_view dsn, std::vector<std::string_view>& found) {
  constexpr std::string_view kKeyword = "password";
  for (std::size_t at = dsn.find(kKeyword); at != std::string_view::npos; at = dsn.find(kKeyword, at + 1)) {
    const auto sign = dsn.find_first_not_of(' ', at + kKeyword.size());
    if (sign == std::string_view::npos || dsn[sign] != '=') continue;
    const auto begin = std::min(dsn.find_first_not_of(' ', sign + 1), dsn.size());
    found.push_back(dsn.substr(begin, end_of_value(dsn, begin, is_url(dsn)) - begin));
  }
}

std::vector<std::string_view> passwords_of(std::string_view dsn) {
  std::vector<std::string_view> found;
  collect_userinfo(dsn, found);
  collect_keyword_values(dsn, found);
  std::erase_if(found, [](std::string_view password) { return password.empty(); });
  // Longest first, so that one password that is part of another does not leave the rest of it behind.
  std::ranges::sort(found, std::greater{}, [](std::string_view password) { return password.size(); });
  return found;
}

}  // namespace

std::string without_passwords_of(std::string_view dsn, std::string text) {
  for (const auto password : passwords_of(dsn)) {
    std::size_t at = 0;
    while ((at = text.find(password, at)) != std::string::npos) {
      text.replace(at, password.size(), kMask);
      at += kMask.size();
    }
  }
  return text;
}

std::string without_passwords(std::string_view dsn) { return without_passwords_of(dsn, std::string{dsn}); }

void Output::print(const Answer& answer) const {
  if (json_) {
    *out_ << answer.json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n' << std::flush;
  } else {
    *out_ << answer.text << std::flush;
  }
}

void Output::print(const Failure& failure) const {
  if (json_) {
    const nlohmann::json object{
        {"error", {{"code", failure.code}, {"message", failure.message}, {"hint", failure.hint}}}};
    *err_ << object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n' << std::flush;
    return;
  }
  *err_ << "faultline: " << failure.message << '\n';
  if (!failure.hint.empty()) *err_ << "  hint: " << failure.hint << '\n';
  *err_ << std::flush;
}

}  // namespace faultline::cli

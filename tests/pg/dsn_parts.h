#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include <libpq-fe.h>

namespace faultline::testing {

/// A DSN taken apart, to be changed and put together again as a keyword string.
class DsnParts {
 public:
  explicit DsnParts(const std::string& dsn) {
    const std::unique_ptr<PQconninfoOption, decltype(&PQconninfoFree)> options{
        PQconninfoParse(dsn.c_str(), nullptr), &PQconninfoFree};
    if (!options) throw std::runtime_error("not a DSN");
    for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
      if (option->val != nullptr) keywords_[option->keyword] = option->val;
    }
  }

  [[nodiscard]] std::string& operator[](const std::string& keyword) { return keywords_[keyword]; }
  [[nodiscard]] std::string get(const std::string& keyword, const std::string& otherwise) const {
    const auto it = keywords_.find(keyword);
    return it == keywords_.end() ? otherwise : it->second;
  }
  void erase(const std::string& keyword) { keywords_.erase(keyword); }

  [[nodiscard]] std::string dsn() const {
    std::string text;
    for (const auto& [keyword, value] : keywords_) {
      text += keyword + "='";
      for (const char c : value) {
        if (c == '\'' || c == '\\') text.push_back('\\');
        text.push_back(c);
      }
      text += "' ";
    }
    return text;
  }

 private:
  std::map<std::string, std::string> keywords_;
};

}  // namespace faultline::testing

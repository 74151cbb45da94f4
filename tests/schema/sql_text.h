// Reads SQL as far as the rules of sql/ need it: words, parentheses, the tables that a statement names, and
// the statements that a function of PL/pgSQL consists of.

#pragma once

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace faultline::testing {

struct Word {
  std::string text;  ///< in lower case; a string literal is one word
  int line = 1;
};

/// The words of a text, without comments.
inline std::vector<Word> words_of(std::string_view sql) {
  std::vector<Word> words;
  int line = 1;
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (std::size_t at = 0; at < sql.size();) {
    const char c = sql[at];
    std::size_t end = at + 1;
    bool counts = true;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      counts = false;
    } else if (sql.substr(at, 2) == "--") {
      end = std::min(sql.find('\n', at), sql.size());
      counts = false;
    } else if (sql.substr(at, 2) == "/*") {
      end = std::min(sql.find("*/", at), sql.size() - 2) + 2;
      counts = false;
    } else if (c == '\'' || c == '"') {
      end = std::min(sql.find(c, at + 1), sql.size() - 1) + 1;
    } else if (is_word(c) || c == '$') {
      while (end < sql.size() && is_word(sql[end])) ++end;
    } else if (sql.substr(at, 2) == "::" || sql.substr(at, 2) == ":=") {
      end = at + 2;
    }
    std::string text{sql.substr(at, end - at)};
    const auto lines = static_cast<int>(std::ranges::count(text, '\n'));
    if (counts) {
      std::ranges::transform(text, text.begin(),
                             [](unsigned char d) { return static_cast<char>(std::tolower(d)); });
      words.push_back({.text = std::move(text), .line = line});
    }
    line += lines;
    at = end;
  }
  return words;
}

/// A statement as the rules look at it: words, and how deep in parentheses each stands.
class SqlText {
 public:
  explicit SqlText(std::string_view sql) : SqlText(words_of(sql)) {}
  explicit SqlText(std::vector<Word> words) : words_(std::move(words)), depths_(words_.size()) {
    int depth = 0;
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if (words_[i].text == ")") --depth;
      depths_[i] = depth;
      if (words_[i].text == "(") ++depth;
    }
  }

  [[nodiscard]] std::size_t size() const { return words_.size(); }
  [[nodiscard]] int line() const { return words_.empty() ? 0 : words_.front().line; }
  [[nodiscard]] int depth(std::size_t i) const { return depths_[i]; }
  [[nodiscard]] std::string word(std::size_t i) const { return i < words_.size() ? words_[i].text : ""; }
  [[nodiscard]] std::string before(std::size_t i, std::size_t by = 1) const {
    return i >= by ? words_[i - by].text : "";
  }
  [[nodiscard]] bool reads(std::size_t at, const std::vector<std::string>& words) const {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (word(at + i) != words[i]) return false;
    }
    return true;
  }
  [[nodiscard]] bool has(const std::string& text) const {
    return std::ranges::any_of(words_, [&](const Word& word) { return word.text == text; });
  }
  /// The words from `first` up to `last`, for messages.
  [[nodiscard]] std::string excerpt(std::size_t first = 0, std::size_t last = 12) const {
    std::string text;
    for (std::size_t i = first; i < std::min(last, size()); ++i)
      text += (i == first ? "" : " ") + words_[i].text;
    return text;
  }
  /// Where the query ends that the word at `i` is part of: at its closing parenthesis, or at a UNION.
  [[nodiscard]] std::size_t end_of_query(std::size_t i) const {
    for (std::size_t at = i; at < size(); ++at) {
      if (depths_[at] < depths_[i] || (depths_[at] == depths_[i] && words_[at].text == "union")) return at;
    }
    return size();
  }
  /// The words stand in the same query as the word at `i`, behind it, and in no parentheses of their own.
  [[nodiscard]] bool query_has(std::size_t i, const std::vector<std::string>& words) const {
    const std::size_t end = end_of_query(i);
    for (std::size_t at = i; at < end; ++at) {
      if (depths_[at] == depths_[i] && reads(at, words)) return true;
    }
    return false;
  }
  /// The parenthesis that the word at `i` stands in, or size() for none.
  [[nodiscard]] std::size_t opening(std::size_t i) const {
    for (std::size_t at = i; at-- > 0;) {
      if (words_[at].text == "(" && depths_[at] == depths_[i] - 1) return at;
    }
    return size();
  }

 private:
  std::vector<Word> words_;
  std::vector<int> depths_;
};

/// A table of Faultline's that a statement names.
struct TableReference {
  std::size_t at = 0;
  std::string table;
  std::string alias;
  bool inserted_into = false;
};

inline bool is_keyword(const std::string& word) {
  static const std::set<std::string> keywords{"where",  "on",    "set",   "using",     "cross",  "join",
                                              "left",   "inner", "order", "group",     "limit",  "for",
                                              "select", "from",  "union", "returning", "values", "having",
                                              "offset", "as",    "loop",  "then"};
  return word.empty() || keywords.contains(word) || std::isalpha(static_cast<unsigned char>(word[0])) == 0;
}

inline std::vector<TableReference> tables_of(const SqlText& sql) {
  std::vector<TableReference> found;
  for (std::size_t i = 0; i + 2 < sql.size(); ++i) {
    if (!sql.reads(i, {"faultline", "."}) || sql.before(i) == "::") continue;
    const bool inserted_into = sql.before(i) == "into" && sql.before(i, 2) == "insert";
    if (sql.word(i + 3) == "(" && !inserted_into) continue;  // a function
    std::size_t alias = i + 3;
    if (sql.word(alias) == "as") ++alias;
    const bool has_alias = !is_keyword(sql.word(alias));
    found.push_back({.at = i,
                     .table = sql.word(i + 2),
                     .alias = has_alias ? sql.word(alias) : sql.word(i + 2),
                     .inserted_into = inserted_into});
  }
  return found;
}

/// What stands between the dollar quotes of a function's file. Its first line is line 1 to PL/pgSQL, too.
inline std::string_view body_of(std::string_view function) {
  const std::size_t begin = function.find("$$") + 2;
  return function.substr(begin, function.find("$$", begin) - begin);
}

/// The statements of a function of PL/pgSQL that do something, in their order, each with the line that
/// PL/pgSQL gives it: what stands before a THEN or LOOP is one of them, declarations are not.
inline std::vector<SqlText> inner_statements(std::string_view body) {
  std::vector<SqlText> statements;
  std::vector<Word> words = words_of(body);
  std::vector<Word> current;
  std::size_t i = 0;
  while (i < words.size() && words[i].text != "begin") ++i;
  int depth = 0;
  for (; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    static const std::set<std::string> structure{"begin", "else", "exception", "loop"};
    if (current.empty() && (structure.contains(text) || text == ";")) continue;
    if (text == "(") ++depth;
    if (text == ")") --depth;
    const std::string first = current.empty() ? text : current.front().text;
    const bool branch = first == "if" || first == "elsif" || first == "when";
    const bool loop = first == "for" || first == "foreach" || first == "while";
    const bool ends = depth == 0 && (text == ";" || (branch && text == "then") || (loop && text == "loop"));
    if (!ends) {
      current.push_back(words[i]);
      continue;
    }
    statements.emplace_back(std::exchange(current, {}));
  }
  return statements;
}

}  // namespace faultline::testing

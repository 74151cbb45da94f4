#include "config/toml_file.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <toml++/toml.h>

#include "base/dsn.h"
#include "config/table.h"
#include "config/unknown.h"
#include "config/values.h"

namespace faultline::config {
namespace {

Error wrong(std::string message, std::string hint) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .hint = std::move(hint)};
}

std::string_view line_of(std::string_view text, std::size_t number) {
  for (; number > 1; --number) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

std::string place(const std::string& file_name, const toml::source_region& source) {
  return file_name + ":" + std::to_string(source.begin.line);
}

/// A scalar as text; nothing for what no setting is.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* number = node.as_floating_point()) return write_ratio(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  return std::nullopt;
}

Error not_a_scalar(const std::string& name, const std::string& where, const toml::node& node) {
  const std::string hint = "write a string, a number, true or false";
  if (!node.is_table() || find_row(name) != nullptr)
    return wrong(name + " (" + where + "): this is not a value that a setting can have", hint);
  return wrong(where + ": " + quoted(name) + " is a table, and settings stand at the top level",
               "write http_body_max = …, not [http] and body_max = …");
}

}  // namespace

Expected<std::map<std::string, FileValue>> read_toml(std::string_view text, const std::string& file_name) {
  if (text.size() > kFileMax)
    return std::unexpected(wrong(file_name + " has more than 1 MiB", "name a file with settings"));
  toml::table parsed;
  try {
    parsed = toml::parse(text, file_name);
  } catch (const toml::parse_error& error) {
    // The parser quotes what it met, and that may be a URL with a password.
    const std::string said =
        without_passwords_of(line_of(text, error.source().begin.line), std::string{error.description()});
    return std::unexpected(wrong(place(file_name, error.source()) + ": this is not TOML: " + said,
                                 "see `faultline config example` for how it is written"));
  }
  std::map<std::string, FileValue> values;
  for (const auto& [key, node] : parsed) {
    const std::string name{key.str()};
    const std::string where = place(file_name, key.source());
    if (find_row(name) == nullptr && !node.is_table()) return std::unexpected(unknown_in_file(name, where));
    const auto value = text_of(node);
    if (!value) return std::unexpected(not_a_scalar(name, where, node));
    values.emplace(name, FileValue{.text = *value, .origin = where});
  }
  return values;
}

}  // namespace faultline::config

#include "config/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "config/checks.h"
#include "config/table.h"
#include "config/toml_file.h"
#include "config/unknown.h"
#include "config/values.h"

namespace faultline::config {
namespace {

using FileValues = std::map<std::string, FileValue>;

/// What a setting is to become, and where that stands.
struct Given {
  std::string text;
  std::string origin;
};

std::optional<std::string> variable(const Sources& sources, const std::string& name) {
  const auto found = sources.environment.find(name);
  if (found == sources.environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

/// The one that counts, of those that name it.
std::optional<Given> given(const Setting& setting, const Sources& sources, const FileValues& file) {
  if (const auto flag = sources.flags.find(setting.name); flag != sources.flags.end())
    return Given{.text = flag->second, .origin = setting.flag()};
  if (auto value = variable(sources, setting.environment()))
    return Given{.text = std::move(*value), .origin = setting.environment()};
  if (!setting.other_variable.empty()) {
    if (auto value = variable(sources, setting.other_variable))
      return Given{.text = std::move(*value), .origin = setting.other_variable};
  }
  if (const auto value = file.find(setting.name); value != file.end())
    return Given{.text = value->second.text, .origin = value->second.origin};
  return std::nullopt;
}

std::optional<Error> find_unknown(const Sources& sources) {
  for (const auto& [name, value] : sources.flags) {
    if (find_row(name) == nullptr) return unknown_flag(name);
  }
  for (const auto& [name, value] : sources.environment) {
    const bool known =
        std::ranges::any_of(table(), [&](const Row& row) { return row.setting.environment() == name; });
    if (!known && !is_another_variable(name, value)) return unknown_variable(name);
  }
  return std::nullopt;
}

Expected<Loaded> put_together(const Sources& sources, const FileValues& file) {
  if (auto problem = find_unknown(sources)) return std::unexpected(std::move(*problem));
  Loaded loaded;
  for (const Row& row : table()) {
    const auto value = given(row.setting, sources, file);
    loaded.origins[row.setting.name] = {value ? value->origin : "default"};
    if (!value) continue;
    if (auto problem = row.read(loaded.settings, value->text)) {
      problem->message = row.setting.name + " (" + value->origin + "): " + problem->message;
      return std::unexpected(std::move(*problem));
    }
  }
  if (auto problem = find_contradiction(loaded)) return std::unexpected(std::move(*problem));
  return loaded;
}

Expected<std::string> read_file(const std::string& file, const std::string& origin) {
  errno = 0;
  std::ifstream in{file, std::ios::binary};
  // One byte over the limit, so that read_toml sees that it is too large.
  std::string text(kFileMax + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.good() || in.eof()) {
    text.resize(static_cast<std::size_t>(in.gcount()));
    return text;
  }
  return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                               .message = "config (" + origin + "): the file " + quoted(file) +
                                          " cannot be read: " + std::generic_category().message(errno),
                               .hint = "name a TOML file that this user may read; `faultline config example` "
                                       "prints one"});
}

std::string spelled(std::string_view name, char separator, int shift) {
  std::string text{name};
  for (char& c : text) {
    if (c == '_') c = separator;
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c + shift);
  }
  return text;
}

}  // namespace

std::string Setting::flag() const { return "--" + spelled(name, '-', 0); }

std::string Setting::environment() const { return "FAULTLINE_" + spelled(name, '_', 'A' - 'a'); }

const std::vector<Setting>& all_settings() {
  static const std::vector<Setting> all = [] {
    std::vector<Setting> settings;
    for (const Row& row : table()) settings.push_back(row.setting);
    return settings;
  }();
  return all;
}

std::string shown(const Settings& settings, std::string_view name) {
  const Row* row = find_row(name);
  return row == nullptr ? std::string{} : row->write(settings);
}

std::string example() {
  std::string text =
      "# Settings of `faultline serve`, all at their defaults. Each can also be set by a flag or a variable, "
      "which come\n"
      "# before this file: http_body_max is --http-body-max and FAULTLINE_HTTP_BODY_MAX.\n";
  for (const Row& row : table()) {
    const std::string& value = row.setting.default_value;
    text += "\n# " + row.setting.help + "\n" + row.setting.name + " = " +
            (row.bare ? value : "\"" + value + "\"") + "\n";
  }
  return text;
}

Expected<Loaded> load(const Sources& sources) {
  auto file = sources.file;
  const std::string origin = file ? "--config" : "FAULTLINE_CONFIG";
  if (!file) file = variable(sources, "FAULTLINE_CONFIG");
  auto text = file ? read_file(*file, origin) : std::string{};
  if (!text) return std::unexpected(std::move(text.error()));
  auto loaded = load_text(*text, file.value_or(""), sources);
  if (!loaded) return loaded;
  if (auto problem = find_unreadable_file(*loaded)) return std::unexpected(std::move(*problem));
  return loaded;
}

Expected<Loaded> load_text(std::string_view toml, const std::string& file_name, const Sources& sources) {
  const auto file = read_toml(toml, file_name);
  if (!file) return std::unexpected(file.error());
  return put_together(sources, *file);
}

Expected<std::string> database_in_file(const std::map<std::string, std::string>& environment) {
  const auto file = variable({.environment = environment}, "FAULTLINE_CONFIG");
  if (!file) return std::string{};
  const auto text = read_file(*file, "FAULTLINE_CONFIG");
  if (!text) return std::unexpected(text.error());
  auto loaded = load_text(*text, *file, {});
  if (!loaded) return std::unexpected(std::move(loaded.error()));
  return std::move(loaded->settings.database);
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const auto sign = text.find('=');
    const std::string_view name = text.substr(0, sign);
    const bool known = name.starts_with("FAULTLINE_") || std::ranges::any_of(table(), [&](const Row& row) {
                         return row.setting.other_variable == name && !name.empty();
                       });
    if (sign != std::string_view::npos && known) found.emplace(name, text.substr(sign + 1));
  }
  return found;
}

}  // namespace faultline::config

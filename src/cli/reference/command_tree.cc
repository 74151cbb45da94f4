#include "cli/reference/command_tree.h"

namespace faultline::cli {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in{text};
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

/// CLI11 has the name of the type and what its validators say in one text: `TEXT:{a,b}`, `N:UINT in [1 - 9]`.
void read_type(const std::string& type, OptionText& text) {
  text.value = type;
  if (const auto set = type.find(":{"); set != std::string::npos) {
    text.value = type.substr(0, set);
    text.choices = split(type.substr(set + 2, type.find('}', set) - set - 2), ',');
  } else if (const auto range = type.find(" in ["); range != std::string::npos) {
    text.value = type.substr(0, type.rfind(':', range));
    text.range = type.substr(range + 5, type.find(']', range) - range - 5);
    if (const auto dash = text.range.find(" - "); dash != std::string::npos)
      text.range.replace(dash, 3, " to ");
  } else if (type.contains('|')) {
    text.choices = split(type, '|');
  }
}

OptionText describe(const CLI::Option& option) {
  OptionText text{.help = option.get_description(),
                  .default_value = option.get_default_str(),
                  .required = option.get_required(),
                  .repeated = option.get_items_expected_max() > 1};
  if (option.nonpositional()) {
    for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  } else {
    text.names.push_back(option.get_name(true));
  }
  if (option.get_items_expected_max() > 0) read_type(option.get_type_name(), text);
  return text;
}

CommandText describe(const CLI::App& app, std::vector<std::string> path) {
  path.push_back(app.get_name());
  CommandText text{.path = std::move(path),
                   .help = app.get_description(),
                   .footer = app.get_footer(),
                   .needs_command = app.get_require_subcommand_min() > 0};
  for (const CLI::Option* option : app.get_options()) {
    // Every command has --help; it is enough that the program's own page says so.
    const bool again = app.get_parent() != nullptr && option == app.get_help_ptr();
    if (option->get_group().empty() || again) continue;
    (option->nonpositional() ? text.options : text.arguments).push_back(describe(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) text.commands.push_back(describe(*command, text.path));
  }
  return text;
}

}  // namespace

std::string CommandText::full_name() const {
  std::string name;
  for (const std::string& word : path) name += (name.empty() ? "" : " ") + word;
  return name;
}

CommandText describe(const CLI::App& app) { return describe(app, {}); }

std::vector<std::string> synopsis_of(const CommandText& command) {
  std::vector<std::string> words;
  std::string last;
  bool others = false;
  for (const OptionText& option : command.options) {
    const std::string word = option.names.back() + (option.value.empty() ? "" : " " + option.value);
    // All words after such an option are its own.
    if (option.required && option.value.contains("..."))
      last = word;
    else if (option.required)
      words.push_back(word);
    else
      others = true;
  }
  if (others) words.emplace_back("[OPTIONS]");
  for (const OptionText& argument : command.arguments) {
    const std::string word = argument.names.front() + (argument.repeated ? "..." : "");
    words.push_back(argument.required ? word : "[" + word + "]");
  }
  if (!command.commands.empty()) words.emplace_back(command.needs_command ? "COMMAND" : "[COMMAND]");
  if (!last.empty()) words.push_back(last);
  return words;
}

}  // namespace faultline::cli

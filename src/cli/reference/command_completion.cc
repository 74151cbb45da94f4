#include "cli/commands.h"
#include "cli/reference/command_tree.h"

namespace faultline::cli {
namespace {

enum class Values { nothing, anything, choices, files, directories };

/// What an option or an argument can be completed with. An option without a value: nothing.
Values values_of(const OptionText& option) {
  if (!option.choices.empty()) return Values::choices;
  if (option.value.empty()) return Values::nothing;
  const std::string what = option.names.front() + " " + option.value;
  if (what.contains("DIR")) return Values::directories;
  if (what.contains("FILE") || what.contains("PROGRAM")) return Values::files;
  return Values::anything;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string{"'\\''"} : std::string{c};
  return out + "'";
}

template <class Visit>
void for_each_command(const CommandText& command, const Visit& visit) {
  visit(command);
  for (const CommandText& below : command.commands) for_each_command(below, visit);
}

// bash -----------------------------------------------------------------------------------------------------

/// What `_faultline_values` prints: the first word says of which kind the values are.
std::string bash_values(const OptionText& option) {
  switch (values_of(option)) {
    case Values::choices:
      return "choices " + joined(option.choices);
    case Values::files:
      return "files";
    case Values::directories:
      return "directories";
    case Values::anything:
      return "anything";
    case Values::nothing:
      break;
  }
  return "";
}

std::string bash_cases(const CommandText& program, std::string (*words_of)(const CommandText&)) {
  std::string text;
  for_each_command(program, [&](const CommandText& command) {
    if (const std::string words = words_of(command); !words.empty())
      text += "    " + in_quotes(command.full_name()) + ") echo " + in_quotes(words) + " ;;\n";
  });
  return text;
}

std::string command_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const CommandText& below : command.commands) names.push_back(below.path.back());
  return joined(names);
}

std::string option_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return joined(names);
}

/// Of the first argument alone: no command here takes arguments of several kinds.
std::string argument_values(const CommandText& command) {
  return command.arguments.empty() ? "" : bash_values(command.arguments.front());
}

std::string bash_value_cases(const CommandText& program) {
  std::string text;
  for_each_command(program, [&](const CommandText& command) {
    for (const OptionText& option : command.options) {
      const std::string values = bash_values(option);
      if (values.empty()) continue;
      std::string patterns;
      for (const std::string& name : option.names)
        patterns += (patterns.empty() ? "" : " | ") + in_quotes(command.full_name() + " " + name);
      text += "    " + patterns + ") echo " + in_quotes(values) + " ;;\n";
    }
  });
  return text;
}

constexpr std::string_view kBashMain = R"bash(
# What an option of a command, or of one above it, takes: nothing is printed for a flag.
_faultline_values_from() {
  local command=$1 values
  while :; do
    values=$(_faultline_values "$command $2")
    [ -z "$values" ] || { echo "$values"; return; }
    [[ $command == *' '* ]] || return 0
    command=${command% *}
  done
}

_faultline_reply() {
  local kind=${1%% *} word=$2
  case $kind in
    choices) mapfile -t COMPREPLY < <(compgen -W "${1#choices }" -- "$word") ;;
    files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    directories) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
  esac
}

_faultline() {
  local command=faultline word=${COMP_WORDS[COMP_CWORD]} before='' i options values
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    # The shell takes --option=value apart.
    [ "${COMP_WORDS[i]}" != = ] || continue
    if [ -n "$before" ]; then
      before=''
    elif [[ ${COMP_WORDS[i]} == -* ]]; then
      [ -z "$(_faultline_values_from "$command" "${COMP_WORDS[i]}")" ] || before=${COMP_WORDS[i]}
    elif [[ " $(_faultline_commands "$command") " == *" ${COMP_WORDS[i]} "* ]]; then
      command="$command ${COMP_WORDS[i]}"
    fi
  done
  [ "$word" != = ] || word=''
  if [ -n "$before" ]; then
    _faultline_reply "$(_faultline_values_from "$command" "$before")" "$word"
  elif [[ $word == -* ]]; then
    options=$(_faultline_options "$command")
    while [[ $command == *' '* ]]; do
      command=${command% *}
      options="$options $(_faultline_options "$command")"
    done
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    values=$(_faultline_commands "$command")
    if [ -n "$values" ]; then values="choices $values"; else values=$(_faultline_arguments "$command"); fi
    _faultline_reply "$values" "$word"
  fi
}

complete -F _faultline faultline
)bash";

std::string bash_script(const CommandText& program) {
  const auto function = [](const std::string& name, const std::string& cases) {
    return "\n" + name + "() {\n  case $1 in\n" + cases + "  esac\n}\n";
  };
  return "# bash completion for faultline; made by: faultline completion bash\n" +
         function("_faultline_commands", bash_cases(program, command_names)) +
         function("_faultline_options", bash_cases(program, option_names)) +
         function("_faultline_arguments", bash_cases(program, argument_values)) +
         function("_faultline_values", bash_value_cases(program)) + std::string{kBashMain};
}

// zsh ------------------------------------------------------------------------------------------------------

std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || special.contains(c)) out += '\\';
    out += c;
  }
  return out;
}

/// `:MESSAGE:ACTION` of zsh's _arguments.
std::string zsh_value(const std::string& name, const OptionText& option) {
  std::string action;
  switch (values_of(option)) {
    case Values::choices:
      action = "(" + joined(option.choices) + ")";
      break;
    case Values::files:
      action = "_files";
      break;
    case Values::directories:
      action = "_files -/";
      break;
    case Values::anything:
    case Values::nothing:
      break;
  }
  return ":" + escaped(name, ":") + ":" + action;
}

std::string zsh_options(const CommandText& command) {
  std::string text;
  for (const OptionText& option : command.options) {
    for (const std::string& name : option.names) {
      std::string spec = option.repeated ? "*" : "";
      spec += name;
      if (!option.value.empty() && name.starts_with("--")) spec += "=";
      spec += "[" + escaped(option.help, "[]") + "]";
      if (!option.value.empty()) spec += zsh_value(option.value, option);
      text += "    " + in_quotes(spec) + " \\\n";
    }
  }
  return text;
}

std::string zsh_function_name(const CommandText& command) {
  std::string name = "_" + command.full_name();
  std::ranges::replace(name, ' ', '_');
  return name;
}

std::string zsh_arguments(const CommandText& command) {
  std::string text;
  for (const OptionText& argument : command.arguments)
    text += "    " + in_quotes((argument.repeated ? "*" : "") + zsh_value(argument.names.front(), argument)) +
            " \\\n";
  return text;
}

std::string zsh_dispatch(const CommandText& command) {
  std::string text = "  case $state in\n    command)\n      local -a commands=(\n";
  for (const CommandText& below : command.commands)
    text += "        " + in_quotes(below.path.back() + ":" + below.help) + "\n";
  text += "      )\n      _describe -t commands command commands ;;\n    rest)\n      case $line[1] in\n";
  for (const CommandText& below : command.commands)
    text += "        " + below.path.back() + ") " + zsh_function_name(below) + " ;;\n";
  return text + "      esac ;;\n  esac\n";
}

/// `above`: the options of the commands above it, which are good here too.
std::string zsh_functions(const CommandText& command, const std::string& above) {
  const std::string options = zsh_options(command) + above;
  std::string text = "\n" + zsh_function_name(command) + "() {\n";
  if (command.commands.empty()) {
    text += "  _arguments \\\n" + options + zsh_arguments(command) + "    && return\n}\n";
    return text;
  }
  text += "  local line state\n  _arguments -C \\\n" + options + "    ': :->command' \\\n    '*:: :->rest'\n";
  text += zsh_dispatch(command) + "}\n";
  for (const CommandText& below : command.commands) text += zsh_functions(below, options);
  return text;
}

std::string zsh_script(const CommandText& program) {
  return "#compdef faultline\n# zsh completion for faultline; made by: faultline completion zsh\n" +
         zsh_functions(program, "") +
         "\nif [ \"$funcstack[1]\" = _faultline ]; then\n  _faultline \"$@\"\nelse\n"
         "  compdef _faultline faultline\nfi\n";
}

}  // namespace

void add_completion_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("completion", "Print a completion script for bash or zsh");
  command->fallthrough();
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "The shell")->required()->check(CLI::IsMember({"bash", "zsh"}));
  command->callback([&app, &chosen, shell] {
    chosen = [&app, shell](Context&) -> Expected<CommandResult> {
      const std::string script = *shell == "bash" ? bash_script(describe(app)) : zsh_script(describe(app));
      return CommandResult{.text = script, .json = {{"shell", *shell}, {"script", script}}};
    };
  });
}

}  // namespace faultline::cli

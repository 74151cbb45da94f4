#include <cstdlib>
#include <ctime>
#include <fstream>

#include "cli/command_line.h"
#include "cli/support/failures.h"

namespace faultline::cli {
namespace {

/// Free text in mdoc, which wants each sentence on a line of its own and reads lines that begin with a dot
/// as its own.
std::string mdoc_text(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool line_begins = out.empty() || out.back() == '\n';
    if (line_begins && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    const bool sentence_ends = text[i] == ' ' && i > 1 && text[i - 1] == '.' && text[i - 2] != '.';
    if (text[i] == '\\')
      out += "\\e";
    else
      out += sentence_ends ? '\n' : text[i];
  }
  return out + "\n";
}

/// One argument of a macro.
std::string mdoc_word(const std::string& text) { return "\"" + text + "\""; }

/// The date of the page: today's, or the one that a reproducible build is told (SOURCE_DATE_EPOCH).
std::string page_date() {
  std::time_t now = std::time(nullptr);
  if (const char* given = std::getenv("SOURCE_DATE_EPOCH"))
    now = static_cast<std::time_t>(std::strtoll(given, nullptr, 10));
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  // Not %B, which knows other languages; mdoc's dates are in English.
  static constexpr std::array kMonths{"January", "February", "March",     "April",   "May",      "June",
                                      "July",    "August",   "September", "October", "November", "December"};
  return std::string{kMonths.at(static_cast<std::size_t>(parts.tm_mon))} + " " +
         std::to_string(parts.tm_mday) + ", " + std::to_string(parts.tm_year + 1900);
}

/// faultline-jobs
std::string page_name(const CommandText& command) {
  std::string name = command.full_name();
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c; });
  return text;
}

/// `.Op Ar ID ...`, from a word of the synopsis.
std::string synopsis_line(std::string word) {
  std::string line;
  if (word.starts_with('[')) {
    line = "Op ";
    word = word.substr(1, word.size() - 2);
  }
  if (word.starts_with("--")) {
    const auto value = word.find(' ');
    line += "Fl " + word.substr(1, value - 1);
    if (value != std::string::npos) line += " Ar " + mdoc_word(word.substr(value + 1));
  } else if (word.ends_with("...")) {
    line += "Ar " + word.substr(0, word.size() - 3) + " ...";
  } else {
    line += "Ar " + word;
  }
  return "." + line + "\n";
}

std::string synopsis(const CommandText& command) {
  std::string text = ".Nm " + mdoc_word(command.full_name()) + "\n";
  for (const std::string& word : synopsis_of(command)) text += synopsis_line(word);
  return text;
}

std::string sentence(const std::string& text) {
  return text.ends_with('.') || text.ends_with(']') || text.empty() ? text : text + ".";
}

std::string option_item(const OptionText& option) {
  std::string text = ".It";
  for (const std::string& name : option.names) {
    const bool first = name == option.names.front();
    text += (first ? " " : " , ") + (name.starts_with('-') ? "Fl " + name.substr(1) : "Ar " + name);
  }
  if (!option.value.empty() && option.names.front().starts_with('-'))
    text += " Ar " + mdoc_word(option.value);
  text += "\n" + mdoc_text(sentence(option.help));
  const bool spelled_out = option.value.contains('|');
  if (!option.choices.empty() && !spelled_out) {
    text += "One of";
    for (const std::string& choice : option.choices)
      text += (&choice == option.choices.data() ? " " : ", ") + choice;
    text += ".\n";
  }
  if (!option.range.empty()) text += "From " + option.range + ".\n";
  if (!option.default_value.empty()) text += "Default: " + option.default_value + ".\n";
  return text;
}

std::string option_list(const CommandText& command) {
  if (command.options.empty() && command.arguments.empty()) return "";
  std::string text = ".Bl -tag -width Ds\n";
  for (const OptionText& argument : command.arguments) text += option_item(argument);
  for (const OptionText& option : command.options) text += option_item(option);
  return text + ".El\n";
}

std::string footer(const CommandText& command) {
  if (command.footer.empty()) return "";
  std::string text = ".Bd -literal -offset indent\n";
  std::istringstream lines{command.footer};
  for (std::string line; std::getline(lines, line);) {
    std::string escaped;
    for (const char c : line) escaped += c == '\\' ? std::string{"\\e"} : std::string{c};
    if (escaped.starts_with('.') || escaped.starts_with('\'')) escaped.insert(0, "\\&");
    text += escaped + "\n";
  }
  return text + ".Ed\n";
}

/// The commands below a command, each with its options; those of the program have pages of their own.
std::string subcommands(const CommandText& command) {
  std::string text;
  for (const CommandText& below : command.commands) {
    text += ".Ss " + below.full_name() + "\n" + synopsis(below) + ".Pp\n";
    text += mdoc_text(sentence(below.help)) + footer(below);
    text += option_list(below) + subcommands(below);
  }
  return text;
}

std::string list_of_pages(const CommandText& program) {
  std::string text = ".Bl -tag -width Ds\n";
  for (const CommandText& command : program.commands)
    text += ".It Xr " + page_name(command) + " 1\n" + mdoc_text(sentence(command.help));
  return text + ".El\n";
}

constexpr const char* kEnvironment =
    ".Sh ENVIRONMENT\n.Bl -tag -width Ds\n"
    ".It Ev DATABASE_URL\nThe database, where\n.Fl -database\nis not given.\n"
    ".It Ev XDG_STATE_HOME\nWhere the private PostgreSQL has its directory; else\n.Pa ~/.local/state .\n"
    ".It Ev NO_COLOR\nIf set, no colours are used.\n"
    ".It Ev FAULTLINE_*\nSettings of a server, see\n.Xr faultline-serve 1 .\n.El\n";

constexpr const char* kExitStatus =
    ".Sh EXIT STATUS\n.Bl -tag -width Ds\n.It 0\nDone.\n.It 1\nFailed, or the answer is bad news.\n"
    ".It 2\nThe command line or a setting is wrong.\n.El\n";

std::string man_page(const CommandText& command) {
  const bool whole_program = command.path.size() == 1;
  std::string text = ".Dd " + page_date() + "\n.Dt " + upper(page_name(command)) +
                     " 1\n.Os \"faultline " FAULTLINE_VERSION "\"\n.Sh NAME\n.Nm " + page_name(command) +
                     "\n";
  text += ".Nd " + command.help + "\n.Sh SYNOPSIS\n" + synopsis(command);
  text += ".Sh DESCRIPTION\n" + mdoc_text(sentence(command.help)) + footer(command);
  if (!option_list(command).empty()) text += ".Pp\nThe options:\n" + option_list(command);
  if (whole_program)
    text += ".Sh COMMANDS\n" + list_of_pages(command) + kEnvironment;
  else if (!command.commands.empty())
    text += ".Sh COMMANDS\n" + subcommands(command);
  text += kExitStatus;
  if (!whole_program) text += ".Sh SEE ALSO\n.Xr faultline 1 ,\nfor the options of all commands\n";
  return text;
}

Expected<CommandResult> print_page(const CommandText& program, const std::vector<std::string>& words) {
  const CommandText* command = &program;
  for (const std::string& word : words) {
    const auto found = std::ranges::find_if(
        command->commands, [&](const CommandText& below) { return below.path.back() == word; });
    if (found == command->commands.end())
      return std::unexpected(wrong_usage(command->full_name() + " has no command \"" + word + "\"",
                                         "see: " + command->full_name() + " --help"));
    command = &*found;
  }
  const std::string page = man_page(*command);
  return CommandResult{.text = page, .json = {{"name", page_name(*command)}, {"mdoc", page}}};
}

Expected<CommandResult> write_pages(const CommandText& program, const std::filesystem::path& directory) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  nlohmann::json written = nlohmann::json::array();
  std::string text;
  const auto write = [&](const CommandText& command) {
    const std::filesystem::path path = directory / (page_name(command) + ".1");
    std::ofstream file{path};
    file << man_page(command);
    file.close();
    if (file.fail()) return false;
    text += path.string() + "\n";
    written.push_back(path.string());
    return true;
  };
  if (!write(program) || !std::ranges::all_of(program.commands, write))
    return std::unexpected(Failure{.code = "cannot_write",
                                   .message = "cannot write man pages to " + directory.string(),
                                   .hint = "name a directory that you may write to, with room on its disk"});
  return CommandResult{.text = std::move(text), .json = {{"files", std::move(written)}}};
}

struct ManRequest {
  std::vector<std::string> words;
  std::string directory;
};

}  // namespace

void add_man_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("man", "Print the manual page of a command, for man and mandoc");
  command->fallthrough();
  const auto request = std::make_shared<ManRequest>();
  auto* words = command->add_option("COMMAND", request->words, "The command (default: the program itself)");
  command->add_option("--all", request->directory, "Write the pages of all commands into this directory")
      ->type_name("DIR")
      ->excludes(words);
  command->callback([&chosen, request] {
    chosen = [request](Context&) {
      return request->directory.empty() ? print_page(describe_faultline(), request->words)
                                        : write_pages(describe_faultline(), request->directory);
    };
  });
}

}  // namespace faultline::cli

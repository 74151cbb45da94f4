#include "cli/command_line.h"
#include "cli/reference/reference.h"
#include "cli/support/failures.h"
#include "config/settings.h"

namespace faultline::cli {

std::string table_cell(std::string_view text) {
  std::string out;
  bool code = false;
  for (const char c : text) {
    if (c == '`') code = !code;
    const bool means_something = c == '|' || (!code && (c == '<' || c == '*'));
    if (means_something) out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string generated_note(std::string_view source) {
  return "<!-- Made from " + std::string{source} + " by `./dev docs`; a test compares them. -->\n\n";
}

namespace {

std::string option_row(const OptionText& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + name;
  if (!option.value.empty() && option.names.front().starts_with('-')) names += " " + option.value;
  std::string notes = (option.required ? "Required. " : "") + table_cell(option.help);
  if (!option.choices.empty() && !option.value.contains('|')) {
    notes += notes.ends_with('.') ? " One of " : "; one of ";
    for (const std::string& choice : option.choices)
      notes += (&choice == option.choices.data() ? "`" : ", `") + choice + "`";
  }
  if (!option.range.empty()) notes += " (" + option.range + ")";
  if (!option.default_value.empty()) notes += " [default: `" + option.default_value + "`]";
  // In a table a bar ends the cell, even in code.
  std::string code;
  for (const char c : names) code += c == '|' ? std::string{"\\|"} : std::string{c};
  return "| `" + code + "` | " + notes + " |\n";
}

void add_command(const CommandText& command, std::string& page) {
  page += "\n## " + command.full_name() + "\n\n" + command.help + ".\n\n```\n" + command.full_name();
  for (const std::string& word : synopsis_of(command)) page += " " + word;
  page += "\n```\n";
  if (!command.footer.empty()) page += "\n```\n" + command.footer + "\n```\n";
  if (!command.options.empty() || !command.arguments.empty()) page += "\n| | |\n| --- | --- |\n";
  for (const OptionText& argument : command.arguments) page += option_row(argument);
  for (const OptionText& option : command.options) page += option_row(option);
  for (const CommandText& below : command.commands) add_command(below, page);
}

}  // namespace

std::string cli_reference(const CommandText& program) {
  std::string page =
      generated_note("the program's own `--help`") +
      "# The command line\n\n"
      "Options of a command may stand after the commands below it: `faultline jobs list --json` is\n"
      "`faultline --json jobs list`. Exit codes: 0 done, 1 failed or bad news, 2 wrong usage. Errors go to "
      "standard\n"
      "error and say what to do. The Debian package has the same as manual pages; `faultline completion "
      "bash` or\n"
      "`zsh` prints a completion script.\n";
  add_command(program, page);
  return page;
}

std::string configuration_reference() {
  std::string page = generated_note("the table of settings") +
                     "# Settings of a server\n\n"
                     "Each setting of `faultline serve` has one name in three spellings: `http_body_max` in "
                     "the TOML file that\n"
                     "`--config` or `FAULTLINE_CONFIG` names, `FAULTLINE_HTTP_BODY_MAX` in the environment, "
                     "`--http-body-max` on the\n"
                     "command line. The command line comes before the environment, and that before the file. "
                     "Unknown names are\n"
                     "errors. `faultline config check` says what every setting is and where it comes from; "
                     "`faultline config\n"
                     "example` prints a file with all of them.\n\n"
                     "| setting | value | default | |\n| --- | --- | --- | --- |\n";
  for (const config::Setting& setting : config::all_settings()) {
    const std::string shown = setting.default_value.empty() ? "none" : "`" + setting.default_value + "`";
    page += "| `" + setting.name + "` | " + table_cell(setting.value_name) + " | " + shown + " | " +
            table_cell(setting.help) + " |\n";
  }
  page +=
      "\nBYTES is a number, or one with `KiB`, `MiB` or `GiB`. DURATION is a whole number with `ms`, `s`, "
      "`m`, `h` or\n"
      "`d`. BOOL is `true` or `false`; as a flag, `--watchdog=false`.\n";
  return page;
}

namespace {

struct ReferenceRequest {
  std::string page;
  std::string descriptors;
};

Expected<std::string> reference(const ReferenceRequest& request) {
  if (request.page == "cli") return cli_reference(describe_faultline());
  if (request.page == "configuration") return configuration_reference();
  if (request.page == "http") return http_reference();
  if (request.descriptors.empty())
    return std::unexpected(wrong_usage("the reference of gRPC is made from descriptors, and none are named",
                                       "add: --descriptors build/dev/faultline.protoset"));
  return grpc_reference(request.descriptors);
}

}  // namespace

void add_reference_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("reference", "Print a page of the reference documentation");
  command->fallthrough();
  const auto request = std::make_shared<ReferenceRequest>();
  command->add_option("PAGE", request->page)
      ->required()
      ->check(CLI::IsMember({"cli", "configuration", "http", "grpc"}));
  command->add_option("--descriptors", request->descriptors)->type_name("FILE");
  command->callback([&chosen, request] {
    chosen = [request](Context&) -> Expected<CommandResult> {
      auto page = reference(*request);
      if (!page) return std::unexpected(page.error());
      return CommandResult{.text = *page, .json = {{"markdown", *page}}};
    };
  });
}

}  // namespace faultline::cli

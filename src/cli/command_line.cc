#include "cli/command_line.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <string_view>

#include "cli/commands.h"
#include "cli/support/interrupt.h"

namespace faultline::cli {
namespace {

int to_int(ExitCode code) { return static_cast<int>(code); }

void add_global_options(CLI::App& app, GlobalOptions& options) {
  app.add_option("--database", options.database,
                 "PostgreSQL URL (default: $FAULTLINE_DATABASE, $DATABASE_URL, else the private PostgreSQL)")
      ->type_name("URL");
  app.add_option(
         "--data-dir", options.data_dir,
         "Directory of the private PostgreSQL (default: faultline in $XDG_STATE_HOME or ~/.local/state)")
      ->type_name("DIR");
  app.add_flag("--json", options.json, "Print one JSON object");
}

/// The command line could not be read, so whether JSON is wanted is seen in its words.
bool asks_for_json(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](std::string_view word) { return word == "--json"; });
}

std::string what_is_wrong(const CLI::ParseError& error, const CLI::App& app) {
  const auto left_over = app.remaining(true);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && !left_over.empty())
    return "there is no subcommand \"" + left_over.front() + "\"";
  return error.what();
}

/// CLI11 repeats the words it did not understand, and a mistyped --database has a URL beside it.
std::string without_passwords_of_words(std::string message, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) message = without_passwords_of(argv[i], std::move(message));
  return message;
}

/// How many words of the command line are ours: behind `work … --exec PROGRAM` stand the program's own.
int count_our_words(int argc, char** argv) {
  bool work = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    work = work || word == "work";
    if (work && word == "--exec") return std::min(argc, i + 2);
    if (work && word.starts_with("--exec=")) return i + 1;
  }
  return argc;
}

int run(const Action& action, const GlobalOptions& options) {
  const Output output{std::cout, std::cerr, options.json};
  Context context{options};
  const InterruptWatcher watcher{
      [&](int) { return context.interrupt() ? InterruptWatcher::Then::die : InterruptWatcher::Then::go_on; }};
  ExitCode code = ExitCode::ok;
  const auto tell = [&](const Failure& failure) {
    if (!context.interrupted()) output.print(failure);
    code = failure.exit_code;
  };
  const auto answer = action(context);
  if (answer) {
    output.print(*answer);
    code = answer->exit_code;
  } else {
    tell(answer.error());
  }
  // What was not written is not an answer: a full disk, or a reader that is gone.
  if (!std::cout.flush())
    tell({.code = "output_lost",
          .message = "standard output could not be written",
          .hint = "what the command changed is changed; see where its output goes"});
  if (const auto closed = context.close(); !closed) tell(closed.error());
  return to_int(code);
}

/// The tree of commands, with what it sets when it parses.
struct CommandTree {
  explicit CommandTree(const Program& program) : app(program.about) {
    app.name(program.name);
    app.set_version_flag("--version", program.name + " " FAULTLINE_VERSION);
    app.require_subcommand(1);
    app.fallthrough();
    add_global_options(app, options);
    program.add_commands(app, chosen);
  }
  CommandTree(const CommandTree&) = delete;
  CommandTree& operator=(const CommandTree&) = delete;
  ~CommandTree() = default;

  GlobalOptions options;
  Action chosen;
  CLI::App app;
};

/// Everybody on the machine can read the words of a command line as long as it runs.
void hide_passwords(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t value = word.starts_with("--") ? word.find('=') + 1 : 0;
    const std::string_view dsn = std::string_view{word}.substr(value);
    if (!looks_like_a_dsn(dsn)) continue;
    const std::string shown = word.substr(0, value) + without_passwords(dsn);
    if (shown == word) continue;
    for (std::size_t at = 0; at < word.size(); ++at) argv[i][at] = at < shown.size() ? shown[at] : '\0';
  }
}

int parse_and_run(const Program& program, int all_words, char** argv) {
  const int argc = count_our_words(all_words, argv);
  CommandTree tree{program};
  tree.options.program_arguments.assign(argv + argc, argv + all_words);
  try {
    tree.app.parse(argc, argv);
    hide_passwords(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return tree.app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    const Output output{std::cout, std::cerr, asks_for_json(argc, argv)};
    output.print(Failure{.code = "wrong_usage",
                         .message = without_passwords_of_words(what_is_wrong(error, tree.app), argc, argv),
                         .hint = "see: " + program.name + " --help"});
    return to_int(ExitCode::wrong_usage);
  }
  return run(tree.chosen, tree.options);
}

}  // namespace

Program faultline_program() {
  return {.name = "faultline",
          .about = "Faultline: a crash-safe job queue on PostgreSQL",
          .add_commands = [](CLI::App& app, Action& chosen) {
            add_up_command(app, chosen);
            add_enqueue_command(app, chosen);
            add_work_command(app, chosen);
            add_jobs_command(app, chosen);
            add_queues_command(app, chosen);
            add_dead_command(app, chosen);
            add_stale_command(app, chosen);
            add_audit_command(app, chosen);
            add_top_command(app, chosen);
            add_doctor_command(app, chosen);
            add_serve_command(app, chosen);
            add_keys_command(app, chosen);
            add_config_command(app, chosen);
            add_migrate_command(app, chosen);
            add_pg_command(app, chosen);
            add_drill_command(app, chosen);
            add_completion_command(app, chosen);
            add_version_command(app, chosen);
          }};
}

CommandText describe_faultline() { return describe(CommandTree{faultline_program()}.app); }

int run_command_line(const Program& program, int argc, char** argv) {
  try {
    return parse_and_run(program, argc, argv);
  } catch (const std::exception& error) {
    std::cerr << program.name << ": " << error.what() << '\n';
    return 1;
  }
}

}  // namespace faultline::cli

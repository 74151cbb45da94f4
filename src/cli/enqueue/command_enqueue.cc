#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>

#include "cli/commands.h"
#include "cli/enqueue/job_import.h"
#include "cli/enqueue/progress_bar.h"
#include "cli/support/failures.h"
#include "cli/support/field_flags.h"
#include "codec/encode.h"
#include "config/values.h"

namespace faultline::cli {
namespace {

/// What the command line says, before it is read.
struct Request {
  // One job.
  std::string kind;
  std::string payload = "null";
  bool bytes = false;
  FieldFlags<NewJob> options;
  // Many.
  std::string file;
  std::string import_id;
  bool dry_run = false;
  bool skip_bad = false;
};

/// All of it, or nothing if it cannot be read.
std::optional<std::string> read_all(std::istream& in) {
  std::ostringstream content;
  // To copy nothing would count as a failure.
  if (in.good() && in.peek() != std::istream::traits_type::eof()) content << in.rdbuf();
  const bool empty = in.eof() && !in.bad();
  if (!empty && (in.fail() || content.fail())) return std::nullopt;
  return content.str();
}

Expected<std::string> read_payload(const std::string& argument) {
  const bool from_input = argument == "-";
  if (!from_input && !argument.starts_with('@')) return argument;
  const std::string path = from_input ? "standard input" : argument.substr(1);
  std::ifstream file;
  if (!from_input) file.open(path, std::ios::binary);
  if (auto content = read_all(from_input ? std::cin : file)) return std::move(*content);
  return std::unexpected(Failure{.code = "cannot_read",
                                 .message = "cannot read the payload from " + config::quoted(path),
                                 .hint = "check the file's name and permissions"});
}

/// The line's end that `echo` adds is not meant.
void trim_json(std::string& text) { text.erase(text.find_last_not_of(" \t\r\n") + 1); }

Expected<NewJob> to_job(const Request& request) {
  NewJob job{.kind = request.kind, .encoding = request.bytes ? Encoding::bytes : Encoding::json};
  if (auto read = request.options.read(job); !read) return std::unexpected(read.error());
  auto payload = read_payload(request.payload);
  if (!payload) return std::unexpected(payload.error());
  job.payload = std::move(*payload);
  if (!request.bytes) trim_json(job.payload);
  return job;
}

Expected<CommandResult> enqueue_one(Context& context, const Request& request) {
  const auto job = to_job(request);
  if (!job) return std::unexpected(job.error());
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  const auto submission = store->enqueue(*job);
  if (!submission) {
    Failure failure = to_failure(submission.error());
    if (submission.error().code == ErrorCode::unknown_queue)
      failure.hint = "make it with: faultline queues set " + job->queue + " --create";
    return std::unexpected(std::move(failure));
  }
  const std::string id = submission->job.to_string();
  if (submission->status == Submission::Status::conflict)
    return std::unexpected(Failure{.code = "conflict",
                                   .message = "the idempotency key names another job: " + id,
                                   .hint = "send the same kind and payload as before, or use another key"});
  JsonWriter json;
  codec::write(json, *submission);
  const bool created = submission->status == Submission::Status::created;
  return CommandResult{.text = id + (created ? " created\n" : " existing\n"), .json_text = json.take()};
}

std::string import_text(const ImportReport& report, bool dry_run) {
  std::string text;
  for (const std::string& problem : report.problems) text += problem + "\n";
  if (report.bad + report.conflicts > report.problems.size()) text += "…\n";
  text += grouped(report.lines) + " lines: ";
  if (dry_run) return text + grouped(report.lines - report.bad) + " good, " + grouped(report.bad) + " bad.\n";
  text += grouped(report.created) + " created, " + grouped(report.existing) + " existing";
  if (report.conflicts > 0) text += ", " + grouped(report.conflicts) + " conflicts";
  if (report.bad > 0) text += ", " + grouped(report.bad) + " bad";
  text += ".\n";
  if (report.conflicts > 0 || (report.existing > 0 && report.created == 0))
    text += "Lines that an earlier run of the import " + report.import_id +
            " added are not added again. If this is another import, give it a name: --import-id NAME\n";
  return text;
}

Expected<CommandResult> enqueue_file(Context& context, const Request& request) {
  const ImportOptions options{.path = request.file,
                              .import_id = request.import_id,
                              .skip_bad = request.skip_bad,
                              .quiet = context.options().json};
  std::optional<Store> store;
  if (!request.dry_run) {
    auto opened = context.open_store();
    if (!opened) return std::unexpected(opened.error());
    store.emplace(std::move(*opened));
  }
  const auto report = import_jobs(store ? &*store : nullptr, options);
  if (!report) return std::unexpected(report.error());
  return CommandResult{.text = import_text(*report, request.dry_run),
                       .json = {{"import_id", report->import_id},
                                {"dry_run", request.dry_run},
                                {"lines", report->lines},
                                {"created", report->created},
                                {"existing", report->existing},
                                {"conflicts", report->conflicts},
                                {"bad", report->bad},
                                {"problems", report->problems}},
                       .exit_code = report->bad + report->conflicts > 0 ? ExitCode::failure : ExitCode::ok};
}

void add_job_options(CLI::App& command, Request& request, std::vector<CLI::Option*>& of_one) {
  of_one.push_back(command.add_option("KIND", request.kind, std::string{facts::kKind.about}));
  of_one.push_back(command.add_option("PAYLOAD", request.payload,
                                      "JSON; - reads it from standard input, @FILE from a file"));
  of_one.push_back(command.add_flag("--bytes", request.bytes, "The payload is bytes, and need not be JSON"));
  std::ranges::copy(request.options.add_to(command), std::back_inserter(of_one));
}

void add_file_options(CLI::App& command, Request& request, const std::vector<CLI::Option*>& of_one) {
  auto* file = command.add_option("--file", request.file,
                                  "Add many: JSON lines as POST /v1/jobs takes them; - is standard input");
  file->type_name("FILE");
  for (CLI::Option* option : of_one) file->excludes(option);
  command.add_option("--import-id", request.import_id, "Names the import: run again, it adds nothing twice")
      ->type_name("NAME")
      ->needs(file);
  command.add_flag("--dry-run", request.dry_run, "Check all lines and add nothing; needs no database")
      ->needs(file);
  command.add_flag("--skip-bad", request.skip_bad, "Pass over bad lines, and report them at the end")
      ->needs(file);
}

}  // namespace

void add_enqueue_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("enqueue", "Add one job, or many from a file");
  command->fallthrough();
  const auto request = std::make_shared<Request>();
  std::vector<CLI::Option*> of_one;
  add_job_options(*command, *request, of_one);
  add_file_options(*command, *request, of_one);
  command->footer(
      "With --file, lines are added in batches, each whole or not at all. A line without an idempotency_key "
      "gets "
      "one of the import's id and its line number, so the same import can be run again after any "
      "interruption, "
      "and adds what is missing, for as long as the queue keeps the keys of jobs that ended (key retention). "
      "The "
      "import's id is a hash of the file's path and first line; input that cannot be read again, such as a "
      "pipe, "
      "gets a new one each time. --import-id sets it. A bad line ends the import, with nothing of its batch "
      "added. Exits with 1 if a line was bad or in conflict.");
  command->callback([&chosen, request] {
    chosen = [request](Context& context) -> Expected<CommandResult> {
      if (!request->file.empty()) return enqueue_file(context, *request);
      if (request->kind.empty())
        return std::unexpected(wrong_usage("it is not said what to enqueue", "give a KIND, or --file FILE"));
      return enqueue_one(context, *request);
    };
  });
}

}  // namespace faultline::cli

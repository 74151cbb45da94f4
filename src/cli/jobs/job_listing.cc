#include "cli/jobs/job_listing.h"

#include <memory>

#include "cli/jobs/job_options.h"
#include "cli/jobs/job_text.h"
#include "cli/support/failures.h"
#include "codec/encode.h"
#include "service/cursor.h"

namespace faultline::cli {
namespace {

struct Request {
  FilterOptions filter;
  std::size_t limit = 50;
  std::string before;
};

/// An id, or a cursor of an answer in JSON.
Expected<void> begin_before(ListRequest& request, const std::string& before) {
  if (before.empty()) return {};
  if (const auto id = Uuid::parse(before)) {
    request.before = JobId{*id};
    return {};
  }
  const auto id = service::from_cursor(request, before);
  if (!id)
    return std::unexpected(wrong_usage("--before: it is neither a job's id nor a cursor of this listing",
                                       "give the last id of the page before"));
  request.before = *id;
  return {};
}

std::string page_json(const ListRequest& request, const std::vector<JobSummary>& jobs) {
  JsonWriter out;
  out.begin_object();
  codec::write_array(out, "jobs", jobs);
  if (jobs.size() == request.limit)
    out.key("next_cursor").string(service::to_cursor(request, jobs.back().id));
  out.end_object();
  return out.take();
}

std::string page_text(const ListRequest& request, const std::vector<JobSummary>& jobs, bool errors) {
  if (jobs.empty()) return "There are no such jobs.\n";
  std::string text = jobs_table(jobs, errors);
  if (jobs.size() == request.limit)
    text += "There may be more: add --before " + jobs.back().id.to_string() + "\n";
  return text;
}

Expected<CommandResult> list(Context& context, const Request& asked, std::optional<JobState> only) {
  auto request = to_request(asked.filter);
  if (!request) return std::unexpected(request.error());
  if (only) request->state = only;
  request->limit = asked.limit;
  if (auto begun = begin_before(*request, asked.before); !begun) return std::unexpected(begun.error());
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  const auto jobs = store->list(*request);
  if (!jobs) return std::unexpected(to_failure(jobs.error()));
  return CommandResult{.text = page_text(*request, *jobs, only == JobState::dead),
                       .json_text = page_json(*request, *jobs)};
}

}  // namespace

void add_listing(CLI::App& command, Action& chosen, std::optional<JobState> only) {
  auto* verb = command.add_subcommand(
      "list", only ? "List " + std::string{to_string(*only)} + " jobs, the newest first"
                   : std::string{"List jobs, the newest first"});
  verb->fallthrough();
  const auto request = std::make_shared<Request>();
  add_queue_and_kind(*verb, request->filter);
  if (!only) add_state(*verb, request->filter);
  verb->add_option("--limit", request->limit, "Rows at most, 1 to 1000")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--before", request->before, "Begin after this job: the last id of the previous page")
      ->type_name("ID");
  verb->callback([&chosen, request, only] {
    chosen = [request, only](Context& context) { return list(context, *request, only); };
  });
}

}  // namespace faultline::cli

#include "cli/jobs/job_listing.h"

#include <algorithm>
#include <iterator>
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

std::string page_json(const ListRequest& request, const JobPage& page) {
  JsonWriter out;
  out.begin_object();
  codec::write_array(out, "jobs", page.jobs);
  if (page.next) out.key("next_cursor").string(service::to_cursor(request, *page.next));
  out.key("looked_at").integer(static_cast<std::int64_t>(page.looked_at));
  out.end_object();
  return out.take();
}

std::string page_text(const JobPage& page, const std::string& database) {
  std::string text = page.jobs.empty() ? "" : jobs_table(page.jobs);
  if (page.next)
    text += (page.jobs.empty() ? "There are none among the " + std::to_string(page.looked_at) +
                                     " jobs that were looked at. "
                               : std::string{}) +
            "There may be more: add --before " + page.next->to_string() + "\n";
  return text.empty() ? "There are no such jobs in " + database + ".\n" : text;
}

/// A mistyped name is not an empty queue.
Expected<void> check_queue(Store& store, const std::string& queue, const std::string& database) {
  const auto found = store.counts(queue);
  if (!found) return std::unexpected(to_failure(found.error()));
  if (!found->empty()) return {};
  return std::unexpected(Failure{.code = "unknown_queue",
                                 .message = "there is no queue \"" + queue + "\" in " + database,
                                 .hint = "see them with: faultline queues list"});
}

/// A page of the store ends after so many jobs that were looked at; a person wants a full one, within reason.
faultline::Expected<JobPage> full_page(Store& store, ListRequest request) {
  constexpr std::size_t kLooksMax = 1'000'000;
  JobPage whole{};
  do {
    auto page = store.list(request);
    if (!page) return page;
    whole.looked_at += page->looked_at;
    whole.next = page->next;
    std::ranges::move(page->jobs, std::back_inserter(whole.jobs));
    request.limit -= page->jobs.size();
    request.before = page->next;
  } while (whole.next && request.limit > 0 && whole.looked_at < kLooksMax);
  return whole;
}

Expected<CommandResult> list(Context& context, const Request& asked, std::optional<JobState> only) {
  auto request = to_request(asked.filter);
  if (!request) return std::unexpected(request.error());
  if (only) request->state = only;
  request->limit = asked.limit;
  if (auto begun = begin_before(*request, asked.before); !begun) return std::unexpected(begun.error());
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  const auto page = full_page(*store, *request);
  if (!page) return std::unexpected(to_failure(page.error()));
  if (page->jobs.empty() && request->queue) {
    if (auto known = check_queue(*store, *request->queue, context.database_name()); !known)
      return std::unexpected(known.error());
  }
  return CommandResult{.text = page_text(*page, context.database_name()),
                       .json_text = page_json(*request, *page)};
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

#include <algorithm>
#include <array>
#include <charconv>

#include "base/traceparent.h"
#include "http/handlers.h"
#include "service/encode.h"

namespace faultline::http {
namespace {

using service::Problem;
using service::ServiceResult;

Response submission_response(std::vector<Submission> submissions) {
  const Submission& submission = submissions.front();
  if (submission.status == Submission::Status::conflict) {
    return problem_response(
        {.code = service::Code::conflict,
         .message = "the idempotency key names another job: " + submission.job.to_string(),
         .hint = "send the same kind and payload as before, or use another key",
         .job = submission.job});
  }
  JsonWriter out;
  codec::write(out, submission);
  Response response{.status = submission.status == Submission::Status::created ? 201 : 200,
                    .body = out.take()};
  response.headers.emplace_back("Location", "/v1/jobs/" + submission.job.to_string());
  return response;
}

Response batch_response(const std::vector<Submission>& submissions) {
  const bool any_new = std::ranges::any_of(
      submissions, [](const Submission& each) { return each.status == Submission::Status::created; });
  return {.status = any_new ? 201 : 200, .body = codec::list_body("submissions", submissions)};
}

/// The key may stand in the header or in the body, and must be the same if in both.
std::optional<Problem> take_key(std::string_view header, Jobs& jobs) {
  if (header.empty()) return std::nullopt;
  if (jobs.batch) {
    return invalid("the header Idempotency-Key goes with a single job",
                   "give each job of a batch its idempotency_key");
  }
  std::optional<std::string>& key = jobs.jobs.front().idempotency_key;
  if (key && *key != header)
    return invalid("idempotency_key: the header Idempotency-Key says something else");
  key = header;
  return std::nullopt;
}

/// The header is for those that name no trace of their own. One that is wrong counts as not there, as W3C has
/// it.
void take_traceparent(std::string_view header, std::vector<NewJob>& jobs) {
  const auto context = TraceContext::parse_header(header);
  if (!context) return;
  for (NewJob& job : jobs) {
    if (!job.traceparent) job.traceparent = context->to_string();
  }
}

Problem no_such_job() {
  return {.code = service::Code::not_found,
          .message = "there is no such job",
          .hint = "finished jobs are kept for their queue's retention"};
}

std::optional<JobId> job_of(const Call& call) {
  const auto id = Uuid::parse(call.params.front());
  if (id) return JobId{*id};
  refuse(call, no_such_job());
  return std::nullopt;
}

ServiceResult<std::size_t> parse_limit(std::string_view text) {
  std::size_t limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (error != std::errc{} || end != text.data() + text.size() || limit < 1 || limit > 1'000) {
    return std::unexpected(invalid("limit: 1 to 1000 are allowed"));
  }
  return limit;
}

struct Listing {
  ListRequest request{};
  std::string cursor{};
};

ServiceResult<Listing> parse_listing(std::string_view query, std::span<const std::string_view> known) {
  auto parameters = parse_query(query, known);
  if (!parameters) return std::unexpected(parameters.error());
  Listing listing;
  for (auto& [name, value] : *parameters) {
    if (value.empty()) continue;  // a form that was left blank
    if (name == "queue") {
      listing.request.queue = std::move(value);
    } else if (name == "kind") {
      listing.request.kind = std::move(value);
    } else if (name == "cursor") {
      listing.cursor = std::move(value);
    } else if (name == "state") {
      listing.request.state = parse_job_state(value);
      if (!listing.request.state) {
        return std::unexpected(invalid(
            "state: one of scheduled, available, running, held, dead, succeeded, cancelled is expected"));
      }
    } else {
      const auto limit = parse_limit(value);
      if (!limit) return std::unexpected(limit.error());
      listing.request.limit = *limit;
    }
  }
  return listing;
}

template <class T>
Response page_response(std::string_view name, const std::vector<T>& items,
                       const std::optional<std::string>& next,
                       std::optional<std::size_t> looked_at = std::nullopt) {
  JsonWriter out;
  out.begin_object();
  codec::write_array(out, name, items);
  if (next) out.key("next_cursor").string(*next);
  if (looked_at) out.key("looked_at").integer(static_cast<std::int64_t>(*looked_at));
  out.end_object();
  return {.body = out.take()};
}

template <class Status>
Response changed_response(const service::Changed<Status>& changed) {
  return {.body = service::changed_json(changed)};
}

/// Of a change to one job.
template <class Status>
Response change_response(const service::Changed<Status>& changed) {
  const auto& [id, status] = changed.items.front();
  if (status == Status::not_found) return problem_response(no_such_job());
  JsonWriter out;
  out.begin_object();
  out.key("id").string(id.to_string());
  out.key("status").string(to_string(status));
  out.end_object();
  return {.body = out.take()};
}

Response queue_response(const service::QueueOverview& queue) {
  JsonWriter out;
  service::write(out, queue);
  return {.body = out.take()};
}

}  // namespace

void post_jobs(const Call& call) {
  const bool ndjson =
      equal_ignoring_case(media_type(call.request.header("Content-Type")), "application/x-ndjson");
  auto jobs = accepted(call, decode_jobs(call.request.body, ndjson, call.limits()));
  if (!jobs) return;
  if (jobs->jobs.empty()) {
    call.exchange->respond(batch_response({}));
    return;
  }
  if (const auto problem = take_key(call.request.header("Idempotency-Key"), *jobs))
    return refuse(call, *problem);
  take_traceparent(call.request.header("traceparent"), jobs->jobs);
  call.service.enqueue(call.who, std::move(jobs->jobs),
                       jobs->batch ? answer_with<std::vector<Submission>>(call, &batch_response)
                                   : answer_with<std::vector<Submission>>(call, &submission_response));
}

void get_job(const Call& call) {
  const auto id = job_of(call);
  if (!id) return;
  call.service.job(call.who, *id, answer_with<JobHistory>(call, [](const JobHistory& history) {
                     JsonWriter out;
                     codec::write(out, history);
                     return Response{.body = out.take()};
                   }));
}

void get_jobs(const Call& call) {
  constexpr std::array<std::string_view, 5> kKnown{"queue", "state", "kind", "limit", "cursor"};
  auto listing = accepted(call, parse_listing(call.request.query, kKnown));
  if (!listing) return;
  call.service.list(call.who, std::move(listing->request), std::move(listing->cursor),
                    answer_with<service::Page>(call, [](const service::Page& page) {
                      return page_response("jobs", page.jobs, page.next, page.looked_at);
                    }));
}

void post_cancel(const Call& call) {
  const auto id = job_of(call);
  if (!id) return;
  auto change = accepted(call, decode_change(call.request.body, true, call.limits()));
  if (!change) return;
  call.service.cancel(call.who, {.ids = {*id}, .call = change->selection.call}, std::move(change->reason),
                      answer_with<service::Changed<CancelStatus>>(call, &change_response<CancelStatus>));
}

void post_cancel_many(const Call& call) {
  auto selected = accepted(call, decode_selection(call.request.body, true, call.limits()));
  if (!selected) return;
  call.service.cancel(call.who, std::move(selected->selection), std::move(selected->reason),
                      answer_with<service::Changed<CancelStatus>>(call, &changed_response<CancelStatus>));
}

void post_requeue(const Call& call) {
  const auto id = job_of(call);
  if (!id) return;
  auto change = accepted(call, decode_change(call.request.body, false, call.limits()));
  if (!change) return;
  call.service.requeue(call.who, {.ids = {*id}, .call = change->selection.call},
                       answer_with<service::Changed<RequeueStatus>>(call, &change_response<RequeueStatus>));
}

void post_requeue_many(const Call& call) {
  auto selected = accepted(call, decode_selection(call.request.body, false, call.limits()));
  if (!selected) return;
  call.service.requeue(call.who, std::move(selected->selection),
                       answer_with<service::Changed<RequeueStatus>>(call, &changed_response<RequeueStatus>));
}

void post_purge(const Call& call) {
  const auto id = job_of(call);
  if (!id) return;
  auto change = accepted(call, decode_change(call.request.body, false, call.limits()));
  if (!change) return;
  call.service.purge(call.who, {.ids = {*id}, .call = change->selection.call},
                     answer_with<service::Changed<PurgeStatus>>(call, &change_response<PurgeStatus>));
}

void post_purge_many(const Call& call) {
  auto selected = accepted(call, decode_selection(call.request.body, false, call.limits()));
  if (!selected) return;
  call.service.purge(call.who, std::move(selected->selection),
                     answer_with<service::Changed<PurgeStatus>>(call, &changed_response<PurgeStatus>));
}

void post_decide(const Call& call) {
  const auto id = job_of(call);
  if (!id) return;
  auto finding = accepted(call, decode_finding(call.request.body, call.limits()));
  if (!finding) return;
  finding->job = *id;
  call.service.decide_effect(
      call.who, *finding,
      answer_with<DecideStatus>(call, [id = *id, key = finding->key](DecideStatus status) {
        if (status == DecideStatus::not_found) {
          return problem_response({.code = service::Code::not_found,
                                   .message = "there is no such job, or it has no such effect on record",
                                   .hint = "GET /v1/jobs/{id} shows the effects that were begun"});
        }
        JsonWriter out;
        out.begin_object();
        out.key("id").string(id.to_string());
        out.key("key").string(key);
        out.key("status").string(to_string(status));
        out.end_object();
        return Response{.body = out.take()};
      }));
}

void get_queues(const Call& call) {
  call.service.queues(call.who, answer_with<std::vector<service::QueueOverview>>(
                                    call, [](const std::vector<service::QueueOverview>& queues) {
                                      return Response{.body = codec::list_body("queues", queues)};
                                    }));
}

static void set_queue(const Call& call, bool make) {
  auto settings = accepted(call, decode_queue_settings(call.request.body, call.limits()));
  if (!settings) return;
  call.service.set_queue(call.who, call.params.front(), *settings, make,
                         answer_with<service::QueueOverview>(call, &queue_response));
}

void patch_queue(const Call& call) { set_queue(call, /*make=*/false); }
void put_queue(const Call& call) { set_queue(call, /*make=*/true); }

void delete_queue(const Call& call) {
  call.service.delete_queue(call.who, call.params.front(),
                            answer_with<QueueDeletion>(call, [](const QueueDeletion& deletion) {
                              JsonWriter out;
                              out.begin_object();
                              out.key("status").string(to_string(deletion.status));
                              out.end_object();
                              return Response{.body = out.take()};
                            }));
}

void get_stale(const Call& call) {
  constexpr std::array<std::string_view, 2> kKnown{"limit", "cursor"};
  auto listing = accepted(call, parse_listing(call.request.query, kKnown));
  if (!listing) return;
  call.service.stale_writes(
      call.who, listing->request.limit, std::move(listing->cursor),
      answer_with<service::Service::StalePage>(call, [](const service::Service::StalePage& page) {
        return page_response("stale_writes", page.writes, page.next);
      }));
}

}  // namespace faultline::http

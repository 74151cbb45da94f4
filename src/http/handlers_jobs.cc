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

/// Who sends many jobs reads the status first, and only it may tell that some were not added.
Response batch_response(const std::vector<Submission>& submissions) {
  const auto any = [&](Submission::Status status) {
    return std::ranges::find(submissions, status, &Submission::status) != submissions.end();
  };
  const int status = any(Submission::Status::conflict) ? 207 : any(Submission::Status::created) ? 201 : 200;
  return {.status = status, .body = codec::list_body("submissions", submissions)};
}

/// The key may stand in the header or in the body, and must be the same if in both.
std::optional<Problem> take_key(const Request& request, Jobs& jobs) {
  const auto given = request.find_header("Idempotency-Key");
  if (!given) return std::nullopt;
  const std::string_view header = *given;
  if (header.empty()) {
    return malformed("the header Idempotency-Key is empty",
                     "a variable of the program may be; leave the header out to send a job without a key");
  }
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

SentAgain sent_again(const service::Selection& selection) {
  return selection.call.is_nil() ? SentAgain::is_another : SentAgain::is_the_same;
}

constexpr std::string_view kTokensUsedUp = "the job's fencing tokens are used up; submit it as a new one";

/// Why a job is as it was; nothing if it was changed.
std::optional<std::string_view> why_unchanged(CancelStatus status) {
  switch (status) {
    case CancelStatus::finished:
      return "the job had ended before";
    case CancelStatus::token_exhausted:
      return kTokensUsedUp;
    default:
      return std::nullopt;
  }
}
std::optional<std::string_view> why_unchanged(RequeueStatus status) {
  switch (status) {
    case RequeueStatus::live:
      return "the job is waiting or running: there is nothing to requeue";
    case RequeueStatus::token_exhausted:
      return kTokensUsedUp;
    default:
      return std::nullopt;
  }
}
std::optional<std::string_view> why_unchanged(PurgeStatus status) {
  switch (status) {
    case PurgeStatus::not_dead:
      return "only dead jobs are purged, and this one is not";
    case PurgeStatus::token_exhausted:
      return kTokensUsedUp;
    default:
      return std::nullopt;
  }
}

/// Of a change to one job. One that could not be made is a conflict with what the job is, which the answer
/// says.
template <class Status>
service::Done<service::Changed<Status>> answer_change(const Call& call, SentAgain again) {
  return [exchange = call.exchange, &service = call.service, who = call.who,
          again](service::ServiceResult<service::Changed<Status>> answer) {
    if (!answer) return exchange->respond(failed_response(std::move(answer.error()), again));
    const auto [id, status] = answer->items.front();
    if (status == Status::not_found) return exchange->respond(problem_response(no_such_job()));
    if (const auto why = why_unchanged(status)) {
      return service.job(who, id, [exchange, why, id](const service::ServiceResult<JobHistory>& found) {
        const Problem problem{.code = service::Code::conflict,
                              .message = std::string{*why},
                              .hint = "GET /v1/jobs/{id} has its history",
                              .job = id};
        exchange->respond(problem_response(problem, [&](JsonWriter& out) {
          if (found) out.key("state").string(to_string(found->job.state));
        }));
      });
    }
    JsonWriter out;
    out.begin_object();
    out.key("job_id").string(id.to_string());
    out.key("status").string(to_string(status));
    out.end_object();
    exchange->respond({.body = out.take()});
  };
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
  if (const auto problem = take_key(call.request, *jobs)) return refuse(call, *problem);
  take_traceparent(call.request.header("traceparent"), jobs->jobs);
  const bool all_have_keys =
      std::ranges::all_of(jobs->jobs, [](const NewJob& job) { return job.idempotency_key.has_value(); });
  const SentAgain again = all_have_keys ? SentAgain::is_the_same : SentAgain::is_another;
  call.service.enqueue(call.who, std::move(jobs->jobs),
                       jobs->batch ? answer_with<std::vector<Submission>>(call, &batch_response, again)
                                   : answer_with<std::vector<Submission>>(call, &submission_response, again));
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
                      answer_change<CancelStatus>(call, sent_again(change->selection)));
}

void post_cancel_many(const Call& call) {
  auto selected = accepted(call, decode_selection(call.request.body, true, call.limits()));
  if (!selected) return;
  auto answer = answer_with<service::Changed<CancelStatus>>(call, &changed_response<CancelStatus>,
                                                            sent_again(selected->selection));
  call.service.cancel(call.who, std::move(selected->selection), std::move(selected->reason),
                      std::move(answer));
}

void post_requeue(const Call& call) {
  const auto id = job_of(call);
  if (!id) return;
  auto change = accepted(call, decode_change(call.request.body, false, call.limits()));
  if (!change) return;
  call.service.requeue(call.who, {.ids = {*id}, .call = change->selection.call},
                       answer_change<RequeueStatus>(call, sent_again(change->selection)));
}

void post_requeue_many(const Call& call) {
  auto selected = accepted(call, decode_selection(call.request.body, false, call.limits()));
  if (!selected) return;
  auto answer = answer_with<service::Changed<RequeueStatus>>(call, &changed_response<RequeueStatus>,
                                                             sent_again(selected->selection));
  call.service.requeue(call.who, std::move(selected->selection), std::move(answer));
}

void post_purge(const Call& call) {
  const auto id = job_of(call);
  if (!id) return;
  auto change = accepted(call, decode_change(call.request.body, false, call.limits()));
  if (!change) return;
  call.service.purge(call.who, {.ids = {*id}, .call = change->selection.call},
                     answer_change<PurgeStatus>(call, sent_again(change->selection)));
}

void post_purge_many(const Call& call) {
  auto selected = accepted(call, decode_selection(call.request.body, false, call.limits()));
  if (!selected) return;
  auto answer = answer_with<service::Changed<PurgeStatus>>(call, &changed_response<PurgeStatus>,
                                                           sent_again(selected->selection));
  call.service.purge(call.who, std::move(selected->selection), std::move(answer));
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
        out.key("job_id").string(id.to_string());
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

#pragma once

#include "http/problem.h"
#include "http/router.h"

namespace faultline::http {

// The handlers of the router's table, by what they are for.

// handlers_state.cc: the server itself.
void get_health(const Call& call);
void get_ready(const Call& call);
void get_metrics(const Call& call);
void get_openapi(const Call& call);
// handlers_jobs.cc: producing, looking and operating.
void post_jobs(const Call& call);
void get_job(const Call& call);
void get_jobs(const Call& call);
void post_cancel(const Call& call);
void post_cancel_many(const Call& call);
void post_requeue(const Call& call);
void post_requeue_many(const Call& call);
void post_purge(const Call& call);
void post_purge_many(const Call& call);
void post_decide(const Call& call);
void get_queues(const Call& call);
void patch_queue(const Call& call);
void put_queue(const Call& call);
void delete_queue(const Call& call);
void get_stale(const Call& call);
// handlers_events.cc
void get_events(const Call& call);
// handlers_work.cc: workers.
void post_claim(const Call& call);
void post_heartbeat(const Call& call);
void post_settle(const Call& call);
void post_progress(const Call& call);
void post_check(const Call& call);
void post_resolve(const Call& call);
void post_effects_begin(const Call& call);
void post_effects_record(const Call& call);
void post_effects_forget(const Call& call);

// What they share.

inline void refuse(const Call& call, const service::Problem& problem) {
  call.exchange->respond(problem_response(problem));
}

/// The value, or nothing after the client was told the problem.
template <class T>
std::optional<T> accepted(const Call& call, service::ServiceResult<T> answer) {
  if (answer) return std::move(*answer);
  refuse(call, answer.error());
  return std::nullopt;
}

/// A `Done` that answers with the `Response` that `respond` makes of the value.
template <class T, class F>
service::Done<T> answer_with(const Call& call, F respond, SentAgain again = SentAgain::is_the_same) {
  return [exchange = call.exchange, respond = std::move(respond), again](service::ServiceResult<T> answer) {
    exchange->respond(answer ? respond(std::move(*answer))
                             : failed_response(std::move(answer.error()), again));
  };
}

}  // namespace faultline::http

#include "rpc/calls.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <grpc/grpc_security_constants.h>
#include <grpcpp/server_context.h>

#include "base/traceparent.h"
#include "faultline/v1/faultline.grpc.pb.h"
#include "rpc/call_log.h"
#include "rpc/job_stream.h"
#include "rpc/status.h"
#include "wire/convert.h"

namespace faultline::rpc {
namespace {

namespace pb = ::faultline::v1;
using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;
using service::Principal;
using service::Problem;
using service::ServiceResult;

/// What a status can carry: clients take 8 KiB of trailing metadata unless they are told otherwise.
constexpr std::size_t kVerdictsInStatus = 16;

std::unexpected<Problem> malformed(std::string message, std::string hint) {
  return std::unexpected(
      Problem{.code = service::Code::malformed, .message = std::move(message), .hint = std::move(hint)});
}

std::unexpected<Problem> malformed(Error error, const std::string& where = {}) {
  return malformed(where + error.message, std::move(error.hint));
}

/// The values of a repeated field.
template <class T, class Messages>
ServiceResult<std::vector<T>> read_all(const char* field, const Messages& messages) {
  std::vector<T> values;
  values.reserve(static_cast<std::size_t>(messages.size()));
  for (const auto& message : messages) {
    auto value = wire::from_proto(std::remove_cvref_t<decltype(message)>{message});
    if (!value)
      return malformed(std::move(value.error()),
                       std::string{field} + "[" + std::to_string(values.size()) + "].");
    values.push_back(std::move(*value));
  }
  return values;
}

ServiceResult<std::vector<JobId>> read_ids(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  std::vector<JobId> ids;
  ids.reserve(static_cast<std::size_t>(texts.size()));
  for (const std::string& text : texts) {
    auto id = wire::job_id(text);
    if (!id) return malformed(std::move(id.error()), "ids[" + std::to_string(ids.size()) + "], a ");
    ids.push_back(*id);
  }
  return ids;
}

template <class Message>
ServiceResult<ListRequest> read_filter(const Message& message) {
  ListRequest filter{.state = wire::from_proto(message.state())};
  if (message.state() != pb::JOB_STATE_UNSPECIFIED && !filter.state) {
    return malformed("state: it is not known here", "JOB_STATE_SCHEDULED and the others of JobState are");
  }
  if (message.has_queue()) filter.queue = message.queue();
  if (message.has_kind()) filter.kind = message.kind();
  return filter;
}

template <class Request>
ServiceResult<service::Selection> read_selection(const Request& request) {
  auto ids = read_ids(request.ids());
  if (!ids) return std::unexpected(std::move(ids.error()));
  auto call = wire::call_id(request);
  if (!call) return malformed(std::move(call.error()));
  service::Selection selection{.ids = std::move(*ids), .dry_run = request.dry_run(), .call = *call};
  if (!request.has_filter()) return selection;
  auto filter = read_filter(request.filter());
  if (!filter) return std::unexpected(std::move(filter.error()));
  selection.filter = std::move(*filter);
  return selection;
}

ServiceResult<std::size_t> read_limit(std::int32_t limit) {
  if (limit < 0) return malformed("limit: it is negative", "1 to 1000 are allowed; 50 if it is not set");
  return limit == 0 ? 50 : static_cast<std::size_t>(limit);
}

template <class Status, class Response>
void fill_changed(const service::Changed<Status>& changed, Response& response) {
  for (const auto& [id, status] : changed.items) {
    auto& item = *response.add_items();
    item.set_id(id.to_string());
    item.set_status(std::string{to_string(status)});
  }
  response.set_matched(static_cast<std::int64_t>(changed.matched));
  response.set_changed(static_cast<std::int64_t>(changed.changed));
}

std::vector<pb::Verdict> to_proto(const std::vector<Verdict>& verdicts, const std::vector<Lease>& leases) {
  std::vector<pb::Verdict> messages;
  messages.reserve(verdicts.size());
  for (std::size_t i = 0; i < verdicts.size(); ++i)
    messages.push_back(wire::to_proto(verdicts[i], leases.at(i)));
  return messages;
}

template <class Response>
void fill_verdicts(const std::vector<Verdict>& verdicts, const std::vector<Lease>& leases,
                   Response& response) {
  for (pb::Verdict& verdict : to_proto(verdicts, leases)) *response.add_verdicts() = std::move(verdict);
}

template <class Items>
std::vector<Lease> leases_of(const Items& items) {
  std::vector<Lease> leases;
  leases.reserve(items.size());
  for (const auto& item : items) leases.push_back(item.lease);
  return leases;
}

/// For people: what happened to the first of results that were all stale.
Problem all_stale(const Verdict& verdict, const Lease& lease) {
  const auto& current = verdict.stale.current_token;
  return {.code = service::Code::stale,
          .message = "refused as stale: " + std::string{to_string(verdict.stale.reason)} +
                     ", the write's token is " + std::to_string(lease.token.value) +
                     (current ? " and the job's current token is " + std::to_string(current->value)
                              : std::string{", and there is no such job"}),
          .hint = "nothing was changed; drop this attempt, somebody else has the job or has ended it"};
}

std::string_view bearer_of(std::string_view authorization) {
  constexpr std::string_view scheme = "bearer ";
  const auto same = [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
  };
  if (authorization.size() < scheme.size() || !std::equal(scheme.begin(), scheme.end(), authorization.begin(),
                                                          [&](char b, char a) { return same(a, b); })) {
    return {};
  }
  return authorization.substr(scheme.size());
}

/// The metadata is for those that name no trace of their own. What is wrong counts as not there, as W3C has
/// it.
void take_traceparent(const CallbackServerContext& context, std::vector<NewJob>& jobs) {
  const auto found = context.client_metadata().find("traceparent");
  if (found == context.client_metadata().end()) return;
  const auto parsed = TraceContext::parse_header({found->second.data(), found->second.size()});
  if (!parsed) return;
  for (NewJob& job : jobs) {
    if (!job.traceparent) job.traceparent = parsed->to_string();
  }
}

class Calls final : public pb::Faultline::CallbackService {
 public:
  explicit Calls(SharedState& shared) : shared_(shared) {}

  ServerUnaryReactor* Enqueue(CallbackServerContext* context, const pb::EnqueueRequest* request,
                              pb::EnqueueResponse* response) override {
    return call(context, "Enqueue", [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
      auto job = wire::from_proto(pb::NewJob{request->job()});
      if (!job) return malformed(std::move(job.error()), "job.");
      std::vector<NewJob> jobs;
      jobs.push_back(std::move(*job));
      take_traceparent(*context, jobs);
      shared_.service.enqueue(
          who, std::move(jobs),
          reply<std::vector<Submission>>(answer, [response](const std::vector<Submission>& done) {
            const Submission& submission = done.at(0);
            if (submission.status == Submission::Status::conflict) return to_status(conflict(submission));
            *response->mutable_submission() = wire::to_proto(submission);
            return grpc::Status::OK;
          }));
      return {};
    });
  }

  ServerUnaryReactor* EnqueueBatch(CallbackServerContext* context, const pb::EnqueueBatchRequest* request,
                                   pb::EnqueueBatchResponse* response) override {
    return call(context, "EnqueueBatch",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto jobs = read_all<NewJob>("jobs", request->jobs());
                  if (!jobs) return std::unexpected(std::move(jobs.error()));
                  take_traceparent(*context, *jobs);
                  shared_.service.enqueue(
                      who, std::move(*jobs),
                      reply<std::vector<Submission>>(answer, [response](const std::vector<Submission>& done) {
                        for (const auto& one : done) *response->add_submissions() = wire::to_proto(one);
                        return grpc::Status::OK;
                      }));
                  return {};
                });
  }

  grpc::ServerBidiReactor<pb::StreamJobsRequest, pb::StreamJobsResponse>* StreamJobs(
      CallbackServerContext* context) override {
    ++shared_.calls;
    return open_job_stream(shared_, *context);
  }

  ServerUnaryReactor* Heartbeat(CallbackServerContext* context, const pb::HeartbeatRequest* request,
                                pb::HeartbeatResponse* response) override {
    return call(context, "Heartbeat", [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
      auto leases = read_all<Lease>("leases", request->leases());
      if (!leases) return std::unexpected(std::move(leases.error()));
      std::optional<std::chrono::milliseconds> extend;
      if (request->has_extend_ms()) extend = std::chrono::milliseconds{request->extend_ms()};
      shared_.service.heartbeat(who, std::move(*leases), extend,
                                reply<std::vector<Beat>>(answer, [response](const std::vector<Beat>& beats) {
                                  for (const Beat& beat : beats)
                                    *response->add_beats() = wire::to_proto(beat);
                                  return grpc::Status::OK;
                                }));
      return {};
    });
  }

  ServerUnaryReactor* ReportResult(CallbackServerContext* context, const pb::ReportResultRequest* request,
                                   pb::ReportResultResponse* response) override {
    return call(
        context, "ReportResult", [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
          auto settlements = read_all<Settlement>("results", request->results());
          if (!settlements) return std::unexpected(std::move(settlements.error()));
          auto done = reply<std::vector<Verdict>>(
              answer, [response, leases = leases_of(*settlements)](const std::vector<Verdict>& verdicts) {
                const auto stale = [](const Verdict& verdict) {
                  return verdict.status == Verdict::Status::stale;
                };
                if (!verdicts.empty() && verdicts.size() <= kVerdictsInStatus &&
                    std::ranges::all_of(verdicts, stale)) {
                  return to_status(all_stale(verdicts.front(), leases.front()), to_proto(verdicts, leases));
                }
                fill_verdicts(verdicts, leases, *response);
                return grpc::Status::OK;
              });
          shared_.service.settle(who, std::move(*settlements), std::move(done));
          return {};
        });
  }

  ServerUnaryReactor* ReportProgress(CallbackServerContext* context, const pb::ReportProgressRequest* request,
                                     pb::ReportProgressResponse* response) override {
    return call(context, "ReportProgress",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto reports = read_all<ProgressReport>("reports", request->reports());
                  if (!reports) return std::unexpected(std::move(reports.error()));
                  auto done = reply_verdicts(answer, leases_of(*reports), *response);
                  shared_.service.progress(who, std::move(*reports), std::move(done));
                  return {};
                });
  }

  ServerUnaryReactor* CheckLeases(CallbackServerContext* context, const pb::CheckLeasesRequest* request,
                                  pb::CheckLeasesResponse* response) override {
    return call(context, "CheckLeases",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto leases = read_all<Lease>("leases", request->leases());
                  if (!leases) return std::unexpected(std::move(leases.error()));
                  auto done = reply_verdicts(answer, *leases, *response);
                  shared_.service.check(who, std::move(*leases), std::move(done));
                  return {};
                });
  }

  ServerUnaryReactor* ResolveResults(CallbackServerContext* context, const pb::ResolveResultsRequest* request,
                                     pb::ResolveResultsResponse* response) override {
    return call(context, "ResolveResults",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto leases = read_all<Lease>("leases", request->leases());
                  if (!leases) return std::unexpected(std::move(leases.error()));
                  using Kinds = std::vector<std::optional<Outcome::Kind>>;
                  shared_.service.resolve(who, std::move(*leases),
                                          reply<Kinds>(answer, [response](const Kinds& kinds) {
                                            for (const auto& kind : kinds) {
                                              pb::Resolved& resolved = *response->add_resolved();
                                              resolved.set_committed(kind.has_value());
                                              if (kind) resolved.set_kind(wire::to_proto(*kind));
                                            }
                                            return grpc::Status::OK;
                                          }));
                  return {};
                });
  }

  ServerUnaryReactor* BeginEffects(CallbackServerContext* context, const pb::BeginEffectsRequest* request,
                                   pb::EffectsResponse* response) override {
    return call(context, "BeginEffects",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto keys = read_all<EffectKey>("keys", request->keys());
                  if (!keys) return std::unexpected(std::move(keys.error()));
                  shared_.service.begin_effects(who, std::move(*keys), reply_effects(answer, *response));
                  return {};
                });
  }

  ServerUnaryReactor* RecordEffects(CallbackServerContext* context, const pb::RecordEffectsRequest* request,
                                    pb::EffectsResponse* response) override {
    return call(context, "RecordEffects",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto results = read_all<EffectResult>("results", request->results());
                  if (!results) return std::unexpected(std::move(results.error()));
                  shared_.service.record_effects(who, std::move(*results), reply_effects(answer, *response));
                  return {};
                });
  }

  ServerUnaryReactor* ForgetEffects(CallbackServerContext* context, const pb::ForgetEffectsRequest* request,
                                    pb::ForgetEffectsResponse* response) override {
    return call(context, "ForgetEffects",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto keys = read_all<EffectKey>("keys", request->keys());
                  if (!keys) return std::unexpected(std::move(keys.error()));
                  auto done = reply_verdicts(answer, leases_of(*keys), *response);
                  shared_.service.forget_effects(who, std::move(*keys), std::move(done));
                  return {};
                });
  }

  ServerUnaryReactor* GetJob(CallbackServerContext* context, const pb::GetJobRequest* request,
                             pb::GetJobResponse* response) override {
    return call(context, "GetJob", [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
      auto id = wire::job_id(request->id());
      if (!id) return malformed(std::move(id.error()));
      shared_.service.job(who, *id, reply<JobHistory>(answer, [response](JobHistory& history) {
                            *response = wire::to_proto(std::move(history));
                            return grpc::Status::OK;
                          }));
      return {};
    });
  }

  ServerUnaryReactor* ListJobs(CallbackServerContext* context, const pb::ListJobsRequest* request,
                               pb::ListJobsResponse* response) override {
    return call(context, "ListJobs", [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
      auto filter = read_filter(*request);
      if (!filter) return std::unexpected(std::move(filter.error()));
      const auto limit = read_limit(request->limit());
      if (!limit) return std::unexpected(limit.error());
      filter->limit = *limit;
      shared_.service.list(who, std::move(*filter), request->cursor(),
                           reply<service::Page>(answer, [response](service::Page& page) {
                             for (const JobSummary& job : page.jobs)
                               *response->add_jobs() = wire::to_proto(job);
                             response->set_next_cursor(std::move(page.next).value_or(""));
                             response->set_looked_at(static_cast<std::int64_t>(page.looked_at));
                             return grpc::Status::OK;
                           }));
      return {};
    });
  }

  ServerUnaryReactor* CancelJobs(CallbackServerContext* context, const pb::CancelJobsRequest* request,
                                 pb::CancelJobsResponse* response) override {
    return call(context, "CancelJobs",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto selection = read_selection(*request);
                  if (!selection) return std::unexpected(std::move(selection.error()));
                  using Changed = service::Changed<CancelStatus>;
                  shared_.service.cancel(who, std::move(*selection), request->reason(),
                                         reply<Changed>(answer, [response](const Changed& changed) {
                                           fill_changed(changed, *response);
                                           return grpc::Status::OK;
                                         }));
                  return {};
                });
  }

  ServerUnaryReactor* RequeueJobs(CallbackServerContext* context, const pb::RequeueJobsRequest* request,
                                  pb::RequeueJobsResponse* response) override {
    return call(context, "RequeueJobs",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto selection = read_selection(*request);
                  if (!selection) return std::unexpected(std::move(selection.error()));
                  using Changed = service::Changed<RequeueStatus>;
                  shared_.service.requeue(who, std::move(*selection),
                                          reply<Changed>(answer, [response](const Changed& changed) {
                                            fill_changed(changed, *response);
                                            return grpc::Status::OK;
                                          }));
                  return {};
                });
  }

  ServerUnaryReactor* PurgeJobs(CallbackServerContext* context, const pb::PurgeJobsRequest* request,
                                pb::PurgeJobsResponse* response) override {
    return call(context, "PurgeJobs", [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
      auto selection = read_selection(*request);
      if (!selection) return std::unexpected(std::move(selection.error()));
      using Changed = service::Changed<PurgeStatus>;
      shared_.service.purge(who, std::move(*selection),
                            reply<Changed>(answer, [response](const Changed& changed) {
                              fill_changed(changed, *response);
                              return grpc::Status::OK;
                            }));
      return {};
    });
  }

  ServerUnaryReactor* DecideEffect(CallbackServerContext* context, const pb::DecideEffectRequest* request,
                                   pb::DecideEffectResponse* response) override {
    return call(context, "DecideEffect",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  auto id = wire::job_id(request->job_id());
                  if (!id) return malformed(std::move(id.error()));
                  EffectFinding finding{.job = *id,
                                        .key = request->key(),
                                        .happened = request->happened(),
                                        .result = request->result(),
                                        .reason = request->reason()};
                  if (request->has_token()) finding.begun_under = FenceToken{request->token()};
                  shared_.service.decide_effect(who, std::move(finding),
                                                reply<DecideStatus>(answer, [response](DecideStatus status) {
                                                  response->set_status(std::string{to_string(status)});
                                                  return grpc::Status::OK;
                                                }));
                  return {};
                });
  }

  ServerUnaryReactor* DeleteQueue(CallbackServerContext* context, const pb::DeleteQueueRequest* request,
                                  pb::DeleteQueueResponse* /*response*/) override {
    return call(context, "DeleteQueue",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  shared_.service.delete_queue(
                      who, request->name(),
                      reply<QueueDeletion>(answer, [](const QueueDeletion&) { return grpc::Status::OK; }));
                  return {};
                });
  }

  ServerUnaryReactor* ListQueues(CallbackServerContext* context, const pb::ListQueuesRequest* /*request*/,
                                 pb::ListQueuesResponse* response) override {
    return call(context, "ListQueues",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  using Queues = std::vector<service::QueueOverview>;
                  shared_.service.queues(who, reply<Queues>(answer, [response](const Queues& queues) {
                                           for (const auto& one : queues) {
                                             *response->add_queues() = wire::to_proto(one.queue, one.counts);
                                           }
                                           return grpc::Status::OK;
                                         }));
                  return {};
                });
  }

  ServerUnaryReactor* SetQueue(CallbackServerContext* context, const pb::SetQueueRequest* request,
                               pb::SetQueueResponse* /*response*/) override {
    return call(context, "SetQueue", [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
      shared_.service.set_queue(who, request->name(), wire::from_proto(*request), request->create(),
                                reply<service::QueueOverview>(
                                    answer, [](const service::QueueOverview&) { return grpc::Status::OK; }));
      return {};
    });
  }

  ServerUnaryReactor* ListStaleWrites(CallbackServerContext* context,
                                      const pb::ListStaleWritesRequest* request,
                                      pb::ListStaleWritesResponse* response) override {
    return call(context, "ListStaleWrites",
                [&](const Principal& who, const Answer& answer) -> ServiceResult<void> {
                  const auto limit = read_limit(request->limit());
                  if (!limit) return std::unexpected(limit.error());
                  using Page = service::Service::StalePage;
                  shared_.service.stale_writes(who, *limit, request->cursor(),
                                               reply<Page>(answer, [response](Page& page) {
                                                 for (const auto& write : page.writes) {
                                                   *response->add_stale_writes() = wire::to_proto(write);
                                                 }
                                                 response->set_next_cursor(std::move(page.next).value_or(""));
                                                 return grpc::Status::OK;
                                               }));
                  return {};
                });
  }

 private:
  /// The way back to the caller of one call.
  struct Answer {
    ServerUnaryReactor* reactor;
    CallLog log;

    void finish(const grpc::Status& status) const {
      log.answered(status);
      reactor->Finish(status);
    }
    void fail(const Problem& problem) const {
      log.failed(problem);
      finish(to_status(problem));
    }
  };

  /// Runs `body` for the caller; a problem that it returns is the answer, else the answer comes by `reply`.
  template <class Body>
  ServerUnaryReactor* call(CallbackServerContext* context, std::string_view method, const Body& body) {
    ++shared_.calls;
    Answer answer{.reactor = context->DefaultReactor(), .log = {shared_, *context, method}};
    const auto who = caller(shared_, *context);
    if (who) answer.log.called_by(*who);
    // Once it has its answer, the call may be over at any moment.
    ServerUnaryReactor* const reactor = answer.reactor;
    if (!who) {
      answer.fail(who.error());
    } else if (const ServiceResult<void> begun = body(*who, answer); !begun) {
      answer.fail(begun.error());
    }
    return reactor;
  }

  /// Answers with the status that `fill` returns once it has filled in the response, or with the problem.
  /// Request and response live until the answer is sent.
  template <class T, class Fill>
  static service::Done<T> reply(const Answer& to, Fill fill) {
    return [to, fill = std::move(fill)](ServiceResult<T> answer) {
      if (answer)
        to.finish(fill(*answer));
      else
        to.fail(answer.error());
    };
  }

  template <class Response>
  static service::Done<std::vector<Verdict>> reply_verdicts(const Answer& to, std::vector<Lease> leases,
                                                            Response& response) {
    return reply<std::vector<Verdict>>(
        to, [&response, leases = std::move(leases)](const std::vector<Verdict>& verdicts) {
          fill_verdicts(verdicts, leases, response);
          return grpc::Status::OK;
        });
  }

  static service::Done<std::vector<Effect>> reply_effects(const Answer& to, pb::EffectsResponse& response) {
    return reply<std::vector<Effect>>(to, [&response](std::vector<Effect>& effects) {
      for (Effect& effect : effects) *response.add_effects() = wire::to_proto(std::move(effect));
      return grpc::Status::OK;
    });
  }

  static Problem conflict(const Submission& submission) {
    return {.code = service::Code::conflict,
            .message = "the idempotency key is taken by job " + submission.job.to_string() +
                       ", which has another kind or payload",
            .hint = "use another key, or send what was sent first",
            .job = submission.job};
  }

  SharedState& shared_;
};

}  // namespace

ServiceResult<Principal> caller(const SharedState& shared, const CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto authorization = metadata.find("authorization");
  std::string_view bearer;
  if (authorization != metadata.end()) {
    bearer = bearer_of({authorization->second.data(), authorization->second.size()});
  }
  auto who = shared.authenticator.authenticate(bearer);
  if (!who) return who;
  if (authorization == metadata.end() && shared.certificates) {
    // No key was asked for, so the record names the certificate.
    const auto names = context.auth_context()->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
    who->name =
        names.empty() ? "a client certificate without a name" : std::string{names[0].data(), names[0].size()};
    who->id = "client certificate";
  }
  shared.admitted(context.peer());
  return who;
}

std::unique_ptr<grpc::Service> make_calls(SharedState& shared) { return std::make_unique<Calls>(shared); }

}  // namespace faultline::rpc

// The calls that are not streams, errors, who may call what, health, reflection, TLS.

#include <functional>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/text_format.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include "rpc/fixture.h"
#include "rpc/grpc_log_redirect.h"
#include "support/every_option.h"
#include "support/scratch.h"
#include "wire/convert.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Stub = pb::Faultline::Stub;

/// Any method by its name, with messages as bytes.
struct Raw {
  grpc::Status status;
  std::string answer;
};
Raw raw_call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
             const std::string& request, const std::string& bearer = {}) {
  CallContext context{bearer};
  grpc::CompletionQueue done;
  grpc::GenericStub stub{channel};
  const auto call = stub.PrepareCall(&context, method, &done);
  void* tag = nullptr;
  bool ok = false;
  Raw raw;
  call->StartCall(nullptr);
  done.Next(&tag, &ok);
  const grpc::Slice slice{request};
  call->WriteLast(grpc::ByteBuffer{&slice, 1}, {}, nullptr);
  done.Next(&tag, &ok);
  grpc::ByteBuffer buffer;
  call->Read(&buffer, nullptr);
  done.Next(&tag, &ok);
  if (ok) {
    std::vector<grpc::Slice> slices;
    static_cast<void>(buffer.Dump(&slices));
    for (const auto& part : slices) raw.answer.append(part.begin(), part.end());
  }
  call->Finish(&raw.status, nullptr);
  done.Next(&tag, &ok);
  return raw;
}

pb::EnqueueRequest enqueue_request(const std::string& payload = "1", const std::string& key = {}) {
  pb::EnqueueRequest request;
  request.mutable_job()->set_kind("k");
  request.mutable_job()->set_payload(payload);
  if (!key.empty()) request.mutable_job()->set_idempotency_key(key);
  return request;
}

/// A job that there is not, in a bucket that there is.
JobId unknown_job() {
  JobId id{Uuid::random()};
  id.value.bytes[14] = id.value.bytes[15] = 0;
  return id;
}
pb::Lease unknown_lease() {
  return wire::to_proto(Lease{.job = unknown_job(), .token = {1}, .lease_id = Uuid::random(), .worker = "w"});
}

class CallsTest : public RpcTest {
 protected:
  CallsTest() { serve(); }

  template <class Request, class Response>
  grpc::StatusCode code(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                        const Request& request) {
    Response response;
    const grpc::Status status = call(method, request, response);
    if (!status.ok()) {
      const pb::Failure failure = wire::failure_of(status.error_details()).value_or(pb::Failure{});
      EXPECT_FALSE(failure.code().empty()) << status.error_message();
      EXPECT_FALSE(failure.hint().empty()) << status.error_message();
    }
    return status.error_code();
  }
};

TEST_F(CallsTest, enqueue_adds_a_job_and_knows_it_again_by_its_key) {
  const auto first = must_call(&Stub::Enqueue, enqueue_request("1", "key")).submission();
  EXPECT_EQ(first.status(), pb::Submission::CREATED);
  EXPECT_EQ(job(must(wire::job_id(first.job_id()))).payload, "1");
  const auto second = must_call(&Stub::Enqueue, enqueue_request("1", "key")).submission();
  EXPECT_EQ(second.status(), pb::Submission::EXISTING);
  EXPECT_EQ(second.job_id(), first.job_id());

  pb::EnqueueResponse response;
  const grpc::Status conflict = call(&Stub::Enqueue, enqueue_request("2", "key"), response);
  EXPECT_EQ(conflict.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(conflict.error_message(), HasSubstr(first.job_id()));
  const auto failure = wire::failure_of(conflict.error_details()).value();
  EXPECT_EQ(failure.code(), "conflict");
  EXPECT_EQ(failure.job_id(), first.job_id());
}

TEST_F(CallsTest, the_metadata_s_trace_is_for_jobs_that_name_none_and_counts_only_when_it_is_right) {
  const std::string common = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const std::string own = "00-11111111111111111111111111111111-2222222222222222-01";
  const auto traces = [&](const std::string& metadata) {
    pb::EnqueueBatchRequest batch;
    *batch.add_jobs() = enqueue_request().job();
    *batch.add_jobs() = enqueue_request().job();
    batch.mutable_jobs(1)->set_traceparent(own);
    CallContext context;
    context.AddMetadata("traceparent", metadata);
    pb::EnqueueBatchResponse answer;
    EXPECT_TRUE(stub_->EnqueueBatch(&context, batch, &answer).ok());
    std::vector<std::optional<std::string>> found;
    for (const auto& one : answer.submissions())
      found.push_back(job(must(wire::job_id(one.job_id()))).traceparent);
    return found;
  };
  EXPECT_THAT(traces(common), ElementsAre(common, own));
  EXPECT_THAT(traces("00-nonsense"), ElementsAre(std::nullopt, own));

  auto wrong = enqueue_request();
  wrong.mutable_job()->set_traceparent("00-nonsense");
  EXPECT_EQ(code(&Stub::Enqueue, wrong), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(ForeignLogTest, what_grpc_would_print_goes_to_the_log_once_a_second) {
  grpc_init();  // before that it prints nothing at all
  std::mutex mutex;
  std::vector<std::string> lines;
  const rpc::GrpcLogRedirect log{[&](const Event& event) {
    const std::lock_guard lock{mutex};
    lines.push_back(std::string{event.name} + " " + event.fields.at(1).second);
  }};
  for (int i = 0; i < 100; ++i) gpr_log(GPR_ERROR, "trouble %d", i);
  gpr_log(GPR_DEBUG, "nothing of note");

  grpc_shutdown();

  const std::lock_guard lock{mutex};
  ASSERT_FALSE(lines.empty());
  EXPECT_LT(lines.size(), 100U);
  EXPECT_EQ(lines.front(), "grpc_error trouble 0");
}

TEST_F(CallsTest, a_batch_is_added_as_a_whole_and_answers_conflicts_in_place) {
  static_cast<void>(must_call(&Stub::Enqueue, enqueue_request("1", "key")));
  pb::EnqueueBatchRequest batch;
  *batch.add_jobs() = enqueue_request("1", "key").job();
  *batch.add_jobs() = enqueue_request("2", "key").job();
  *batch.add_jobs() = enqueue_request("3").job();
  const auto answer = must_call(&Stub::EnqueueBatch, batch);
  ASSERT_EQ(answer.submissions_size(), 3);
  EXPECT_EQ(answer.submissions(0).status(), pb::Submission::EXISTING);
  EXPECT_EQ(answer.submissions(1).status(), pb::Submission::CONFLICT);
  EXPECT_EQ(answer.submissions(2).status(), pb::Submission::CREATED);

  batch.mutable_jobs(1)->set_encoding(static_cast<pb::Encoding>(77));
  pb::EnqueueBatchResponse response;
  const grpc::Status status = call(&Stub::EnqueueBatch, batch, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("jobs[1].encoding"));
  EXPECT_EQ(counts().available, 2);
}

TEST_F(CallsTest, bad_requests_are_refused_with_what_to_do) {
  EXPECT_EQ(code(&Stub::Enqueue, pb::EnqueueRequest{}), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(&Stub::Enqueue, enqueue_request("{")), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(code(&Stub::Enqueue, enqueue_request("\"" + std::string(1'100'000, 'x') + "\"")),
            grpc::StatusCode::INVALID_ARGUMENT);
  auto other_queue = enqueue_request();
  other_queue.mutable_job()->set_queue("no_such_queue");
  EXPECT_EQ(code(&Stub::Enqueue, other_queue), grpc::StatusCode::NOT_FOUND);

  pb::HeartbeatRequest beat;
  beat.add_leases()->set_job_id("x");
  EXPECT_EQ(code(&Stub::Heartbeat, beat), grpc::StatusCode::INVALID_ARGUMENT);
  pb::ReportResultRequest result;
  *result.add_results()->mutable_lease() = unknown_lease();
  EXPECT_EQ(code(&Stub::ReportResult, result), grpc::StatusCode::INVALID_ARGUMENT) << "there is no outcome";
  pb::ReportProgressRequest progress;
  progress.add_reports();
  EXPECT_EQ(code(&Stub::ReportProgress, progress), grpc::StatusCode::INVALID_ARGUMENT);
  pb::CheckLeasesRequest check;
  check.add_leases();
  EXPECT_EQ(code(&Stub::CheckLeases, check), grpc::StatusCode::INVALID_ARGUMENT);
  pb::ResolveResultsRequest resolve;
  resolve.add_leases();
  EXPECT_EQ(code(&Stub::ResolveResults, resolve), grpc::StatusCode::INVALID_ARGUMENT);
  pb::BeginEffectsRequest begin;
  begin.add_keys();
  EXPECT_EQ(code(&Stub::BeginEffects, begin), grpc::StatusCode::INVALID_ARGUMENT);
  pb::RecordEffectsRequest record;
  record.add_results();
  EXPECT_EQ(code(&Stub::RecordEffects, record), grpc::StatusCode::INVALID_ARGUMENT);
  pb::ForgetEffectsRequest forget;
  forget.add_keys();
  EXPECT_EQ(code(&Stub::ForgetEffects, forget), grpc::StatusCode::INVALID_ARGUMENT);

  pb::GetJobRequest get;
  EXPECT_EQ(code(&Stub::GetJob, get), grpc::StatusCode::INVALID_ARGUMENT);
  get.set_id(unknown_job().to_string());
  EXPECT_EQ(code(&Stub::GetJob, get), grpc::StatusCode::NOT_FOUND);
  pb::ListJobsRequest list;
  list.set_limit(-1);
  EXPECT_EQ(code(&Stub::ListJobs, list), grpc::StatusCode::INVALID_ARGUMENT);
  list.set_limit(1'001);
  EXPECT_EQ(code(&Stub::ListJobs, list), grpc::StatusCode::INVALID_ARGUMENT);
  list.clear_limit();
  list.set_cursor("not a cursor");
  EXPECT_EQ(code(&Stub::ListJobs, list), grpc::StatusCode::INVALID_ARGUMENT);
  list.clear_cursor();
  list.set_state(static_cast<pb::JobState>(77));
  EXPECT_EQ(code(&Stub::ListJobs, list), grpc::StatusCode::INVALID_ARGUMENT);
  pb::ListStaleWritesRequest stale;
  stale.set_limit(-1);
  EXPECT_EQ(code(&Stub::ListStaleWrites, stale), grpc::StatusCode::INVALID_ARGUMENT);

  EXPECT_EQ(code(&Stub::CancelJobs, pb::CancelJobsRequest{}), grpc::StatusCode::INVALID_ARGUMENT);
  pb::CancelJobsRequest both;
  both.add_ids(unknown_job().to_string());
  both.mutable_filter();
  EXPECT_EQ(code(&Stub::CancelJobs, both), grpc::StatusCode::INVALID_ARGUMENT);
  pb::RequeueJobsRequest requeue;
  requeue.add_ids("x");
  EXPECT_EQ(code(&Stub::RequeueJobs, requeue), grpc::StatusCode::INVALID_ARGUMENT);
  pb::SetQueueRequest queue;
  EXPECT_EQ(code(&Stub::SetQueue, queue), grpc::StatusCode::INVALID_ARGUMENT);
  queue.set_name("q");
  queue.set_lease_ttl_ms(1);
  EXPECT_EQ(code(&Stub::SetQueue, queue), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(CallsTest, a_job_goes_through_a_worker_s_calls) {
  const JobId id = enqueue();
  const pb::JobAssignment assignment = take_one("w");

  pb::CheckLeasesRequest check;
  *check.add_leases() = assignment.lease();
  *check.add_leases() = unknown_lease();
  const auto checked = must_call(&Stub::CheckLeases, check);
  EXPECT_EQ(checked.verdicts(0).status(), pb::Verdict::COMMITTED);
  EXPECT_EQ(checked.verdicts(1).status(), pb::Verdict::STALE);
  EXPECT_EQ(checked.verdicts(1).job_id(), check.leases(1).job_id());

  pb::ReportProgressRequest progress;
  *progress.add_reports()->mutable_lease() = assignment.lease();
  progress.mutable_reports(0)->set_fraction(0.5);
  progress.mutable_reports(0)->set_note("halfway");
  EXPECT_EQ(must_call(&Stub::ReportProgress, progress).verdicts(0).status(), pb::Verdict::COMMITTED);

  pb::HeartbeatRequest beat;
  *beat.add_leases() = unknown_lease();
  *beat.add_leases() = assignment.lease();
  beat.set_extend_ms(60'000);
  const auto beats = must_call(&Stub::Heartbeat, beat);
  EXPECT_EQ(beats.beats(0).status(), pb::Beat::LOST);
  EXPECT_EQ(beats.beats(1).status(), pb::Beat::RENEWED);
  EXPECT_GT(beats.beats(1).lease_expires_at().seconds(), assignment.lease_expires_at().seconds());

  pb::BeginEffectsRequest begin;
  *begin.add_keys()->mutable_lease() = assignment.lease();
  begin.mutable_keys(0)->set_key("mail");
  EXPECT_EQ(must_call(&Stub::BeginEffects, begin).effects(0).status(), pb::Effect::BEGUN);
  pb::ForgetEffectsRequest forget;
  *forget.add_keys() = begin.keys(0);
  EXPECT_EQ(must_call(&Stub::ForgetEffects, forget).verdicts(0).status(), pb::Verdict::COMMITTED);
  EXPECT_EQ(must_call(&Stub::BeginEffects, begin).effects(0).status(), pb::Effect::BEGUN);
  pb::RecordEffectsRequest record;
  *record.add_results()->mutable_lease() = assignment.lease();
  record.mutable_results(0)->set_key("mail");
  record.mutable_results(0)->set_result("sent");
  EXPECT_EQ(must_call(&Stub::RecordEffects, record).effects(0).result(), "sent");
  const auto again = must_call(&Stub::BeginEffects, begin).effects(0);
  EXPECT_EQ(again.status(), pb::Effect::RECORDED);
  EXPECT_EQ(again.result(), "sent");

  pb::ResolveResultsRequest resolve;
  *resolve.add_leases() = assignment.lease();
  EXPECT_FALSE(must_call(&Stub::ResolveResults, resolve).resolved(0).committed());
  auto result = report(assignment);
  result.mutable_results(0)->mutable_outcome()->set_result("42");
  EXPECT_EQ(must_call(&Stub::ReportResult, result).verdicts(0).status(), pb::Verdict::COMMITTED);
  const auto resolved = must_call(&Stub::ResolveResults, resolve).resolved(0);
  EXPECT_TRUE(resolved.committed());
  EXPECT_EQ(resolved.kind(), pb::Outcome::SUCCEEDED);

  pb::GetJobRequest get;
  get.set_id(id.to_string());
  const auto found = must_call(&Stub::GetJob, get);
  EXPECT_EQ(found.job().state(), pb::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(found.job().result(), "42");
  EXPECT_EQ(found.attempts_size(), 1);
  EXPECT_EQ(found.attempts(0).worker(), "w");
  EXPECT_EQ(found.effects(0).key(), "mail");
}

TEST_F(CallsTest, a_stale_result_is_a_failed_precondition_with_the_reason_and_both_tokens) {
  enqueue();
  const pb::JobAssignment late = take_one("late");
  advance(kTtl + ms{1});
  ASSERT_EQ(sweep().size(), 1U);
  advance(std::chrono::minutes{10});  // past the backoff
  ASSERT_EQ(take_one("current").lease().token(), 2);

  pb::ReportResultResponse response;
  const grpc::Status status = call(&Stub::ReportResult, report(late), response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("token_mismatch"));
  EXPECT_THAT(status.error_message(), HasSubstr("token is 1"));
  EXPECT_THAT(status.error_message(), HasSubstr("current token is 2"));
  const auto failure = wire::failure_of(status.error_details()).value();
  EXPECT_EQ(failure.code(), "stale");
  ASSERT_EQ(failure.verdicts_size(), 1);
  EXPECT_EQ(failure.verdicts(0).token(), 1);
  EXPECT_EQ(failure.verdicts(0).job_id(), late.lease().job_id());
  EXPECT_EQ(failure.verdicts(0).stale().reason(), pb::Stale::TOKEN_MISMATCH);
  EXPECT_EQ(failure.verdicts(0).stale().current_token(), 2);
  EXPECT_EQ(failure.verdicts(0).stale().current_worker(), "current");

  // One good one among them: each is answered for itself.
  enqueue();
  auto mixed = report(late);
  *mixed.add_results() = report(take_one("other")).results(0);
  const auto verdicts = must_call(&Stub::ReportResult, mixed);
  EXPECT_EQ(verdicts.verdicts(0).status(), pb::Verdict::STALE);
  EXPECT_EQ(verdicts.verdicts(1).status(), pb::Verdict::COMMITTED);

  const auto evidence = must_call(&Stub::ListStaleWrites, pb::ListStaleWritesRequest{});
  ASSERT_GE(evidence.stale_writes_size(), 2);
  EXPECT_EQ(evidence.stale_writes(0).worker(), "late");
}

TEST_F(CallsTest, many_stale_results_are_answered_in_full_although_a_status_could_not_carry_them) {
  pb::ReportResultRequest many;
  for (int i = 0; i < 500; ++i) {
    *many.add_results()->mutable_lease() = unknown_lease();
    many.mutable_results(i)->mutable_outcome();
  }
  const auto answer = must_call(&Stub::ReportResult, many);
  ASSERT_EQ(answer.verdicts_size(), 500);
  for (const auto& verdict : answer.verdicts()) EXPECT_EQ(verdict.status(), pb::Verdict::STALE);
  many.mutable_results()->DeleteSubrange(16, 500 - 16);
  pb::ReportResultResponse response;
  const grpc::Status status = call(&Stub::ReportResult, many, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(wire::failure_of(status.error_details()).value().verdicts_size(), 16);
}

TEST_F(CallsTest, a_result_that_is_sent_again_is_accepted_once) {
  const JobId id = enqueue();
  const pb::JobAssignment assignment = take_one("w");
  auto result = report(assignment);
  EXPECT_EQ(must_call(&Stub::ReportResult, result).verdicts(0).status(), pb::Verdict::COMMITTED);
  const pb::Verdict again = must_call(&Stub::ReportResult, result).verdicts(0);
  EXPECT_EQ(again.status(), pb::Verdict::COMMITTED);
  EXPECT_TRUE(again.repeated());
  EXPECT_EQ(history(id).attempts.size(), 1U);
  result.mutable_results(0)->mutable_outcome()->set_kind(pb::Outcome::FAILED);
  pb::ReportResultResponse response;
  const grpc::Status status = call(&Stub::ReportResult, result, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("already_settled"));
}

TEST_F(CallsTest, jobs_are_listed_page_by_page_cancelled_and_requeued) {
  const auto ids = enqueue_many(5);
  pb::ListJobsRequest list;
  list.set_limit(2);
  list.set_queue("default");
  list.set_state(pb::JOB_STATE_AVAILABLE);
  std::vector<std::string> listed;
  do {
    const auto page = must_call(&Stub::ListJobs, list);
    for (const auto& job : page.jobs()) listed.push_back(job.id());
    EXPECT_EQ(page.looked_at(), 5);
    list.set_cursor(page.next_cursor());
  } while (!list.cursor().empty());
  EXPECT_EQ(listed.size(), 5U);

  pb::CancelJobsRequest cancel;
  cancel.add_ids(ids[0].to_string());
  cancel.add_ids(unknown_job().to_string());
  cancel.set_reason("not wanted");
  const auto cancelled = must_call(&Stub::CancelJobs, cancel);
  EXPECT_EQ(cancelled.items(0).status(), "cancelled");
  EXPECT_EQ(cancelled.items(0).id(), ids[0].to_string());
  EXPECT_EQ(cancelled.items(1).status(), "not_found");
  pb::CancelJobsRequest filter;
  filter.mutable_filter()->set_state(pb::JOB_STATE_AVAILABLE);
  filter.mutable_filter()->set_queue("default");
  filter.set_dry_run(true);
  EXPECT_EQ(must_call(&Stub::CancelJobs, filter).matched(), 4);
  EXPECT_EQ(counts().available, 4);
  filter.set_dry_run(false);
  EXPECT_EQ(must_call(&Stub::CancelJobs, filter).changed(), 4);

  pb::RequeueJobsRequest requeue;
  requeue.add_ids(ids[0].to_string());
  EXPECT_EQ(must_call(&Stub::RequeueJobs, requeue).items(0).status(), "requeued");
  pb::PurgeJobsRequest purge;
  purge.add_ids(ids[0].to_string());
  purge.add_ids(unknown_job().to_string());
  const auto purged = must_call(&Stub::PurgeJobs, purge);
  EXPECT_EQ(purged.items(0).status(), "not_dead");
  EXPECT_EQ(purged.items(1).status(), "not_found");
  pb::PurgeJobsRequest dead;
  dead.mutable_filter()->set_queue("default");
  dead.set_dry_run(true);
  EXPECT_EQ(must_call(&Stub::PurgeJobs, dead).matched(), 0);
  EXPECT_EQ(job(ids[0]).state, JobState::available);
}

TEST_F(CallsTest, what_is_sent_again_under_its_call_id_is_answered_the_same) {
  const JobId id = enqueue();
  pb::CancelJobsRequest cancel;
  cancel.add_ids(id.to_string());
  cancel.set_call_id(Uuid::random().to_string());
  pb::RequeueJobsRequest requeue;
  requeue.add_ids(id.to_string());
  requeue.set_call_id(Uuid::random().to_string());
  pb::PurgeJobsRequest purge;
  purge.add_ids(id.to_string());
  purge.set_call_id(Uuid::random().to_string());
  const auto twice = [&](auto method, const auto& request) {
    EXPECT_EQ(must_call(method, request).items(0).status(), must_call(method, request).items(0).status());
    return must_call(method, request).items(0).status();
  };

  EXPECT_EQ(twice(&Stub::CancelJobs, cancel), "cancelled");
  EXPECT_EQ(twice(&Stub::RequeueJobs, requeue), "requeued");
  const pb::JobAssignment assignment = take_one("w");
  pb::BeginEffectsRequest begin;
  *begin.add_keys()->mutable_lease() = assignment.lease();
  begin.mutable_keys(0)->set_key("mail");
  begin.mutable_keys(0)->set_call_id(Uuid::random().to_string());
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(must_call(&Stub::BeginEffects, begin).effects(0).status(), pb::Effect::BEGUN);
  begin.mutable_keys(0)->set_call_id(Uuid::random().to_string());
  EXPECT_EQ(must_call(&Stub::BeginEffects, begin).effects(0).status(), pb::Effect::UNKNOWN);
  auto bury = report(assignment);
  bury.mutable_results(0)->mutable_outcome()->set_kind(pb::Outcome::BURIED);
  EXPECT_EQ(must_call(&Stub::ReportResult, bury).verdicts(0).status(), pb::Verdict::COMMITTED);
  EXPECT_EQ(twice(&Stub::PurgeJobs, purge), "purged");

  EXPECT_EQ(history(id).attempts.size(), 4U) << "each act once";
  purge.set_call_id("x");
  pb::PurgeJobsResponse response;
  const grpc::Status status = call(&Stub::PurgeJobs, purge, response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("call_id"));
}

TEST_F(CallsTest, a_job_keeps_every_option) {
  must(store_.set_queue("every_option", {}));
  const NewJob job = job_with_every_option();
  pb::EnqueueRequest request;
  *request.mutable_job() = wire::to_proto(job);

  const std::string id = must_call(&Stub::Enqueue, request).submission().job_id();

  EXPECT_EQ(differences(job, this->job(JobId{Uuid::parse(id).value()})), "");
  // What comes back is what was sent, field by field.
  pb::GetJobRequest get;
  get.set_id(id);
  const pb::Job found = must_call(&Stub::GetJob, get).job();
  const pb::NewJob& sent = request.job();
  const auto text = [](const google::protobuf::Message& message,
                       const google::protobuf::FieldDescriptor* field) {
    std::string all;
    const int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      std::string one;
      google::protobuf::TextFormat::PrintFieldValueToString(message, field, field->is_repeated() ? i : -1,
                                                            &one);
      all += one + "\n";
    }
    return all;
  };
  for (int i = 0; i < sent.GetDescriptor()->field_count(); ++i) {
    const auto* field = sent.GetDescriptor()->field(i);
    if (field->name() == "delay_ms") continue;  // a moment by now
    const auto* back = found.GetDescriptor()->FindFieldByName(field->name());
    ASSERT_NE(back, nullptr) << field->name();
    EXPECT_EQ(text(found, back), text(sent, field)) << field->name();
  }
}

TEST_F(CallsTest, queues_are_made_changed_and_listed) {
  pb::SetQueueRequest set;
  set.set_name("slow");
  set.set_paused(true);
  set.set_lease_ttl_ms(5'000);
  EXPECT_EQ(code(&Stub::SetQueue, set), grpc::StatusCode::NOT_FOUND)
      << "a name that is mistyped makes no queue";
  set.set_create(true);
  static_cast<void>(must_call(&Stub::SetQueue, set));
  bool found = false;
  const auto listed = must_call(&Stub::ListQueues, pb::ListQueuesRequest{});
  for (const auto& queue : listed.queues()) {
    if (queue.name() != "slow") continue;
    found = true;
    EXPECT_TRUE(queue.paused());
    EXPECT_EQ(queue.lease_ttl_ms(), 5'000);
  }
  EXPECT_TRUE(found);

  pb::DeleteQueueRequest gone;
  gone.set_name("slow");
  static_cast<void>(must_call(&Stub::DeleteQueue, gone));
  EXPECT_EQ(must_call(&Stub::ListQueues, pb::ListQueuesRequest{}).queues_size(), listed.queues_size() - 1);
  gone.set_name("never");
  EXPECT_EQ(code(&Stub::DeleteQueue, gone), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CallsTest, an_effect_that_nobody_recorded_is_decided_about) {
  enqueue();
  const pb::Lease lease = take_one("w").lease();
  pb::BeginEffectsRequest begin;
  *begin.add_keys()->mutable_lease() = lease;
  begin.mutable_keys(0)->set_key("charge");
  static_cast<void>(must_call(&Stub::BeginEffects, begin));
  pb::DecideEffectRequest decide;
  decide.set_job_id(lease.job_id());
  decide.set_key("charge");
  decide.set_happened(true);
  decide.set_result("receipt");
  decide.set_reason("seen");
  EXPECT_EQ(must_call(&Stub::DecideEffect, decide).status(), "running");
  pb::ReportResultRequest report;
  *report.add_results()->mutable_lease() = lease;
  report.mutable_results(0)->mutable_outcome()->set_kind(pb::Outcome::BURIED);
  static_cast<void>(must_call(&Stub::ReportResult, report));

  EXPECT_EQ(must_call(&Stub::DecideEffect, decide).status(), "decided");

  pb::GetJobRequest get;
  get.set_id(lease.job_id());
  const auto job = must_call(&Stub::GetJob, get);
  ASSERT_EQ(job.decisions_size(), 1);
  EXPECT_TRUE(job.decisions(0).happened());
  EXPECT_EQ(job.decisions(0).reason(), "seen");
  EXPECT_EQ(job.effects(0).result(), "receipt");
}

/// Who may call what. A method of the proto that is not here fails the test.
struct Row {
  std::string scope;
  std::string request;
  grpc::StatusCode answer = grpc::StatusCode::OK;
};
std::map<std::string, Row> rows() {
  pb::EnqueueBatchRequest batch;
  *batch.add_jobs() = enqueue_request().job();
  pb::StreamJobsRequest stream;
  stream.set_queue("default");
  stream.set_worker("w");
  pb::HeartbeatRequest leases;  // the other requests with leases look the same
  *leases.add_leases() = unknown_lease();
  pb::ReportResultRequest result;
  *result.add_results()->mutable_lease() = unknown_lease();
  result.mutable_results(0)->mutable_outcome();
  pb::ReportProgressRequest progress;
  *progress.add_reports()->mutable_lease() = unknown_lease();
  pb::BeginEffectsRequest keys;
  *keys.add_keys()->mutable_lease() = unknown_lease();
  keys.mutable_keys(0)->set_key("k");
  pb::GetJobRequest get;
  get.set_id(unknown_job().to_string());
  pb::CancelJobsRequest ids;
  ids.add_ids(unknown_job().to_string());
  pb::SetQueueRequest queue;
  queue.set_name("new");
  queue.set_create(true);
  pb::DeleteQueueRequest gone;
  gone.set_name("never");
  pb::DecideEffectRequest decide;
  decide.set_job_id(unknown_job().to_string());
  decide.set_key("k");
  decide.set_reason("r");
  return {
      {"Enqueue", {"produce", enqueue_request().SerializeAsString()}},
      {"EnqueueBatch", {"produce", batch.SerializeAsString()}},
      {"StreamJobs", {"work", stream.SerializeAsString()}},
      {"Heartbeat", {"work", leases.SerializeAsString()}},
      {"ReportResult", {"work", result.SerializeAsString(), grpc::StatusCode::FAILED_PRECONDITION}},
      {"ReportProgress", {"work", progress.SerializeAsString()}},
      {"CheckLeases", {"work", leases.SerializeAsString()}},
      {"ResolveResults", {"work", leases.SerializeAsString()}},
      {"BeginEffects", {"work", keys.SerializeAsString()}},
      {"RecordEffects", {"work", keys.SerializeAsString()}},
      {"ForgetEffects", {"work", keys.SerializeAsString()}},
      {"GetJob", {"read", get.SerializeAsString(), grpc::StatusCode::NOT_FOUND}},
      {"ListJobs", {"read", ""}},
      {"ListQueues", {"read", ""}},
      {"ListStaleWrites", {"read", ""}},
      {"CancelJobs", {"admin", ids.SerializeAsString()}},
      {"RequeueJobs", {"admin", ids.SerializeAsString()}},
      {"PurgeJobs", {"admin", ids.SerializeAsString()}},
      {"DecideEffect", {"admin", decide.SerializeAsString()}},
      {"SetQueue", {"admin", queue.SerializeAsString()}},
      {"DeleteQueue", {"admin", gone.SerializeAsString(), grpc::StatusCode::NOT_FOUND}},
  };
}

TEST_F(RpcTest, every_call_needs_its_scope_and_no_other_will_do) {
  ask_for_keys();
  serve();
  const auto connection = channel();
  const auto table = rows();
  const auto* service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("faultline.v1.Faultline");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string& name = service->method(i)->name();
    const auto row = table.find(name);
    ASSERT_NE(row, table.end()) << "who may call " << name << "?";
    const std::string path = "/faultline.v1.Faultline/" + name;
    for (const std::string key : {"produce", "work", "read", "admin", "nothing"}) {
      const Raw raw = raw_call(connection, path, row->second.request, key);
      EXPECT_EQ(raw.status.error_code(),
                key == row->second.scope ? row->second.answer : grpc::StatusCode::PERMISSION_DENIED)
          << name << " with " << key << ": " << raw.status.error_message();
    }
    for (const std::string key : {"", "unknown"}) {
      EXPECT_EQ(raw_call(connection, path, row->second.request, key).status.error_code(),
                grpc::StatusCode::UNAUTHENTICATED)
          << name << " with " << key;
    }
  }
}

TEST_F(RpcTest, a_key_that_is_bound_to_queues_is_good_for_no_other) {
  ask_for_keys();
  serve();
  must(store_.set_queue("other", {}));
  const auto connection = channel();
  auto enqueue = enqueue_request();
  EXPECT_EQ(raw_call(connection, "/faultline.v1.Faultline/Enqueue", enqueue.SerializeAsString(), "bound")
                .status.error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  enqueue.mutable_job()->set_queue("other");
  EXPECT_TRUE(raw_call(connection, "/faultline.v1.Faultline/Enqueue", enqueue.SerializeAsString(), "bound")
                  .status.ok());
  pb::StreamJobsRequest stream;
  stream.set_worker("w");
  for (const auto& [queue, code] : {std::pair{"default", grpc::StatusCode::PERMISSION_DENIED},
                                    std::pair{"other", grpc::StatusCode::OK}}) {
    stream.set_queue(queue);
    EXPECT_EQ(raw_call(connection, "/faultline.v1.Faultline/StreamJobs", stream.SerializeAsString(), "bound")
                  .status.error_code(),
              code);
  }
}

/// For every call a request about a queue, or about a job of it and its lease.
std::map<std::string, std::string> requests_about(const std::string& queue, const Lease& lease) {
  const pb::Lease held = wire::to_proto(lease);
  const std::string job = lease.job.to_string();
  pb::EnqueueRequest enqueue = enqueue_request();
  enqueue.mutable_job()->set_queue(queue);
  pb::EnqueueBatchRequest batch;
  *batch.add_jobs() = enqueue.job();
  pb::StreamJobsRequest stream;
  stream.set_queue(queue);
  stream.set_worker("w");
  pb::HeartbeatRequest leases;  // the other requests with leases look the same
  *leases.add_leases() = held;
  pb::ReportResultRequest result;
  *result.add_results()->mutable_lease() = held;
  result.mutable_results(0)->mutable_outcome()->set_result("forged");
  pb::ReportProgressRequest progress;
  *progress.add_reports()->mutable_lease() = held;
  pb::BeginEffectsRequest keys;
  *keys.add_keys()->mutable_lease() = held;
  keys.mutable_keys(0)->set_key("k");
  pb::GetJobRequest get;
  get.set_id(job);
  pb::ListJobsRequest list;
  list.set_queue(queue);
  pb::CancelJobsRequest ids;
  ids.add_ids(job);
  pb::SetQueueRequest set;
  set.set_name(queue);
  set.set_paused(true);
  return {
      {"Enqueue", enqueue.SerializeAsString()},
      {"EnqueueBatch", batch.SerializeAsString()},
      {"StreamJobs", stream.SerializeAsString()},
      {"Heartbeat", leases.SerializeAsString()},
      {"ReportResult", result.SerializeAsString()},
      {"ReportProgress", progress.SerializeAsString()},
      {"CheckLeases", leases.SerializeAsString()},
      {"ResolveResults", leases.SerializeAsString()},
      {"BeginEffects", keys.SerializeAsString()},
      {"RecordEffects", keys.SerializeAsString()},
      {"ForgetEffects", keys.SerializeAsString()},
      {"GetJob", get.SerializeAsString()},
      {"ListJobs", list.SerializeAsString()},
      {"ListQueues", ""},
      {"ListStaleWrites", ""},
      {"CancelJobs", ids.SerializeAsString()},
      {"RequeueJobs", ids.SerializeAsString()},
      {"PurgeJobs", ids.SerializeAsString()},
      {"SetQueue", set.SerializeAsString()},
  };
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST_F(RpcTest, to_a_key_of_one_queue_another_queue_and_its_jobs_are_not_there_in_any_call) {
  ask_for_keys();
  serve();
  must(store_.set_queue("other", {}));
  enqueue({.kind = "their-kind"});
  const Lease running = claim_one("their-worker").lease;
  enqueue({.kind = "their-kind"});
  const Lease ended = claim_one("their-worker").lease;
  complete(ended);
  EXPECT_EQ(settle(ended, Outcome::failure("late")).status, Verdict::Status::stale);
  const auto everything = [&] {
    return query_text(sql_,
                      "SELECT concat_ws(E'\\n', (SELECT string_agg(j::text, E'\\n' ORDER BY j.id) FROM"
                      " faultline.jobs j WHERE j.queue <> ''), (SELECT count(*) FROM faultline.ledger),"
                      " (SELECT count(*) FROM faultline.effects), (SELECT count(*) FROM"
                      " faultline.stale_writes), (SELECT bool_or(q.paused) FROM faultline.queues q))");
  };
  const std::string before = everything();
  const auto connection = channel();
  const auto* service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("faultline.v1.Faultline");
  ASSERT_NE(service, nullptr);
  for (const Lease& lease : {running, ended}) {
    Lease made_up = lease;
    made_up.job = unknown_job();
    made_up.lease_id = Uuid::random();
    const auto theirs = requests_about("default", lease);
    const auto nothing = requests_about("nowhere", made_up);
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string& name = service->method(i)->name();
      SCOPED_TRACE(name);
      ASSERT_TRUE(theirs.contains(name)) << "what does " << name << " tell a key of another queue?";
      const std::string path = "/faultline.v1.Faultline/" + name;
      const Raw there = raw_call(connection, path, theirs.at(name), "bound");
      const Raw nowhere = raw_call(connection, path, nothing.at(name), "bound");
      EXPECT_EQ(there.status.error_code(), nowhere.status.error_code()) << there.status.error_message();
      EXPECT_EQ(
          replaced(replaced(there.status.error_message(), lease.job.to_string(), "JOB"), "default", "Q"),
          replaced(replaced(nowhere.status.error_message(), made_up.job.to_string(), "JOB"), "nowhere", "Q"));
      EXPECT_EQ(replaced(there.answer, lease.job.to_string(), made_up.job.to_string()), nowhere.answer);
      EXPECT_EQ((there.answer + there.status.error_details()).find("their-"), std::string::npos);
    }
  }
  EXPECT_EQ(everything(), before);
}

TEST_F(RpcTest, every_answer_has_the_name_of_its_call) {
  serve();
  const auto name_of = [&](const std::string& given) {
    CallContext context;
    if (!given.empty()) context.AddMetadata("x-request-id", given);
    pb::ListQueuesResponse response;
    EXPECT_TRUE(stub().ListQueues(&context, {}, &response).ok());
    const auto found = context.GetServerInitialMetadata().find("x-request-id");
    return found == context.GetServerInitialMetadata().end()
               ? std::string{}
               : std::string{found->second.data(), found->second.size()};
  };
  EXPECT_EQ(name_of("its-own_1"), "its-own_1");
  EXPECT_EQ(name_of("").size(), 36U);
  EXPECT_EQ(name_of("no good name").size(), 36U);
  EXPECT_NE(name_of(""), name_of(""));
}

TEST_F(RpcTest, only_a_bearer_is_a_key) {
  ask_for_keys();
  serve();
  for (const auto& [value, code] :
       {std::pair{"bearer read", grpc::StatusCode::OK}, std::pair{"read", grpc::StatusCode::UNAUTHENTICATED},
        std::pair{"Basic read", grpc::StatusCode::UNAUTHENTICATED},
        std::pair{"Bearer", grpc::StatusCode::UNAUTHENTICATED}}) {
    CallContext context;
    context.AddMetadata("authorization", value);
    pb::ListQueuesResponse response;
    EXPECT_EQ(stub().ListQueues(&context, {}, &response).error_code(), code) << value;
  }
}

TEST_F(RpcTest, health_follows_the_service_and_needs_no_key) {
  ask_for_keys();
  serve();
  const auto connection = channel();
  const std::string serving("\x08\x01", 2);
  const std::string not_serving("\x08\x02", 2);
  const std::string ours =
      "\x0a\x16"
      "faultline.v1.Faultline";
  EXPECT_EQ(raw_call(connection, "/grpc.health.v1.Health/Check", "").answer, serving);
  EXPECT_EQ(raw_call(connection, "/grpc.health.v1.Health/Check", ours).answer, serving);
  service_->drain();
  EXPECT_TRUE(eventually(
      [&] { return raw_call(connection, "/grpc.health.v1.Health/Check", ours).answer == not_serving; }));
  EXPECT_EQ(raw_call(connection, "/grpc.health.v1.Health/Check", "").answer, not_serving);
}

TEST_F(RpcTest, reflection_names_the_services_and_needs_no_key) {
  ask_for_keys();
  serve();
  const Raw raw = raw_call(channel(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                           std::string("\x3a\x00", 2));  // list_services
  EXPECT_THAT(raw.answer, HasSubstr("faultline.v1.Faultline"));
  EXPECT_THAT(raw.answer, HasSubstr("grpc.health.v1.Health"));
}

TEST_F(RpcTest, a_message_over_the_limit_is_refused_and_the_connection_lives) {
  serve({.message_max = 10'000});
  pb::EnqueueResponse response;
  EXPECT_EQ(
      call(&Stub::Enqueue, enqueue_request("\"" + std::string(20'000, 'x') + "\""), response).error_code(),
      grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(call(&Stub::Enqueue, enqueue_request(), response).ok());
  EXPECT_EQ(server_->counters().calls, 1U);
}

TEST_F(RpcTest, a_port_that_is_taken_is_an_error_that_names_it) {
  const std::uint16_t port = serve().port();
  const auto second =
      rpc::RpcServer::start({.port = port, .log = [](const Event&) {}}, *service_, *authenticator_);
  ASSERT_FALSE(second.has_value());
  EXPECT_THAT(second.error().message, HasSubstr("127.0.0.1:" + std::to_string(port)));
}

class RpcPlacesTest : public RpcTest, public ::testing::WithParamInterface<std::string> {
 protected:
  /// With a connection of its own, which stays.
  [[nodiscard]] std::shared_ptr<grpc::Channel> client() const {
    const std::string host = GetParam().contains(':') ? "[" + GetParam() + "]" : GetParam();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(host + ":" + std::to_string(server_->port()),
                                     grpc::InsecureChannelCredentials(), arguments);
  }
  static grpc::StatusCode list_queues(const std::shared_ptr<grpc::Channel>& by) {
    CallContext context;
    pb::ListQueuesResponse response;
    return pb::Faultline::NewStub(by)->ListQueues(&context, {}, &response).error_code();
  }
};

TEST_P(RpcPlacesTest, at_the_limit_strangers_make_room_and_those_with_an_admitted_call_stay) {
  serve({.host = GetParam(), .connections_max = 2});
  const auto first = client();
  EXPECT_EQ(list_queues(first), grpc::StatusCode::OK);
  const auto stranger = client();
  ASSERT_TRUE(stranger->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds{60}));
  ASSERT_EQ(server_->counters().connections, 2U);

  auto third = client();
  EXPECT_EQ(list_queues(third), grpc::StatusCode::OK);
  EXPECT_EQ(list_queues(first), grpc::StatusCode::OK);
  EXPECT_EQ(server_->counters().refused_connections, 1U)
      << "the stranger, and not the first, who would have come again";

  EXPECT_EQ(list_queues(client()), grpc::StatusCode::UNAVAILABLE) << "all others have a right to be here";
  EXPECT_EQ(list_queues(first), grpc::StatusCode::OK);
  third.reset();
  EXPECT_TRUE(testing::eventually([&] { return list_queues(client()) == grpc::StatusCode::OK; }));
}

INSTANTIATE_TEST_SUITE_P(Families, RpcPlacesTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& info) { return info.index == 0 ? "v4" : "v6"; });

TEST_F(RpcTest, a_call_s_deadline_ends_it) {
  serve();
  // The database's answer is held up by a lock.
  script("BEGIN; LOCK TABLE faultline.queues IN ACCESS EXCLUSIVE MODE");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + ms{300});
  pb::ListQueuesResponse response;
  EXPECT_EQ(stub().ListQueues(&context, {}, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  script("ROLLBACK");
  EXPECT_TRUE(call(&Stub::ListQueues, pb::ListQueuesRequest{}, response).ok());
}

/// A certificate authority in a directory.
class Authority {
 public:
  Authority(const ScratchDir& dir, const std::string& name) : dir_(dir), name_(name) {
    openssl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
             "2", "-subj", "/CN=" + name, "-keyout", path(name + ".key"), "-out", path(name + ".crt")});
  }
  /// Makes `file`.crt and `file`.key, each in one step.
  void issue(const std::string& file, const std::string& common_name) const {
    const std::string made = path(name_ + "-" + file);
    write_file(made + ".ext", "subjectAltName=IP:127.0.0.1,DNS:localhost\n");
    openssl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
             "/CN=" + common_name, "-keyout", made + ".key", "-out", made + ".csr"});
    openssl({"x509", "-req", "-days", "2", "-in", made + ".csr", "-CA", path(name_ + ".crt"), "-CAkey",
             path(name_ + ".key"), "-CAcreateserial", "-extfile", made + ".ext", "-out", made + ".crt"});
    std::filesystem::rename(made + ".key", path(file + ".key"));
    std::filesystem::rename(made + ".crt", path(file + ".crt"));
  }
  [[nodiscard]] std::string certificate() const { return read_file(path(name_ + ".crt")); }

 private:
  [[nodiscard]] std::string path(const std::string& file) const { return (dir_ / file).string(); }
  static void openssl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "openssl");
    const ProcessResult result = run_process({.argv = std::move(arguments)});
    if (result.exit_code != 0) throw std::runtime_error(result.err);
  }

  const ScratchDir& dir_;
  std::string name_;
};

class TlsTest : public RpcTest {
 protected:
  [[nodiscard]] std::string file(const std::string& name) const { return (dir_ / name).string(); }
  [[nodiscard]] rpc::RpcServerOptions options(const std::string& client_ca = {}) const {
    return {.certificates = must(tls::Certificates::load(
                {.files = {.cert = file("server.crt"),
                           .key = file("server.key"),
                           .client_ca = client_ca.empty() ? client_ca : file(client_ca)},
                 .log = [](const Event&) {}}))};
  }
  /// Over a connection of its own.
  grpc::Status list_queues(const grpc::SslCredentialsOptions& tls, const std::string& bearer = {}) {
    const auto own = pb::Faultline::NewStub(channel(grpc::SslCredentials(tls)));
    CallContext context{bearer};
    pb::ListQueuesResponse response;
    return own->ListQueues(&context, {}, &response);
  }

  ScratchDir dir_;
  Authority authority_{dir_, "authority"};
};

TEST_F(TlsTest, serves_over_tls_and_reads_certificates_again_when_they_change) {
  authority_.issue("server", "localhost");
  serve(options());
  EXPECT_TRUE(list_queues({.pem_root_certs = authority_.certificate()}).ok());
  const auto plain = pb::Faultline::NewStub(channel());
  CallContext context;
  pb::ListQueuesResponse response;
  EXPECT_EQ(plain->ListQueues(&context, {}, &response).error_code(), grpc::StatusCode::UNAVAILABLE);

  const Authority other{dir_, "other"};
  EXPECT_EQ(list_queues({.pem_root_certs = other.certificate()}).error_code(), grpc::StatusCode::UNAVAILABLE);
  other.issue("server", "localhost");
  EXPECT_TRUE(eventually([&] { return list_queues({.pem_root_certs = other.certificate()}).ok(); }));
  EXPECT_EQ(list_queues({.pem_root_certs = authority_.certificate()}).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

class MutualTlsTest : public TlsTest {
 protected:
  MutualTlsTest() {
    authority_.issue("server", "localhost");
    authority_.issue("client", "billing");
    const Authority other{dir_, "other"};
    other.issue("stranger", "stranger");
  }
  [[nodiscard]] grpc::SslCredentialsOptions holder_of(const std::string& certificate) const {
    return {authority_.certificate(), read_file(file(certificate + ".key")),
            read_file(file(certificate + ".crt"))};
  }
};

TEST_F(MutualTlsTest,
       with_a_client_authority_and_without_keys_a_certificate_is_enough_and_the_record_names_it) {
  serve(options("authority.crt"));
  EXPECT_EQ(list_queues({.pem_root_certs = authority_.certificate()}).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(list_queues(holder_of("stranger")).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(list_queues(holder_of("client")).ok());

  const JobId id = enqueue();
  ASSERT_EQ(cancel(id), CancelStatus::cancelled);
  const auto own = pb::Faultline::NewStub(channel(grpc::SslCredentials(holder_of("client"))));
  CallContext context;
  pb::RequeueJobsRequest requeue;
  requeue.add_ids(id.to_string());
  pb::RequeueJobsResponse response;
  ASSERT_TRUE(own->RequeueJobs(&context, requeue, &response).ok());
  EXPECT_EQ(history(id).attempts.back().worker, "billing (client certificate)");
}

TEST_F(MutualTlsTest, where_keys_are_asked_for_a_certificate_is_needed_as_well_and_stands_for_none) {
  ask_for_keys();
  serve(options("authority.crt"));
  EXPECT_EQ(list_queues({.pem_root_certs = authority_.certificate()}, "read").error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(list_queues(holder_of("stranger"), "read").error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(list_queues(holder_of("client")).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(list_queues(holder_of("client"), "read").ok());
  EXPECT_EQ(list_queues(holder_of("client"), "produce").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(list_queues(holder_of("client"), "unknown").error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

}  // namespace
}  // namespace faultline::testing

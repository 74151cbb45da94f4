#include "wire/convert.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "support/filled.h"
#include "wire/failure.h"

namespace faultline::wire {
namespace {

using testing::filled;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ms = std::chrono::milliseconds;

constexpr DatabaseTime kMoment{std::chrono::microseconds{1'769'860'800'123'456}};
const JobId kJob{Uuid::random()};

Lease a_lease() { return {.job = kJob, .token = {7}, .lease_id = Uuid::random(), .worker = "w-1"}; }
Stale a_stale() {
  return {.reason = StaleReason::lease_expired,
          .current_token = FenceToken{8},
          .current_worker = "w-2",
          .current_state = JobState::running};
}

/// The fields that are not set, or still at their default, here and in the messages inside.
std::vector<std::string> empty_fields(const google::protobuf::Message& message,
                                      const std::string& prefix = {}) {
  std::vector<std::string> empty;
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* field = message.GetDescriptor()->field(i);
    const std::string name = prefix + field->name();
    const bool set =
        field->is_repeated() ? reflection.FieldSize(message, field) > 0 : reflection.HasField(message, field);
    if (!set) {
      empty.push_back(name);
    } else if (field->cpp_type() == field->CPPTYPE_MESSAGE && !field->is_repeated()) {
      for (auto& inner : empty_fields(reflection.GetMessage(message, field), name + "."))
        empty.push_back(inner);
    }
  }
  return empty;
}

/// A message in which every field stands, because its value has every member, comes back as the same value.
template <class Message, class Back>
void expect_round_trip(const Message& message, const Back& back_and_forth) {
  EXPECT_THAT(empty_fields(message), IsEmpty());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(back_and_forth(message), message))
      << message.DebugString() << "came back as\n"
      << back_and_forth(message).DebugString();
}

TEST(Convert, what_goes_out_comes_back_as_it_was) {
  expect_round_trip(to_proto(a_lease()), [](const pb::Lease& m) { return to_proto(from_proto(m).value()); });
  expect_round_trip(to_proto(filled<NewJob>()),
                    [](pb::NewJob m) { return to_proto(from_proto(std::move(m)).value()); });
  expect_round_trip(to_proto(Submission{.status = Submission::Status::conflict, .job = kJob}),
                    [](const pb::Submission& m) { return to_proto(from_proto(m).value()); });
  expect_round_trip(to_proto(filled<ClaimedJob>()),
                    [](pb::JobAssignment m) { return to_proto(from_proto(std::move(m)).value()); });
  expect_round_trip(to_proto(a_stale()), [](const pb::Stale& m) { return to_proto(from_proto(m)); });
  const Lease lease = a_lease();
  expect_round_trip(
      to_proto(Verdict{.status = Verdict::Status::stale, .stale = a_stale(), .repeated = true}, lease),
      [&](const pb::Verdict& m) { return to_proto(from_proto(m), lease); });
  EXPECT_FALSE(from_proto(to_proto(Verdict{}, lease)).repeated);
  EXPECT_TRUE(from_proto(to_proto(EffectKey{.lease = lease, .key = "k"})).value().call.is_nil());
  expect_round_trip(
      to_proto(Settlement{
          .lease = lease,
          .outcome = {.kind = Outcome::Kind::failed, .result = "r", .error = "e", .delay = ms{1}}}),
      [](pb::Result m) { return to_proto(from_proto(std::move(m)).value()); });
  expect_round_trip(to_proto(ProgressReport{.lease = lease, .fraction = 0.25, .note = "n"}),
                    [](pb::Progress m) { return to_proto(from_proto(std::move(m)).value()); });
  expect_round_trip(to_proto(EffectKey{.lease = lease, .key = "k", .call = Uuid::random()}),
                    [](pb::EffectKey m) { return to_proto(from_proto(std::move(m)).value()); });
  expect_round_trip(to_proto(EffectResult{.lease = lease, .key = "k", .result = "\xff"}),
                    [](pb::EffectResult m) { return to_proto(from_proto(std::move(m)).value()); });
  expect_round_trip(
      to_proto(Effect{
          .status = Effect::Status::stale, .result = "r", .begun_under = FenceToken{3}, .stale = a_stale()}),
      [](pb::Effect m) { return to_proto(from_proto(std::move(m))); });
}

TEST(Convert, a_beat_has_an_expiry_or_says_why_it_is_lost) {
  const pb::Beat renewed = to_proto(
      Beat{.status = Beat::Status::cancel_requested, .lease_expires_at = kMoment, .cancel_reason = "enough"});
  EXPECT_FALSE(renewed.has_stale());
  EXPECT_EQ(from_proto(renewed).status, Beat::Status::cancel_requested);
  EXPECT_EQ(from_proto(renewed).lease_expires_at, kMoment);
  EXPECT_EQ(from_proto(renewed).cancel_reason, "enough");
  const pb::Beat lost = to_proto(Beat{.status = Beat::Status::lost, .stale = a_stale()});
  EXPECT_FALSE(lost.has_lease_expires_at());
  EXPECT_EQ(from_proto(lost).status, Beat::Status::lost);
  EXPECT_EQ(from_proto(lost).stale.current_token, FenceToken{8});
}

TEST(Convert, every_word_of_an_enumeration_has_its_own) {
  for (const auto state : {JobState::scheduled, JobState::available, JobState::running, JobState::held,
                           JobState::dead, JobState::succeeded, JobState::cancelled}) {
    EXPECT_EQ(from_proto(to_proto(state)), state);
  }
  EXPECT_EQ(from_proto(pb::JOB_STATE_UNSPECIFIED), std::nullopt);
  for (const auto kind : {Outcome::Kind::succeeded, Outcome::Kind::failed, Outcome::Kind::buried,
                          Outcome::Kind::snoozed, Outcome::Kind::released, Outcome::Kind::cancelled}) {
    EXPECT_EQ(from_proto(to_proto(kind)), kind);
  }
  for (const auto reason : {StaleReason::token_mismatch, StaleReason::lease_expired,
                            StaleReason::already_settled, StaleReason::cancelled}) {
    EXPECT_EQ(from_proto(to_proto(Stale{.reason = reason})).reason, reason);
  }
  for (const auto delivery : {Delivery::at_least_once, Delivery::at_most_once, Delivery::hold}) {
    EXPECT_EQ(from_proto(to_proto(NewJob{.delivery = delivery})).value().delivery, delivery);
  }
  for (const auto status :
       {Submission::Status::created, Submission::Status::existing, Submission::Status::conflict}) {
    EXPECT_EQ(from_proto(to_proto(Submission{.status = status, .job = kJob})).value().status, status);
  }
  for (const auto status : {Verdict::Status::committed, Verdict::Status::stale, Verdict::Status::unknown}) {
    EXPECT_EQ(from_proto(to_proto(Verdict{.status = status}, a_lease())).status, status);
  }
  for (const auto status : {Beat::Status::renewed, Beat::Status::cancel_requested, Beat::Status::lost}) {
    EXPECT_EQ(from_proto(to_proto(Beat{.status = status})).status, status);
  }
  for (const auto status :
       {Effect::Status::begun, Effect::Status::recorded, Effect::Status::unknown, Effect::Status::stale}) {
    EXPECT_EQ(from_proto(to_proto(Effect{.status = status})).status, status);
  }
}

TEST(Convert, an_answer_of_a_newer_server_is_never_taken_for_good_news) {
  pb::Verdict verdict;
  verdict.set_status(static_cast<pb::Verdict::Status>(77));
  EXPECT_EQ(from_proto(verdict).status, Verdict::Status::unknown);
  pb::Beat beat;
  beat.set_status(static_cast<pb::Beat::Status>(77));
  EXPECT_EQ(from_proto(beat).status, Beat::Status::unknown);
  pb::Effect effect;
  effect.set_status(static_cast<pb::Effect::Status>(77));
  EXPECT_EQ(from_proto(std::move(effect)).status, Effect::Status::unknown);
  EXPECT_EQ(from_proto(static_cast<pb::JobState>(77)), std::nullopt);
}

TEST(Convert, a_new_job_with_nothing_set_is_as_in_the_library) {
  const NewJob job = from_proto(pb::NewJob{}).value();
  EXPECT_EQ(job.queue, NewJob{}.queue);
  EXPECT_EQ(job.payload, NewJob{}.payload);
  EXPECT_EQ(job.priority, NewJob{}.priority);
  EXPECT_EQ(job.run_at, std::nullopt);
  EXPECT_EQ(job.delay, std::nullopt);
  EXPECT_EQ(job.idempotency_key, std::nullopt);
  pb::NewJob bytes;
  bytes.set_encoding(pb::ENCODING_BYTES);
  EXPECT_EQ(from_proto(std::move(bytes)).value().payload, "");
}

TEST(Convert, an_error_names_the_field) {
  pb::Lease lease = to_proto(a_lease());
  lease.set_lease_id("x");
  EXPECT_THAT(from_proto(lease).error().message, HasSubstr("lease_id"));
  EXPECT_EQ(from_proto(lease).error().code, ErrorCode::invalid_argument);

  pb::Result result = to_proto(Settlement{.lease = a_lease()});
  result.mutable_lease()->set_job_id("x");
  EXPECT_THAT(from_proto(pb::Result{result}).error().message, HasSubstr("lease.job_id"));
  *result.mutable_lease() = to_proto(a_lease());
  result.mutable_outcome()->set_kind(static_cast<pb::Outcome::Kind>(77));
  EXPECT_THAT(from_proto(pb::Result{result}).error().message, HasSubstr("outcome.kind"));
  result.clear_outcome();
  EXPECT_THAT(from_proto(pb::Result{result}).error().message, HasSubstr("outcome"));
  EXPECT_THAT(from_proto(pb::EffectKey{}).error().message, HasSubstr("lease"));

  pb::EffectKey key = to_proto(EffectKey{.lease = a_lease(), .key = "k"});
  for (const std::string bad : {"", "x", "00000000-0000-0000-0000-000000000000"}) {
    key.set_call_id(bad);
    EXPECT_THAT(from_proto(pb::EffectKey{key}).error().message, HasSubstr("call_id")) << bad;
  }

  pb::NewJob job;
  job.mutable_run_at()->set_nanos(-1);
  EXPECT_THAT(from_proto(pb::NewJob{job}).error().message, HasSubstr("run_at"));
  job.mutable_run_at()->set_nanos(0);
  job.mutable_run_at()->set_seconds(std::numeric_limits<std::int64_t>::max());
  EXPECT_THAT(from_proto(pb::NewJob{job}).error().message, HasSubstr("run_at"));
  job.clear_run_at();
  job.set_encoding(static_cast<pb::Encoding>(77));
  EXPECT_THAT(from_proto(pb::NewJob{job}).error().message, HasSubstr("encoding"));
  job.clear_encoding();
  job.set_delivery(static_cast<pb::Delivery>(77));
  EXPECT_THAT(from_proto(pb::NewJob{job}).error().message, HasSubstr("delivery"));
  EXPECT_FALSE(job_id("").has_value());
}

TEST(Convert, moments_keep_their_microseconds_and_infinity_is_the_last_one) {
  for (const auto moment : {kMoment, DatabaseTime{std::chrono::microseconds{-1}}, DatabaseTime{}}) {
    EXPECT_EQ(from_proto(to_proto(NewJob{.run_at = moment})).value().run_at, moment);
  }
  EXPECT_EQ(to_proto(NewJob{.run_at = DatabaseTime::max()}).run_at().seconds(), 253'402'300'799);
  EXPECT_EQ(to_proto(NewJob{.run_at = DatabaseTime::min()}).run_at().seconds(), -62'135'596'800);
}

TEST(Convert, text_for_people_that_is_not_utf8_does_not_spoil_the_message) {
  const pb::Result result = to_proto(
      Settlement{.lease = a_lease(), .outcome = {.kind = Outcome::Kind::failed, .error = "no \xff\xfe way"}});
  EXPECT_EQ(result.outcome().error(), "no \xef\xbf\xbd\xef\xbf\xbd way");
  pb::Result read;
  EXPECT_TRUE(read.ParseFromString(result.SerializeAsString()));
}

TEST(Convert, what_only_goes_out_is_whole) {
  const pb::GetJobResponse history = to_proto(JobHistory{.job = filled<Job>(),
                                                         .attempts = {filled<Attempt>()},
                                                         .stale_writes = {filled<StaleWrite>()},
                                                         .effects = {filled<EffectRecord>()},
                                                         .decisions = {filled<EffectDecision>()}});
  EXPECT_THAT(empty_fields(history), IsEmpty());
  EXPECT_THAT(empty_fields(history.attempts(0)), IsEmpty());
  EXPECT_THAT(empty_fields(history.stale_writes(0)), IsEmpty());
  EXPECT_THAT(empty_fields(history.effects(0)), IsEmpty());
  EXPECT_THAT(empty_fields(history.decisions(0)), IsEmpty());
}

/// The names of a struct's fields, without and with some.
template <class Struct>
std::set<std::string> names_of(const std::set<std::string>& without = {},
                               const std::set<std::string>& with = {}) {
  std::set<std::string> names = with;
  for_each_field<Struct>([&](const FieldInfo& field) {
    if (!without.contains(std::string{field.name})) names.insert(std::string{field.name});
  });
  return names;
}

std::set<std::string> names_of(const google::protobuf::Descriptor* message) {
  std::set<std::string> names;
  for (int i = 0; i < message->field_count(); ++i) names.insert(message->field(i)->name());
  return names;
}

TEST(Convert, messages_have_the_fields_of_the_tables_and_no_others) {
  EXPECT_EQ(names_of(pb::Lease::descriptor()), names_of<Lease>());
  EXPECT_EQ(names_of(pb::NewJob::descriptor()), names_of<NewJob>());
  EXPECT_EQ(names_of(pb::JobAssignment::descriptor()), names_of<ClaimedJob>());
  EXPECT_EQ(names_of(pb::Stale::descriptor()), names_of<Stale>());
  EXPECT_EQ(names_of(pb::Job::descriptor()), names_of<Job>());
  EXPECT_EQ(names_of(pb::Attempt::descriptor()), names_of<Attempt>());
  EXPECT_EQ(names_of(pb::StaleWrite::descriptor()), names_of<StaleWrite>());
  EXPECT_EQ(names_of(pb::EffectRecord::descriptor()), names_of<EffectRecord>());
  EXPECT_EQ(names_of(pb::EffectDecision::descriptor()), names_of<EffectDecision>());
  // The request also says which queue, and whether to make it.
  EXPECT_EQ(names_of(pb::SetQueueRequest::descriptor()), names_of<QueueSettings>({}, {"name", "create"}));
  // A queue has its counts beside its settings, and its name once.
  EXPECT_EQ(names_of(pb::Queue::descriptor()), names_of<Queue>({}, names_of<QueueCounts>({"queue"})));
}

TEST(Convert, a_listed_job_is_a_job_without_what_a_listing_leaves_out) {
  const pb::Job job = to_proto(filled<JobSummary>());
  std::set<std::string> set;
  for (int i = 0; i < job.GetDescriptor()->field_count(); ++i) {
    const auto* field = job.GetDescriptor()->field(i);
    const bool there = field->is_repeated() ? job.GetReflection()->FieldSize(job, field) > 0
                                            : job.GetReflection()->HasField(job, field);
    if (there) set.insert(field->name());
  }
  EXPECT_EQ(set, names_of<JobSummary>());
}

TEST(Convert, a_queue_goes_out_with_its_counts_and_its_settings_come_in) {
  const pb::Queue queue = to_proto(filled<Queue>(), filled<QueueCounts>());
  EXPECT_THAT(empty_fields(queue), IsEmpty());
  EXPECT_EQ(queue.oldest_due_age_ms(), 15);

  pb::SetQueueRequest request;
  EXPECT_EQ(from_proto(request).paused, std::nullopt);
  EXPECT_EQ(from_proto(request).key_retention, std::nullopt);
  request.set_paused(false);
  request.set_running_max(-1);
  request.set_lease_ttl_ms(1);
  request.set_attempts_max(2);
  request.set_backoff_base_ms(3);
  request.set_backoff_max_ms(4);
  request.set_retention_ms(5);
  request.set_key_retention_ms(6);
  request.set_dead_retention_ms(7);
  const QueueSettings settings = from_proto(request);
  EXPECT_EQ(settings.paused, false);
  EXPECT_EQ(settings.running_max, -1);
  EXPECT_EQ(settings.lease_ttl, ms{1});
  EXPECT_EQ(settings.attempts_max, 2);
  EXPECT_EQ(settings.backoff_base, ms{3});
  EXPECT_EQ(settings.backoff_max, ms{4});
  EXPECT_EQ(settings.retention, ms{5});
  EXPECT_EQ(settings.key_retention, ms{6});
  EXPECT_EQ(settings.dead_retention, ms{7});
}

TEST(Failure, is_found_among_the_details_of_a_status) {
  pb::Failure failure;
  failure.set_code("stale");
  const std::string details = to_details(9, "too late", failure);
  EXPECT_EQ(failure_of(details).value().code(), "stale");
  EXPECT_EQ(details.substr(0, 4), std::string("\x08\x09\x12\x08"))
      << "code and message as in google.rpc.Status";
  EXPECT_FALSE(failure_of("").has_value());
  EXPECT_FALSE(failure_of("\xff").has_value());
}

}  // namespace
}  // namespace faultline::wire

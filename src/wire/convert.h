#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "faultline/error.h"
#include "faultline/store.h"
#include "faultline/v1/faultline.pb.h"

/// Between the messages of proto/ and the public types. What comes in may be anything: `from_proto` returns
/// an error that names the field. What goes out is always good.
namespace faultline::wire {

namespace pb = ::faultline::v1;

[[nodiscard]] pb::Lease to_proto(const Lease& lease);
[[nodiscard]] Expected<Lease> from_proto(const pb::Lease& lease);

[[nodiscard]] pb::NewJob to_proto(const NewJob& job);
[[nodiscard]] Expected<NewJob> from_proto(pb::NewJob&& job);

[[nodiscard]] pb::Submission to_proto(const Submission& submission);
[[nodiscard]] Expected<Submission> from_proto(const pb::Submission& submission);

[[nodiscard]] pb::JobAssignment to_proto(ClaimedJob&& job);
[[nodiscard]] Expected<ClaimedJob> from_proto(pb::JobAssignment&& job);

[[nodiscard]] pb::Stale to_proto(const Stale& stale);
[[nodiscard]] Stale from_proto(const pb::Stale& stale);
/// With the lease that was judged, whose token the verdict names.
[[nodiscard]] pb::Verdict to_proto(const Verdict& verdict, const Lease& lease);
[[nodiscard]] Verdict from_proto(const pb::Verdict& verdict);
[[nodiscard]] pb::Beat to_proto(const Beat& beat);
[[nodiscard]] Beat from_proto(const pb::Beat& beat);

[[nodiscard]] pb::Outcome::Kind to_proto(Outcome::Kind kind);
/// Nothing for what this version does not know.
[[nodiscard]] std::optional<Outcome::Kind> from_proto(pb::Outcome::Kind kind);
[[nodiscard]] pb::Outcome to_proto(const Outcome& outcome);
[[nodiscard]] Expected<Outcome> from_proto(pb::Outcome&& outcome);
[[nodiscard]] pb::Result to_proto(const Settlement& settlement);
[[nodiscard]] Expected<Settlement> from_proto(pb::Result&& result);

[[nodiscard]] pb::Progress to_proto(const ProgressReport& report);
[[nodiscard]] Expected<ProgressReport> from_proto(pb::Progress&& report);
[[nodiscard]] pb::EffectKey to_proto(const EffectKey& key);
[[nodiscard]] Expected<EffectKey> from_proto(pb::EffectKey&& key);
[[nodiscard]] pb::EffectResult to_proto(const EffectResult& result);
[[nodiscard]] Expected<EffectResult> from_proto(pb::EffectResult&& result);
[[nodiscard]] pb::Effect to_proto(Effect&& effect);
[[nodiscard]] Effect from_proto(pb::Effect&& effect);

[[nodiscard]] pb::GetJobResponse to_proto(JobHistory&& history);
[[nodiscard]] pb::Job to_proto(const JobSummary& job);
[[nodiscard]] pb::StaleWrite to_proto(const StaleWrite& write);
[[nodiscard]] pb::Queue to_proto(const Queue& queue, const QueueCounts& counts);
[[nodiscard]] QueueSettings from_proto(const pb::SetQueueRequest& request);

[[nodiscard]] pb::JobState to_proto(JobState state);
/// Nothing for UNSPECIFIED and for what this version does not know.
[[nodiscard]] std::optional<JobState> from_proto(pb::JobState state);
[[nodiscard]] Expected<JobId> job_id(const std::string& text);
[[nodiscard]] Expected<Uuid> call_id_of(const std::string& text);
/// Nil if the message has none.
template <class Message>
[[nodiscard]] Expected<Uuid> call_id(const Message& message) {
  return message.has_call_id() ? call_id_of(message.call_id()) : Uuid{};
}

}  // namespace faultline::wire

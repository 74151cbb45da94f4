// The words of the public values.

#include <array>
#include <utility>

#include "base/words.h"
#include "faultline/error.h"
#include "faultline/job.h"
#include "faultline/store.h"

namespace faultline {
namespace {

template <class T, std::size_t N>
std::string_view word_of(const std::array<std::pair<T, std::string_view>, N>& words, T value) {
  for (const auto& [known, word] : words) {
    if (known == value) return word;
  }
  return "?";
}

template <class T, std::size_t N>
std::optional<T> value_of(const std::array<std::pair<T, std::string_view>, N>& words, std::string_view text) {
  for (const auto& [value, word] : words) {
    if (word == text) return value;
  }
  return std::nullopt;
}

constexpr std::array kStates = {
    std::pair{JobState::scheduled, std::string_view{"scheduled"}},
    std::pair{JobState::available, std::string_view{"available"}},
    std::pair{JobState::running, std::string_view{"running"}},
    std::pair{JobState::held, std::string_view{"held"}},
    std::pair{JobState::dead, std::string_view{"dead"}},
    std::pair{JobState::succeeded, std::string_view{"succeeded"}},
    std::pair{JobState::cancelled, std::string_view{"cancelled"}},
};

constexpr std::array kDeliveries = {
    std::pair{Delivery::at_least_once, std::string_view{"at_least_once"}},
    std::pair{Delivery::at_most_once, std::string_view{"at_most_once"}},
    std::pair{Delivery::hold, std::string_view{"hold"}},
};

constexpr std::array kOutcomes = {
    std::pair{Outcome::Kind::succeeded, std::string_view{"succeeded"}},
    std::pair{Outcome::Kind::failed, std::string_view{"failed"}},
    std::pair{Outcome::Kind::buried, std::string_view{"buried"}},
    std::pair{Outcome::Kind::snoozed, std::string_view{"snoozed"}},
    std::pair{Outcome::Kind::released, std::string_view{"released"}},
    std::pair{Outcome::Kind::cancelled, std::string_view{"cancelled"}},
};

constexpr std::array kVerbs = {
    std::pair{Outcome::Kind::succeeded, std::string_view{"complete"}},
    std::pair{Outcome::Kind::failed, std::string_view{"fail"}},
    std::pair{Outcome::Kind::buried, std::string_view{"bury"}},
    std::pair{Outcome::Kind::snoozed, std::string_view{"snooze"}},
    std::pair{Outcome::Kind::released, std::string_view{"release"}},
    std::pair{Outcome::Kind::cancelled, std::string_view{"cancel"}},
};

constexpr std::array kEncodings = {
    std::pair{Encoding::json, std::string_view{"json"}},
    std::pair{Encoding::bytes, std::string_view{"bytes"}},
};

constexpr std::array kReasons = {
    std::pair{StaleReason::token_mismatch, std::string_view{"token_mismatch"}},
    std::pair{StaleReason::lease_expired, std::string_view{"lease_expired"}},
    std::pair{StaleReason::already_settled, std::string_view{"already_settled"}},
    std::pair{StaleReason::cancelled, std::string_view{"cancelled"}},
};

constexpr std::array kLosses = {
    std::pair{Loss::unbegun, std::string_view{"unbegun"}},
    std::pair{Loss::shared, std::string_view{"shared"}},
    std::pair{Loss::alone, std::string_view{"alone"}},
};

constexpr std::array kCancelStatuses = {
    std::pair{CancelStatus::cancelled, std::string_view{"cancelled"}},
    std::pair{CancelStatus::requested, std::string_view{"requested"}},
    std::pair{CancelStatus::finished, std::string_view{"finished"}},
    std::pair{CancelStatus::not_found, std::string_view{"not_found"}},
    std::pair{CancelStatus::token_exhausted, std::string_view{"token_exhausted"}},
};

constexpr std::array kRequeueStatuses = {
    std::pair{RequeueStatus::requeued, std::string_view{"requeued"}},
    std::pair{RequeueStatus::live, std::string_view{"live"}},
    std::pair{RequeueStatus::not_found, std::string_view{"not_found"}},
    std::pair{RequeueStatus::token_exhausted, std::string_view{"token_exhausted"}},
};

constexpr std::array kPurgeStatuses = {
    std::pair{PurgeStatus::purged, std::string_view{"purged"}},
    std::pair{PurgeStatus::not_dead, std::string_view{"not_dead"}},
    std::pair{PurgeStatus::not_found, std::string_view{"not_found"}},
    std::pair{PurgeStatus::token_exhausted, std::string_view{"token_exhausted"}},
};

constexpr std::array kDecideStatuses = {
    std::pair{DecideStatus::decided, std::string_view{"decided"}},
    std::pair{DecideStatus::otherwise, std::string_view{"otherwise"}},
    std::pair{DecideStatus::recorded, std::string_view{"recorded"}},
    std::pair{DecideStatus::changed, std::string_view{"changed"}},
    std::pair{DecideStatus::running, std::string_view{"running"}},
    std::pair{DecideStatus::not_found, std::string_view{"not_found"}},
};

constexpr std::array kQueueDeletions = {
    std::pair{QueueDeletion::Status::deleted, std::string_view{"deleted"}},
    std::pair{QueueDeletion::Status::has_jobs, std::string_view{"has_jobs"}},
    std::pair{QueueDeletion::Status::not_found, std::string_view{"not_found"}},
};

constexpr std::array kSubmissions = {
    std::pair{Submission::Status::created, std::string_view{"created"}},
    std::pair{Submission::Status::existing, std::string_view{"existing"}},
    std::pair{Submission::Status::conflict, std::string_view{"conflict"}},
};

constexpr std::array kCodes = {
    std::pair{ErrorCode::invalid_argument, std::string_view{"invalid_argument"}},
    std::pair{ErrorCode::payload_too_large, std::string_view{"payload_too_large"}},
    std::pair{ErrorCode::payload_invalid, std::string_view{"payload_invalid"}},
    std::pair{ErrorCode::unknown_queue, std::string_view{"unknown_queue"}},
    std::pair{ErrorCode::conflict, std::string_view{"conflict"}},
    std::pair{ErrorCode::timed_out, std::string_view{"timed_out"}},
    std::pair{ErrorCode::unavailable, std::string_view{"unavailable"}},
    std::pair{ErrorCode::locked, std::string_view{"locked"}},
    std::pair{ErrorCode::outcome_unknown, std::string_view{"outcome_unknown"}},
    std::pair{ErrorCode::wrong_schema, std::string_view{"wrong_schema"}},
    std::pair{ErrorCode::permission_denied, std::string_view{"permission_denied"}},
    std::pair{ErrorCode::internal, std::string_view{"internal"}},
};

template <class T, std::size_t N>
constexpr std::array<std::string_view, N> only_words(
    const std::array<std::pair<T, std::string_view>, N>& words) {
  std::array<std::string_view, N> only;
  for (std::size_t i = 0; i < N; ++i) only[i] = words[i].second;
  return only;
}
constexpr auto kStateWords = only_words(kStates);
constexpr auto kDeliveryWords = only_words(kDeliveries);
constexpr auto kEncodingWords = only_words(kEncodings);
constexpr auto kOutcomeWords = only_words(kOutcomes);
constexpr auto kReasonWords = only_words(kReasons);

}  // namespace

std::string_view to_string(JobState state) { return word_of(kStates, state); }
std::optional<JobState> parse_job_state(std::string_view text) { return value_of(kStates, text); }
std::string_view to_string(Delivery delivery) { return word_of(kDeliveries, delivery); }
std::optional<Delivery> parse_delivery(std::string_view text) { return value_of(kDeliveries, text); }
std::string_view to_string(Outcome::Kind kind) { return word_of(kOutcomes, kind); }
std::optional<Outcome::Kind> parse_outcome(std::string_view text) { return value_of(kOutcomes, text); }
std::string_view to_string(Encoding encoding) { return word_of(kEncodings, encoding); }
std::optional<Encoding> parse_encoding(std::string_view text) { return value_of(kEncodings, text); }
std::string_view verb_of(Outcome::Kind kind) { return word_of(kVerbs, kind); }
std::string_view to_string(StaleReason reason) { return word_of(kReasons, reason); }
std::string_view to_string(Loss loss) { return word_of(kLosses, loss); }
std::optional<Loss> parse_loss(std::string_view text) { return value_of(kLosses, text); }
std::optional<StaleReason> parse_stale_reason(std::string_view text) { return value_of(kReasons, text); }
std::string_view to_string(CancelStatus status) { return word_of(kCancelStatuses, status); }
std::string_view to_string(RequeueStatus status) { return word_of(kRequeueStatuses, status); }
std::string_view to_string(PurgeStatus status) { return word_of(kPurgeStatuses, status); }
std::string_view to_string(DecideStatus status) { return word_of(kDecideStatuses, status); }
std::string_view to_string(QueueDeletion::Status status) { return word_of(kQueueDeletions, status); }
std::string_view to_string(ErrorCode code) { return word_of(kCodes, code); }

std::string_view to_string(Submission::Status status) { return word_of(kSubmissions, status); }
std::ostream& operator<<(std::ostream& out, const Error& error) { return out << error.describe(); }
std::string Error::describe() const { return hint.empty() ? message : message + " (" + hint + ")"; }

Outcome Outcome::success(std::optional<std::string> result) {
  return {.kind = Kind::succeeded, .result = std::move(result)};
}
Outcome Outcome::failure(std::string error, std::optional<std::chrono::milliseconds> retry_in) {
  return {.kind = Kind::failed, .error = std::move(error), .delay = retry_in};
}
Outcome Outcome::bury(std::string error) { return {.kind = Kind::buried, .error = std::move(error)}; }
Outcome Outcome::snooze(std::chrono::milliseconds delay) { return {.kind = Kind::snoozed, .delay = delay}; }
Outcome Outcome::release() { return {.kind = Kind::released}; }
Outcome Outcome::cancel(std::string reason) { return {.kind = Kind::cancelled, .error = std::move(reason)}; }

template <>
std::span<const std::string_view> words_of<JobState>() {
  return kStateWords;
}
template <>
std::span<const std::string_view> words_of<Delivery>() {
  return kDeliveryWords;
}
template <>
std::span<const std::string_view> words_of<Encoding>() {
  return kEncodingWords;
}
template <>
std::span<const std::string_view> words_of<Outcome::Kind>() {
  return kOutcomeWords;
}
template <>
std::span<const std::string_view> words_of<StaleReason>() {
  return kReasonWords;
}

}  // namespace faultline

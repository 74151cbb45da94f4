#include "cli/jobs/job_text.h"

#include <algorithm>

#include "base/utf8.h"
#include "cli/support/table_text.h"

namespace faultline::cli {
namespace {

constexpr std::size_t kPayloadMax = 400;
constexpr std::size_t kErrorMax = 70;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20U || c == '\x7f'; }

/// On one line: an error may be a stack trace, and must not play tricks with a terminal.
std::string one_line(std::string text, std::size_t length_max) {
  std::ranges::replace_if(text, is_control, ' ');
  if (text.size() <= length_max) return text;
  return std::string{first_bytes(text, length_max)} + "…";
}

using Rows = std::vector<std::vector<std::string>>;

void add_if(Rows& rows, const std::string& name, const std::optional<std::string>& value) {
  if (value) rows.push_back({name, one_line(*value, kPayloadMax)});
}

void add_times(Rows& rows, const Job& job, DatabaseTime now) {
  rows.push_back({"created", to_string(job.created_at)});
  if (job.state == JobState::scheduled)
    rows.push_back({"runs at", to_string(job.run_at) + " (in " + human_duration(job.run_at - now) + ")"});
  if (job.claimed_at && job.state == JobState::running)
    rows.push_back({"claimed", to_string(*job.claimed_at)});
  if (job.lease_expires_at) rows.push_back({"lease ends", to_string(*job.lease_expires_at)});
  if (job.finished_at)
    rows.push_back({"finished", to_string(*job.finished_at) + " (" +
                                    human_duration(*job.finished_at - job.created_at) + " after creation)"});
}

Rows facts_of(const Job& job, DatabaseTime now) {
  Rows rows{{"job", job.id.to_string()},
            {"state", std::string{to_string(job.state)}},
            {"queue", job.queue},
            {"kind", job.kind},
            {"priority", std::to_string(job.priority)}};
  rows.push_back({"attempt", std::to_string(job.attempt) +
                                 (job.attempts_max ? " of " + std::to_string(*job.attempts_max) : "")});
  rows.push_back({"token", std::to_string(job.token.value)});
  if (job.requeues > 0) rows.push_back({"requeues", std::to_string(job.requeues)});
  rows.push_back({"delivery", std::string{to_string(job.delivery)}});
  add_times(rows, job, now);
  add_if(rows, "worker", job.state == JobState::running ? job.worker : std::nullopt);
  add_if(rows, "key", job.idempotency_key);
  if (!job.tags.empty()) {
    std::string tags;
    for (const std::string& tag : job.tags) tags += (tags.empty() ? "" : " ") + tag;
    rows.push_back({"tags", tags});
  }
  rows.push_back({"payload", bytes_text(job.payload, kPayloadMax)});
  if (job.result) rows.push_back({"result", bytes_text(*job.result, kPayloadMax)});
  if (job.progress) {
    rows.push_back({"progress", std::to_string(static_cast<int>(*job.progress * 100)) + " %" +
                                    (job.progress_note && !job.progress_note->empty()
                                         ? ", " + one_line(*job.progress_note, kPayloadMax)
                                         : "")});
  }
  add_if(rows, "cancel", job.cancel_reason);
  add_if(rows, "last error", job.last_error);
  return rows;
}

std::string errors_text(const std::vector<Attempt>& attempts) {
  Rows rows;
  for (const Attempt& attempt : attempts) {
    if (attempt.error && attempt.outcome != "expired" && attempt.outcome != "purged")
      rows.push_back(
          {"  token " + std::to_string(attempt.token.value), one_line(*attempt.error, kPayloadMax)});
  }
  return rows.empty() ? "" : "\nerrors and reasons\n" + table_text(rows);
}

std::string effects_text(const std::vector<EffectRecord>& effects) {
  if (effects.empty()) return "";
  Rows rows;
  for (const EffectRecord& effect : effects) {
    rows.push_back({"  " + effect.key, "token " + std::to_string(effect.token.value), effect.worker,
                    !effect.recorded_at ? "begun, and not recorded: it may have happened"
                    : effect.result     ? bytes_text(*effect.result, kErrorMax)
                                        : "recorded"});
  }
  return "\neffects\n" + table_text(rows);
}

}  // namespace

std::string bytes_text(const std::string& bytes, std::size_t length_max) {
  if (find_invalid_utf8(bytes) ||
      std::ranges::any_of(bytes, [](char c) { return is_control(c) && c != '\n' && c != '\r' && c != '\t'; }))
    return std::to_string(bytes.size()) + " bytes that are not text";
  return one_line(bytes, length_max);
}

std::string job_text(const JobHistory& history, const TimelineStyle& style) {
  return table_text(facts_of(history.job, style.now)) + "\n" + timeline_text(history, style) +
         errors_text(history.attempts) + effects_text(history.effects);
}

std::string jobs_table(const std::vector<JobSummary>& jobs, bool errors) {
  Rows rows{
      {"ID", "STATE", "QUEUE", "KIND", "ATTEMPT", "TOKEN", "CREATED", errors ? "LAST ERROR" : "WORKER"}};
  for (const JobSummary& job : jobs) {
    rows.push_back({job.id.to_string(), std::string{to_string(job.state)}, job.queue, job.kind,
                    std::to_string(job.attempt), std::to_string(job.token.value), to_string(job.created_at),
                    errors ? one_line(job.last_error.value_or(""), kErrorMax) : job.worker.value_or("")});
  }
  return table_text(rows);
}

}  // namespace faultline::cli

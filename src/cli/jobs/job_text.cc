#include "cli/jobs/job_text.h"

#include <algorithm>

#include "base/fields.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "cli/support/table_text.h"
#include "config/values.h"

namespace faultline::cli {
namespace {

constexpr std::size_t kPayloadMax = 400;
constexpr std::size_t kErrorMax = 70;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20U || c == '\x7f'; }

/// On one line: an error may be a stack trace, and must not play tricks with a terminal.
std::string one_line(std::string text, std::size_t length_max) {
  std::ranges::replace_if(text, is_control, ' ');
  text = printable(text);
  if (text.size() <= length_max) return text;
  return std::string{first_bytes(text, length_max)} + "…";
}

using Rows = std::vector<std::vector<std::string>>;

// A member's value for people; nothing, if there is nothing to say.

std::string value_text(const FieldInfo& field, const std::string& text) {
  return field.form == Form::value ? one_line(text, kPayloadMax) : bytes_text(text, kPayloadMax);
}
std::string value_text(const FieldInfo& /*field*/, int number) { return std::to_string(number); }
std::string value_text(const FieldInfo& /*field*/, double part) {
  return std::to_string(static_cast<int>(part * 100)) + " %";
}
std::string value_text(const FieldInfo& /*field*/, const JobId& id) { return id.to_string(); }
std::string value_text(const FieldInfo& /*field*/, FenceToken token) { return std::to_string(token.value); }
std::string value_text(const FieldInfo& /*field*/, DatabaseTime time) { return to_string(time); }
std::string value_text(const FieldInfo& /*field*/, JobState state) { return std::string{to_string(state)}; }
std::string value_text(const FieldInfo& /*field*/, Delivery delivery) {
  return std::string{to_string(delivery)};
}
std::string value_text(const FieldInfo& /*field*/, Encoding /*encoding*/) { return ""; }
std::string value_text(const FieldInfo& /*field*/, std::chrono::milliseconds duration) {
  return config::write_duration(duration);
}
std::string value_text(const FieldInfo& /*field*/, const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}
template <class T>
std::string value_text(const FieldInfo& field, const std::optional<T>& value) {
  return value ? value_text(field, *value) : "";
}

/// "lease_ttl_ms" as "lease ttl".
std::string label_of(const FieldInfo& field) {
  std::string_view name = field.name;
  if (name.ends_with("_ms")) name.remove_suffix(3);
  std::string label{name};
  std::ranges::replace(label, '_', ' ');
  return label;
}

/// What stands beside a value, and whether it is worth a line at all.
bool complete(std::string_view name, const Job& job, DatabaseTime now, std::string& text) {
  if (text.empty() || name == "attempts_max" || name == "progress_note") return false;
  if (name == "run_at") {
    if (job.state != JobState::scheduled) return false;
    text += " (in " + human_duration(job.run_at - now) + ")";
  }
  if (name == "claimed_at" || name == "worker") return job.state == JobState::running;
  if (name == "requeues") return job.requeues > 0;
  if (name == "attempt" && job.attempts_max) text += " of " + std::to_string(*job.attempts_max);
  if (name == "finished_at")
    text += " (" + human_duration(*job.finished_at - job.created_at) + " after creation)";
  if (name == "progress" && job.progress_note && !job.progress_note->empty())
    text += ", " + one_line(*job.progress_note, kPayloadMax);
  return true;
}

Rows facts_of(const Job& job, DatabaseTime now) {
  Rows rows;
  for_each_field<Job>([&](const auto& field) {
    std::string text = value_text(static_cast<const FieldInfo&>(field), field.of(job));
    if (complete(field.name, job, now, text)) rows.push_back({label_of(field), std::move(text)});
  });
  return rows;
}

/// With the times of each, which the timeline only draws.
std::string attempts_text(const std::vector<Attempt>& attempts) {
  /// A job that was tried a thousand times is not read row by row.
  constexpr std::size_t kRowsMax = 60;
  if (attempts.empty()) return "";
  Rows rows{{"  TOKEN", "BEGAN", "ENDED", "OUTCOME", "WHY"}};
  const std::size_t left_out = attempts.size() > kRowsMax ? attempts.size() - kRowsMax : 0;
  for (std::size_t i = left_out; i < attempts.size(); ++i) {
    const Attempt& attempt = attempts[i];
    rows.push_back({"  " + std::to_string(attempt.token.value),
                    attempt.started_at ? to_string(*attempt.started_at) : "-", to_string(attempt.ended_at),
                    attempt.outcome, one_line(attempt.error.value_or(""), kPayloadMax)});
  }
  return "\nattempts and acts" +
         (left_out > 0 ? ", without " + std::to_string(left_out) + " earlier ones; --json has them all"
                       : std::string{}) +
         "\n" + table_text(rows);
}

std::string effects_text(const std::vector<EffectRecord>& effects) {
  if (effects.empty()) return "";
  Rows rows;
  for (const EffectRecord& effect : effects) {
    rows.push_back({"  " + effect.key, "token " + std::to_string(effect.token.value), effect.worker,
                    !effect.recorded_at ? "begun, and not recorded: it may have happened; see `jobs decide`"
                    : effect.result     ? bytes_text(*effect.result, kErrorMax)
                                        : "recorded"});
  }
  return "\neffects\n" + table_text(rows);
}

std::string decisions_text(const std::vector<EffectDecision>& decisions) {
  if (decisions.empty()) return "";
  Rows rows;
  for (const EffectDecision& decision : decisions) {
    rows.push_back({"  " + decision.key, "token " + std::to_string(decision.token.value),
                    std::string{decision.happened ? "happened" : "did not happen"} + ", says " +
                        one_line(decision.decided_by, kErrorMax),
                    to_string(decision.decided_at), one_line(decision.reason, kPayloadMax)});
  }
  return "\ndecisions about effects\n" + table_text(rows);
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
         attempts_text(history.attempts) + effects_text(history.effects) + decisions_text(history.decisions);
}

std::string jobs_table(const std::vector<JobSummary>& jobs) {
  const bool dead = std::ranges::any_of(jobs, [](const JobSummary& job) { return job.died_at.has_value(); });
  Rows rows{{"ID", "STATE", "QUEUE", "KIND", "ATTEMPT", "TOKEN", "CREATED",
             dead ? "NEXT RUN OR DEATH" : "NEXT RUN", "WORKER", "LAST ERROR"}};
  for (const JobSummary& job : jobs) {
    const std::string next = job.state == JobState::scheduled ? to_string(job.run_at)
                             : job.died_at                    ? to_string(*job.died_at)
                                                              : "-";
    rows.push_back({job.id.to_string(), std::string{to_string(job.state)}, job.queue, job.kind,
                    std::to_string(job.attempt), std::to_string(job.token.value), to_string(job.created_at),
                    next, job.worker.value_or("-"), one_line(job.last_error.value_or(""), kErrorMax)});
  }
  return table_text(rows);
}

}  // namespace faultline::cli

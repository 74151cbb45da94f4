// The bodies of requests: what is accepted is what was meant, and can be written and read again; JSON is read
// as another parser reads it.

#include <algorithm>
#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/canonical_json.h"
#include "base/fields.h"
#include "base/json_check.h"
#include "base/json_text.h"
#include "base/utf8.h"
#include "codec/encode.h"
#include "fuzz/answers.h"
#include "fuzz/target.h"
#include "http/decode.h"

namespace faultline::fuzz {
namespace {

using std::chrono::milliseconds;

constexpr http::Limits kLimits{.batch_max = 4, .depth_max = 16};

bool is_utf8(std::string_view text) { return !find_invalid_utf8(text); }

// Writing, as a client would.

void write(JsonWriter& out, const std::string& text) {
  require(is_utf8(text), "text that was accepted is UTF-8");
  out.string(text);
}
void write(JsonWriter& out, bool value) { out.boolean(value); }
void write(JsonWriter& out, std::integral auto value) { out.integer(static_cast<std::int64_t>(value)); }
void write(JsonWriter& out, double value) { out.number(value); }
void write(JsonWriter& out, milliseconds value) { out.integer(value.count()); }
void write(JsonWriter& out, const JobId& id) { out.string(id.to_string()); }
void write(JsonWriter& out, JobState state) { out.string(to_string(state)); }
void write(JsonWriter& out, const Lease& lease);
void write(JsonWriter& out, const NewJob& job);
void write(JsonWriter& out, const Settlement& settlement);
void write(JsonWriter& out, const ProgressReport& report);
void write(JsonWriter& out, const EffectKey& key);
void write(JsonWriter& out, const EffectResult& result);
void write(JsonWriter& out, const ListRequest& filter);
template <class T>
void write(JsonWriter& out, const std::vector<T>& items) {
  out.begin_array();
  for (const T& item : items) write(out, item);
  out.end_array();
}

template <class T>
void field(JsonWriter& out, std::string_view name, const T& value) {
  out.key(name);
  write(out, value);
}
template <class T>
void field(JsonWriter& out, std::string_view name, const std::optional<T>& value) {
  if (value) field(out, name, *value);
}

void write(JsonWriter& out, const Lease& lease) { codec::write(out, lease); }

void write(JsonWriter& out, const NewJob& job) {
  for_each_field<NewJob>([&]<class T>(const Field<NewJob, T>& field) {
    if constexpr (std::same_as<T, std::string>) {
      require(field.form == Form::payload || is_utf8(field.of(job)), "text that was accepted is UTF-8");
    }
  });
  if (job.encoding == Encoding::json) require_json(job.payload);
  codec::write(out, job);
}

void write(JsonWriter& out, const Settlement& settlement) {
  out.begin_object();
  field(out, "lease", settlement.lease);
  out.key("outcome").string(to_string(settlement.outcome.kind));
  if (settlement.outcome.result) field(out, "result_base64", base64(*settlement.outcome.result));
  field(out, "error", settlement.outcome.error);
  field(out, "delay_ms", settlement.outcome.delay);
  out.end_object();
}

void write(JsonWriter& out, const ProgressReport& report) {
  out.begin_object();
  field(out, "lease", report.lease);
  field(out, "fraction", report.fraction);
  field(out, "note", report.note);
  out.end_object();
}

void write_call(JsonWriter& out, const Uuid& call) {
  if (!call.is_nil()) field(out, "call_id", call.to_string());
}

void write(JsonWriter& out, const EffectKey& key) {
  out.begin_object();
  field(out, "lease", key.lease);
  field(out, "key", key.key);
  write_call(out, key.call);
  out.end_object();
}

void write(JsonWriter& out, const EffectResult& result) {
  out.begin_object();
  field(out, "lease", result.lease);
  field(out, "key", result.key);
  field(out, "result_base64", base64(result.result));
  out.end_object();
}

void write(JsonWriter& out, const ListRequest& filter) {
  out.begin_object();
  field(out, "queue", filter.queue);
  field(out, "kind", filter.kind);
  field(out, "state", filter.state);
  out.end_object();
}

void write_body(JsonWriter& out, const http::ClaimCall& call) {
  require(call.limit >= 1 && call.limit <= kLimits.batch_max, "a claim has a limit");
  field(out, "queue", call.queue);
  field(out, "worker", call.worker);
  field(out, "limit", call.limit);
  field(out, "wait_ms", call.wait);
}
void write_body(JsonWriter& out, const http::HeartbeatCall& call) {
  field(out, "leases", call.leases);
  field(out, "extend_ms", call.extend);
}
void write_body(JsonWriter& out, const http::SelectCall& call) {
  if (!call.selection.ids.empty()) field(out, "ids", call.selection.ids);
  field(out, "filter", call.selection.filter);
  if (call.selection.dry_run) field(out, "dry_run", call.selection.dry_run);
  write_call(out, call.selection.call);
  if (!call.reason.empty()) field(out, "reason", call.reason);
}
void write_body(JsonWriter& out, const EffectFinding& finding) {
  field(out, "key", finding.key);
  field(out, "happened", finding.happened);
  field(out, "result_base64", base64(finding.result));
  field(out, "reason", finding.reason);
  if (finding.begun_under) field(out, "token", finding.begun_under->value);
}
template <class T>
std::string body_of(const T& value) {
  JsonWriter out;
  out.begin_object();
  write_body(out, value);
  out.end_object();
  return out.take();
}
std::string body_of(const QueueSettings& settings) { return codec::to_json(settings); }
template <class T>
std::string list_of(std::string_view name, const std::vector<T>& items) {
  require(items.size() <= kLimits.batch_max, "a batch has a limit");
  JsonWriter out;
  out.begin_object();
  field(out, name, items);
  out.end_object();
  return out.take();
}

template <class T>
void require_good_refusal(std::string_view body, const service::ServiceResult<T>& answer) {
  require(!answer.error().message.empty(), "a refusal says why");
  constexpr std::string_view kSecret = R"("payload":"hunter2)";
  const bool in_payload = body.contains(kSecret) && body.find("hunter2") == body.rfind("hunter2");
  require(!in_payload || !answer.error().message.contains("hunter2"), "a refusal does not show a payload");
}

/// What was accepted is written and accepted again, and then written the same.
template <class Decode, class Encode>
void round_trip(std::string_view body, const Decode& decode, const Encode& encode) {
  const auto first = decode(body);
  if (!first) return require_good_refusal(body, first);
  const std::string written = encode(*first);
  const auto second = decode(std::string_view{written});
  require(second.has_value(), "what was accepted is accepted again");
  require(encode(*second) == written, "and means the same");
}

void jobs(std::string_view body, bool ndjson) {
  round_trip(
      body, [&](std::string_view text) { return http::decode_jobs(text, ndjson, kLimits); },
      [&](const http::Jobs& jobs) {
        require(jobs.jobs.size() <= kLimits.batch_max, "a batch has a limit");
        require(jobs.batch || jobs.jobs.size() == 1, "one job, or a batch");
        JsonWriter out;
        if (!ndjson && jobs.batch) write(out, jobs.jobs);
        if (!ndjson && !jobs.batch) write(out, jobs.jobs.front());
        if (!ndjson) return out.take();
        std::string lines;
        for (const NewJob& job : jobs.jobs) {
          JsonWriter line;
          write(line, job);
          lines += line.take() + "\n";
        }
        return lines;
      });
}

template <class Call>
void call(std::string_view body,
          service::ServiceResult<Call> (*decode)(std::string_view, const http::Limits&)) {
  round_trip(
      body, [&](std::string_view text) { return decode(text, kLimits); },
      [](const Call& value) { return body_of(value); });
}

template <class T>
void list(std::string_view body, std::string_view name,
          service::ServiceResult<std::vector<T>> (*decode)(std::string_view, const http::Limits&)) {
  round_trip(
      body, [&](std::string_view text) { return decode(text, kLimits); },
      [&](const std::vector<T>& items) { return list_of(name, items); });
}

void selection(std::string_view body, bool with_reason) {
  round_trip(
      body, [&](std::string_view text) { return http::decode_selection(text, with_reason, kLimits); },
      [](const http::SelectCall& value) {
        require(value.selection.ids.empty() == value.selection.filter.has_value(), "either ids or a filter");
        return body_of(value);
      });
}

/// Of the job that the address names.
void change(std::string_view body, bool with_reason) {
  round_trip(
      body, [&](std::string_view text) { return http::decode_change(text, with_reason, kLimits); },
      [](const http::SelectCall& value) {
        require(value.selection.ids.empty() && !value.selection.filter, "the body selects nothing");
        return body_of(value);
      });
}

// Against another parser.

void compare(const Json& ours, const nlohmann::json& theirs) {
  require(ours.is_object() == theirs.is_object() && ours.is_array() == theirs.is_array() &&
              ours.is_string() == theirs.is_string() && ours.is_null() == theirs.is_null() &&
              ours.boolean().has_value() == theirs.is_boolean(),
          "a value is of the kind that others see");
  if (theirs.is_string()) require(ours.string() == theirs.get<std::string>(), "a string is what others see");
  if (theirs.is_boolean()) require(*ours.boolean() == theirs.get<bool>(), "a boolean is what others see");
  if (theirs.is_number_integer() && ours.integer())
    require(*ours.integer() == theirs.get<std::int64_t>(), "a number is what others see");
  if (theirs.is_number_float() && ours.number())
    require(*ours.number() == theirs.get<double>(), "a number is what others see");
  std::size_t count = 0;
  if (theirs.is_array()) {
    ours.elements([&](Json element) {
      compare(element, theirs.at(count));
      return ++count > 0;
    });
    require(count == theirs.size(), "an array has the elements that others see");
  }
  if (theirs.is_object()) {
    // Of a name that stands twice others keep the last one only.
    ours.members([&](const std::string& name, Json) {
      require(theirs.contains(name), "an object has the members that others see");
      return ++count > 0;
    });
    require(count >= theirs.size(), "an object has the members that others see");
    if (count != theirs.size()) return;
    ours.members([&](const std::string& name, Json member) {
      compare(member, theirs.at(name));
      return true;
    });
  }
}

void parse(std::string_view text) {
  constexpr std::size_t kDepthMax = 64;
  // Others look over a byte order mark, and stop at a NUL.
  const bool lenient = text.starts_with("\xEF\xBB\xBF") || text.contains('\0');
  const auto problem = find_json_problem(std::as_bytes(std::span{text}), kDepthMax);
  const auto theirs = nlohmann::json::parse(text, nullptr, false);
  if (problem) {
    const bool too_deep = std::ranges::count_if(text, [](char c) { return c == '[' || c == '{'; }) >
                          static_cast<std::ptrdiff_t>(kDepthMax);
    require(theirs.is_discarded() || lenient || too_deep, "what others can read is read");
    return;
  }
  // They refuse numbers that are too large for them.
  const bool huge = text.find_first_of("eE") != std::string_view::npos || text.size() > 300;
  require(!theirs.is_discarded() || huge, "what others cannot read is refused");
  if (!theirs.is_discarded()) compare(Json{text}, theirs);
  // What it says under an idempotency key: it is JSON that says the same, and has no other form.
  const std::string canonical = canonical_json(text);
  require(!find_json_problem(std::as_bytes(std::span{canonical}), kDepthMax), "the canonical form is JSON");
  require(canonical_json(canonical) == canonical, "the canonical form has one form");
  const auto again = nlohmann::json::parse(canonical, nullptr, false);
  require(theirs.is_discarded() || again.is_discarded() || again == theirs,
          "the canonical form says the same");
}

}  // namespace

void run(std::string_view input) {
  switch (const unsigned what = take_byte(input) - 'a'; what) {
    case 0:
    case 1:
      return jobs(input, what == 1);
    case 2:
      return call<http::ClaimCall>(input, &http::decode_claim);
    case 3:
      return call<http::HeartbeatCall>(input, &http::decode_heartbeat);
    case 4:
      return list<Settlement>(input, "results", &http::decode_settlements);
    case 5:
      return list<Lease>(input, "leases", &http::decode_leases);
    case 6:
      return list<ProgressReport>(input, "reports", &http::decode_progress);
    case 7:
      return list<EffectKey>(input, "keys", &http::decode_effect_keys);
    case 8:
      return list<EffectResult>(input, "results", &http::decode_effect_results);
    case 9:
    case 10:
      return selection(input, what == 10);
    case 11:
    case 12:
      return change(input, what == 11);
    case 13:
      return call<QueueSettings>(input, &http::decode_queue_settings);
    case 14:
      return call<EffectFinding>(input, &http::decode_finding);
    default:
      return parse(input);
  }
}

}  // namespace faultline::fuzz

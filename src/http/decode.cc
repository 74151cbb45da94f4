#include "http/decode.h"

#include <span>

#include "base/json_check.h"
#include "codec/read_object.h"
#include "http/problem.h"

namespace faultline::http {
namespace {

using codec::member;
using codec::Member;
using codec::Refusal;
using service::Problem;
using service::ServiceResult;

/// A list under one name, for the calls that have nothing else.
template <class T>
struct ListBody {
  std::vector<T> items{};
};

Problem too_many(std::size_t batch_max) {
  return {.code = service::Code::too_large,
          .message = "more than " + std::to_string(batch_max) + " items are in one call",
          .hint = "send them in several calls"};
}

/// Counts before anything is built.
bool is_over(Json array, std::size_t batch_max) {
  std::size_t count = 0;
  return array.is_array() && !array.elements([&](Json) { return ++count <= batch_max; });
}

template <class T, std::size_t N>
ServiceResult<T> decode(std::string_view body, const Member<T> (&fields)[N], const Limits& limits) {
  const ServiceResult<Json> json = parse_body(body, limits.depth_max);
  if (!json) return std::unexpected(json.error());
  bool over = false;
  if (json->is_object()) {
    json->members([&](const std::string&, Json value) { return !(over = is_over(value, limits.batch_max)); });
  }
  if (over) return std::unexpected(too_many(limits.batch_max));
  T into{};
  Refusal refusal;
  if (!codec::read_object(*json, into, fields, refusal)) return std::unexpected(invalid(refusal.message()));
  return into;
}

Problem bad_json(const JsonProblem& problem, const std::string& where) {
  return malformed(
      where + " is not valid JSON: at byte " + std::to_string(problem.offset) + ", " + problem.what,
      "send JSON as in RFC 8259, in UTF-8");
}

ServiceResult<Jobs> decode_lines(std::string_view body, const Limits& limits) {
  Jobs jobs{.batch = true};
  std::size_t line_number = 0;
  while (!body.empty()) {
    const std::size_t end = std::min(body.find('\n'), body.size());
    const std::string_view line = body.substr(0, end);
    body.remove_prefix(std::min(end + 1, body.size()));
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (jobs.jobs.size() == limits.batch_max) return std::unexpected(too_many(limits.batch_max));
    if (const auto problem = find_json_problem(std::as_bytes(std::span{line}), limits.depth_max)) {
      return std::unexpected(bad_json(*problem, "line " + std::to_string(line_number)));
    }
    NewJob job;
    Refusal refusal;
    if (!codec::read(Json{line}, job, refusal)) {
      refusal.inside(jobs.jobs.size());
      return std::unexpected(invalid(refusal.message()));
    }
    jobs.jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace

ServiceResult<Json> parse_body(std::string_view body, std::size_t depth_max) {
  if (body.empty()) return Json{"{}"};
  if (const auto problem = find_json_problem(std::as_bytes(std::span{body}), depth_max)) {
    return std::unexpected(bad_json(*problem, "the body"));
  }
  return Json{body};
}

ServiceResult<Jobs> decode_jobs(std::string_view body, bool ndjson, const Limits& limits) {
  if (ndjson) return decode_lines(body, limits);
  const ServiceResult<Json> json = parse_body(body, limits.depth_max);
  if (!json) return std::unexpected(json.error());
  if (is_over(*json, limits.batch_max)) return std::unexpected(too_many(limits.batch_max));
  Refusal refusal;
  Jobs jobs{.batch = json->is_array()};
  if (!(jobs.batch ? codec::read(*json, jobs.jobs, refusal)
                   : codec::read(*json, jobs.jobs.emplace_back(), refusal))) {
    return std::unexpected(invalid(refusal.message()));
  }
  return jobs;
}

ServiceResult<ClaimCall> decode_claim(std::string_view body, const Limits& limits) {
  constexpr std::chrono::milliseconds kWaitMax{30'000};
  static constexpr Member<ClaimCall> kFields[] = {
      member<&ClaimCall::queue>("queue"),
      member<&ClaimCall::worker>("worker", true),
      member<&ClaimCall::limit>("limit"),
      member<&ClaimCall::wait>("wait_ms"),
  };
  ServiceResult<ClaimCall> call = decode(body, kFields, limits);
  if (!call) return call;
  if (call->limit < 1 || call->limit > limits.batch_max) {
    return std::unexpected(invalid("limit: 1 to " + std::to_string(limits.batch_max) + " are allowed"));
  }
  if (call->wait < call->wait.zero() || call->wait > kWaitMax) {
    return std::unexpected(invalid("wait_ms: 0 to 30000 are allowed"));
  }
  return call;
}

ServiceResult<HeartbeatCall> decode_heartbeat(std::string_view body, const Limits& limits) {
  static constexpr Member<HeartbeatCall> kFields[] = {
      member<&HeartbeatCall::leases>("leases", true),
      member<&HeartbeatCall::extend>("extend_ms"),
  };
  return decode(body, kFields, limits);
}

template <class T>
static ServiceResult<std::vector<T>> decode_list(std::string_view body,
                                                 const Member<ListBody<T>> (&fields)[1],
                                                 const Limits& limits) {
  ServiceResult<ListBody<T>> list = decode(body, fields, limits);
  if (!list) return std::unexpected(std::move(list.error()));
  return std::move(list->items);
}

ServiceResult<std::vector<Settlement>> decode_settlements(std::string_view body, const Limits& limits) {
  return decode_list<Settlement>(body, {member<&ListBody<Settlement>::items>("results", true)}, limits);
}

ServiceResult<std::vector<Lease>> decode_leases(std::string_view body, const Limits& limits) {
  return decode_list<Lease>(body, {member<&ListBody<Lease>::items>("leases", true)}, limits);
}

ServiceResult<std::vector<ProgressReport>> decode_progress(std::string_view body, const Limits& limits) {
  return decode_list<ProgressReport>(body, {member<&ListBody<ProgressReport>::items>("reports", true)},
                                     limits);
}

ServiceResult<std::vector<EffectKey>> decode_effect_keys(std::string_view body, const Limits& limits) {
  return decode_list<EffectKey>(body, {member<&ListBody<EffectKey>::items>("keys", true)}, limits);
}

ServiceResult<std::vector<EffectResult>> decode_effect_results(std::string_view body, const Limits& limits) {
  return decode_list<EffectResult>(body, {member<&ListBody<EffectResult>::items>("results", true)}, limits);
}

namespace {

template <auto Pointer>
constexpr Member<SelectCall> selected(std::string_view name) {
  return {.name = name, .read = [](Json value, SelectCall& call, Refusal& refusal) {
            return codec::read(value, call.selection.*Pointer, refusal);
          }};
}
constexpr Member<SelectCall> kIds = selected<&service::Selection::ids>("ids");
constexpr Member<SelectCall> kFilter = selected<&service::Selection::filter>("filter");
constexpr Member<SelectCall> kDryRun = selected<&service::Selection::dry_run>("dry_run");
constexpr Member<SelectCall> kCallId{.name = "call_id",
                                     .read = [](Json value, SelectCall& call, Refusal& refusal) {
                                       return codec::read_call_id(value, call.selection.call, refusal);
                                     }};
constexpr Member<SelectCall> kReason = member<&SelectCall::reason>("reason");

}  // namespace

ServiceResult<SelectCall> decode_selection(std::string_view body, bool with_reason, const Limits& limits) {
  static constexpr Member<SelectCall> kRequeue[] = {kIds, kFilter, kDryRun, kCallId};
  static constexpr Member<SelectCall> kCancel[] = {kIds, kFilter, kDryRun, kCallId, kReason};
  ServiceResult<SelectCall> call =
      with_reason ? decode(body, kCancel, limits) : decode(body, kRequeue, limits);
  if (!call) return call;
  const service::Selection& selection = call->selection;
  if (selection.ids.empty() == !selection.filter) {
    return std::unexpected(invalid("either ids or a filter is expected", "give one of them, and not both"));
  }
  if (selection.dry_run && !selection.filter) {
    return std::unexpected(invalid("dry_run: it goes with a filter only"));
  }
  return call;
}

ServiceResult<SelectCall> decode_change(std::string_view body, bool with_reason, const Limits& limits) {
  static constexpr Member<SelectCall> kRequeue[] = {kCallId};
  static constexpr Member<SelectCall> kCancel[] = {kCallId, kReason};
  return with_reason ? decode(body, kCancel, limits) : decode(body, kRequeue, limits);
}

template <class T>
static ServiceResult<T> decode_whole(std::string_view body, const Limits& limits) {
  const ServiceResult<Json> json = parse_body(body, limits.depth_max);
  if (!json) return std::unexpected(json.error());
  T value;
  Refusal refusal;
  if (!codec::read(*json, value, refusal)) return std::unexpected(invalid(refusal.message()));
  return value;
}

ServiceResult<EffectFinding> decode_finding(std::string_view body, const Limits& limits) {
  return decode_whole<EffectFinding>(body, limits);
}

ServiceResult<QueueSettings> decode_queue_settings(std::string_view body, const Limits& limits) {
  return decode_whole<QueueSettings>(body, limits);
}

}  // namespace faultline::http

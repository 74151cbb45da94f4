#include "store/validate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fields.h"
#include "base/json_check.h"
#include "base/sha256.h"
#include "base/traceparent.h"
#include "base/utf8.h"

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kTextBytesMax = 16'384;
constexpr std::size_t kBatchMax = 1'000;

Error invalid(std::string message, std::string hint) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .hint = std::move(hint)};
}

std::optional<Error> check_text(std::string_view what, std::string_view text, std::size_t bytes_max) {
  const std::string name{what};
  if (text.empty()) return invalid("the " + name + " is empty", "give one");
  if (text.size() > bytes_max) {
    return invalid("the " + name + " has " + std::to_string(text.size()) + " bytes",
                   "at most " + std::to_string(bytes_max) + " are allowed");
  }
  if (find_invalid_utf8(text)) return invalid("the " + name + " is not valid UTF-8", "encode it as UTF-8");
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20U || c == '\x7f'; };
  if (std::ranges::any_of(text, is_control)) {
    return invalid("the " + name + " has a control character in it", "use printable characters");
  }
  return std::nullopt;
}

// Values against the bounds that the field tables have.

std::optional<Error> check_value(const FieldInfo& field, std::string_view unit, std::int64_t value) {
  if (value >= field.min && value <= field.max) return std::nullopt;
  return invalid(
      "the " + std::string{field.name} + " is " + std::to_string(value) + std::string{unit},
      std::to_string(field.min) + " to " + std::to_string(field.max) + std::string{unit} + " are allowed");
}
std::optional<Error> check_value(const FieldInfo& field, int value) { return check_value(field, "", value); }
std::optional<Error> check_value(const FieldInfo& field, milliseconds value) {
  return check_value(field, " ms", value.count());
}
std::optional<Error> check_value(const FieldInfo& field, const std::string& text) {
  if (field.max == FieldInfo::kUnbounded) return std::nullopt;
  return check_text(field.name, text, static_cast<std::size_t>(field.max));
}
std::optional<Error> check_value(const FieldInfo& field, const std::vector<std::string>& texts) {
  if (std::cmp_greater(texts.size(), field.max)) {
    return invalid("there are " + std::to_string(texts.size()) + " " + std::string{field.name},
                   "at most " + std::to_string(field.max) + " are allowed");
  }
  for (const std::string& text : texts) {
    if (auto problem = check_name("tag", text)) return problem;
  }
  return std::nullopt;
}
/// Anything else has no bounds.
std::optional<Error> check_value(const FieldInfo& /*field*/, const auto& /*value*/) { return std::nullopt; }
template <class T>
std::optional<Error> check_value(const FieldInfo& field, const std::optional<T>& value) {
  return value ? check_value(field, *value) : std::nullopt;
}

/// The first member that is out of its bounds.
template <class Struct>
std::optional<Error> check_fields(const Struct& value) {
  std::optional<Error> problem;
  for_each_field<Struct>([&](const auto& field) {
    if (!problem) problem = check_value(static_cast<const FieldInfo&>(field), field.of(value));
  });
  return problem;
}

std::optional<Error> check_payload(const NewJob& job, const Limits& limits) {
  if (job.payload.size() > limits.payload_bytes_max) {
    return Error{
        .code = ErrorCode::payload_too_large,
        .message = "the payload has " + std::to_string(job.payload.size()) + " bytes, the limit is " +
                   std::to_string(limits.payload_bytes_max),
        .hint = "store the data elsewhere and enqueue a reference to it, or raise payload_bytes_max"};
  }
  if (job.encoding == Encoding::bytes) return std::nullopt;
  if (auto problem = find_json_problem(bytes_of(job.payload), limits.json_depth_max)) {
    return Error{.code = ErrorCode::payload_invalid,
                 .message = "the payload is not valid JSON: at byte " + std::to_string(problem->offset) +
                            ", " + problem->what,
                 .hint = "send valid JSON, or say that the payload is bytes"};
  }
  return std::nullopt;
}

std::optional<Error> check_times(const NewJob& job) {
  if (job.run_at && job.delay) return invalid("both run_at and delay are given", "give one of them");
  // What PostgreSQL holds and people mean: the years 1970 to 9999. Infinity is for jobs that wait for a
  // person.
  constexpr DatabaseTime latest{std::chrono::seconds{253'402'300'799}};
  if (job.run_at && (*job.run_at < DatabaseTime{} || *job.run_at > latest)) {
    return invalid("run_at is not between the years 1970 and 9999", "give a moment, or a delay");
  }
  return std::nullopt;
}

std::optional<Error> check_traceparent(const std::optional<std::string>& traceparent) {
  if (!traceparent || TraceContext::parse(*traceparent)) return std::nullopt;
  return invalid(
      "the traceparent is not one of W3C Trace Context, version 00",
      "write 00-TRACE_ID-PARENT_ID-FLAGS: 32, 16 and 2 lowercase hexadecimal digits, ids not all 0");
}

/// The first problem of several.
template <class... Checks>
std::optional<Error> first_of(const Checks&... checks) {
  std::optional<Error> problem;
  static_cast<void>(((problem = checks()).has_value() || ...));
  return problem;
}

}  // namespace

std::optional<Error> check_name(std::string_view what, std::string_view name) {
  return check_text(what, name, facts::kNameBytesMax);
}

std::optional<Error> check_job(const NewJob& job, const Limits& limits) {
  return first_of([&] { return check_fields(job); }, [&] { return check_payload(job, limits); },
                  [&] { return check_times(job); }, [&] { return check_traceparent(job.traceparent); });
}

std::optional<Error> check_claim(const ClaimRequest& request) {
  if (request.limit < 1 || request.limit > kBatchMax) {
    return invalid("the claim's limit is " + std::to_string(request.limit), "1 to 1000 are allowed");
  }
  return first_of([&] { return check_name("queue", request.queue); },
                  [&] { return check_name("worker", request.worker); });
}

std::optional<Error> check_result(std::string_view result, const Limits& limits) {
  if (result.size() <= limits.payload_bytes_max) return std::nullopt;
  return Error{.code = ErrorCode::payload_too_large,
               .message = "the result has " + std::to_string(result.size()) + " bytes, the limit is " +
                          std::to_string(limits.payload_bytes_max),
               .hint = "store the data elsewhere and return a reference to it"};
}

std::optional<Error> check_outcome(const Outcome& outcome, const Limits& limits) {
  if (outcome.kind == Outcome::Kind::snoozed && !outcome.delay) {
    return invalid("a snooze needs a delay", "say how long, or release the job");
  }
  if (outcome.result && outcome.kind != Outcome::Kind::succeeded) {
    return invalid("only a success has a result", "give the error instead");
  }
  return first_of([&] { return outcome.result ? check_result(*outcome.result, limits) : std::nullopt; },
                  [&] { return check_value(facts::kDelay, outcome.delay); });
}

std::optional<Error> check_progress(const ProgressReport& report) {
  if (std::isfinite(report.fraction) && report.fraction >= 0 && report.fraction <= 1)
    return check_lease(report.lease);
  return invalid("the progress is not a fraction", "0 to 1 are allowed");
}

std::optional<Error> check_effect_key(std::string_view key) {
  return check_text("effect key", key, facts::kKeyBytesMax);
}

std::optional<Error> check_lease(const Lease& lease) {
  if (lease.token.value <= 0) {
    return invalid("the lease of job " + lease.job.to_string() + " has no token",
                   "use the lease as the claim gave it");
  }
  return check_name("worker", lease.worker);
}

std::optional<Error> check_extend(milliseconds extend) {
  FieldInfo bounds = facts::kLeaseTtl;
  bounds.name = "extension";
  return check_value(bounds, extend);
}

std::optional<Error> check_queue(std::string_view name, const QueueSettings& settings) {
  return first_of([&] { return check_name("queue", name); }, [&] { return check_fields(settings); });
}

std::optional<Error> check_list(const ListRequest& request) {
  if (request.limit < 1 || request.limit > kBatchMax) {
    return invalid("the page's limit is " + std::to_string(request.limit), "1 to 1000 are allowed");
  }
  return first_of([&] { return request.queue ? check_name("queue", *request.queue) : std::nullopt; },
                  [&] { return request.kind ? check_name("kind", *request.kind) : std::nullopt; });
}

std::string storable_text(std::string_view text) {
  // No more than this can be left of it. A character that is cut in two here is past the limit anyway.
  std::string source{text.substr(0, kTextBytesMax + 4)};
  std::ranges::replace(source, '\0', '\xFF');
  return std::string{first_bytes(repaired_utf8(source), kTextBytesMax)};
}

}  // namespace faultline::store

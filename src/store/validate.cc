#include "store/validate.h"

#include <algorithm>
#include <cmath>

#include "base/json_check.h"
#include "base/sha256.h"
#include "base/traceparent.h"
#include "base/utf8.h"

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kNameBytesMax = 128;
constexpr std::size_t kKeyBytesMax = 256;
constexpr std::size_t kTagsMax = 32;
constexpr std::size_t kTextBytesMax = 16'384;
constexpr std::size_t kBatchMax = 1'000;
constexpr milliseconds kTtlMin{100};
constexpr milliseconds kTtlMax{86'400'000};
constexpr milliseconds kRunMax{31'536'000'000};
constexpr milliseconds kBackoffBaseMax{86'400'000};
constexpr milliseconds kBackoffMaxMax{604'800'000};
constexpr milliseconds kDelayMax{std::chrono::hours{24 * 3650}};
constexpr int kAttemptsMax = 1'000'000;

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

std::optional<Error> check_duration(std::string_view what, std::optional<milliseconds> value,
                                    milliseconds min, milliseconds max) {
  if (!value || (*value >= min && *value <= max)) return std::nullopt;
  return invalid("the " + std::string{what} + " is " + std::to_string(value->count()) + " ms",
                 std::to_string(min.count()) + " to " + std::to_string(max.count()) + " ms are allowed");
}

std::optional<Error> check_attempts(std::optional<int> attempts_max) {
  if (!attempts_max || (*attempts_max >= 1 && *attempts_max <= kAttemptsMax)) return std::nullopt;
  return invalid("attempts_max is " + std::to_string(*attempts_max), "1 to 1000000 are allowed");
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
  return check_duration("delay", job.delay, milliseconds{0}, kDelayMax);
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
  return check_text(what, name, kNameBytesMax);
}

std::optional<Error> check_job(const NewJob& job, const Limits& limits) {
  if (job.priority < 0 || job.priority > 9) {
    return invalid("the priority is " + std::to_string(job.priority), "0 (first) to 9 (last) are allowed");
  }
  if (job.tags.size() > kTagsMax) {
    return invalid("there are " + std::to_string(job.tags.size()) + " tags", "at most 32 are allowed");
  }
  for (const std::string& tag : job.tags) {
    if (auto problem = check_name("tag", tag)) return problem;
  }
  return first_of(
      [&] { return check_name("queue", job.queue); }, [&] { return check_name("kind", job.kind); },
      [&] { return check_payload(job, limits); }, [&] { return check_times(job); },
      [&] { return check_traceparent(job.traceparent); },
      [&] {
        return job.idempotency_key ? check_text("idempotency key", *job.idempotency_key, kKeyBytesMax)
                                   : std::nullopt;
      },
      [&] { return check_attempts(job.attempts_max); },
      [&] { return check_duration("lease_ttl", job.lease_ttl, kTtlMin, kTtlMax); },
      [&] { return check_duration("run_max", job.run_max, kTtlMin, kRunMax); },
      [&] { return check_duration("backoff_base", job.backoff_base, milliseconds{0}, kBackoffBaseMax); },
      [&] { return check_duration("backoff_max", job.backoff_max, milliseconds{0}, kBackoffMaxMax); });
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
                  [&] { return check_duration("delay", outcome.delay, milliseconds{0}, kDelayMax); });
}

std::optional<Error> check_progress(const ProgressReport& report) {
  if (std::isfinite(report.fraction) && report.fraction >= 0 && report.fraction <= 1)
    return check_lease(report.lease);
  return invalid("the progress is not a fraction", "0 to 1 are allowed");
}

std::optional<Error> check_effect_key(std::string_view key) {
  return check_text("effect key", key, kKeyBytesMax);
}

std::optional<Error> check_lease(const Lease& lease) {
  if (lease.token.value <= 0) {
    return invalid("the lease of job " + lease.job.to_string() + " has no token",
                   "use the lease as the claim gave it");
  }
  return check_name("worker", lease.worker);
}

std::optional<Error> check_extend(milliseconds extend) {
  return check_duration("extension", extend, kTtlMin, kTtlMax);
}

std::optional<Error> check_queue(std::string_view name, const QueueSettings& settings) {
  if (settings.running_max && *settings.running_max < -1) {
    return invalid("running_max is " + std::to_string(*settings.running_max), "0 or more, or -1 for no cap");
  }
  constexpr milliseconds forever{std::chrono::hours{24 * 36500}};
  return first_of(
      [&] { return check_name("queue", name); }, [&] { return check_attempts(settings.attempts_max); },
      [&] { return check_duration("lease_ttl", settings.lease_ttl, kTtlMin, kTtlMax); },
      [&] { return check_duration("backoff_base", settings.backoff_base, milliseconds{0}, kBackoffBaseMax); },
      [&] { return check_duration("backoff_max", settings.backoff_max, milliseconds{0}, kBackoffMaxMax); },
      [&] { return check_duration("retention", settings.retention, milliseconds{0}, forever); },
      [&] { return check_duration("key_retention", settings.key_retention, milliseconds{0}, forever); });
}

std::optional<Error> check_list(const ListRequest& request) {
  if (request.limit < 1 || request.limit > kBatchMax) {
    return invalid("the page's limit is " + std::to_string(request.limit), "1 to 1000 are allowed");
  }
  return first_of([&] { return request.queue ? check_name("queue", *request.queue) : std::nullopt; },
                  [&] { return request.kind ? check_name("kind", *request.kind) : std::nullopt; });
}

std::string storable_text(std::string_view text) {
  // No more than this can be left of it. A character that is cut in two here is behind the limit anyway.
  std::string source{text.substr(0, kTextBytesMax + 4)};
  std::ranges::replace(source, '\0', '\xFF');
  return std::string{first_bytes(repaired_utf8(source), kTextBytesMax)};
}

}  // namespace faultline::store

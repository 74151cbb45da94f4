#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "faultline/store.h"
#include "service/service.h"

namespace faultline::http {

// Bodies into the values that a `Service` takes. What is not JSON at all is `malformed`; what is JSON and not
// what was asked for is `invalid`, and the message names the field.

struct Limits {
  std::size_t batch_max = 0;
  std::size_t depth_max = 0;
};

/// The body as one JSON text. An empty body is an empty object.
[[nodiscard]] service::ServiceResult<Json> parse_body(std::string_view body, std::size_t depth_max);

struct Jobs {
  std::vector<NewJob> jobs{};
  bool batch = false;  ///< an array or NDJSON
};
[[nodiscard]] service::ServiceResult<Jobs> decode_jobs(std::string_view body, bool ndjson,
                                                       const Limits& limits);

struct ClaimCall {
  std::string queue = "default";
  std::string worker{};
  std::size_t limit = 1;
  std::chrono::milliseconds wait{0};
};
[[nodiscard]] service::ServiceResult<ClaimCall> decode_claim(std::string_view body, const Limits& limits);

struct HeartbeatCall {
  std::vector<Lease> leases{};
  std::optional<std::chrono::milliseconds> extend{};
};
[[nodiscard]] service::ServiceResult<HeartbeatCall> decode_heartbeat(std::string_view body,
                                                                     const Limits& limits);

[[nodiscard]] service::ServiceResult<std::vector<Settlement>> decode_settlements(std::string_view body,
                                                                                 const Limits& limits);
[[nodiscard]] service::ServiceResult<std::vector<Lease>> decode_leases(std::string_view body,
                                                                       const Limits& limits);
[[nodiscard]] service::ServiceResult<std::vector<ProgressReport>> decode_progress(std::string_view body,
                                                                                  const Limits& limits);
[[nodiscard]] service::ServiceResult<std::vector<EffectKey>> decode_effect_keys(std::string_view body,
                                                                                const Limits& limits);
[[nodiscard]] service::ServiceResult<std::vector<EffectResult>> decode_effect_results(std::string_view body,
                                                                                      const Limits& limits);

struct SelectCall {
  service::Selection selection{};
  std::string reason{};  ///< of a cancellation
};
/// `with_reason`: a cancellation.
[[nodiscard]] service::ServiceResult<SelectCall> decode_selection(std::string_view body, bool with_reason,
                                                                  const Limits& limits);
/// The same for the one job that the address names: {"call_id": …, "reason": …} or nothing.
[[nodiscard]] service::ServiceResult<SelectCall> decode_change(std::string_view body, bool with_reason,
                                                               const Limits& limits);
/// What was found out about an effect of the job that the address names.
[[nodiscard]] service::ServiceResult<EffectFinding> decode_finding(std::string_view body,
                                                                   const Limits& limits);
[[nodiscard]] service::ServiceResult<QueueSettings> decode_queue_settings(std::string_view body,
                                                                          const Limits& limits);

}  // namespace faultline::http

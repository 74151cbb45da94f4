#pragma once

#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "faultline/time.h"
#include "pg/backoff.h"
#include "pg/error.h"

namespace faultline::pg {

struct RetryPolicy {
  std::chrono::milliseconds backoff_min{10};
  std::chrono::milliseconds backoff_max{500};
  /// Of the jitter; drawn from the operating system when absent.
  std::optional<std::mt19937::result_type> seed{};
};

/// Runs `attempt() -> Expected<T>`, a whole transaction, again after errors that are `retryable()`,
/// with jittered waits between, until `deadline`. Never after `outcome_unknown`. The last error is
/// returned.
template <class F>
[[nodiscard]] auto with_retry(Deadline deadline, RetryPolicy policy, const F& attempt)
    -> decltype(attempt()) {
  std::optional<Backoff> backoff;
  for (;;) {
    auto outcome = attempt();
    if (outcome || !outcome.error().retryable()) return outcome;
    if (!backoff) {
      backoff.emplace(policy.backoff_min, policy.backoff_max,
                      policy.seed ? *policy.seed : std::random_device{}());
    }
    const auto wake = Deadline::clock::now() + backoff->next();
    if (wake >= deadline) return outcome;
    std::this_thread::sleep_until(wake);
  }
}

}  // namespace faultline::pg

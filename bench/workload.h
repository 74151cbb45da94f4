#pragma once

#include <chrono>
#include <cstddef>
#include <expected>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "faultline/job.h"
#include "faultline/time.h"

namespace faultline::bench {

/// The value; a benchmark has nothing to say after an error, so it ends with the error's text.
template <class T, class E>
T must(std::expected<T, E> result) {
  if (!result) {
    if constexpr (requires { result.error().describe(); }) {
      throw std::runtime_error(result.error().describe());
    } else {
      throw std::runtime_error(result.error().message);
    }
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

using Clock = std::chrono::steady_clock;

/// Longer than anything here takes: a benchmark that hangs is seen by whoever waits for it.
[[nodiscard]] inline Deadline in_time() { return Clock::now() + std::chrono::minutes{30}; }

/// Says what happens now, to a person who waits.
using Say = std::function<void(const std::string& line)>;

/// What every job of every benchmark carries.
inline constexpr std::string_view kPayload = R"({"user":123456,"template":"welcome","locale":"en"})";
[[nodiscard]] inline NewJob bench_job() { return {.kind = "bench", .payload = std::string{kPayload}}; }
/// This many of them, one after the other, for enqueue_bulk.
[[nodiscard]] std::function<std::optional<NewJob>()> bench_jobs(std::size_t count);

/// Jobs per second: `threads` threads run `work`, which returns how many jobs it did, and 0 at the end.
[[nodiscard]] double measure(std::size_t threads, const std::function<std::size_t(std::size_t thread)>& work);

[[nodiscard]] double median(std::vector<double> values);
/// Medians of two rates that were measured in turns, so that both saw the same machine.
struct Compared {
  double ours = 0;
  double other = 0;
  double ratio = 0;  ///< of each round, not of the medians
};
[[nodiscard]] Compared in_turns(std::size_t rounds, const std::function<double()>& ours,
                                const std::function<double()>& other);
/// The value below which this share (0 to 1) of the values lies. There must be one.
[[nodiscard]] double quantile(std::vector<double> values, double share);

/// The peak of this process's memory so far, in KiB.
[[nodiscard]] std::size_t peak_memory_kib();

}  // namespace faultline::bench

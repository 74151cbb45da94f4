#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace faultline::cli {

/// A line on standard error that says how far a long work is, drawn over itself a few times a second. Draws
/// nothing where standard error is no terminal.
class ProgressBar {
 public:
  /// `total`: of what `update` is told; nothing: it is not known.
  ProgressBar(std::string unit, std::optional<std::uint64_t> total);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Leaves the line empty for what comes next.
  ~ProgressBar();

  /// `done` of the total, and `count` things of the unit.
  void update(std::uint64_t done, std::uint64_t count);

 private:
  using Clock = std::chrono::steady_clock;

  std::string unit_;
  std::optional<std::uint64_t> total_;
  bool on_;
  Clock::time_point started_ = Clock::now();
  Clock::time_point drawn_{};
};

/// The line's text, of at most 79 columns: `[#####.....]  50 %  1,000 lines  500/s`.
[[nodiscard]] std::string progress_text(std::optional<double> part, std::uint64_t count,
                                        const std::string& unit, std::chrono::duration<double> elapsed);

/// 1234567 as 1,234,567.
[[nodiscard]] std::string grouped(std::uint64_t number);

}  // namespace faultline::cli

#include "cli/enqueue/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

namespace faultline::cli {
namespace {

constexpr std::chrono::milliseconds kBetweenDrawings{100};
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string progress_text(std::optional<double> part, std::uint64_t count, const std::string& unit,
                          std::chrono::duration<double> elapsed) {
  constexpr std::size_t kColumns = 30;
  std::string text;
  if (part) {
    const double bounded = std::clamp(*part, 0.0, 1.0);
    const auto filled = static_cast<std::size_t>(bounded * static_cast<double>(kColumns));
    std::string percent = std::to_string(static_cast<int>(bounded * 100));
    percent.insert(0, 3 - percent.size(), ' ');
    text = "[" + std::string(filled, '#') + std::string(kColumns - filled, '.') + "] " + percent + " %  ";
  }
  const double rate = elapsed.count() > 0 ? static_cast<double>(count) / elapsed.count() : 0.0;
  return text + grouped(count) + " " + unit + "  " + grouped(static_cast<std::uint64_t>(rate)) + "/s";
}

ProgressBar::ProgressBar(std::string unit, std::optional<std::uint64_t> total)
    : unit_(std::move(unit)), total_(total), on_(::isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (on_) std::cerr << kClearLine << std::flush;
}

void ProgressBar::update(std::uint64_t done, std::uint64_t count) {
  const auto now = Clock::now();
  if (!on_ || now - drawn_ < kBetweenDrawings) return;
  drawn_ = now;
  std::optional<double> part;
  if (total_ && *total_ > 0) part = static_cast<double>(done) / static_cast<double>(*total_);
  std::cerr << kClearLine << progress_text(part, count, unit_, now - started_) << std::flush;
}

}  // namespace faultline::cli

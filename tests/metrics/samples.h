#pragma once

#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "support/process.h"

namespace faultline::testing {

/// The samples of a text in Prometheus' format, by name and labels as they are written:
/// `faultline_jobs_dead_total{cause="failed",queue="default"}`.
[[nodiscard]] inline std::map<std::string, double> samples_of(const std::string& text) {
  std::map<std::string, double> samples;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    const auto space = line.rfind(' ');
    samples[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return samples;
}

/// The value of one; -1 when it is not there.
[[nodiscard]] inline double sample(const std::string& text, const std::string& name) {
  const auto samples = samples_of(text);
  const auto found = samples.find(name);
  return found == samples.end() ? -1 : found->second;
}

/// All samples of a metric together.
[[nodiscard]] inline double sum_of(const std::string& text, std::string_view metric) {
  double sum = 0;
  for (const auto& [name, value] : samples_of(text)) {
    if (name.substr(0, name.find('{')) == metric) sum += value;
  }
  return sum;
}

/// What promtool says against the text; empty: nothing.
[[nodiscard]] inline std::string lint(const std::string& text) {
  const ProcessResult result = run_process({.argv = {"promtool", "check", "metrics"}, .input = text});
  return result.exit_code == 0 ? result.out + result.err : "refused: " + result.out + result.err;
}

}  // namespace faultline::testing

#include "drills/report.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace faultline::drills {
namespace {

using Json = nlohmann::ordered_json;

/// What every line of a race has in common is not repeated.
constexpr std::array<std::string_view, 9> kShownElsewhere{"at",  "severity", "event", "worker", "token",
                                                          "job", "queue",    "kind",  "attempt"};

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

std::string trace_line(const std::string& json_line) {
  const Json event = Json::parse(json_line, nullptr, false);
  if (!event.is_object()) return json_line;
  std::string line = "  " + padded(event.value("worker", ""), 9) + padded(event.value("event", ""), 21);
  line += padded(event.contains("token") ? "token " + text_of(event["token"]) : "", 9);
  for (const auto& [name, value] : event.items()) {
    if (std::ranges::find(kShownElsewhere, name) == kShownElsewhere.end())
      line += name + "=" + text_of(value) + " ";
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string fixed(double value, const char* format) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string of(std::size_t part, std::size_t whole) {
  return std::to_string(part) + " of " + std::to_string(whole);
}

std::string fact(bool holds, const std::string& text) { return (holds ? "  ✓ " : "  ✗ ") + text + "\n"; }

std::string broken_races(const LeaseRaceReport& report) {
  std::string text;
  for (const BrokenRace& race : report.broken) {
    text += "\nrace " + std::to_string(race.number) + ": " + race.schedule + "\n";
    for (const std::string& violation : race.violations) text += "  ✗ " + violation + "\n";
    text += "  again: faultline drill lease-race --seed " + std::to_string(race.seed) + "\n";
  }
  return text;
}

double per_second(std::size_t done, double seconds) {
  return seconds > 0 ? static_cast<double>(done) / seconds : 0;
}

}  // namespace

std::string to_text(const std::vector<std::string>& trace) {
  std::string text;
  for (const std::string& line : trace) text += trace_line(line) + "\n";
  return text;
}

std::string to_text(const LeaseRaceReport& report) {
  const std::size_t runs = report.runs;
  std::string text;
  text += fact(report.successes == runs && report.duplicates == 0,
               "exactly one success in the ledger (" + of(report.successes, runs) + ")");
  text += fact(report.races == runs,
               "its token is 2 or more: a reclaim did occur (" + of(report.races, runs) + ")");
  text += fact(report.ended_succeeded == runs,
               "the job's state is succeeded (" + of(report.ended_succeeded, runs) + ")");
  text += fact(report.stale_accepted == 0, "stale writes accepted: " + std::to_string(report.stale_accepted));
  text += fact(report.stale_blocked == report.late_writes,
               "stale writes blocked, with evidence that names both tokens (" +
                   of(report.stale_blocked, report.late_writes) + ")");
  if (runs > 1) {
    text += "\n" + std::to_string(runs) + " races (of " + std::to_string(report.shapes) + " shapes, seed " +
            std::to_string(report.seed) + ") in " + fixed(report.seconds, "%.1f s, ") +
            fixed(per_second(runs, report.seconds), "%.0f per second") + "\n";
  }
  if (!report.passed()) text += broken_races(report);
  return text;
}

nlohmann::json to_json(const LeaseRaceReport& report) {
  nlohmann::json lines = nlohmann::json::object();
  for (const auto& [timing, line] : report.finish_lines)
    lines[timing] = {{"late_first", line.late_first}, {"late_second", line.late_second}};
  nlohmann::json broken = nlohmann::json::array();
  for (const BrokenRace& race : report.broken)
    broken.push_back({{"race", race.number}, {"seed", race.seed}, {"violations", race.violations}});
  return {{"runs", report.runs},
          {"races", report.races},
          {"successes", report.successes},
          {"stale_writes", report.late_writes},
          {"stale_blocked", report.stale_blocked},
          {"stale_accepted", report.stale_accepted},
          {"duplicates", report.duplicates},
          {"violations", report.violations},
          {"seconds", report.seconds},
          {"seed", report.seed},
          {"shapes", report.shapes},
          {"threads", report.threads},
          {"by_verb", report.by_verb},
          {"by_timing", report.by_timing},
          {"same_moment", std::move(lines)},
          {"broken", std::move(broken)}};
}

std::string to_text(const DrillProgress& progress) {
  return of(progress.done, progress.runs) +
         " races, stale writes accepted: " + std::to_string(progress.stale_accepted) + ", " +
         fixed(per_second(progress.done, progress.seconds), "%.0f per second");
}

std::string to_bar(const DrillProgress& progress, std::size_t columns) {
  const std::string text = to_text(progress);
  // On one line, or the next bar would begin under this one.
  constexpr std::size_t kWidthMax = 30;
  constexpr std::size_t kFrame = 3;
  if (columns < text.size() + kFrame + 1) return text.substr(0, columns);
  const std::size_t width = std::min(kWidthMax, columns - text.size() - kFrame);
  const std::size_t filled = progress.runs == 0 ? 0 : width * progress.done / progress.runs;
  return "[" + std::string(filled, '#') + std::string(width - filled, '.') + "] " + text;
}

}  // namespace faultline::drills

#include "cli/up/up_display.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <ostream>

namespace faultline::cli {
namespace {

constexpr std::string_view kPlain = "\x1b[0m";
constexpr std::string_view kDim = "\x1b[2m";

std::string field(const Event& event, std::string_view name) {
  const auto found = std::ranges::find(event.fields, name, [](const auto& entry) { return entry.first; });
  return found == event.fields.end() ? "" : found->second;
}

std::string_view colour_of(const Event& event) {
  if (event.name == "stale_write_blocked") return "\x1b[1;31m";
  if (event.name == "job_settled") return "\x1b[32m";
  if (event.name == "lease_acquired") return "\x1b[36m";
  if (event.severity == Severity::error || event.name == "job_buried") return "\x1b[31m";
  if (event.severity == Severity::warning || event.name == "execution_failed") return "\x1b[33m";
  return "";
}

std::string clock_time(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%H:%M:%S", &parts);
  return text.data();
}

/// Control characters cannot break out of the line.
std::string plain(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return text;
}

}  // namespace

bool is_interesting(const Event& event) {
  if (event.severity >= Severity::warning) return true;
  // The failure itself has a line of its own.
  if (event.name == "job_settled") return field(event, "outcome") != "failed";
  if (event.name == "lease_acquired") return event.queue == "demo-race";
  constexpr std::array<std::string_view, 6> kNames{"execution_failed",      "handler_log", "database_back",
                                                   "private_postgres_back", "server_back", "tls_reloaded"};
  return std::ranges::find(kNames, event.name) != kNames.end();
}

std::string to_display_line(const Event& event, bool colour) {
  constexpr std::size_t kNameWidth = 19;
  std::string name{event.name};
  name.resize(std::max(name.size(), kNameWidth), ' ');
  std::string line = clock_time(event.at) + "  ";
  if (colour) line = std::string{kDim} + line + std::string{kPlain} + std::string{colour_of(event)};
  line += name;
  if (colour) line += kPlain;
  if (event.job) line += "  " + (event.kind.empty() ? "" : plain(event.kind) + " ") + event.job->to_string();
  if (event.token) line += "  token " + std::to_string(event.token->value);
  if (!event.worker.empty()) line += "  " + plain(event.worker);
  if (!event.fields.empty()) line += ' ';
  for (const auto& [key, value] : event.fields) line += " " + key + "=" + plain(value);
  return line;
}

void UpDisplay::tell(const Event& event) {
  if (!options_.all && !is_interesting(event)) return;
  write((options_.json ? to_json_line(event) : to_display_line(event, options_.colour)) + "\n");
}

void UpDisplay::say(const std::string& text, const std::string& json_line) {
  if (!options_.json) write(text);
  if (options_.json && !json_line.empty()) write(json_line + "\n");
}

std::string UpDisplay::bold(const std::string& text) const {
  return options_.colour ? "\x1b[1m" + text + std::string{kPlain} : text;
}

void UpDisplay::write(const std::string& text) {
  const std::lock_guard lock{mutex_};
  out_ << text << std::flush;
}

}  // namespace faultline::cli

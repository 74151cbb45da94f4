#include "faultline/event.h"

#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <ostream>

#include "base/json_text.h"
#include "base/printable.h"

namespace faultline {
namespace {

/// 2026-01-31T12:00:00.123Z
std::string to_text(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count() % 1'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 40> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + length, text.size() - length, ".%03dZ", static_cast<int>(millis));
  return text.data();
}

/// A value in a line for people. It cannot break out of its line, and with quotes around what is more than a
/// word it cannot pass for another field.
void append_value(std::string& out, std::string_view value) {
  const std::string text = printable(value);
  if (!text.empty() && text.find_first_of(" =\"\\") == std::string::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  out += '"';
}

EventSink line_sink(std::ostream& out, Severity at_least, std::string (*format)(const Event&)) {
  return [&out, at_least, format, mutex = std::make_shared<std::mutex>()](const Event& event) {
    if (event.severity < at_least) return;
    std::string line = format(event);
    line += '\n';
    const std::lock_guard lock{*mutex};
    out << line << std::flush;
  };
}

}  // namespace

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::debug:
      return "debug";
    case Severity::info:
      return "info";
    case Severity::warning:
      return "warning";
    case Severity::error:
      return "error";
  }
  return "error";
}

std::string to_json_line(const Event& event) {
  JsonWriter out;
  const auto add = [&](std::string_view name, std::string_view value) { out.key(name).string(value); };
  out.begin_object();
  add("at", to_text(event.at));
  add("severity", to_string(event.severity));
  add("event", event.name);
  if (!event.worker.empty()) add("worker", event.worker);
  if (event.job) add("job", event.job->to_string());
  if (event.token) out.key("token").integer(event.token->value);
  if (!event.queue.empty()) add("queue", event.queue);
  if (!event.kind.empty()) add("kind", event.kind);
  if (event.attempt > 0) out.key("attempt").integer(event.attempt);
  for (const auto& [name, value] : event.fields) add(name, value);
  out.end_object();
  return printable_json(out.take());
}

std::string to_text_line(const Event& event) {
  std::string out = to_text(event.at);
  out += ' ';
  out += to_string(event.severity);
  out += ' ';
  out += event.name;
  const auto add = [&](std::string_view name, std::string_view value) {
    out += ' ';
    out += name;
    out += '=';
    append_value(out, value);
  };
  if (!event.worker.empty()) add("worker", event.worker);
  if (event.job) add("job", event.job->to_string());
  if (event.token) add("token", std::to_string(event.token->value));
  if (!event.queue.empty()) add("queue", event.queue);
  if (!event.kind.empty()) add("kind", event.kind);
  if (event.attempt > 0) add("attempt", std::to_string(event.attempt));
  for (const auto& [name, value] : event.fields) add(name, value);
  return out;
}

EventSink json_lines(std::ostream& out, Severity at_least) { return line_sink(out, at_least, to_json_line); }
EventSink text_lines(std::ostream& out, Severity at_least) { return line_sink(out, at_least, to_text_line); }

}  // namespace faultline

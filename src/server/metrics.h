#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace faultline::server {

/// Composes metrics in Prometheus' text format. Names and labels are ours and need no escaping.
class MetricsText {
 public:
  void counter(std::string_view name, std::string_view help, std::uint64_t value) {
    add(name, "counter", help, value);
  }
  void gauge(std::string_view name, std::string_view help, std::uint64_t value) {
    add(name, "gauge", help, value);
  }

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void add(std::string_view name, std::string_view type, std::string_view help, std::uint64_t value) {
    text_.append("# HELP ").append(name).append(" ").append(help).append("\n");
    text_.append("# TYPE ").append(name).append(" ").append(type).append("\n");
    text_.append(name).append(" ").append(std::to_string(value)).append("\n");
  }

  std::string text_;
};

}  // namespace faultline::server

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace faultline::bench {

/// What a benchmark has measured: figures with names that are stable for machines, and notes for people.
class Report {
 public:
  explicit Report(std::string title) : title_(std::move(title)) {}

  Report& add(std::string name, nlohmann::json value, std::string note = {});
  /// A number with as many decimals as make sense for it.
  Report& add_number(std::string name, double value, int decimals, std::string note = {});

  [[nodiscard]] nlohmann::json json() const;
  [[nodiscard]] std::string text() const;

 private:
  struct Figure {
    std::string name;
    nlohmann::json value;
    std::string note;
  };
  std::string title_;
  std::vector<Figure> figures_;
};

}  // namespace faultline::bench

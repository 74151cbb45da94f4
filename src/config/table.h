#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace faultline::config {

/// A setting with how its text becomes a value, and back.
struct Row {
  Setting setting;
  /// Nothing, or what is wrong with the text; then the settings are as before.
  std::function<std::optional<Error>(Settings&, std::string_view)> read;
  std::function<std::string(const Settings&)> write;
  /// In a file: written without quotes.
  bool bare = false;
};

[[nodiscard]] const std::vector<Row>& table();
[[nodiscard]] const Row* find_row(std::string_view name);

}  // namespace faultline::config

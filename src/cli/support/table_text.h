#pragma once

#include <string>
#include <vector>

namespace faultline::cli {

/// Rows of cells as aligned columns for people, the first row on top. The last column is as wide as it likes.
/// What could play tricks with a terminal does not get through.
[[nodiscard]] std::string table_text(std::vector<std::vector<std::string>> rows);

}  // namespace faultline::cli

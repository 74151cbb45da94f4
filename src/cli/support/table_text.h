#pragma once

#include <string>
#include <vector>

namespace faultline::cli {

/// Rows of cells as aligned columns for people, the first row on top. The last column is as wide as it likes.
[[nodiscard]] std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace faultline::cli

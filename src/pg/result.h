#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/time.h"
#include "faultline/uuid.h"
#include "pg/params.h"

struct pg_result;

namespace faultline::pg {

/// The rows of one statement, in binary format. Owns libpq's memory; moves, does not copy.
/// Reading a column as the wrong type or a NULL as a non-optional is a bug and asserts.
class Result {
 public:
  [[nodiscard]] int rows() const;
  [[nodiscard]] int columns() const;
  /// Rows inserted, updated, deleted, selected or copied, from the command tag.
  [[nodiscard]] std::int64_t affected() const;
  [[nodiscard]] bool is_null(int row, int column) const;
  [[nodiscard]] int column(std::string_view name) const;  ///< -1 when absent

  /// T: bool, int16_t, int32_t, int64_t (any integer column that fits), double, std::string,
  /// std::string_view (valid while this lives), Bytes, BytesView, Uuid, DatabaseTime,
  /// std::vector of these for arrays, or std::optional of any of these.
  template <class T>
  [[nodiscard]] T get(int row, int column) const;
};

}  // namespace faultline::pg

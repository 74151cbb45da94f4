#pragma once

#include <array>
#include <initializer_list>
#include <string_view>

#include "base/fields.h"
#include "pg/result.h"

namespace faultline::store {

/// Reads rows into structs: each member from the column of its field's name, wherever that stands. A column
/// that is missing is a bug in the statement and ends the process. Of Job, JobSummary, ClaimedJob, Attempt,
/// StaleWrite, EffectRecord, EffectDecision and Queue. The result must outlive it.
template <class Struct>
class RowReader {
 public:
  /// `elsewhere`: members that the caller fills in, because the rows do not have them.
  explicit RowReader(const pg::Result& rows, std::initializer_list<std::string_view> elsewhere = {});

  [[nodiscard]] Struct read(int row) const;

 private:
  const pg::Result& rows_;
  std::array<int, kFieldCount<Struct>> columns_{};  ///< -1: filled in by the caller
};

/// The column of this name, which must be there.
[[nodiscard]] int column_of(const pg::Result& rows, std::string_view name);

}  // namespace faultline::store

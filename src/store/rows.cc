#include "store/rows.h"

#include <algorithm>
#include <string>

#include "base/words.h"
#include "pg/check.h"

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

/// A value of one column.
struct Cell {
  const pg::Result& rows;
  int row;
  int column;

  [[nodiscard]] bool is_null() const { return rows.is_null(row, column); }
  template <class T>
  [[nodiscard]] T get() const {
    return rows.get<T>(row, column);
  }
};

void read(const Cell& cell, std::string& into) { into = cell.get<std::string>(); }
void read(const Cell& cell, bool& into) { into = cell.get<bool>(); }
void read(const Cell& cell, int& into) { into = static_cast<int>(cell.get<std::int64_t>()); }
void read(const Cell& cell, double& into) { into = cell.get<double>(); }
void read(const Cell& cell, milliseconds& into) { into = milliseconds{cell.get<std::int64_t>()}; }
void read(const Cell& cell, DatabaseTime& into) { into = cell.get<DatabaseTime>(); }
void read(const Cell& cell, Uuid& into) { into = cell.get<Uuid>(); }
void read(const Cell& cell, JobId& into) { into.value = cell.get<Uuid>(); }
void read(const Cell& cell, FenceToken& into) { into.value = cell.get<std::int64_t>(); }
void read(const Cell& cell, std::vector<std::string>& into) {
  if (!cell.is_null()) into = cell.get<std::vector<std::string>>();
}

/// A word that this program does not know leaves the member as it is made.
template <class Enum>
void read_word(const Cell& cell, Enum& into, std::optional<Enum> (*parse)(std::string_view)) {
  into = parse(cell.get<std::string_view>()).value_or(into);
}
void read(const Cell& cell, JobState& into) { read_word(cell, into, &parse_job_state); }
void read(const Cell& cell, Delivery& into) { read_word(cell, into, &parse_delivery); }
void read(const Cell& cell, Encoding& into) { read_word(cell, into, &parse_encoding); }
void read(const Cell& cell, StaleReason& into) { read_word(cell, into, &parse_stale_reason); }

template <class T>
void read(const Cell& cell, std::optional<T>& into) {
  if (!cell.is_null()) read(cell, into.emplace());
}

void read_bytes(const Cell& cell, std::string& into) {
  const pg::BytesView bytes = cell.get<pg::BytesView>();
  into.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}
void read_bytes(const Cell& cell, std::optional<std::string>& into) {
  if (!cell.is_null()) read_bytes(cell, into.emplace());
}

template <class Struct, std::size_t I>
void read_field(const Cell& cell, Struct& into) {
  constexpr auto field = std::get<I>(kFields<Struct>);
  if constexpr (field.form == Form::payload || field.form == Form::result) {
    read_bytes(cell, field.of(into));
  } else if constexpr (requires { read(cell, field.of(into)); }) {
    read(cell, field.of(into));
  } else {
    pg::check(false, "a member of this type stands in no column");
  }
}

}  // namespace

int column_of(const pg::Result& rows, std::string_view name) {
  const int column = rows.column(name);
  pg::check(column >= 0, ("the statement gives the column " + std::string{name}).c_str());
  return column;
}

template <class Struct>
RowReader<Struct>::RowReader(const pg::Result& rows, std::initializer_list<std::string_view> elsewhere)
    : rows_(rows) {
  auto column = columns_.begin();
  for_each_field<Struct>([&](const FieldInfo& field) {
    *column++ =
        std::ranges::find(elsewhere, field.name) == elsewhere.end() ? column_of(rows, field.name) : -1;
  });
}

template <class Struct>
Struct RowReader<Struct>::read(int row) const {
  Struct value{};
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((columns_[I] < 0 ? void() : read_field<Struct, I>({rows_, row, columns_[I]}, value)), ...);
  }(std::make_index_sequence<kFieldCount<Struct>>{});
  return value;
}

template class RowReader<Job>;
template class RowReader<JobSummary>;
template class RowReader<ClaimedJob>;
template class RowReader<Attempt>;
template class RowReader<StaleWrite>;
template class RowReader<EffectRecord>;
template class RowReader<EffectDecision>;
template class RowReader<Queue>;

}  // namespace faultline::store

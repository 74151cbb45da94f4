#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "faultline/time.h"
#include "faultline/uuid.h"
#include "pg/types.h"

struct pg_result;

namespace faultline::pg {

/// The server's answer is not what the caller reads: another type or number of columns, NULL where a value
/// must be. The functions that answer live in the database, where others may have changed them, so that is no
/// reason to end a process.
class UnexpectedAnswer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

struct ResultDeleter {
  void operator()(pg_result* result) const noexcept;
};

/// A value's bytes and the oid of its type, as the server sent them.
struct Field {
  std::uint32_t type = 0;
  std::string_view bytes;
};

/// Reads one scalar. Defined for the types that `Result::get` names.
template <class T>
[[nodiscard]] T decode(const Field& field);

/// The elements of a one-dimensional array.
class ArrayReader {
 public:
  explicit ArrayReader(const Field& array);
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::optional<Field> next();  ///< nullopt for NULL

 private:
  std::uint32_t take_number();

  std::string_view rest_;
  std::uint32_t element_type_ = 0;
  std::size_t size_ = 0;
};

void check_not_null(bool is_null);

template <class T>
struct OptionalOf {
  static constexpr bool value = false;
};
template <class T>
struct OptionalOf<std::optional<T>> {
  static constexpr bool value = true;
  using Inner = T;
};
template <class T>
struct VectorOf {
  static constexpr bool value = false;
};
template <class T>
struct VectorOf<std::vector<T>> {
  static constexpr bool value = !std::same_as<T, std::byte>;
  using Inner = T;
};

}  // namespace detail

/// The rows of one statement, in binary format (those of `exec_text` are read by `text` alone). Owns libpq's
/// memory; moves, does not copy. Reading a column as the wrong type or a NULL as a non-optional is a bug and
/// asserts. Several threads may read one result at a time.
class Result {
 public:
  Result() = default;
  /// Takes ownership.
  explicit Result(pg_result* result) : result_(result) {}

  [[nodiscard]] int rows() const;
  [[nodiscard]] int columns() const;
  /// Rows inserted, updated, deleted, selected or copied, from the command tag.
  [[nodiscard]] std::int64_t affected() const;
  [[nodiscard]] bool is_null(int row, int column) const;
  [[nodiscard]] int column(std::string_view name) const;  ///< -1 when absent

  /// A value of a result in text format, valid while this lives; nullopt for NULL.
  [[nodiscard]] std::optional<std::string_view> text(int row, int column) const;

  /// T: bool, int16_t, int32_t, int64_t (any integer column that fits), double, std::string,
  /// std::string_view (valid while this lives), Bytes, BytesView, Uuid, DatabaseTime,
  /// std::vector of these (or of std::optional of these) for arrays, or std::optional of any of these.
  /// Text is also what enums, json and jsonb read as. Cast numeric to bigint or float8 in SQL.
  template <class T>
  [[nodiscard]] T get(int row, int column) const {
    if constexpr (detail::OptionalOf<T>::value) {
      if (is_null(row, column)) return std::nullopt;
      return get<typename detail::OptionalOf<T>::Inner>(row, column);
    } else if constexpr (detail::VectorOf<T>::value) {
      return get_array<typename detail::VectorOf<T>::Inner>(row, column);
    } else {
      return detail::decode<T>(field(row, column));
    }
  }

 private:
  /// Asserts that the value is there.
  [[nodiscard]] detail::Field field(int row, int column) const;

  template <class T>
  [[nodiscard]] std::vector<T> get_array(int row, int column) const {
    detail::ArrayReader reader{field(row, column)};
    std::vector<T> values;
    values.reserve(reader.size());
    for (std::size_t i = 0; i < reader.size(); ++i) {
      const std::optional<detail::Field> element = reader.next();
      if constexpr (detail::OptionalOf<T>::value) {
        using Inner = typename detail::OptionalOf<T>::Inner;
        values.push_back(element ? T{detail::decode<Inner>(*element)} : T{});
      } else {
        detail::check_not_null(!element);
        values.push_back(detail::decode<T>(*element));
      }
    }
    return values;
  }

  std::unique_ptr<pg_result, detail::ResultDeleter> result_;
};

}  // namespace faultline::pg

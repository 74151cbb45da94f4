#pragma once

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "faultline/job.h"
#include "faultline/time.h"
#include "faultline/uuid.h"

struct pg_conn;  // libpq's: a `PGconn*` points to one

namespace faultline {

/// The database refused a statement. The transaction can only be rolled back: do not catch it.
class SqlError : public std::runtime_error {
 public:
  SqlError(std::string sqlstate, const std::string& message)
      : std::runtime_error(message), sqlstate_(std::move(sqlstate)) {}
  [[nodiscard]] const std::string& sqlstate() const { return sqlstate_; }  ///< such as 23505

 private:
  std::string sqlstate_;
};

/// A value for $1, $2 …, sent as text: PostgreSQL reads it as the type that the statement asks for.
class SqlParam {
 public:
  SqlParam(std::nullptr_t) {}
  SqlParam(std::nullopt_t) {}
  SqlParam(std::string_view text) : text_(std::string{text}) {}
  SqlParam(const std::string& text) : text_(text) {}
  SqlParam(const char* text) : text_(text) {}
  SqlParam(bool value) : text_(value ? "true" : "false") {}
  template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>)
  SqlParam(T value) : text_(std::to_string(value)) {}
  SqlParam(double value);  ///< the shortest text that reads back as the same number
  SqlParam(const JobId& job) : text_(job.to_string()) {}
  SqlParam(const Uuid& uuid) : text_(uuid.to_string()) {}
  SqlParam(FenceToken token) : SqlParam(token.value) {}
  SqlParam(DatabaseTime time) : text_(faultline::to_string(time)) {}  ///< a timestamptz
  template <class Duration>
  SqlParam(std::chrono::sys_time<Duration> time) : SqlParam(DatabaseClock::from_sys(time)) {}
  template <class Rep, class Period>  ///< an interval
  SqlParam(std::chrono::duration<Rep, Period> duration)
      : text_(std::to_string(std::chrono::floor<std::chrono::microseconds>(duration).count()) +
              " microseconds") {}
  template <class T>
  SqlParam(const std::optional<T>& value) {
    if (value) *this = SqlParam{*value};
  }

  [[nodiscard]] const std::optional<std::string>& text() const { return text_; }

 private:
  std::optional<std::string> text_;
};

class Row;

/// The rows of one answer, as text. Views stay good as long as this object, or a copy of it, lives.
///
///   for (const Row row : tx.exec("SELECT id, name FROM customer")) greet(row.get<int>("id"),
///   row.text("name"));
class Rows {
 public:
  Rows() = default;
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::size_t columns() const;
  /// How many rows an INSERT, UPDATE or DELETE touched.
  [[nodiscard]] std::size_t affected() const;
  /// The text of a value, or nothing for NULL. Throws std::out_of_range.
  [[nodiscard]] std::optional<std::string_view> text(std::size_t row, std::size_t column) const;
  /// The value as a number, bool, string, Uuid, JobId or FenceToken, or as a std::optional of one, which has
  /// nothing for NULL. Throws std::invalid_argument for NULL otherwise, and for another type.
  template <class T>
  [[nodiscard]] T get(std::size_t row, std::size_t column) const;
  /// The place of the column that has this name, the first one if several have. Throws std::out_of_range.
  [[nodiscard]] std::size_t column(std::string_view name) const;

  class Iterator;
  [[nodiscard]] Row operator[](std::size_t row) const;  ///< throws std::out_of_range
  [[nodiscard]] Iterator begin() const;
  [[nodiscard]] Iterator end() const;

  class Data;
  explicit Rows(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

 private:
  [[nodiscard]] std::string_view required(std::size_t row, std::size_t column) const;
  template <class T>
  [[nodiscard]] static T parsed(std::string_view value);

  std::shared_ptr<const Data> data_;
};

/// One row of an answer. It keeps the answer alive.
class Row {
 public:
  Row(Rows rows, std::size_t index) : rows_(std::move(rows)), index_(index) {}

  [[nodiscard]] std::optional<std::string_view> text(std::size_t column) const {
    return rows_.text(index_, column);
  }
  [[nodiscard]] std::optional<std::string_view> text(std::string_view column) const {
    return rows_.text(index_, rows_.column(column));
  }
  template <class T>
  [[nodiscard]] T get(std::size_t column) const {
    return rows_.get<T>(index_, column);
  }
  template <class T>
  [[nodiscard]] T get(std::string_view column) const {
    return rows_.get<T>(index_, rows_.column(column));
  }

 private:
  Rows rows_;
  std::size_t index_;
};

class Rows::Iterator {
 public:
  using value_type = Row;
  using difference_type = std::ptrdiff_t;

  Iterator() = default;
  Iterator(Rows rows, std::size_t index) : rows_(std::move(rows)), index_(index) {}
  [[nodiscard]] Row operator*() const { return {rows_, index_}; }
  Iterator& operator++() {
    ++index_;
    return *this;
  }
  Iterator operator++(int) {
    Iterator before = *this;
    ++index_;
    return before;
  }
  friend bool operator==(const Iterator& one, const Iterator& other) { return one.index_ == other.index_; }

 private:
  Rows rows_{};
  std::size_t index_ = 0;
};

inline Row Rows::operator[](std::size_t row) const {
  if (row >= size()) {
    throw std::out_of_range("there is no row " + std::to_string(row) + ": the answer has " +
                            std::to_string(size()));
  }
  return {*this, row};
}
inline Rows::Iterator Rows::begin() const { return {*this, 0}; }
inline Rows::Iterator Rows::end() const { return {*this, size()}; }

/// An open transaction, in the hands of a handler. READ COMMITTED. Not thread-safe. Settings are made with
/// SET LOCAL: others would stay on a connection that other transactions use.
class Transaction {
 public:
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  /// One statement. Throws SqlError. It must not end the transaction: COMMIT and ROLLBACK are refused. After
  /// an error only ROLLBACK TO a savepoint that was set before lets the transaction go on.
  Rows exec(std::string_view sql, std::initializer_list<SqlParam> params = {});
  Rows exec(std::string_view sql, std::span<const SqlParam> params);
  /// Jobs that exist if and only if this transaction commits. Throws std::invalid_argument for a job that
  /// is not valid, SqlError for errors of the database, and FL409 where a key belongs to another job.
  Submission enqueue(const NewJob& job);
  std::vector<Submission> enqueue(std::span<const NewJob> jobs);
  std::vector<Submission> enqueue(std::initializer_list<NewJob> jobs) {
    return enqueue(std::span{jobs.begin(), jobs.size()});
  }
  /// The `PGconn*`, for code that speaks libpq. It must leave the transaction open.
  [[nodiscard]] pg_conn* native_handle();

  class Impl;
  explicit Transaction(Impl& impl) : impl_(impl) {}

 private:
  Impl& impl_;
};

namespace detail {
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
}  // namespace detail

template <class T>
T Rows::get(std::size_t row, std::size_t column) const {
  if constexpr (detail::kIsOptional<T>) {
    if (!text(row, column)) return std::nullopt;
    return get<typename T::value_type>(row, column);
  } else if constexpr (std::same_as<T, FenceToken>) {
    return FenceToken{get<std::int64_t>(row, column)};
  } else {
    return parsed<T>(required(row, column));
  }
}

template <class T>
T Rows::parsed(std::string_view value) {
  if constexpr (std::same_as<T, std::string>) {
    return std::string{value};
  } else if constexpr (std::same_as<T, Uuid> || std::same_as<T, JobId>) {
    if (const auto id = T::parse(value)) return *id;
  } else if constexpr (std::same_as<T, bool>) {
    if (value == "t") return true;
    if (value == "f") return false;
  } else {
    T number{};
    const char* end = value.data() + value.size();
    if (const auto [rest, error] = std::from_chars(value.data(), end, number);
        error == std::errc{} && rest == end) {
      return number;
    }
  }
  throw std::invalid_argument("\"" + std::string{value} + "\" is not of the type asked for");
}

}  // namespace faultline

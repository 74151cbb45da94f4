#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/job.h"

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
  template <class T>
  SqlParam(const std::optional<T>& value) {
    if (value) *this = SqlParam{*value};
  }

  [[nodiscard]] const std::optional<std::string>& text() const { return text_; }

 private:
  std::optional<std::string> text_;
};

/// The rows of one answer, as text. Views stay good as long as this object, or a copy of it, lives.
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
  /// The value as a number, bool or string. Throws std::invalid_argument for NULL or another type.
  template <class T>
  [[nodiscard]] T get(std::size_t row, std::size_t column) const;

  class Data;
  explicit Rows(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

 private:
  [[nodiscard]] std::string_view required(std::size_t row, std::size_t column) const;

  std::shared_ptr<const Data> data_;
};

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
  /// is not valid, SqlError for errors of the database.
  Submission enqueue(const NewJob& job);
  std::vector<Submission> enqueue(std::span<const NewJob> jobs);
  /// The `PGconn*`, for code that speaks libpq. It must leave the transaction open.
  [[nodiscard]] void* native_handle();

  class Impl;
  explicit Transaction(Impl& impl) : impl_(impl) {}

 private:
  Impl& impl_;
};

template <class T>
T Rows::get(std::size_t row, std::size_t column) const {
  const std::string_view value = required(row, column);
  if constexpr (std::same_as<T, std::string>) {
    return std::string{value};
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

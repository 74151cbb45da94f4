#include "pg/result.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <limits>

#include <libpq-fe.h>

#include "pg/encoding.h"

namespace faultline::pg {
namespace {

void expect(bool holds, const char* rule) {
  if (!holds) throw UnexpectedAnswer{std::string{"expected that "} + rule};
}

}  // namespace

namespace detail {
namespace {

// Oids that are read and never sent.
constexpr std::uint32_t kName = 19;
constexpr std::uint32_t kOid = 26;
constexpr std::uint32_t kFloat4 = 700;
constexpr std::uint32_t kUnknown = 705;
constexpr std::uint32_t kBpchar = 1042;
constexpr std::uint32_t kVarchar = 1043;
constexpr std::uint32_t kFirstUserDefined = 16384;  // enums among them, which travel as their label
constexpr char kJsonbVersion = 1;

bool is(const Field& field, Type type) { return field.type == static_cast<std::uint32_t>(type); }

void check_type(const Field& field, Type type, std::size_t length) {
  expect(is(field, type) && field.bytes.size() == length, "the column has the type that get<T>() asks for");
}

std::int64_t decode_integer(const Field& field, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const char* bytes = field.bytes.data();
  if (is(field, Type::int8)) {
    value = static_cast<std::int64_t>(load_big_endian<std::uint64_t>(bytes));
  } else if (is(field, Type::int4)) {
    value = static_cast<std::int32_t>(load_big_endian<std::uint32_t>(bytes));
  } else if (is(field, Type::int2)) {
    value = static_cast<std::int16_t>(load_big_endian<std::uint16_t>(bytes));
  } else {
    expect(field.type == kOid, "the column is an integer (cast numeric to bigint in SQL)");
    value = load_big_endian<std::uint32_t>(bytes);
  }
  expect(value >= low && value <= high, "the integer fits the type that get<T>() asks for");
  return value;
}

template <class T>
T decode_integer_as(const Field& field) {
  return static_cast<T>(decode_integer(field, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

}  // namespace

void ResultDeleter::operator()(pg_result* result) const noexcept { PQclear(result); }

void check_not_null(bool is_null) { expect(!is_null, "the value is not NULL (ask for std::optional)"); }

template <>
bool decode<bool>(const Field& field) {
  check_type(field, Type::boolean, 1);
  return field.bytes[0] != '\0';
}

template <>
std::int16_t decode<std::int16_t>(const Field& field) {
  return decode_integer_as<std::int16_t>(field);
}

template <>
std::int32_t decode<std::int32_t>(const Field& field) {
  return decode_integer_as<std::int32_t>(field);
}

template <>
std::int64_t decode<std::int64_t>(const Field& field) {
  return decode_integer_as<std::int64_t>(field);
}

template <>
double decode<double>(const Field& field) {
  if (field.type == kFloat4) {
    return static_cast<double>(std::bit_cast<float>(load_big_endian<std::uint32_t>(field.bytes.data())));
  }
  check_type(field, Type::float8, 8);
  return std::bit_cast<double>(load_big_endian<std::uint64_t>(field.bytes.data()));
}

template <>
std::string_view decode<std::string_view>(const Field& field) {
  if (is(field, Type::jsonb)) {
    expect(!field.bytes.empty() && field.bytes[0] == kJsonbVersion, "jsonb has the known version");
    return field.bytes.substr(1);
  }
  expect(is(field, Type::text) || is(field, Type::json) || field.type == kVarchar || field.type == kBpchar ||
             field.type == kName || field.type == kUnknown || field.type >= kFirstUserDefined,
         "the column is text, json, jsonb or an enum");
  return field.bytes;
}

template <>
std::string decode<std::string>(const Field& field) {
  return std::string{decode<std::string_view>(field)};
}

template <>
BytesView decode<BytesView>(const Field& field) {
  expect(is(field, Type::bytea), "the column is bytea");
  return std::as_bytes(std::span{field.bytes.data(), field.bytes.size()});
}

template <>
Bytes decode<Bytes>(const Field& field) {
  const BytesView view = decode<BytesView>(field);
  return {view.begin(), view.end()};
}

template <>
Uuid decode<Uuid>(const Field& field) {
  Uuid uuid;
  check_type(field, Type::uuid, uuid.bytes.size());
  std::memcpy(uuid.bytes.data(), field.bytes.data(), uuid.bytes.size());
  return uuid;
}

template <>
DatabaseTime decode<DatabaseTime>(const Field& field) {
  check_type(field, Type::timestamptz, 8);
  return from_postgres_time(static_cast<std::int64_t>(load_big_endian<std::uint64_t>(field.bytes.data())));
}

ArrayReader::ArrayReader(const Field& array) : rest_(array.bytes) {
  expect(rest_.size() >= 12, "the column is an array");
  const std::uint32_t dimensions = take_number();
  take_number();  // has-nulls, which every element says for itself
  element_type_ = take_number();
  expect(dimensions <= 1, "the array has one dimension");
  if (dimensions == 0) return;
  size_ = take_number();
  take_number();  // lower bound
}

std::uint32_t ArrayReader::take_number() {
  expect(rest_.size() >= 4, "the column is an array");
  const auto number = load_big_endian<std::uint32_t>(rest_.data());
  rest_.remove_prefix(4);
  return number;
}

std::optional<Field> ArrayReader::next() {
  const std::uint32_t length = take_number();
  if (length == kNullLength) return std::nullopt;
  expect(rest_.size() >= length, "the column is an array");
  const Field element{element_type_, rest_.substr(0, length)};
  rest_.remove_prefix(length);
  return element;
}

}  // namespace detail

int Result::rows() const { return PQntuples(result_.get()); }

int Result::columns() const { return PQnfields(result_.get()); }

std::int64_t Result::affected() const {
  if (!result_) return 0;
  const std::string_view count = PQcmdTuples(result_.get());
  std::int64_t value = 0;
  std::from_chars(count.data(), count.data() + count.size(), value);
  return value;
}

bool Result::is_null(int row, int column) const {
  expect(row >= 0 && row < rows() && column >= 0 && column < columns(), "the row and the column exist");
  return PQgetisnull(result_.get(), row, column) != 0;
}

int Result::column(std::string_view name) const {
  for (int i = 0; i < columns(); ++i) {
    if (name == PQfname(result_.get(), i)) return i;
  }
  return -1;
}

std::optional<std::string_view> Result::text(int row, int column) const {
  if (is_null(row, column)) return std::nullopt;
  expect(PQfformat(result_.get(), column) == 0, "the result is in text format");
  return std::string_view{PQgetvalue(result_.get(), row, column),
                          static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}

detail::Field Result::field(int row, int column) const {
  detail::check_not_null(is_null(row, column));
  expect(PQfformat(result_.get(), column) == 1, "the result is in binary format");
  return {PQftype(result_.get(), column),
          {PQgetvalue(result_.get(), row, column),
           static_cast<std::size_t>(PQgetlength(result_.get(), row, column))}};
}

}  // namespace faultline::pg

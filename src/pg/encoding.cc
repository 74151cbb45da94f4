#include "pg/encoding.h"

#include <bit>
#include <limits>

namespace faultline::pg {
namespace {

constexpr std::int64_t kPostgresEpoch = 946'684'800'000'000;  // 2000-01-01 in microseconds since 1970
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

}  // namespace

void store_big_endian(std::string& out, std::size_t offset, std::uint32_t value) {
  for (std::size_t i = 0; i < 4; ++i) {
    out[offset + i] = static_cast<char>(static_cast<std::uint8_t>(value >> (24 - 8 * i)));
  }
}

std::int64_t to_postgres_time(DatabaseTime time) {
  const std::int64_t since_1970 = time.time_since_epoch().count();
  if (since_1970 == kMax || since_1970 == kMin) return since_1970;
  // A moment too early to be shifted is far outside timestamptz: the server refuses it as out of range.
  if (since_1970 <= kMin + kPostgresEpoch) return kMin + 1;
  return since_1970 - kPostgresEpoch;
}

DatabaseTime from_postgres_time(std::int64_t microseconds) {
  if (microseconds == kMax || microseconds == kMin) return DatabaseTime{DatabaseTime::duration{microseconds}};
  // The last decades of timestamptz (year 294276) lie past our range: the last finite moment stands for them.
  if (microseconds >= kMax - kPostgresEpoch) return DatabaseTime{DatabaseTime::duration{kMax - 1}};
  return DatabaseTime{DatabaseTime::duration{microseconds + kPostgresEpoch}};
}

void append_value(std::string& out, bool value) { out.push_back(value ? '\1' : '\0'); }
void append_value(std::string& out, std::int16_t value) {
  append_big_endian(out, static_cast<std::uint16_t>(value));
}
void append_value(std::string& out, std::int32_t value) {
  append_big_endian(out, static_cast<std::uint32_t>(value));
}
void append_value(std::string& out, std::int64_t value) {
  append_big_endian(out, static_cast<std::uint64_t>(value));
}
void append_value(std::string& out, double value) {
  append_big_endian(out, std::bit_cast<std::uint64_t>(value));
}
void append_value(std::string& out, std::string_view value) { out.append(value); }
void append_value(std::string& out, BytesView value) {
  if (!value.empty()) out.append(reinterpret_cast<const char*>(value.data()), value.size());
}
void append_value(std::string& out, const Uuid& value) {
  out.append(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
}
void append_value(std::string& out, DatabaseTime value) { append_value(out, to_postgres_time(value)); }

}  // namespace faultline::pg

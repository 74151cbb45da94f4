#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "pg/binary_copy.h"
#include "support/database.h"

namespace faultline::pg {
namespace {

using testing::must;
using testing::soon;
using testing::Template;
using testing::TestDatabase;

class TypesTest : public ::testing::Test {
 protected:
  Result one(std::string_view sql, const Params& params = {}) {
    return must(connection_.exec({"", sql}, params, soon()));
  }

  template <class T>
  T round_trip(std::string_view type, const T& value) {
    const std::string sql = "SELECT $1::" + std::string{type};
    const Result result = one(sql, Params{}.add(value));
    return result.get<T>(0, 0);
  }

  template <class T>
  void expect_array_round_trip(Type element, const std::vector<T>& values) {
    const Result result = one("SELECT $1", Params{}.add_array(element, values, [](const T& v) { return v; }));
    EXPECT_EQ((result.get<std::vector<T>>(0, 0)), values);
  }

  template <class T>
  void expect_array_with_nulls_round_trip(Type element, const T& value) {
    const std::vector<std::optional<T>> values{value, std::nullopt, value, std::nullopt};
    const auto same = [](const std::optional<T>& v) { return v; };
    const Result result = one("SELECT $1", Params{}.add_array(element, values, same));
    EXPECT_EQ((result.get<std::vector<std::optional<T>>>(0, 0)), values);
  }

  TestDatabase database_{Template::empty};
  Connection connection_ = database_.connect();
};

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

DatabaseTime at(std::int64_t microseconds) { return DatabaseTime{std::chrono::microseconds{microseconds}}; }

TEST_F(TypesTest, scalars_come_back_as_they_were_sent) {
  EXPECT_EQ(round_trip("bool", true), true);
  EXPECT_EQ(round_trip("bool", false), false);
  for (const std::int16_t v : {std::int16_t{0}, std::int16_t{-32768}, std::int16_t{32767}}) {
    EXPECT_EQ(round_trip("int2", v), v);
  }
  for (const std::int32_t v : {0, -1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    EXPECT_EQ(round_trip("int4", v), v);
  }
  for (const std::int64_t v : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
                               std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_EQ(round_trip("int8", v), v);
  }
  for (const double v : {0.0, -1.5, 1e308, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(round_trip("float8", v), v);
  }
  EXPECT_TRUE(std::isnan(round_trip("float8", std::nan(""))));
  EXPECT_EQ(round_trip("text", std::string{}), "");
  EXPECT_EQ(round_trip("text", std::string{"größe 🚀 'quoted' \\"}), "größe 🚀 'quoted' \\");
  EXPECT_EQ(round_trip("bytea", Bytes{}), Bytes{});
  EXPECT_EQ(round_trip("bytea", bytes_of({0, 1, 255, 0})), bytes_of({0, 1, 255, 0}));
  const Uuid uuid = Uuid::random();
  EXPECT_EQ(round_trip("uuid", uuid), uuid);
}

TEST_F(TypesTest, times_keep_their_microseconds_and_infinity) {
  for (const DatabaseTime time :
       {at(0), at(1), at(-1), at(1'800'000'000'123'456), DatabaseTime::min(), DatabaseTime::max()}) {
    EXPECT_EQ(round_trip("timestamptz", time), time);
  }
  const auto result = one(
      "SELECT 'infinity'::timestamptz, '-infinity'::timestamptz, '2026-01-31 12:00:00.123456Z'::timestamptz");
  EXPECT_EQ(result.get<DatabaseTime>(0, 0), DatabaseTime::max());
  EXPECT_EQ(result.get<DatabaseTime>(0, 1), DatabaseTime::min());
  EXPECT_EQ(to_string(result.get<DatabaseTime>(0, 2)), "2026-01-31T12:00:00.123456Z");
}

TEST_F(TypesTest, a_time_outside_the_servers_range_is_refused_by_the_server) {
  const auto refused = connection_.exec(
      {"", "SELECT $1"}, Params{}.add(DatabaseTime::min() + std::chrono::microseconds{1}), soon());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_value);
}

TEST_F(TypesTest, a_null_of_every_type_comes_back_as_nothing) {
  EXPECT_EQ(round_trip("bool", std::optional<bool>{}), std::nullopt);
  EXPECT_EQ(round_trip("int2", std::optional<std::int16_t>{}), std::nullopt);
  EXPECT_EQ(round_trip("int4", std::optional<std::int32_t>{}), std::nullopt);
  EXPECT_EQ(round_trip("int8", std::optional<std::int64_t>{}), std::nullopt);
  EXPECT_EQ(round_trip("float8", std::optional<double>{}), std::nullopt);
  EXPECT_EQ(round_trip("text", std::optional<std::string>{}), std::nullopt);
  EXPECT_EQ(round_trip("bytea", std::optional<Bytes>{}), std::nullopt);
  EXPECT_EQ(round_trip("uuid", std::optional<Uuid>{}), std::nullopt);
  EXPECT_EQ(round_trip("timestamptz", std::optional<DatabaseTime>{}), std::nullopt);
  EXPECT_EQ(round_trip("text", std::optional<std::string>{"x"}), "x");
}

TEST_F(TypesTest, arrays_of_every_type_come_back_as_they_were_sent) {
  expect_array_round_trip<bool>(Type::boolean, {true, false, true});
  expect_array_round_trip<std::int16_t>(Type::int2, {1, -2});
  expect_array_round_trip<std::int32_t>(Type::int4, {1, -2, 3});
  expect_array_round_trip<std::int64_t>(Type::int8, {1, std::numeric_limits<std::int64_t>::max()});
  expect_array_round_trip<double>(Type::float8, {0.5, -0.25});
  expect_array_round_trip<std::string>(Type::text, {"", "a,b", "{\"}", "NULL"});
  expect_array_round_trip<Bytes>(Type::bytea, {{}, bytes_of({0, 7})});
  expect_array_round_trip<Uuid>(Type::uuid, {Uuid::random(), Uuid{}});
  expect_array_round_trip<DatabaseTime>(Type::timestamptz, {at(5), DatabaseTime::max()});
  expect_array_round_trip<std::string>(Type::text, {});
}

TEST_F(TypesTest, arrays_keep_their_nulls) {
  expect_array_with_nulls_round_trip(Type::boolean, true);
  expect_array_with_nulls_round_trip(Type::int2, std::int16_t{7});
  expect_array_with_nulls_round_trip(Type::int4, 7);
  expect_array_with_nulls_round_trip(Type::int8, std::int64_t{7});
  expect_array_with_nulls_round_trip(Type::float8, 7.5);
  expect_array_with_nulls_round_trip(Type::text, std::string{"x"});
  expect_array_with_nulls_round_trip(Type::bytea, bytes_of({1}));
  expect_array_with_nulls_round_trip(Type::uuid, Uuid::random());
  expect_array_with_nulls_round_trip(Type::timestamptz, at(7));
}

TEST_F(TypesTest, the_server_sees_what_was_sent) {
  const auto result = one(
      "SELECT $1::text, $2::text, $3::text, array_to_string($4, '|', 'null'), cardinality($5)",
      Params{}
          .add(DatabaseTime::max())
          .add(at(0))
          .add(true)
          .add_array(Type::int4, std::vector<std::optional<int>>{1, std::nullopt}, [](auto v) { return v; })
          .begin_array(Type::text)
          .end_array());
  EXPECT_EQ(result.get<std::string>(0, 0), "infinity");
  EXPECT_EQ(result.get<std::string>(0, 2), "true");
  EXPECT_EQ(result.get<std::string>(0, 3), "1|null");
  EXPECT_EQ(result.get<int>(0, 4), 0);
}

TEST_F(TypesTest, integers_of_any_width_read_as_a_wider_type) {
  const auto result = one("SELECT 1::int2, -2::int4, 3::int8, 4::oid, 1.5::float4");
  EXPECT_EQ(result.get<std::int64_t>(0, 0), 1);
  EXPECT_EQ(result.get<std::int64_t>(0, 1), -2);
  EXPECT_EQ(result.get<std::int16_t>(0, 2), 3);
  EXPECT_EQ(result.get<std::int64_t>(0, 3), 4);
  EXPECT_EQ(result.get<double>(0, 4), 1.5);
}

TEST_F(TypesTest, json_and_enums_read_as_text) {
  must(connection_.exec_script("CREATE TYPE mood AS ENUM ('glad', 'sad')", soon()));
  const auto result =
      one(R"(SELECT '{"a": 1}'::jsonb, '{"a":1}'::json, 'sad'::mood, ARRAY['sad', 'glad']::mood[],
                             'v'::varchar, 'n'::name, ARRAY['{}']::jsonb[])");
  EXPECT_EQ(result.get<std::string>(0, 0), R"({"a": 1})");
  EXPECT_EQ(result.get<std::string_view>(0, 1), R"({"a":1})");
  EXPECT_EQ(result.get<std::string>(0, 2), "sad");
  EXPECT_EQ((result.get<std::vector<std::string>>(0, 3)), (std::vector<std::string>{"sad", "glad"}));
  EXPECT_EQ(result.get<std::string>(0, 4), "v");
  EXPECT_EQ(result.get<std::string>(0, 5), "n");
  EXPECT_EQ((result.get<std::vector<std::string>>(0, 6)), (std::vector<std::string>{"{}"}));
}

TEST_F(TypesTest, a_result_knows_its_columns_and_the_rows_affected) {
  must(connection_.exec_script("CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 7)", soon()));
  EXPECT_EQ(one("DELETE FROM t WHERE a > 4").affected(), 3);
  const auto result = one(R"(SELECT a, a AS "Named" FROM t ORDER BY a)");
  EXPECT_EQ(result.rows(), 4);
  EXPECT_EQ(result.columns(), 2);
  EXPECT_EQ(result.column("Named"), 1);
  EXPECT_EQ(result.column("named"), -1);
  EXPECT_EQ(result.affected(), 4);
}

TEST_F(TypesTest, an_answer_of_another_type_is_an_exception_that_says_what_was_expected) {
  const auto result = one("SELECT NULL::text, 'x'::text, 70000::int4, 1.5::numeric, ARRAY[ARRAY[1]]");
  const auto expect_refused = [](const auto& read, std::string_view why) {
    try {
      static_cast<void>(read());
      ADD_FAILURE() << "it was read, though not " << why;
    } catch (const UnexpectedAnswer& unexpected) {
      EXPECT_NE(std::string_view{unexpected.what()}.find(why), std::string_view::npos) << unexpected.what();
    }
  };
  expect_refused([&] { return result.get<std::string>(0, 0); }, "NULL");
  expect_refused([&] { return result.get<int>(0, 1); }, "integer");
  expect_refused([&] { return result.get<std::int16_t>(0, 2); }, "fits");
  expect_refused([&] { return result.get<std::string>(0, 3); }, "text");
  expect_refused([&] { return result.get<std::vector<int>>(0, 4); }, "one dimension");
  expect_refused([&] { return result.get<int>(1, 0); }, "exist");
  expect_refused([&] { return result.get<int>(0, 5); }, "exist");
}

using TypesDeathTest = TypesTest;

TEST_F(TypesDeathTest, sending_the_wrong_type_ends_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(static_cast<void>(Params{}.begin_array(Type::int4).push("x")), "element type");
}

TEST_F(TypesTest, binary_copy_writes_every_type) {
  must(connection_.exec_script(
      "CREATE TABLE t (b bool, s int2, i int4, l int8, d float8, t text, y bytea, u uuid,"
      " z timestamptz, j jsonb, n text)",
      soon()));
  const Uuid uuid = Uuid::random();
  const auto copied = must(connection_.copy_in(
      "COPY t FROM STDIN (FORMAT binary)",
      [&](std::string& buffer) {
        BinaryCopy copy{buffer};
        copy.header();
        copy.begin_row(11);
        copy.add(true).add(std::int16_t{1}).add(2).add(std::int64_t{3}).add(4.5).add("five");
        copy.add(bytes_of({6}))
            .add(uuid)
            .add(DatabaseTime::max())
            .add_jsonb(R"({"k": 1})")
            .add(std::optional<std::string>{});
        copy.trailer();
        return false;
      },
      soon()));
  EXPECT_EQ(copied, 1);
  const auto row = one("SELECT b, s, i, l, d, t, y, u, z, j, n FROM t");
  EXPECT_EQ(row.get<bool>(0, 0), true);
  EXPECT_EQ(row.get<std::int16_t>(0, 1), 1);
  EXPECT_EQ(row.get<std::int32_t>(0, 2), 2);
  EXPECT_EQ(row.get<std::int64_t>(0, 3), 3);
  EXPECT_EQ(row.get<double>(0, 4), 4.5);
  EXPECT_EQ(row.get<std::string>(0, 5), "five");
  EXPECT_EQ(row.get<Bytes>(0, 6), bytes_of({6}));
  EXPECT_EQ(row.get<Uuid>(0, 7), uuid);
  EXPECT_EQ(row.get<DatabaseTime>(0, 8), DatabaseTime::max());
  EXPECT_EQ(row.get<std::string>(0, 9), R"({"k": 1})");
  EXPECT_TRUE(row.is_null(0, 10));
}

}  // namespace
}  // namespace faultline::pg

#include <fstream>
#include <stdexcept>

#include <gtest/gtest.h>

#include "pg/binary_copy.h"
#include "support/database.h"

namespace faultline::pg {
namespace {

using testing::must;
using testing::soon;
using testing::Template;
using testing::TestDatabase;

class CopyTest : public ::testing::Test {
 protected:
  CopyTest() { must(connection_.exec_script("CREATE TABLE t (id bigint, body text)", soon())); }

  std::int64_t count() {
    return must(connection_.exec({"", "SELECT count(*) FROM t"}, {}, soon())).get<std::int64_t>(0, 0);
  }

  TestDatabase database_{Template::empty};
  Connection connection_ = database_.connect();
};

std::int64_t peak_memory_kib() {
  std::ifstream status{"/proc/self/status"};
  for (std::string word; status >> word;) {
    std::int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib;
  }
  throw std::runtime_error("the system does not tell the peak memory");
}

TEST_F(CopyTest, a_million_rows_are_copied_with_flat_memory) {
  constexpr std::int64_t kRows = 1'000'000;
  const std::int64_t before = peak_memory_kib();
  std::int64_t row = 0;
  const auto next = [&](std::string& buffer) {
    BinaryCopy copy{buffer};
    if (row == 0) copy.header();
    for (int i = 0; i < 1'000 && row < kRows; ++i) {
      copy.begin_row(2);
      copy.add(++row).add("sixty-four bytes of a body that is neither short nor very long...");
    }
    if (row == kRows) copy.trailer();
    return row < kRows;
  };

  EXPECT_EQ(must(connection_.copy_in("COPY t FROM STDIN (FORMAT binary)", next, soon())), kRows);

  EXPECT_LT(peak_memory_kib() - before, 16 * 1024);  // the data has 80 MB
  EXPECT_EQ(count(), kRows);
}

TEST_F(CopyTest, an_error_of_the_server_ends_an_endless_copy) {
  std::int64_t row = 0;
  const auto endless = [&](std::string& buffer) {
    buffer = ++row == 10 ? "not a number\tx\n" : "1\tx\n";
    return true;
  };
  const auto copied = connection_.copy_in("COPY t FROM STDIN", endless, soon());
  ASSERT_FALSE(copied.has_value());
  EXPECT_EQ(copied.error().code, Errc::invalid_value);
  EXPECT_TRUE(connection_.usable());
  EXPECT_EQ(count(), 0);
}

TEST_F(CopyTest, warnings_of_a_trigger_do_not_end_the_copy) {
  must(
      connection_.exec_script("CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS"
                              " $$ BEGIN RAISE WARNING 'row %', NEW.id; RETURN NEW; END $$;"
                              "CREATE TRIGGER warn BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION warn()",
                              soon()));
  int row = 0;
  const auto next = [&](std::string& buffer) {
    for (int i = 0; i < 1'000; ++i) buffer += std::to_string(++row) + "\tx\n";
    return row < 20'000;
  };
  EXPECT_EQ(must(connection_.copy_in("COPY t FROM STDIN", next, soon())), 20'000);
}

TEST_F(CopyTest, an_exception_of_the_source_copies_nothing_and_leaves_the_connection_usable) {
  int calls = 0;
  const auto throws = [&](std::string& buffer) {
    if (++calls == 3) throw std::runtime_error("no more");
    buffer = "1\tx\n";
    return true;
  };
  EXPECT_THROW(static_cast<void>(connection_.copy_in("COPY t FROM STDIN", throws, soon())),
               std::runtime_error);
  EXPECT_TRUE(connection_.usable());
  EXPECT_EQ(count(), 0);
}

TEST_F(CopyTest, a_deadline_that_passes_midway_copies_nothing) {
  const auto endless = [](std::string& buffer) {
    buffer = "1\tx\n";
    return true;
  };
  const auto copied = connection_.copy_in("COPY t FROM STDIN", endless,
                                          Deadline::clock::now() + std::chrono::milliseconds{50});
  ASSERT_FALSE(copied.has_value());
  EXPECT_EQ(copied.error().code, Errc::deadline_exceeded);
  connection_ = database_.connect();
  EXPECT_EQ(count(), 0);
}

TEST_F(CopyTest, goes_with_an_open_transaction) {
  const auto one_row = [](std::string& buffer) {
    buffer = "1\tx\n";
    return false;
  };
  must(connection_.begin(soon()));
  EXPECT_EQ(must(connection_.copy_in("COPY t FROM STDIN", one_row, soon())), 1);
  connection_.rollback(soon());
  EXPECT_EQ(count(), 0);
}

TEST_F(CopyTest, a_statement_that_is_no_copy_is_refused) {
  const auto nothing = [](std::string&) { return false; };
  EXPECT_EQ(connection_.copy_in("SELECT 1", nothing, soon()).error().code, Errc::server);
  EXPECT_EQ(connection_.copy_in("COPY nowhere FROM STDIN", nothing, soon()).error().code,
            Errc::undefined_object);
  EXPECT_TRUE(connection_.usable());
  EXPECT_EQ(count(), 0);
}

}  // namespace
}  // namespace faultline::pg

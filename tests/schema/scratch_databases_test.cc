#include "schema/scratch_databases.h"

#include <gmock/gmock.h>

#include "support/database.h"

namespace faultline::testing {
namespace {

bool exists(const std::string& database) {
  auto admin = TestServer::instance().admin();
  return query_text(admin, "SELECT count(*)::text FROM pg_database WHERE datname = '" + database + "'") ==
         "1";
}

std::string name_of(const std::string& dsn) {
  auto connection = connect(dsn);
  return query_text(connection, "SELECT current_database()::text");
}

TEST(DsnTest, another_database_of_the_same_server_in_both_forms) {
  EXPECT_EQ(schema::dsn_with_database("postgresql://u@h:1/app", "x"), "postgresql://u@h:1/app?dbname=x");
  EXPECT_EQ(schema::dsn_with_database("postgresql:///app?host=h", "x"), "postgresql:///app?host=h&dbname=x");
  EXPECT_EQ(schema::dsn_with_database("host=h dbname=app", "x"), "host=h dbname=app dbname=x");
}

TEST(ScratchDatabasesTest, are_made_with_the_schema_and_dropped_at_the_end) {
  const TestDatabase home{Template::empty};
  std::string name;
  {
    schema::ScratchDatabases scratch{home.dsn(), "test"};
    const std::string dsn = scratch.create();
    name = name_of(dsn);
    auto connection = connect(dsn);
    EXPECT_EQ(query_text(connection, "SELECT count(*)::text FROM faultline.ledger"), "0");
    EXPECT_TRUE(exists(name));
  }
  EXPECT_FALSE(exists(name));
}

TEST(ScratchDatabasesTest, of_an_owner_that_lives_are_left_alone_and_of_one_that_died_are_dropped) {
  const TestDatabase home{Template::empty};
  const std::string orphan = "faultline_test_0123456789ab_1";
  auto admin = TestServer::instance().admin();
  must(admin.exec_script("CREATE DATABASE " + orphan, soon()));
  schema::ScratchDatabases alive{home.dsn(), "test"};
  const std::string kept = name_of(alive.create());

  const schema::ScratchDatabases next{home.dsn(), "test"};

  EXPECT_FALSE(exists(orphan));
  EXPECT_TRUE(exists(kept));
}

TEST(ScratchDatabasesTest, are_dropped_under_whoever_uses_them_and_then_no_more_are_made) {
  const TestDatabase home{Template::empty};
  schema::ScratchDatabases scratch{home.dsn(), "test"};
  const std::string dsn = scratch.create();
  const std::string name = name_of(dsn);
  const auto user = connect(dsn);

  scratch.drop_all();

  EXPECT_FALSE(exists(name));
  EXPECT_ANY_THROW(static_cast<void>(scratch.create()));
}

}  // namespace
}  // namespace faultline::testing

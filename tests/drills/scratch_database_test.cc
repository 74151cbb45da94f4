#include "drills/scratch_database.h"

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
  EXPECT_EQ(drills::dsn_with_database("postgresql://u@h:1/app", "x"), "postgresql://u@h:1/app?dbname=x");
  EXPECT_EQ(drills::dsn_with_database("postgresql:///app?host=h", "x"), "postgresql:///app?host=h&dbname=x");
  EXPECT_EQ(drills::dsn_with_database("host=h dbname=app", "x"), "host=h dbname=app dbname=x");
}

TEST(ScratchDatabasesTest, are_made_with_the_schema_and_dropped_at_the_end) {
  const TestDatabase home{Template::empty};
  std::string name;
  {
    drills::ScratchDatabases scratch{home.dsn()};
    const std::string dsn = scratch.create();
    name = name_of(dsn);
    auto connection = connect(dsn);
    EXPECT_EQ(query_text(connection, "SELECT count(*)::text FROM faultline.ledger"), "0");
    EXPECT_TRUE(exists(name));
  }
  EXPECT_FALSE(exists(name));
}

TEST(ScratchDatabasesTest, of_a_drill_that_lives_are_left_alone_and_of_one_that_died_are_dropped) {
  const TestDatabase home{Template::empty};
  const std::string orphan = "faultline_drill_0123456789ab_1";
  auto admin = TestServer::instance().admin();
  must(admin.exec_script("CREATE DATABASE " + orphan, soon()));
  drills::ScratchDatabases alive{home.dsn()};
  const std::string kept = name_of(alive.create());

  const drills::ScratchDatabases next{home.dsn()};

  EXPECT_FALSE(exists(orphan));
  EXPECT_TRUE(exists(kept));
}

TEST(ScratchDatabasesTest, are_dropped_under_whoever_uses_them_and_then_no_more_are_made) {
  const TestDatabase home{Template::empty};
  drills::ScratchDatabases scratch{home.dsn()};
  const std::string dsn = scratch.create();
  const std::string name = name_of(dsn);
  const auto user = connect(dsn);

  scratch.drop_all();

  EXPECT_FALSE(exists(name));
  EXPECT_ANY_THROW(static_cast<void>(scratch.create()));
}

}  // namespace
}  // namespace faultline::testing

#include "base/dsn.h"

#include <string>

#include <gtest/gtest.h>

namespace faultline {
namespace {

TEST(Dsn, shows_no_password_however_it_is_written) {
  for (const std::string dsn : {
           "postgresql://ana:hunter2@db/jobs",
           "postgresql://ana:hunter2?@db/jobs",
           "postgresql://ana:p@ss/hunter2@db/jobs",
           "postgresql://ana:a%20hunter2@db/jobs",
           "postgresql://db/jobs?user=ana&password=hunter2&sslmode=require",
           "postgresql://db/jobs?pass%77ord=hunter2%20",
           "postgresql://ana@[::1]:1,db:2/jobs?sslpassword=hunter2",
           "host=db user=ana password=hunter2 dbname=jobs",
           "host=db password = 'a \\'hunter2' dbname=jobs",
           "password=a\\ hunter2 host=db",
           "password\t=\thunter2\thost=db",
           "host=db password=hunter2://x",
       }) {
    EXPECT_EQ(without_passwords(dsn).find("hunter2"), std::string::npos) << dsn;
    EXPECT_TRUE(looks_like_a_dsn(dsn)) << dsn;
  }
}

TEST(Dsn, leaves_what_is_no_password) {
  EXPECT_EQ(without_passwords("postgresql://ana:hunter2@db:5432/jobs?sslmode=require"),
            "postgresql://ana:***@db:5432/jobs?sslmode=require");
  EXPECT_EQ(without_passwords("postgresql://ana@db:5432/jobs?options=a@b"),
            "postgresql://ana@db:5432/jobs?options=a@b");
  EXPECT_EQ(without_passwords("host=db password='a b' dbname=jobs"), "host=db password=*** dbname=jobs");
  EXPECT_EQ(without_passwords("jobs"), "jobs");
}

TEST(Dsn, hides_a_password_in_a_message_as_postgresql_reads_it) {
  EXPECT_EQ(without_passwords_of("password='a \\'b'", "no good: a 'b!"), "no good: ***!");
  EXPECT_EQ(without_passwords_of("postgresql://ana:a%20b@db", "no good: a b, a%20b"), "no good: ***, ***");
}

TEST(Dsn, hides_all_of_passwords_that_overlap) {
  EXPECT_EQ(without_passwords_of("password=abc sslpassword=bcd", "abcd"), "***");
}

TEST(Dsn, is_a_url_of_postgresql_or_a_keyword_string) {
  EXPECT_TRUE(looks_like_a_dsn("postgres://"));
  EXPECT_TRUE(looks_like_a_dsn("dbname=jobs"));
  EXPECT_FALSE(looks_like_a_dsn("jobs"));
  EXPECT_FALSE(looks_like_a_dsn("mysql://ana@db/jobs?a=b"));
}

}  // namespace
}  // namespace faultline

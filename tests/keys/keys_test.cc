// Keys in the database: made, listed, revoked, and never to be read out of it.

#include "keys/keys.h"

#include <gmock/gmock.h>

#include "base/sha256.h"
#include "keys/secret.h"
#include "store/fixture.h"

namespace faultline::testing {
namespace {

using namespace std::chrono_literals;
using service::Scope;
using service::Scopes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class KeysTest : public StoreTest {
 protected:
  keys::CreatedKey create(const keys::NewKey& key) { return must(keys::create(sql_, key, soon())); }
  std::vector<keys::Key> list() { return must(keys::list(sql_, soon())); }
};

TEST_F(KeysTest, a_key_that_was_made_is_listed_as_it_was_asked_for) {
  const auto made = create({.name = "billing",
                            .scopes = {Scope::produce, Scope::read},
                            .queues = std::vector<std::string>{"invoices", "mails"},
                            .expires_in = 24h});
  const auto everything = create({.name = "operators ✓", .scopes = {Scope::admin}});

  const auto keys = list();

  ASSERT_EQ(keys.size(), 2U);
  const keys::Key& first = keys[0].id == made.key.id ? keys[0] : keys[1];
  const keys::Key& second = keys[0].id == made.key.id ? keys[1] : keys[0];
  EXPECT_EQ(first.name, "billing");
  EXPECT_EQ(first.scopes, (Scopes{Scope::produce, Scope::read}));
  EXPECT_EQ(first.queues, (std::vector<std::string>{"invoices", "mails"}));
  EXPECT_EQ(first.created_at, made.key.created_at);
  ASSERT_TRUE(first.expires_at.has_value());
  EXPECT_EQ(*first.expires_at, first.created_at + 24h);
  EXPECT_FALSE(first.revoked_at.has_value());
  EXPECT_FALSE(first.expired);
  EXPECT_EQ(second.id, everything.key.id);
  EXPECT_EQ(second.name, "operators ✓");
  EXPECT_EQ(second.queues, std::nullopt);
  EXPECT_EQ(second.expires_at, std::nullopt);
}

TEST_F(KeysTest, the_database_has_the_hash_of_the_secret_and_nowhere_the_secret) {
  const auto made = create({.name = "n", .scopes = {Scope::work}});
  const auto text = keys::parse_key(made.secret);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(text->id, made.key.id);

  const std::string row = query_text(sql_, "SELECT k::text FROM faultline.api_keys k");

  EXPECT_THAT(row, HasSubstr(text->id));
  EXPECT_THAT(row, Not(HasSubstr(text->secret)));
  // Nor its bytes, which the row would show as hexadecimal digits of the text.
  EXPECT_THAT(row, Not(HasSubstr(to_hex(bytes_of(text->secret)))));
  EXPECT_THAT(row, HasSubstr(to_hex(sha256({bytes_of(text->secret)}))));
}

TEST_F(KeysTest, a_revoked_key_stays_in_the_list_and_revoking_it_again_changes_nothing) {
  const auto made = create({.name = "n", .scopes = {Scope::work}});

  EXPECT_TRUE(must(keys::revoke(sql_, made.key.id, soon())));
  const auto revoked_at = list().at(0).revoked_at;
  advance(1h);
  EXPECT_TRUE(must(keys::revoke(sql_, made.key.id, soon())));

  EXPECT_TRUE(revoked_at.has_value());
  EXPECT_EQ(list().at(0).revoked_at, revoked_at);
}

TEST_F(KeysTest, revoking_what_is_no_key_says_so) {
  const auto made = create({.name = "n", .scopes = {Scope::work}});

  for (const std::string& id : {std::string{"000000000000"}, std::string{}, made.secret,
                                std::string{"a\0b", 3}, std::string{"\xff"}, std::string(1'000, 'a')}) {
    EXPECT_FALSE(must(keys::revoke(sql_, id, soon()))) << id;
  }
  EXPECT_FALSE(list().at(0).revoked_at.has_value());
}

TEST_F(KeysTest, a_key_expires_by_the_databases_clock) {
  create({.name = "n", .scopes = {Scope::work}, .expires_in = 10s});

  advance(10s - 1us);
  EXPECT_FALSE(list().at(0).expired);
  advance(1us);
  EXPECT_TRUE(list().at(0).expired);
}

TEST_F(KeysTest, a_key_that_cannot_be_is_refused_with_what_to_do) {
  struct Case {
    keys::NewKey key;
    std::string says;
  };
  const Scopes some{Scope::work};
  const std::vector<Case> cases{
      {{.name = "", .scopes = some}, "1 to 128 bytes"},
      {{.name = std::string(129, 'n'), .scopes = some}, "1 to 128 bytes"},
      {{.name = "\xff", .scopes = some}, "UTF-8"},
      {{.name = "a\nb", .scopes = some}, "control characters"},
      {{.name = std::string{"a\0b", 3}, .scopes = some}, "control characters"},
      {{.name = "n", .scopes = {}}, "at least one scope"},
      {{.name = "n", .scopes = some, .queues = std::vector<std::string>{}}, "1 to 1000 queues"},
      {{.name = "n", .scopes = some, .queues = std::vector<std::string>(1'001, "q")}, "1 to 1000 queues"},
      {{.name = "n", .scopes = some, .queues = std::vector<std::string>{"q", ""}}, "1 to 128 bytes"},
      {{.name = "n", .scopes = some, .expires_in = 0s}, "3650 days"},
      {{.name = "n", .scopes = some, .expires_in = -1s}, "3650 days"},
      {{.name = "n", .scopes = some, .expires_in = std::chrono::days{3'651}}, "3650 days"},
      {{.name = "n", .scopes = some, .expires_in = std::chrono::seconds::max()}, "3650 days"},
  };
  for (const Case& bad : cases) {
    const auto result = keys::create(sql_, bad.key, soon());
    ASSERT_FALSE(result.has_value()) << bad.says;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(result.error().describe(), HasSubstr(bad.says));
  }
  EXPECT_TRUE(list().empty());
}

TEST_F(KeysTest, there_may_be_ten_thousand_good_ones_and_a_revoked_or_expired_one_makes_room) {
  script(
      "INSERT INTO faultline.api_keys (bucket, id, name, secret_hash, scopes, expires_at)"
      " SELECT 0, 'k' || i, 'n', sha256(''), '{work}',"
      "        CASE WHEN i = 2 THEN faultline.clock() + interval '1 hour' END"
      "   FROM generate_series(1, 10000) AS i");
  const keys::NewKey one_more{.name = "n", .scopes = {Scope::work}};

  const auto refused = keys::create(sql_, one_more, soon());
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().describe(), AllOf(HasSubstr("10000"), HasSubstr("faultline keys revoke")));

  must(keys::revoke(sql_, "k1", soon()));
  EXPECT_TRUE(keys::create(sql_, one_more, soon()).has_value());
  EXPECT_FALSE(keys::create(sql_, one_more, soon()).has_value());
  advance(1h);
  EXPECT_TRUE(keys::create(sql_, one_more, soon()).has_value());
}

TEST(KeysWithoutSchemaTest, a_database_that_is_not_migrated_is_refused_with_what_to_do) {
  const TestDatabase database{Template::empty};
  auto connection = database.connect();

  const auto created = keys::create(connection, {.name = "n", .scopes = {Scope::work}}, soon());
  const auto listed = keys::list(connection, soon());
  const auto revoked = keys::revoke(connection, "000000000000", soon());

  for (const auto& error : {created.error(), listed.error(), revoked.error()}) {
    EXPECT_EQ(error.code, ErrorCode::wrong_schema);
    EXPECT_THAT(error.describe(), HasSubstr("faultline migrate"));
  }
}

TEST_F(KeysTest, only_members_of_the_owner_role_may_use_keys) {
  const auto made = create({.name = "n", .scopes = {Scope::work}});
  for (const std::string role : {"producer", "worker", "reader"}) {
    must(sql_.exec_script("SET ROLE faultline_" + role, soon()));
    EXPECT_EQ(keys::create(sql_, {.name = "n", .scopes = {Scope::work}}, soon()).error().code,
              ErrorCode::permission_denied)
        << role;
    EXPECT_EQ(keys::list(sql_, soon()).error().code, ErrorCode::permission_denied) << role;
    const auto revoked = keys::revoke(sql_, made.key.id, soon());
    ASSERT_FALSE(revoked.has_value()) << role;
    EXPECT_THAT(revoked.error().describe(), HasSubstr("GRANT faultline_owner")) << role;
    must(sql_.exec_script("RESET ROLE", soon()));
  }
  must(sql_.exec_script("SET ROLE faultline_owner", soon()));
  EXPECT_TRUE(keys::create(sql_, {.name = "n", .scopes = {Scope::work}}, soon()).has_value());
  EXPECT_EQ(list().size(), 2U);
  EXPECT_TRUE(must(keys::revoke(sql_, made.key.id, soon())));
}

}  // namespace
}  // namespace faultline::testing

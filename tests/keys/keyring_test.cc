// A server's keys at hand: who calls, and how soon a change in the database counts.

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "keys/keys.h"
#include "keys/secret.h"
#include "pg/wire_proxy.h"
#include "schema/migrator.h"
#include "store/fixture.h"

namespace faultline::testing {
namespace {

using namespace std::chrono_literals;
using service::Code;
using service::Principal;
using service::Scope;
using service::Scopes;
using ::testing::HasSubstr;
using ::testing::Not;

/// Events as they come.
class Log {
 public:
  [[nodiscard]] EventSink sink() {
    return [this](const Event& event) {
      const std::lock_guard lock{mutex_};
      lines_.push_back(to_text_line(event));
    };
  }
  [[nodiscard]] bool has(const std::string& text) const {
    const std::lock_guard lock{mutex_};
    return std::ranges::any_of(lines_, [&](const std::string& line) { return line.contains(text); });
  }
  [[nodiscard]] std::string all() const {
    const std::lock_guard lock{mutex_};
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    return text;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

class KeyringTest : public StoreTest {
 protected:
  std::unique_ptr<keys::Keyring> start(const std::string& dsn, std::chrono::milliseconds refresh = 5ms) {
    return keys::Keyring::start({.database = dsn, .refresh = refresh, .log = log_.sink()});
  }
  std::unique_ptr<keys::Keyring> start() { return start(database_.dsn()); }

  keys::CreatedKey create(keys::NewKey key = {}) {
    if (key.name.empty()) key.name = "somebody";
    if (key.scopes == Scopes{}) key.scopes = {Scope::work};
    return must(keys::create(sql_, key, soon()));
  }
  static Code code_of(const keys::Keyring& keyring, std::string_view bearer) {
    const auto answer = keyring.authenticate(bearer);
    if (answer) throw std::runtime_error("the key is good");
    return answer.error().code;
  }
  static bool accepted(const keys::Keyring& keyring, std::string_view bearer) {
    return keyring.authenticate(bearer).has_value();
  }
  /// Also shows that the keys have been read.
  static bool refused(const keys::Keyring& keyring, std::string_view bearer) {
    const auto answer = keyring.authenticate(bearer);
    return !answer && answer.error().code == Code::unauthenticated;
  }

  Log log_;
};

TEST_F(KeyringTest, a_good_key_tells_who_calls_and_what_for) {
  const auto made = create({.name = "billing",
                            .scopes = {Scope::produce, Scope::admin},
                            .queues = std::vector<std::string>{"invoices"}});
  const auto keyring = start();

  ASSERT_TRUE(eventually([&] { return accepted(*keyring, made.secret); }));
  const Principal who = keyring->authenticate(made.secret).value();
  EXPECT_EQ(who.name, "billing");
  EXPECT_EQ(who.scopes, (Scopes{Scope::produce, Scope::admin}));
  EXPECT_EQ(who.queues, (std::vector<std::string>{"invoices"}));
}

TEST_F(KeyringTest, a_key_that_is_bound_to_no_queue_may_use_all) {
  const auto made = create();
  const auto keyring = start();

  ASSERT_TRUE(eventually([&] { return accepted(*keyring, made.secret); }));
  EXPECT_EQ(keyring->authenticate(made.secret).value().queues, std::nullopt);
}

TEST_F(KeyringTest, whatever_is_wrong_with_a_key_the_answer_is_the_same) {
  const auto good = create();
  const auto other = create();
  const auto revoked = create();
  const auto expired = create({.expires_in = 1s});
  must(keys::revoke(sql_, revoked.key.id, soon()));
  advance(1s);
  const auto keyring = start();
  ASSERT_TRUE(eventually([&] { return accepted(*keyring, good.secret); }));

  std::string wrong_secret = good.secret;
  wrong_secret.back() = wrong_secret.back() == '0' ? '1' : '0';
  const auto text = keys::parse_key(good.secret);
  std::set<std::string> answers;
  for (const std::string& bearer :
       {wrong_secret, keys::random_key().whole(), revoked.secret, expired.secret,
        keys::KeyText{.id = other.key.id, .secret = text->secret}.whole(), good.key.id, text->secret,
        good.secret + " ", " " + good.secret, "Bearer " + good.secret, good.secret.substr(1),
        std::string{"x"}, std::string{"\0", 1}, std::string(100'000, 'f'), std::string{"' OR true --"}}) {
    const auto answer = keyring->authenticate(bearer);
    ASSERT_FALSE(answer.has_value()) << bearer.substr(0, 100);
    EXPECT_EQ(answer.error().code, Code::unauthenticated);
    answers.insert(answer.error().message + "; " + answer.error().hint);
  }
  EXPECT_EQ(answers.size(), 1U) << ::testing::PrintToString(answers);
  EXPECT_THAT(*answers.begin(), HasSubstr("Authorization: Bearer KEY"));
  EXPECT_THAT(*answers.begin(), HasSubstr("faultline keys create"));
}

TEST_F(KeyringTest, who_runs_the_server_is_told_why_a_caller_was_turned_away) {
  const auto good = create();
  const auto revoked = create();
  const auto expired = create({.expires_in = 1h});
  must(keys::revoke(sql_, revoked.key.id, soon()));
  std::mutex mutex;
  std::vector<std::string> told;
  const auto keyring = keys::Keyring::start(
      {.database = database_.dsn(), .refresh = 10min, .refused = [&](std::string_view why) {
         const std::lock_guard lock{mutex};
         told.emplace_back(why);
       }});
  ASSERT_TRUE(
      eventually([&] { return accepted(*keyring, good.secret) && accepted(*keyring, expired.secret); }));
  told.clear();
  std::string wrong = good.secret;
  wrong.back() = wrong.back() == '0' ? '1' : '0';

  const std::vector<std::pair<std::string, std::string>> calls{{"", "missing"},
                                                               {"nonsense", "malformed"},
                                                               {keys::random_key().whole(), "unknown"},
                                                               {revoked.secret, "unknown"},
                                                               {wrong, "wrong_secret"}};
  for (const auto& [bearer, why] : calls) {
    const auto answer = keyring->authenticate(bearer);
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().cause, ::testing::StartsWith(why));
    EXPECT_EQ(told.back(), why);
    EXPECT_NE(std::ranges::find(keys::kRefusals, told.back()), keys::kRefusals.end());
    if (bearer.size() > 70)
      EXPECT_THAT(answer.error().cause, Not(HasSubstr(keys::parse_key(bearer)->secret.substr(0, 8))));
  }
  EXPECT_THAT(keyring->authenticate(wrong).error().cause, HasSubstr("flk_" + good.key.id));
}

TEST_F(KeyringTest, that_a_key_is_in_use_is_noted_to_the_minute) {
  const auto used = create();
  const auto unused = create();
  const auto keyring = start();
  const auto last_used = [&](const keys::CreatedKey& key) {
    for (const keys::Key& each : must(keys::list(sql_, soon()))) {
      if (each.id == key.key.id) return each.last_used_at;
    }
    throw std::runtime_error("there is no such key");
  };
  ASSERT_TRUE(eventually([&] { return accepted(*keyring, used.secret); }));
  ASSERT_TRUE(eventually([&] { return last_used(used).has_value(); }));
  const auto first = last_used(used);

  // Within the minute nothing is written, and after it is.
  advance(59s);
  EXPECT_TRUE(accepted(*keyring, used.secret));
  const auto marker = create();
  ASSERT_TRUE(eventually([&] { return accepted(*keyring, marker.secret) && last_used(marker).has_value(); }));
  EXPECT_EQ(last_used(used), first);
  advance(1s);
  EXPECT_TRUE(eventually([&] { return accepted(*keyring, used.secret) && last_used(used) == *first + 60s; }));
  EXPECT_EQ(last_used(unused), std::nullopt);
}

TEST_F(KeyringTest, without_a_key_it_says_how_to_send_one) {
  const auto keyring = start();

  const auto answer = keyring->authenticate("");

  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, Code::unauthenticated);
  EXPECT_THAT(answer.error().hint, HasSubstr("Authorization: Bearer KEY"));
}

TEST_F(KeyringTest, a_new_key_and_a_revocation_count_soon) {
  const auto keyring = start();
  ASSERT_TRUE(eventually([&] { return refused(*keyring, "x"); }));

  const auto made = create();
  EXPECT_TRUE(eventually([&] { return accepted(*keyring, made.secret); }));
  must(keys::revoke(sql_, made.key.id, soon()));
  EXPECT_TRUE(eventually([&] { return refused(*keyring, made.secret); }));
}

TEST_F(KeyringTest, a_key_expires_by_the_databases_clock) {
  const auto made = create({.expires_in = 1h});
  const auto keyring = start();
  ASSERT_TRUE(eventually([&] { return accepted(*keyring, made.secret); }));

  advance(1h);
  EXPECT_TRUE(eventually([&] { return refused(*keyring, made.secret); }));
}

TEST_F(KeyringTest, before_the_first_answer_of_the_database_it_is_unavailable_and_then_it_recovers) {
  WireProxy proxy{database_.dsn()};
  proxy.stall();
  const auto made = create();
  const auto keyring = start(proxy.dsn());

  const auto answer = keyring->authenticate(made.secret);
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, Code::unavailable);
  EXPECT_TRUE(answer.error().retry_after.has_value());
  EXPECT_EQ(code_of(*keyring, "x"), Code::unavailable);

  proxy.resume();
  EXPECT_TRUE(eventually([&] { return accepted(*keyring, made.secret); }));
}

TEST_F(KeyringTest, a_database_that_is_not_migrated_is_unavailable_until_it_is) {
  const TestDatabase later{Template::empty};
  const auto keyring = start(later.dsn());
  ASSERT_TRUE(eventually([&] { return log_.has("database_lost"); }));
  EXPECT_TRUE(log_.has("faultline migrate")) << log_.all();
  EXPECT_EQ(code_of(*keyring, "x"), Code::unavailable);

  auto connection = later.connect();
  must(schema::migrate(connection, {}, soon()));
  EXPECT_TRUE(eventually([&] { return refused(*keyring, "x"); }));
}

TEST_F(KeyringTest, while_the_database_is_away_the_last_keys_known_count_and_still_expire) {
  const auto lasting = create();
  const auto short_lived = create({.expires_in = 1s});
  // Both are known with the time that stands still in the database, and goes on here.
  const auto keyring = start();
  ASSERT_TRUE(eventually([&] { return accepted(*keyring, lasting.secret); }));
  must(TestServer::instance().admin().exec_script(
      "ALTER DATABASE " + database_.name() +
          " ALLOW_CONNECTIONS false;"
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" +
          database_.name() + "' AND application_name = 'faultline keys'",
      soon()));

  EXPECT_TRUE(eventually([&] { return log_.has("database_lost"); }));
  EXPECT_TRUE(log_.has("the last ones known count")) << log_.all();
  EXPECT_TRUE(accepted(*keyring, lasting.secret));
  EXPECT_TRUE(eventually([&] { return refused(*keyring, short_lived.secret); }));
  EXPECT_TRUE(accepted(*keyring, lasting.secret));

  must(TestServer::instance().admin().exec_script(
      "ALTER DATABASE " + database_.name() + " ALLOW_CONNECTIONS true", soon()));
  EXPECT_TRUE(eventually([&] { return log_.has("database_back"); }));
  const auto made = create();
  EXPECT_TRUE(eventually([&] { return accepted(*keyring, made.secret); }));
}

TEST_F(KeyringTest, it_ends_at_once_although_the_database_does_not_answer_and_the_next_refresh_is_far) {
  WireProxy proxy{database_.dsn()};
  proxy.stall();
  {
    const auto keyring = start(proxy.dsn());
  }
  const auto keyring = start(database_.dsn(), std::chrono::hours{1});
  EXPECT_TRUE(eventually([&] { return refused(*keyring, "x"); }));
}

TEST_F(KeyringTest, no_password_of_the_database_gets_into_the_log) {
  const auto keyring = start("postgresql://joe:hunter2@[not-an-address/jobs");

  ASSERT_TRUE(eventually([&] { return log_.has("database_lost"); }));
  EXPECT_THAT(log_.all(), Not(HasSubstr("hunter2")));
}

TEST_F(KeyringTest, many_threads_may_ask_while_keys_come_and_go) {
  const auto steady = create();
  const auto keyring = start(database_.dsn(), 1ms);
  ASSERT_TRUE(eventually([&] { return accepted(*keyring, steady.secret); }));
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 4; ++i) {
      callers.emplace_back([&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          if (!accepted(*keyring, steady.secret) || accepted(*keyring, "x")) ++wrong;
        }
      });
    }
    for (int i = 0; i < 20; ++i) {
      const auto made = create();
      ASSERT_TRUE(eventually([&] { return accepted(*keyring, made.secret); }));
      must(keys::revoke(sql_, made.key.id, soon()));
    }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace faultline::testing

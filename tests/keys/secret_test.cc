// The form of a key.

#include "keys/secret.h"

#include <set>

#include <gmock/gmock.h>

namespace faultline::testing {
namespace {

using ::testing::MatchesRegex;

const std::string kId = "0123456789ab";
const std::string kSecret(64, 'c');

TEST(KeyTextTest, a_random_key_has_the_form_of_a_key_and_can_be_read_again) {
  const keys::KeyText key = keys::random_key();

  EXPECT_EQ(key.whole().size(), 81U);
  EXPECT_THAT(key.whole(), MatchesRegex("flk_[0-9a-f]+_[0-9a-f]+"));
  const auto parsed = keys::parse_key(key.whole());
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->id, key.id);
  EXPECT_EQ(parsed->secret, key.secret);
}

TEST(KeyTextTest, no_two_keys_share_an_id_or_a_secret) {
  std::set<std::string> ids;
  std::set<std::string> secrets;
  for (int i = 0; i < 1'000; ++i) {
    const keys::KeyText key = keys::random_key();
    ids.insert(key.id);
    secrets.insert(key.secret);
  }

  EXPECT_EQ(ids.size(), 1'000U);
  EXPECT_EQ(secrets.size(), 1'000U);
}

TEST(KeyTextTest, what_is_not_a_key_to_the_letter_is_refused) {
  const std::string good = "flk_" + kId + "_" + kSecret;
  ASSERT_TRUE(keys::parse_key(good).has_value());
  std::vector<std::string> bad{"",
                               "flk_",
                               "flk__",
                               kSecret,
                               kId + "_" + kSecret,
                               "FLK_" + kId + "_" + kSecret,
                               "flk-" + kId + "_" + kSecret,
                               "flk_" + kId + "-" + kSecret,
                               "flk_" + kId + kSecret + "_",
                               "flk_0123456789AB_" + kSecret,
                               "flk_0123456789ag_" + kSecret,
                               "flk_" + kId + "_" + std::string(64, 'C'),
                               "flk_" + kId + "_" + std::string(63, 'c') + "=",
                               "flk_" + kId + "_" + std::string(63, 'c') + '\0',
                               " " + good,
                               good + " ",
                               good + "\n",
                               good + good,
                               "Bearer " + good,
                               std::string(81, '\xff'),
                               std::string(100'000, 'f')};
  for (std::size_t size = 0; size < good.size(); ++size) bad.push_back(good.substr(0, size));

  for (const std::string& text : bad) EXPECT_FALSE(keys::parse_key(text).has_value()) << text.substr(0, 100);
}

TEST(KeyTextTest, hashes_are_the_same_only_of_the_same_secret) {
  const Sha256 hash = keys::hash_of(kSecret);
  EXPECT_TRUE(keys::same(hash, keys::hash_of(kSecret)));
  for (std::size_t i = 0; i < hash.size(); ++i) {
    Sha256 other = hash;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(keys::same(hash, other)) << "byte " << i;
  }
}

}  // namespace
}  // namespace faultline::testing

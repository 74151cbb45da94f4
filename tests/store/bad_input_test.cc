// Bad input is refused before the database, with a code to react to and words that say what is wrong, and
// leaves nothing behind. Hostile input that is legal is kept as it came.

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "store/fixture.h"

namespace faultline::testing {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

class BadInputTest : public StoreTest {
 protected:
  /// How many rows every table of the schema has, and the sums of the counts.
  std::string rows() {
    return query_text(
        sql_,
        "SELECT concat_ws(' ', (SELECT count(*) FROM faultline.jobs), (SELECT count(*) FROM "
        "faultline.ledger),"
        " (SELECT count(*) FROM faultline.effects), (SELECT count(*) FROM faultline.idempotency_keys),"
        " (SELECT count(*) FROM faultline.stale_writes), (SELECT count(*) FROM faultline.grants),"
        " (SELECT count(*) FROM faultline.queues), (SELECT count(*) FROM faultline.tallies))");
  }

  template <class T>
  void expect_error(const Expected<T>& result, ErrorCode code, const std::string& says) {
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(to_string(result.error().code), to_string(code)) << result.error().describe();
    EXPECT_THAT(result.error().message, HasSubstr(says));
    EXPECT_FALSE(result.error().hint.empty());
  }

  /// Refused alone, as the one bad job of a batch, and in a stream; nothing is added in any case.
  void expect_refused(const NewJob& bad, ErrorCode code, const std::string& says) {
    const std::string before = rows();
    expect_error(store_.enqueue(bad), code, says);

    std::vector<NewJob> batch(3, NewJob{.kind = "good"});
    batch[1] = bad;
    const auto refused = store_.enqueue(batch);
    expect_error(refused, code, says);
    EXPECT_THAT(refused.error().message, HasSubstr("job 1 of the batch"));

    std::size_t given = 0;
    const auto stream = [&]() -> std::optional<NewJob> {
      return given == batch.size() ? std::nullopt : std::optional{batch[given++]};
    };
    EXPECT_FALSE(store_.enqueue_bulk(stream).has_value());
    EXPECT_EQ(rows(), before);
  }
};

TEST_F(BadInputTest, a_payload_at_the_limit_is_taken_and_one_byte_more_is_refused) {
  constexpr std::size_t limit = 1'048'576;
  const std::string fits = '"' + std::string(limit - 2, 'x') + '"';
  const JobId id = enqueue({.payload = fits});
  EXPECT_EQ(claim_one("A").payload, fits);
  EXPECT_EQ(job(id).payload, fits);

  expect_refused({.kind = "k", .payload = fits + " "}, ErrorCode::payload_too_large, "1048577 bytes");
  expect_refused({.kind = "k", .payload = std::string(limit + 1, '\0'), .encoding = Encoding::bytes},
                 ErrorCode::payload_too_large, "the limit is 1048576");
}

TEST_F(BadInputTest, the_payload_limit_and_the_depth_limit_can_be_set) {
  Store small = open_store({.payload_bytes_max = 10, .json_depth_max = 2});

  EXPECT_TRUE(small.enqueue({.kind = "k", .payload = "[[\"5678\"]]"}).has_value());
  expect_error(small.enqueue({.kind = "k", .payload = "[[\"56789\"]]"}), ErrorCode::payload_too_large,
               "the limit is 10");
  expect_error(small.enqueue({.kind = "k", .payload = "[[[]]]"}), ErrorCode::payload_invalid,
               "nested too deep");
  Store large = open_store({.payload_bytes_max = 2'000'000});
  EXPECT_TRUE(large.enqueue({.kind = "k", .payload = std::string(1'500'000, ' ') + "1"}).has_value());
}

TEST_F(BadInputTest, what_is_not_json_is_refused_and_the_place_is_named) {
  const std::vector<std::pair<std::string, std::string>> texts{
      {"", "ends where a value"},     {" ", "ends where a value"},   {"{", "key in quotes"},
      {"[1,]", "value was expected"}, {"{\"a\":1,}", "key in"},      {"{'a':1}", "key in quotes"},
      {"01", "begins with a zero"},   {"1.", "after the point"},     {"nul", "value was expected"},
      {"NaN", "value was expected"},  {"1 2", "something follows"},  {"\"a", "ends inside a string"},
      {"\"\\x\"", "no such escape"},  {"\"\\ud800\"", "surrogate"},  {"\"\\udc00\\ud800\"", "surrogate"},
      {"\"\\u12\"", "hexadecimal"},   {"\"\x01\"", "control"},       {"\xEF\xBB\xBF{}", "value was expected"},
      {"\"\0\""s, "control"},         {"null\0"s, "something"},      {"\"\xff\"", "not valid UTF-8"},
      {"\"\xc0\xaf\"", "UTF-8"},      {"\"\xed\xa0\x80\"", "UTF-8"}, {"\"\xf4\x90\x80\x80\"", "UTF-8"},
      {"\"\xe2\x82\"", "UTF-8"},      {"// 1\n1", "value was"},      {"[1", "ends inside"},
  };
  for (const auto& [text, says] : texts) {
    SCOPED_TRACE(::testing::PrintToString(text));
    expect_refused({.kind = "k", .payload = text}, ErrorCode::payload_invalid, says);
    expect_refused({.kind = "k", .payload = text}, ErrorCode::payload_invalid, "at byte ");
  }
}

TEST_F(BadInputTest, a_depth_bomb_is_refused) {
  for (const std::string_view open : {"[", "{\"a\":"}) {
    std::string bomb;
    for (int i = 0; i < 100'000; ++i) bomb += open;
    expect_refused({.kind = "k", .payload = bomb}, ErrorCode::payload_invalid, "nested too deep");
  }
  EXPECT_TRUE(
      store_.enqueue({.kind = "k", .payload = std::string(128, '[') + std::string(128, ']')}).has_value());
}

TEST_F(BadInputTest, bytes_are_taken_as_they_are) {
  std::string all;
  for (int i = 0; i < 512; ++i) all += static_cast<char>(i);
  const JobId id = enqueue({.payload = all, .encoding = Encoding::bytes});
  const ClaimedJob claimed = claim_one("A");
  EXPECT_EQ(claimed.payload, all);
  EXPECT_EQ(claimed.encoding, Encoding::bytes);
  EXPECT_TRUE(settle(claimed.lease, Outcome::success(all)).committed());
  EXPECT_EQ(job(id).result, all);
  EXPECT_EQ(job(id).encoding, Encoding::bytes);
}

TEST_F(BadInputTest, bad_names_are_refused_wherever_a_name_stands) {
  const std::vector<std::pair<std::string, std::string>> names{
      {"", "is empty"},          {std::string(129, 'x'), "129 bytes"}, {"a\nb", "control character"},
      {"a\0b"s, "control"},      {"a\x7f", "control character"},       {"\xff", "not valid UTF-8"},
      {"\xed\xa0\x80", "UTF-8"}, {"\t", "control character"},
  };
  const Lease lease = [&] {
    enqueue();
    return claim_one("A").lease;
  }();
  const std::string before = rows();
  for (const auto& [name, says] : names) {
    SCOPED_TRACE(::testing::PrintToString(name));
    expect_refused({.queue = name, .kind = "k"}, ErrorCode::invalid_argument, "the queue ");
    expect_refused({.queue = name, .kind = "k"}, ErrorCode::invalid_argument, says);
    expect_refused({.kind = name}, ErrorCode::invalid_argument, "kind");
    expect_refused({.kind = "k", .tags = {"fine", name}}, ErrorCode::invalid_argument, "tag");
    expect_error(store_.claim({.queue = name, .worker = "A"}), ErrorCode::invalid_argument, "queue");
    expect_error(store_.claim({.worker = name}), ErrorCode::invalid_argument, "worker");
    expect_error(store_.set_queue(name, {}), ErrorCode::invalid_argument, "queue");
    expect_error(store_.pause(name), ErrorCode::invalid_argument, "queue");
    expect_error(store_.cancel({&lease.job, 1}, name, "r"), ErrorCode::invalid_argument, "who cancels");
    expect_error(store_.requeue({&lease.job, 1}, name), ErrorCode::invalid_argument, "who requeues");
    expect_error(store_.list({.queue = name}), ErrorCode::invalid_argument, "queue");
    expect_error(store_.list({.kind = name}), ErrorCode::invalid_argument, "kind");
    Lease renamed = lease;
    renamed.worker = name;
    expect_error(store_.heartbeat({&renamed, 1}), ErrorCode::invalid_argument, "worker");
  }
  const std::vector<std::string> keys{"", std::string(257, 'k'), "a\0b"s, "\xff", "\n"};
  for (const std::string& key : keys) {
    expect_refused({.kind = "k", .idempotency_key = key}, ErrorCode::invalid_argument, "idempotency_key");
    const EffectKey effect{.lease = lease, .key = key};
    expect_error(store_.begin_effects({&effect, 1}), ErrorCode::invalid_argument, "effect key");
    const EffectResult result{.lease = lease, .key = key, .result = "r"};
    expect_error(store_.record_effects({&result, 1}), ErrorCode::invalid_argument, "effect key");
  }
  EXPECT_EQ(rows(), before);
  EXPECT_TRUE(complete(lease).committed());
}

TEST_F(BadInputTest, numbers_out_of_bounds_are_refused) {
  constexpr int int_min = std::numeric_limits<int>::min();
  constexpr int int_max = std::numeric_limits<int>::max();
  for (const int priority : {-1, 10, int_min, int_max}) {
    expect_refused({.kind = "k", .priority = priority}, ErrorCode::invalid_argument, "priority");
  }
  for (const int attempts : {0, -1, 1'000'001, int_min, int_max}) {
    expect_refused({.kind = "k", .attempts_max = attempts}, ErrorCode::invalid_argument, "attempts_max");
    expect_error(store_.set_queue("q", {.attempts_max = attempts}), ErrorCode::invalid_argument,
                 "attempts_max");
  }
  for (const ms duration :
       {ms{-1}, ms::min(), ms::max(), ms{std::numeric_limits<std::int32_t>::max()} * 1'000'000}) {
    SCOPED_TRACE(duration.count());
    expect_refused({.kind = "k", .delay = duration}, ErrorCode::invalid_argument, "delay");
    expect_refused({.kind = "k", .lease_ttl = duration}, ErrorCode::invalid_argument, "lease_ttl");
    expect_refused({.kind = "k", .run_max = duration}, ErrorCode::invalid_argument, "run_max");
    expect_refused({.kind = "k", .backoff_base = duration}, ErrorCode::invalid_argument, "backoff_base");
    expect_refused({.kind = "k", .backoff_max = duration}, ErrorCode::invalid_argument, "backoff_max");
    expect_error(store_.set_queue("q", {.lease_ttl = duration}), ErrorCode::invalid_argument, "lease_ttl");
    expect_error(store_.set_queue("q", {.backoff_base = duration}), ErrorCode::invalid_argument,
                 "backoff_base");
    expect_error(store_.set_queue("q", {.backoff_max = duration}), ErrorCode::invalid_argument,
                 "backoff_max");
    expect_error(store_.set_queue("q", {.retention = duration}), ErrorCode::invalid_argument, "retention");
    expect_error(store_.set_queue("q", {.key_retention = duration}), ErrorCode::invalid_argument,
                 "key_retention");
  }
  expect_refused({.kind = "k", .lease_ttl = ms{99}}, ErrorCode::invalid_argument, "99 ms");
  expect_refused({.kind = "k", .lease_ttl = ms{86'400'001}}, ErrorCode::invalid_argument, "lease_ttl");
  expect_refused({.kind = "k", .run_at = DatabaseTime{} + ms{1}, .delay = ms{1}}, ErrorCode::invalid_argument,
                 "both");
  for (const DatabaseTime run_at : {DatabaseTime::min(), DatabaseTime::max(), DatabaseTime{} - ms{1}}) {
    expect_refused({.kind = "k", .run_at = run_at}, ErrorCode::invalid_argument, "run_at");
  }
  expect_refused({.kind = "k", .tags = std::vector<std::string>(33, "t")}, ErrorCode::invalid_argument,
                 "33 tags");
  for (const std::string traceparent :
       {"", "nonsense", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    expect_refused({.kind = "k", .traceparent = traceparent}, ErrorCode::invalid_argument, "traceparent");
  }
  expect_error(store_.set_queue("q", {.running_max = -2}), ErrorCode::invalid_argument, "running_max");
  EXPECT_EQ(must(store_.queues()).size(), 1U);
}

TEST_F(BadInputTest, the_bounds_themselves_are_allowed) {
  const DatabaseTime year_9999{std::chrono::seconds{253'402'300'799}};
  EXPECT_TRUE(store_
                  .enqueue({.queue = "default",
                            .kind = std::string(128, 'k'),
                            .priority = 9,
                            .run_at = year_9999,
                            .idempotency_key = std::string(256, 'k'),
                            .attempts_max = 1'000'000,
                            .lease_ttl = ms{86'400'000},
                            .run_max = ms{31'536'000'000},
                            .backoff_base = ms{86'400'000},
                            .backoff_max = ms{604'800'000},
                            .tags = std::vector<std::string>(32, std::string(128, 't'))})
                  .has_value());
  const JobId id = enqueue({.priority = 0,
                            .run_at = DatabaseTime{},
                            .attempts_max = 1,
                            .lease_ttl = ms{100},
                            .run_max = ms{100},
                            .backoff_base = ms{0},
                            .backoff_max = ms{0}});
  EXPECT_EQ(claim_one(std::string(128, 'w')).lease.job, id);
  EXPECT_TRUE(store_.enqueue({.kind = "k", .delay = std::chrono::hours{24 * 3650}}).has_value());
  EXPECT_TRUE(store_.set_queue(std::string(128, 'q'),
                               {.running_max = 0, .retention = ms{0}, .key_retention = ms{0}}));
}

TEST_F(BadInputTest, an_unknown_queue_is_refused_by_name) {
  expect_refused({.queue = "nowhere", .kind = "k"}, ErrorCode::unknown_queue, "\"nowhere\"");
  expect_error(store_.claim({.queue = "nowhere", .worker = "A"}), ErrorCode::unknown_queue, "\"nowhere\"");
  expect_error(store_.pause("nowhere"), ErrorCode::unknown_queue, "\"nowhere\"");
  EXPECT_EQ(must(store_.queues()).size(), 1U);
}

TEST_F(BadInputTest, an_exchange_with_an_unknown_queue_settles_nothing) {
  enqueue();
  const Settlement done{.lease = claim_one("A").lease};

  expect_error(store_.exchange({&done, 1}, {.queue = "nowhere", .worker = "A"}), ErrorCode::unknown_queue,
               "nowhere");

  EXPECT_EQ(job(done.lease.job).state, JobState::running);
  EXPECT_TRUE(complete(done.lease).committed());
}

TEST_F(BadInputTest, hostile_names_are_stored_and_returned_as_they_are) {
  const std::vector<std::string> names{
      "'; DROP TABLE faultline.jobs; --",
      "\"quoted\"",
      "back\\slash\\",
      "%s%n",
      "$1",
      "{a,b}",
      "NULL",
      "null",
      "\\N",
      "a\u00e9\u4e2d\U0001F600",
      "\u202Ertl",
      "../../etc/passwd",
      "<script>alert(1)</script>",
      " leading and trailing ",
      "{\"a\":\"b\"}",
      "E'\\x41'",
  };
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    must(store_.set_queue(name, {}));
    const NewJob new_job{
        .queue = name, .kind = name, .payload = "\"p\"", .idempotency_key = name, .tags = {name, name}};
    const JobId id = enqueue(new_job);

    const ClaimedJob claimed = claim_one(name, name);
    EXPECT_EQ(claimed.lease.job, id);
    EXPECT_EQ(claimed.kind, name);
    EXPECT_EQ(claimed.tags, (std::vector{name, name}));
    const EffectResult effect{.lease = claimed.lease, .key = name, .result = name};
    EXPECT_EQ(must(store_.record_effects({&effect, 1}))[0].result, name);
    const ProgressReport report{.lease = claimed.lease, .fraction = 1, .note = name};
    EXPECT_TRUE(must(store_.progress({&report, 1}))[0].committed());
    EXPECT_EQ(job(id).progress_note, name);
    EXPECT_TRUE(settle(claimed.lease, Outcome::failure(name, ms{0})).committed());
    EXPECT_EQ(job(id).last_error, name);
    EXPECT_EQ(must(store_.cancel({&id, 1}, name, name))[0], CancelStatus::cancelled);

    const JobHistory whole = history(id);
    EXPECT_EQ(whole.job.queue, name);
    EXPECT_EQ(whole.job.kind, name);
    EXPECT_EQ(whole.job.idempotency_key, name);
    EXPECT_EQ(whole.job.tags, (std::vector{name, name}));
    EXPECT_EQ(whole.attempts.at(0).worker, name);
    EXPECT_EQ(whole.attempts.at(1).worker, name);
    EXPECT_EQ(whole.effects.at(0).key, name);
    ASSERT_EQ(must(store_.list({.queue = name, .kind = name})).jobs.size(), 1U);
    EXPECT_EQ(must(store_.enqueue(new_job)).status, Submission::Status::existing);
    EXPECT_EQ(must(store_.counts(name)).at(0).cancelled, 1);
  }
}

TEST_F(BadInputTest, a_job_that_stands_twice_in_a_batch_is_refused) {
  enqueue_many(2);
  const auto claimed = claim("A", 2);
  const std::vector<Lease> leases{claimed[0].lease, claimed[1].lease, claimed[0].lease};
  const std::string says = claimed[0].lease.job.to_string() + " stands twice";
  std::vector<Settlement> settlements;
  std::vector<ProgressReport> reports;
  for (const Lease& lease : leases) {
    settlements.push_back({.lease = lease});
    reports.push_back({.lease = lease, .fraction = 0.5});
  }
  settlements[2].outcome = Outcome::release();
  const std::string before = rows();

  expect_error(store_.settle(settlements), ErrorCode::invalid_argument, says);
  expect_error(store_.exchange(settlements, {.worker = "A"}), ErrorCode::invalid_argument, says);
  settlements[2].outcome = Outcome::success();
  expect_error(store_.exchange(settlements, {.worker = "A"}), ErrorCode::invalid_argument, says);
  expect_error(store_.heartbeat(leases), ErrorCode::invalid_argument, says);
  expect_error(store_.check(leases), ErrorCode::invalid_argument, says);
  expect_error(store_.progress(reports), ErrorCode::invalid_argument, says);
  const std::vector<EffectKey> keys{{leases[0], "k"}, {leases[0], "other"}, {leases[0], "k"}};
  expect_error(store_.begin_effects(keys), ErrorCode::invalid_argument, "stands twice");
  const std::vector<EffectResult> results{{leases[0], "k", "1"}, {leases[0], "k", "2"}};
  expect_error(store_.record_effects(results), ErrorCode::invalid_argument, "stands twice");

  EXPECT_EQ(rows(), before);
  EXPECT_TRUE(complete(claimed[0].lease).committed());
  EXPECT_TRUE(complete(claimed[1].lease).committed());
}

TEST_F(BadInputTest, a_job_that_stands_twice_is_found_where_a_large_batch_is_cut) {
  std::vector<Settlement> settlements;
  for (std::uint16_t i = 0; i < 1'000; ++i) {
    Lease lease{.token = FenceToken{1}, .lease_id = Uuid::random(), .worker = "A"};
    lease.job.value.bytes[0] = static_cast<std::uint8_t>(i >> 8U);
    lease.job.value.bytes[1] = static_cast<std::uint8_t>(i);
    settlements.push_back({.lease = lease});
  }
  settlements.push_back(settlements.back());

  expect_error(store_.settle(settlements), ErrorCode::invalid_argument, "stands twice");

  EXPECT_TRUE(must(store_.stale_writes(1)).empty());
}

TEST_F(BadInputTest, limits_of_claims_and_pages_are_checked) {
  for (const std::size_t limit :
       {std::size_t{0}, std::size_t{1'001}, std::numeric_limits<std::size_t>::max()}) {
    expect_error(store_.claim({.worker = "A", .limit = limit}), ErrorCode::invalid_argument, "limit");
    expect_error(store_.exchange({}, {.worker = "A", .limit = limit}), ErrorCode::invalid_argument, "limit");
    expect_error(store_.list({.limit = limit}), ErrorCode::invalid_argument, "limit");
    expect_error(store_.stale_writes(limit), ErrorCode::invalid_argument, "limit");
  }
  EXPECT_TRUE(store_.claim({.worker = "A", .limit = 1'000}).has_value());
  EXPECT_TRUE(store_.list({.limit = 1'000}).has_value());
  EXPECT_TRUE(store_.stale_writes(1'000).has_value());
}

TEST_F(BadInputTest, empty_batches_are_answered_with_nothing) {
  EXPECT_TRUE(must(store_.enqueue(std::span<const NewJob>{})).empty());
  EXPECT_TRUE(must(store_.settle({})).empty());
  EXPECT_TRUE(must(store_.heartbeat({})).empty());
  EXPECT_TRUE(must(store_.progress({})).empty());
  EXPECT_TRUE(must(store_.check({})).empty());
  EXPECT_TRUE(must(store_.begin_effects({})).empty());
  EXPECT_TRUE(must(store_.record_effects({})).empty());
  EXPECT_TRUE(must(store_.resolve({})).empty());
  EXPECT_TRUE(must(store_.cancel({}, "operator", "r")).empty());
  EXPECT_TRUE(must(store_.requeue({}, "operator")).empty());
  EXPECT_EQ(must(store_.enqueue_bulk([] { return std::optional<NewJob>{}; })), 0U);
}

TEST_F(BadInputTest, a_lease_of_another_database_is_refused_and_a_job_of_one_is_not_found) {
  enqueue();
  const Lease good = claim_one("A").lease;
  const std::string before = rows();
  for (const std::uint8_t high_byte : {std::uint8_t{0x10}, std::uint8_t{0xFF}}) {
    Lease foreign = good;
    foreign.job.value.bytes[14] = high_byte;
    const Settlement settlement{.lease = foreign};
    expect_error(store_.settle({&settlement, 1}), ErrorCode::invalid_argument, "is not of this database");
    expect_error(store_.heartbeat({&foreign, 1}), ErrorCode::invalid_argument, "is not of this database");
    const EffectKey key{.lease = foreign, .key = "k"};
    expect_error(store_.begin_effects({&key, 1}), ErrorCode::invalid_argument, "is not of this database");
    EXPECT_FALSE(must(store_.job(foreign.job)).has_value());
    EXPECT_FALSE(must(store_.history(foreign.job)).has_value());
    EXPECT_EQ(cancel(foreign.job), CancelStatus::not_found);
    EXPECT_EQ(requeue(foreign.job), RequeueStatus::not_found);
  }
  for (const std::int64_t token :
       {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    Lease without = good;
    without.token.value = token;
    expect_error(store_.check({&without, 1}), ErrorCode::invalid_argument, "has no token");
  }
  EXPECT_EQ(rows(), before);
  EXPECT_TRUE(complete(good).committed());
}

TEST_F(BadInputTest, the_ballast_of_the_schema_is_out_of_reach) {
  const Uuid ballast =
      *Uuid::parse(query_text(sql_, "SELECT id::text FROM faultline.jobs WHERE queue = '' LIMIT 1"));
  const std::string before = rows();

  EXPECT_EQ(cancel(JobId{ballast}), CancelStatus::not_found);
  EXPECT_EQ(requeue(JobId{ballast}), RequeueStatus::not_found);
  EXPECT_FALSE(must(store_.job(JobId{ballast})).has_value());
  EXPECT_FALSE(must(store_.history(JobId{ballast})).has_value());

  EXPECT_EQ(rows(), before);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue = '' AND state = 'dead'"), 100);
}

TEST_F(BadInputTest, progress_that_is_no_fraction_is_refused) {
  enqueue();
  const Lease lease = claim_one("A").lease;
  for (const double fraction : {std::nan(""), HUGE_VAL, -HUGE_VAL, -0.01, 1.01}) {
    const ProgressReport report{.lease = lease, .fraction = fraction};
    expect_error(store_.progress({&report, 1}), ErrorCode::invalid_argument, "progress");
  }
  EXPECT_FALSE(job(lease.job).progress.has_value());
  EXPECT_EQ(heartbeat(lease).status, Beat::Status::renewed);
}

TEST_F(BadInputTest, an_extension_out_of_bounds_is_refused_and_the_lease_stays) {
  enqueue();
  const ClaimedJob claimed = claim_one("A");
  for (const ms extend : {ms{0}, ms{-1}, ms{99}, ms{86'400'001}, ms::max(), ms::min()}) {
    expect_error(store_.heartbeat({&claimed.lease, 1}, extend), ErrorCode::invalid_argument, "extension");
  }
  EXPECT_EQ(job(claimed.lease.job).lease_expires_at, claimed.lease_expires_at);
}

TEST_F(BadInputTest, a_broken_error_message_is_mended_and_the_job_is_not_lost) {
  const std::string replacement = "\xEF\xBF\xBD";
  const std::vector<std::pair<std::string, std::string>> messages{
      {"a\0b"s, "a" + replacement + "b"},
      {"\xff\xfe", replacement + replacement},
      {"end \xe2\x82", "end " + replacement + replacement},
      {"\0"s, replacement},
      {"", ""},
      {"line\nbreak\ttab", "line\nbreak\ttab"},
  };
  for (const auto& [message, stored] : messages) {
    const JobId id = enqueue();
    EXPECT_TRUE(settle(claim_one("A").lease, Outcome::bury(message)).committed());
    EXPECT_EQ(job(id).last_error, stored);
    EXPECT_EQ(history(id).attempts.at(0).error, stored);
  }
}

TEST_F(BadInputTest, a_huge_error_message_is_cut_at_a_character_and_the_job_is_not_lost) {
  for (const std::string& unit : {"x"s, "\u20ac"s, "\U0001F600"s, "\0"s, "\xff"s, "ab\xff"s}) {
    std::string message;
    while (message.size() < 1'000'000) message += unit;
    const JobId id = enqueue();
    EXPECT_TRUE(settle(claim_one("A").lease, Outcome::bury(message)).committed());
    const std::string stored = job(id).last_error.value();
    EXPECT_LE(stored.size(), 16'384U);
    EXPECT_GT(stored.size(), 16'384U - 8U);
    EXPECT_EQ(cancel(id), CancelStatus::cancelled);
  }
}

TEST_F(BadInputTest, a_broken_reason_or_note_is_mended_too) {
  const JobId id = enqueue();
  const Lease lease = claim_one("A").lease;
  const ProgressReport report{.lease = lease, .fraction = 0.5, .note = "n\0\xff"s};
  EXPECT_TRUE(must(store_.progress({&report, 1}))[0].committed());
  EXPECT_EQ(must(store_.cancel({&id, 1}, "operator", "r\0"s))[0], CancelStatus::requested);
  EXPECT_EQ(job(id).progress_note, "n\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(job(id).cancel_reason, "r\xEF\xBF\xBD");
  EXPECT_TRUE(settle(lease, Outcome::cancel("c\0"s)).committed());
  EXPECT_EQ(job(id).last_error, "c\xEF\xBF\xBD");
}

TEST_F(BadInputTest, a_result_that_is_too_large_is_refused_and_the_lease_is_still_good) {
  enqueue_many(2);
  const auto claimed = claim("A", 2);
  const std::string too_large(1'048'577, 'r');
  const std::vector<Settlement> batch{{.lease = claimed[0].lease, .outcome = Outcome::success("fine")},
                                      {.lease = claimed[1].lease, .outcome = Outcome::success(too_large)}};
  const std::string before = rows();

  expect_error(store_.settle(batch), ErrorCode::payload_too_large, "the result has 1048577 bytes");
  expect_error(store_.exchange(batch, {.worker = "A"}), ErrorCode::payload_too_large, "the result");
  const EffectResult effect{.lease = claimed[0].lease, .key = "k", .result = too_large};
  expect_error(store_.record_effects({&effect, 1}), ErrorCode::payload_too_large, "the result");

  EXPECT_EQ(rows(), before);
  EXPECT_TRUE(must(store_.check({&claimed[0].lease, 1}))[0].committed());
  EXPECT_TRUE(settle(claimed[0].lease, Outcome::success(too_large.substr(1))).committed());
  EXPECT_TRUE(settle(claimed[1].lease, Outcome::failure("the result was too large")).committed());
}

TEST_F(BadInputTest, an_outcome_that_makes_no_sense_is_refused) {
  enqueue();
  const Lease lease = claim_one("A").lease;
  const std::vector<Outcome> outcomes{
      {.kind = Outcome::Kind::snoozed},
      {.kind = Outcome::Kind::failed, .result = "r"},
      {.kind = Outcome::Kind::failed, .delay = ms{-1}},
      {.kind = Outcome::Kind::snoozed, .delay = ms::max()},
  };
  for (const Outcome& outcome : outcomes) {
    const Settlement settlement{.lease = lease, .outcome = outcome};
    const auto refused = store_.settle({&settlement, 1});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_TRUE(complete(lease).committed());
}

}  // namespace
}  // namespace faultline::testing

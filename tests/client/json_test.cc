// Typed payloads and results, from the producer through a worker's handler and back.

#include "faultline/json.h"

#include <atomic>
#include <map>

#include <gmock/gmock.h>

#include "faultline/client.h"
#include "faultline/worker.h"
#include "support/database.h"

namespace faultline::testing {
namespace {

struct Mail {
  std::string to;
  int copies = 0;
  std::vector<std::string> lines;

  friend bool operator==(const Mail&, const Mail&) = default;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Mail, to, copies, lines)

struct Receipt {
  int number = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Receipt, number)

/// Cannot be without a name.
class Named {
 public:
  explicit Named(std::string name) : name_(std::move(name)) {
    if (name_.empty()) throw std::invalid_argument("a name is needed");
  }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
};

}  // namespace
}  // namespace faultline::testing

template <>
struct nlohmann::adl_serializer<faultline::testing::Named> {
  static faultline::testing::Named from_json(const json& tree) {
    return faultline::testing::Named{tree.at("name").get<std::string>()};
  }
};

namespace faultline::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kSecret = "secret-7391";

class JsonTest : public ::testing::Test {
 protected:
  JsonTest() : client_(must(Client::open({.database = database_.dsn()}))) {}

  /// What becomes of a job that a worker with this one handler works.
  Job run(const NewJob& job, Handler handler) {
    Worker worker{{.database = database_.dsn(), .slots = 1, .poll_max = 20ms, .log = [](const Event&) {}}};
    worker.handle(job.kind, std::move(handler));
    must(worker.start());
    return must(client_.await(must(client_.enqueue(job)).job, 60s));
  }
  static NewJob raw(std::string payload, Encoding encoding = Encoding::json) {
    return {.kind = "k", .payload = std::move(payload), .encoding = encoding};
  }
  template <class T>
  void expect_buried(const NewJob& job, const std::string& says) {
    bool called = false;
    const Job buried = run(job, json_handler<T>([&](const T&) { called = true; }));
    EXPECT_FALSE(called);
    EXPECT_EQ(buried.state, JobState::dead);
    EXPECT_EQ(buried.attempt, 1);
    const std::string error = buried.last_error.value_or("");
    EXPECT_THAT(error, HasSubstr("the payload is not what the handler expects"));
    EXPECT_THAT(error, HasSubstr(says));
    EXPECT_THAT(error, Not(HasSubstr(std::string{kSecret})));
    EXPECT_THAT(error, Not(HasSubstr("json.exception")));
  }

  TestDatabase database_;
  Client client_;
};

TEST_F(JsonTest, a_payload_arrives_as_it_was_sent_with_the_jobs_options) {
  const Mail sent{.to = "ada \"x\" \xc3\xa9", .copies = 3, .lines = {"a", "", "b\n"}};
  Mail got;
  std::vector<std::string> tags;
  const Job done = run(json_job("mail", sent, {.priority = 2, .tags = {"vip"}}),
                       json_handler<Mail>([&](const Mail& mail, Context& ctx) {
                         got = mail;
                         tags = ctx.job().tags;
                       }));
  EXPECT_EQ(done.state, JobState::succeeded);
  EXPECT_EQ(done.result, std::nullopt);
  EXPECT_EQ(done.priority, 2);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(tags, std::vector<std::string>{"vip"});
}

TEST_F(JsonTest, what_a_handler_returns_is_the_result) {
  const NewJob job = json_job("k", 20);
  EXPECT_EQ(run(job, json_handler<int>([](int) { return "plain text"; })).result, "plain text");
  EXPECT_EQ(run(job, json_handler<int>([](int) { return std::string{"text"}; })).result, "text");
  EXPECT_EQ(run(job, json_handler<int>([](int number) { return number + 1; })).result, "21");
  EXPECT_EQ(run(job, json_handler<int>([](int number) { return Receipt{number}; })).result,
            R"({"number":20})");
  EXPECT_EQ(run(job, json_handler<int>([](int) { return std::map<std::string, bool>{{"ok", true}}; })).result,
            R"({"ok":true})");
  EXPECT_EQ(run(job, json_handler<int>([](int) { return nlohmann::json{1, "two"}; })).result, R"([1,"two"])");
  EXPECT_EQ(run(job, json_handler<int>([](int) { return nlohmann::json("text"); })).result, R"("text")");
}

TEST_F(JsonTest, outcomes_are_outcomes_and_not_results) {
  const NewJob job = json_job("k", 1);
  const Job buried = run(job, json_handler<int>([](int) { return Bury{"no use"}; }));
  EXPECT_EQ(buried.state, JobState::dead);
  EXPECT_EQ(buried.last_error, "no use");
  const Job cancelled = run(job, json_handler<int>([](int) -> Outcome { return Cancel{"not needed"}; }));
  EXPECT_EQ(cancelled.state, JobState::cancelled);
  NewJob last_try = job;
  last_try.attempts_max = 1;
  const Job failed = run(last_try, json_handler<int>([](int) -> int { throw std::runtime_error("broken"); }));
  EXPECT_EQ(failed.state, JobState::dead);
  EXPECT_EQ(failed.last_error, "broken");
}

TEST_F(JsonTest, a_payload_that_is_no_such_value_buries_the_job_and_is_not_quoted) {
  expect_buried<Mail>(raw(R"({"copies": 1, "lines": ["secret-7391"]})"), "key 'to' not found");
  expect_buried<Mail>(raw(R"({"to": "a", "copies": "secret-7391", "lines": []})"), "must be number");
  expect_buried<Mail>(raw(R"(["secret-7391"])"), "");
  expect_buried<int>(raw("\"secret-7391\""), "must be number, but is string");
  expect_buried<Mail>(raw("{\"to\": \"secret-7391\"", Encoding::bytes), "not JSON, at byte");
  expect_buried<Mail>(raw("secret-7391", Encoding::bytes), "not JSON, at byte 1");
  expect_buried<double>(raw("1e7391"), "too large");
}

TEST_F(JsonTest, a_type_without_a_default_is_made_by_its_from_json) {
  std::string name;
  const auto handler = json_handler<Named>([&](const Named& named) { name = named.name(); });
  EXPECT_EQ(run(raw(R"({"name": "Ada"})"), handler).state, JobState::succeeded);
  EXPECT_EQ(name, "Ada");
  expect_buried<Named>(raw(R"({"nam": "secret-7391"})"), "key 'name' not found");
  expect_buried<Named>(raw(R"({"name": ""})"), "a name is needed");
}

TEST_F(JsonTest, a_step_is_done_once_and_its_result_keeps_its_type) {
  std::atomic<int> done = 0;
  std::vector<int> seen;
  const Job job = run({.kind = "k", .backoff_base = 1ms}, [&](Context& ctx) {
    const Receipt receipt = json_once(ctx, "step", [&] { return Receipt{++done * 100}; });
    seen.push_back(receipt.number);
    if (ctx.attempt() == 1) throw std::runtime_error("afterwards");
  });
  EXPECT_EQ(job.state, JobState::succeeded);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(seen, (std::vector<int>{100, 100}));
}

TEST_F(JsonTest, an_unknown_step_is_run_again_or_asked_about_in_its_own_type) {
  std::atomic<int> done = 0;
  const auto lost_at_first = [&](const Context& ctx) {
    return [&] {
      ++done;
      if (ctx.attempt() == 1) throw std::runtime_error("the answer is lost");
      return Receipt{done};
    };
  };
  const NewJob job{.kind = "k", .backoff_base = 1ms};

  const Job again = run(job, [&](Context& ctx) {
    return std::to_string(json_once(ctx, "step", lost_at_first(ctx), run_again).number);
  });
  EXPECT_EQ(again.result, "2");

  const Job asked = run(job, [&](Context& ctx) {
    const auto ask = [](const UnknownEffect& effect) -> std::optional<Receipt> {
      EXPECT_EQ(effect.begun_under, FenceToken{1});
      return Receipt{77};
    };
    return std::to_string(json_once(ctx, "step", lost_at_first(ctx), ask).number);
  });
  EXPECT_EQ(asked.result, "77");
  EXPECT_EQ(done, 3);

  const Job refused = run(
      job, [&](Context& ctx) { return std::to_string(json_once(ctx, "step", lost_at_first(ctx)).number); });
  EXPECT_EQ(refused.state, JobState::dead);
  EXPECT_EQ(done, 4);
}

TEST(JsonJobTest, says_what_it_is) {
  const NewJob job = json_job("mail", Mail{.to = "a"}, {.queue = "q", .encoding = Encoding::bytes});
  EXPECT_EQ(job.kind, "mail");
  EXPECT_EQ(job.queue, "q");
  EXPECT_EQ(job.encoding, Encoding::json);
  EXPECT_EQ(job.payload, R"({"copies":0,"lines":[],"to":"a"})");
  EXPECT_THROW(static_cast<void>(json_job("mail", Mail{.to = "\xff"})), nlohmann::json::type_error);
}

}  // namespace
}  // namespace faultline::testing

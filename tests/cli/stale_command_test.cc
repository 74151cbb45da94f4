// `faultline stale`: the evidence, as a list and as it comes.

#include <csignal>
#include <sstream>

#include "inspect_fixture.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class StaleCommandTest : public InspectTest {
 protected:
  /// The workers of what is listed, in its order.
  std::vector<std::string> workers(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "stale");
    arguments.emplace_back("--json");
    const auto result = run(std::move(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> found;
    const auto answer = one_object(result.out);
    for (const auto& write : answer.at("stale_writes")) found.push_back(write.at("worker"));
    return found;
  }
};

TEST_F(StaleCommandTest, lists_the_evidence_newest_first_and_filters_it) {
  EXPECT_THAT(run({"stale"}).out, HasSubstr("No write was refused"));
  must(store_.set_queue("mails", {}));
  refuse_a_write("w-1");
  const StaleWrite second = refuse_a_write("w-2", "mails");
  refuse_a_write("w-3");

  EXPECT_THAT(workers({}), ElementsAre("w-3", "w-2", "w-1"));
  EXPECT_THAT(workers({"--limit", "2"}), ElementsAre("w-3", "w-2"));
  EXPECT_THAT(workers({"--queue", "mails"}), ElementsAre("w-2"));
  EXPECT_THAT(workers({"--job", second.job.to_string()}), ElementsAre("w-2"));
  EXPECT_THAT(workers({"--queue", "nowhere"}), ElementsAre());

  const auto text = run({"stale", "--queue", "mails"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("REASON"), HasSubstr("LATE"), HasSubstr(second.job.to_string()),
                              HasSubstr("token_mismatch  1 ms"), HasSubstr("running, token 2 of successor"),
                              Not(HasSubstr("w-1"))));
}

TEST_F(StaleCommandTest, follows_the_evidence_until_a_signal) {
  refuse_a_write("w-before");
  ChildProcess follower{program({"stale", "--follow", "--json"})};
  ASSERT_TRUE(eventually([&] { return follower.out().find("w-before") != std::string::npos; }))
      << follower.err();

  refuse_a_write("w-new");
  ASSERT_TRUE(eventually([&] { return follower.out().find("w-new") != std::string::npos; }));
  follower.send(SIGINT);
  const auto result = follower.wait();

  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines{result.out};
  std::vector<std::string> told;
  for (std::string line; std::getline(lines, line);) told.push_back(nlohmann::json::parse(line).at("worker"));
  EXPECT_THAT(told, ElementsAre("w-before", "w-new"));
}

TEST_F(StaleCommandTest, what_is_no_id_is_wrong_usage) {
  const auto result = run({"stale", "--job", "x"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("hint: "));
}

}  // namespace
}  // namespace faultline::testing

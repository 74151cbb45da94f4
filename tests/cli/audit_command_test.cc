// `faultline audit`: good news, and bad news with names.

#include <csignal>

#include "inspect_fixture.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class AuditCommandTest : public InspectTest {};

TEST_F(AuditCommandTest, every_promise_has_a_line_when_all_hold) {
  refuse_a_write("w-1");
  const auto result = run({"audit"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("ok        no_job_is_lost"),
                                HasSubstr("All of it held at 2030-01-01"), Not(HasSubstr("VIOLATED"))));
}

TEST_F(AuditCommandTest, a_broken_promise_names_its_rows_and_exits_with_1) {
  const auto ids = enqueue_many(3);
  script("UPDATE faultline.jobs SET cancel_requested_at = faultline.clock() WHERE queue <> ''");

  const auto text = run({"audit", "--examples", "2"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, AllOf(HasSubstr("VIOLATED  cancel_of_running"), HasSubstr(ids[0].to_string() + ": "),
                              HasSubstr(ids[1].to_string() + ": "), HasSubstr("and 1 more"),
                              HasSubstr("ok        no_job_is_lost"), HasSubstr("3 rows break a promise")));
  EXPECT_THAT(text.out, Not(HasSubstr(ids[2].to_string())));

  const auto json = run({"audit", "--json"});
  EXPECT_EQ(json.exit_code, 1);
  const auto report = one_object(json.out);
  EXPECT_EQ(report.at("violations"), 3);
  const auto& checks = report.at("checks");
  const auto check =
      std::ranges::find_if(checks, [](const auto& each) { return each.at("name") == "cancel_of_running"; });
  ASSERT_NE(check, checks.end());
  EXPECT_EQ(check->at("violations"), 3);
  EXPECT_EQ(check->at("examples").at(2).at("row"), ids[2].to_string());
  EXPECT_THAT(check->at("examples").at(0).at("detail").get<std::string>(), HasSubstr("it is available"));
}

TEST_F(AuditCommandTest, some_checks_can_be_asked_for_and_others_are_not_there) {
  const auto some = run({"audit", "no_job_is_lost", "job_has_a_queue"});
  EXPECT_EQ(some.exit_code, 0) << some.err;
  EXPECT_THAT(some.out, AllOf(HasSubstr("no_job_is_lost"), HasSubstr("job_has_a_queue"),
                              Not(HasSubstr("ledger_has_no_gap"))));
  const auto unknown = run({"audit", "no_job_is_found"});
  EXPECT_NE(unknown.exit_code, 0);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("no_job_is_found"), HasSubstr("no_job_is_lost")));
}

TEST_F(AuditCommandTest, an_audit_whose_client_was_killed_ends_and_holds_no_snapshot) {
  auto blocker = database_.connect();
  must(blocker.begin(soon()));
  must(blocker.exec_script("LOCK TABLE faultline.effects IN ACCESS EXCLUSIVE MODE", soon()));
  const auto waiting = [&] {
    return number(
        "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND "
        "a.datname = current_database()");
  };
  {
    ChildProcess audit{program({"audit"})};
    ASSERT_TRUE(eventually([&] { return waiting() == 1; }));
    audit.send(SIGKILL);
    static_cast<void>(audit.wait());
  }

  // Nothing but the lost connection ends it: what it waits for is still held.
  EXPECT_TRUE(eventually([&] { return waiting() == 0; }));
  blocker.rollback(soon());
}

TEST_F(AuditCommandTest, wrong_usage_and_a_database_without_the_schema_say_what_to_do) {
  EXPECT_EQ(run({"audit", "--examples", "-1"}).exit_code, 2);
  EXPECT_EQ(run({"audit", "--timeout", "soon"}).exit_code, 2);
  const TestDatabase empty{Template::empty};
  const auto result = run_faultline({"audit", "--database", empty.dsn()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("faultline migrate"));
  EXPECT_THAT(result.out, IsEmpty());
}

}  // namespace
}  // namespace faultline::testing

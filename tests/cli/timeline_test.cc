// The life of a job, drawn: every picture here is the whole picture.

#include "cli/jobs/timeline.h"

#include <gmock/gmock.h>

namespace faultline::cli {
namespace {

using ::testing::HasSubstr;

DatabaseTime at(int seconds) { return DatabaseTime{std::chrono::seconds{seconds}}; }

Attempt attempt(int token, std::string outcome, std::string state, std::string worker,
                std::optional<int> from, int to) {
  Attempt attempt{.token = FenceToken{token},
                  .attempt = 1,
                  .outcome = std::move(outcome),
                  .state = std::move(state),
                  .worker = std::move(worker),
                  .ended_at = at(to)};
  if (from) attempt.started_at = at(*from);
  return attempt;
}

StaleWrite stale_write(int when, std::string verb) {
  StaleWrite write;
  write.at = at(when);
  write.verb = std::move(verb);
  write.token = FenceToken{1};
  write.worker = "A";
  write.current_token = FenceToken{2};
  return write;
}

JobHistory history(JobState state, std::vector<Attempt> attempts) {
  JobHistory history;
  history.job.created_at = at(0);
  history.job.state = state;
  history.attempts = std::move(attempts);
  return history;
}

JobHistory lease_race() {
  return history(JobState::succeeded, {attempt(1, "expired", "available", "A", 0, 30),
                                       attempt(2, "succeeded", "succeeded", "B", 31, 40)});
}

std::string draw(const JobHistory& history, int now, bool ascii = false) {
  return "\n" + timeline_text(history, {.now = at(now), .width = 80, .ascii = ascii});
}

TEST(TimelineTest, a_simple_success_is_one_bar_behind_the_wait) {
  EXPECT_EQ(draw(history(JobState::succeeded, {attempt(1, "succeeded", "succeeded", "mailer", 2, 10)}), 99),
            R"(
TOKEN  WORKER  0                   5 s                10 s
               ├─────────┼──────────┼─────────┼──────────┤
1      mailer          ┣━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━✓   succeeded after 8 s
)");
}

TEST(TimelineTest, in_a_lease_race_the_late_write_bounces_off) {
  JobHistory race = lease_race();
  race.stale_writes = {stale_write(42, "settle")};
  EXPECT_EQ(draw(race, 99), R"(
TOKEN  WORKER  0         21 s       42 s
               ├─────┼─────┼─────┼─────┤
1      A       ┣━━━━━━━━━━━━━━━━╳          expired after 30 s
2      B                         ┣━━━━✓    succeeded after 9 s
1      A                               ↩┃  settle bounced: 1 < 2, token_mismatch
)");
  EXPECT_EQ(draw(race, 99, true), R"(
TOKEN  WORKER  0         21 s       42 s
               |-----+-----+-----+-----|
1      A       [================X          expired after 30 s
2      B                         [====+    succeeded after 9 s
1      A                               <|  settle bounced: 1 < 2, token_mismatch
)");
}

TEST(TimelineTest, a_late_write_says_by_how_much) {
  JobHistory race = lease_race();
  const auto late = [](int when, std::string verb, int lease_end) {
    StaleWrite write = stale_write(when, std::move(verb));
    write.lease_expired_at = at(lease_end);
    return write;
  };
  race.stale_writes = {late(42, "settle", 30), late(33, "heartbeat", 30), late(39, "heartbeat", 30)};
  EXPECT_THAT(draw(race, 99), HasSubstr("settle bounced: 1 < 2, token_mismatch, 12 s late\n"));
  EXPECT_THAT(draw(race, 99),
              HasSubstr("heartbeat bounced 2 times: 1 < 2, token_mismatch, up to 9 s late\n"));
  race.stale_writes = {late(42, "settle", 50)};
  EXPECT_THAT(draw(race, 99), HasSubstr("settle bounced: 1 < 2, token_mismatch\n"))
      << "its lease was good still";
}

TEST(TimelineTest, a_zombies_heartbeats_are_one_row) {
  JobHistory race = lease_race();
  race.stale_writes = {stale_write(39, "heartbeat"), stale_write(33, "heartbeat"),
                       stale_write(36, "heartbeat")};
  EXPECT_EQ(draw(race, 99), R"(
TOKEN  WORKER  0         20 s      40 s
               ├────┼─────┼─────┼─────┤
1      A       ┣━━━━━━━━━━━━━━━━╳         expired after 30 s
2      B                         ┣━━━━✓   succeeded after 9 s
1      A                          ↩┃↩↩┃   heartbeat bounced 3 times: 1 < 2, token_mismatch
)");
}

TEST(TimelineTest, a_running_attempt_ends_now_and_its_lease_later) {
  JobHistory running = history(JobState::running, {attempt(1, "failed", "available", "A", 1, 5)});
  running.job.token = FenceToken{2};
  running.job.worker = "B";
  running.job.claimed_at = at(20);
  running.job.lease_expires_at = at(60);
  EXPECT_EQ(draw(running, 45), R"(
TOKEN  WORKER  0          30 s      1 min
               ├─────┼─────┼─────┼──────┤
1      A       ┣━✗                          failed after 4 s
2      B               ┣━━━━━━━━━━▶┄┄┄┄┄┊   running for 25 s, lease ends in 15 s
)");
}

TEST(TimelineTest, a_snoozed_job_waits_until_it_is_due) {
  JobHistory snoozed = history(JobState::scheduled, {attempt(1, "snoozed", "available", "A", 1, 2),
                                                     attempt(2, "snoozed", "available", "A", 30, 31)});
  snoozed.job.run_at = at(120);
  EXPECT_EQ(draw(snoozed, 60), R"(
TOKEN  WORKER  0                  30 s               1 min
               ├─────────┼──────────┼─────────┼──────────┤
1      A        z                                            snoozed after 1 s
2      A                            ┣z                       snoozed after 1 s
                                     ·····················   waits, due in 1 min
)");
}

TEST(TimelineTest, an_operators_cancellation_is_a_mark_with_who_did_it) {
  EXPECT_EQ(
      draw(history(JobState::cancelled, {attempt(1, "failed", "available", "A", 1, 5),
                                         attempt(2, "cancelled", "cancelled", "joe", std::nullopt, 20)}),
           60),
      R"(
TOKEN  WORKER  0                    10 s                 20 s
               ├──────────┼──────────┼──────────┼───────────┤
1      A         ┣━━━━━━━━✗                                     failed after 4 s
2      joe                                                  ⊘   cancelled by joe
)");
}

TEST(TimelineTest, a_requeue_stands_between_two_lives) {
  EXPECT_EQ(draw(history(JobState::succeeded, {attempt(1, "buried", "dead", "A", 1, 5),
                                               attempt(2, "requeued", "available", "joe", std::nullopt, 20),
                                               attempt(3, "succeeded", "succeeded", "B", 21, 30)}),
                 60),
            R"(
TOKEN  WORKER  0              15 s            30 s
               ├───────┼────────┼───────┼────────┤
1      A        ┣━━━━✗                               buried after 4 s, then dead
2      joe                            ↻              requeued by joe
3      B                               ┣━━━━━━━━━✓   succeeded after 9 s
)");
}

TEST(TimelineTest, of_very_many_attempts_the_last_ones_are_shown) {
  std::vector<Attempt> attempts;
  for (int i = 1; i <= 100; ++i) attempts.push_back(attempt(i, "failed", "available", "A", i, i));
  const std::string text = draw(history(JobState::available, std::move(attempts)), 101);
  EXPECT_NE(text.find("41 earlier rows are left out"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1 + 2 + 1 + 60) << text;
}

TEST(TimelineTest, durations_are_as_exact_as_people_want_them) {
  using std::chrono::milliseconds;
  const std::vector<std::pair<milliseconds, std::string>> expected{{milliseconds{0}, "0 ms"},
                                                                   {milliseconds{350}, "350 ms"},
                                                                   {milliseconds{1'000}, "1 s"},
                                                                   {milliseconds{12'345}, "12.3 s"},
                                                                   {milliseconds{60'000}, "1 min"},
                                                                   {milliseconds{200'000}, "3 min 20 s"},
                                                                   {milliseconds{7'500'000}, "2 h 5 min"},
                                                                   {milliseconds{349'200'000}, "4 d 1 h"}};
  for (const auto& [duration, text] : expected) EXPECT_EQ(human_duration(duration), text);
}

}  // namespace
}  // namespace faultline::cli

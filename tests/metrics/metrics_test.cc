#include "metrics/metrics.h"

#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "metrics/samples.h"

namespace faultline::testing {
namespace {

using metrics::Metrics;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

ClaimedJob claimed_job(std::string queue, std::string kind, std::chrono::microseconds waited = 0us) {
  const DatabaseTime now{1h};
  return {.lease_expires_at = now + 30s,
          .lease_ttl = 30s,
          .queue = std::move(queue),
          .kind = std::move(kind),
          .payload = "canary",
          .run_at = now - waited};
}

/// Something of everything.
void count_everything(Metrics& metrics, const std::string& queue, const std::string& kind) {
  const NewJob job{.queue = queue, .kind = kind, .payload = "\"canary\""};
  const Submission added{};
  metrics.enqueued({&job, 1}, {&added, 1});
  const ClaimedJob claimed = claimed_job(queue, kind, 3s);
  metrics.claimed({&claimed, 1});
  metrics::Series& series = metrics.series(queue, kind);
  const metrics::Executed executed{.series = &series, .took = 20ms};
  metrics.executed({&executed, 1});
  const metrics::Settled settled{.series = &series, .outcome = Outcome::Kind::buried, .held = 2s};
  metrics.settled({&settled, 1});
  metrics.renewed(series);
  metrics.lost(queue);
  metrics.stale("check", StaleReason::lease_expired);
  const ExpiredLease expired{
      .queue = queue, .next_state = JobState::available, .expired_at = DatabaseTime{1h}};
  metrics.swept({.expired = {&expired, 1}, .ended_at = DatabaseTime{1h + 4s}});
  const QueueCounts counts{.queue = queue, .available = 3, .oldest_due_age = 9s};
  metrics.show_queues({&counts, 1});
  metrics.show_database({.oldest_snapshot_age_seconds = 1.5, .connections = 3, .connections_max = 100});
  metrics.show_audit({{"one_holder", 0}}, 10ms);
  metrics.audit_failed();
  metrics.connected(true);
}

TEST(MetricsTest, promtool_has_nothing_against_the_text) {
  Metrics metrics;
  count_everything(metrics, "default", "mail");
  std::vector<metrics::Reading> readings;
  for (const metrics::Entry& entry : metrics::kTable) {
    if (entry.name.starts_with("faultline_server_") || entry.name.starts_with("faultline_http_") ||
        entry.name.starts_with("faultline_grpc_"))
      readings.push_back({.id = entry.id, .value = 1});
  }
  EXPECT_EQ(lint(metrics.text(readings)), "");
  EXPECT_NE(lint("faultline_things 1\n"), "");
}

TEST(MetricsTest, names_that_look_like_the_format_itself_do_not_break_it) {
  Metrics metrics;
  count_everything(metrics, "a\"} 7\nfaultline_forged_total 1\n", "back\\slash");
  const std::string text = metrics.text();
  EXPECT_EQ(lint(text), "");
  EXPECT_FALSE(samples_of(text).contains("faultline_forged_total"));
}

TEST(MetricsTest, payloads_are_not_in_it) {
  Metrics metrics;
  count_everything(metrics, "default", "mail");
  EXPECT_THAT(metrics.text(), Not(HasSubstr("canary")));
}

TEST(MetricsTest, a_batch_is_counted_by_queue_kind_and_outcome) {
  Metrics metrics;
  metrics::Series& mail = metrics.series("default", "mail");
  metrics::Series& report = metrics.series("default", "report");
  using Kind = Outcome::Kind;
  const std::vector<metrics::Settled> settled{
      {.series = &mail, .outcome = Kind::succeeded, .held = 1ms},
      {.series = &report, .outcome = Kind::failed, .held = 1s},
      {.series = &mail, .outcome = Kind::succeeded, .held = 40s},
      {.series = &report, .outcome = Kind::failed, .attempts_left = false, .held = 1s},
      {.series = &report, .outcome = Kind::buried},
  };
  metrics.settled(settled);
  const std::string text = metrics.text();
  const auto settled_as = [&](const std::string& kind, const std::string& outcome) {
    return sample(text, "faultline_jobs_settled_total{kind=\"" + kind + "\",outcome=\"" + outcome +
                            "\",queue=\"default\"}");
  };
  EXPECT_EQ(settled_as("mail", "succeeded"), 2);
  EXPECT_EQ(settled_as("report", "failed"), 2);
  EXPECT_EQ(settled_as("report", "buried"), 1);
  EXPECT_EQ(settled_as("report", "succeeded"), 0);
  EXPECT_EQ(sample(text, R"(faultline_jobs_retried_total{cause="failed",queue="default"})"), 1);
  EXPECT_EQ(sample(text, R"(faultline_jobs_dead_total{cause="failed",queue="default"})"), 1);
  EXPECT_EQ(sample(text, R"(faultline_jobs_dead_total{cause="buried",queue="default"})"), 1);
  const auto held = [&](const std::string& kind, const std::string& le) {
    return sample(text, "faultline_lease_held_seconds_bucket{kind=\"" + kind + "\",queue=\"default\",le=\"" +
                            le + "\"}");
  };
  EXPECT_EQ(held("mail", "0.0001"), 0);
  EXPECT_EQ(held("mail", "0.001"), 1);
  EXPECT_EQ(held("mail", "10"), 1);
  EXPECT_EQ(held("mail", "60"), 2);
  EXPECT_EQ(held("mail", "+Inf"), 2);
  EXPECT_EQ(held("report", "+Inf"), 2) << "one was not known";
}

TEST(MetricsTest, a_claim_says_how_long_the_job_has_waited_in_database_time) {
  Metrics metrics;
  ClaimedJob short_run = claimed_job("default", "mail", 3s);
  short_run.run_max = 10s;  // and so its lease is no longer than that
  short_run.lease_expires_at -= 20s;
  const std::vector<ClaimedJob> jobs{claimed_job("default", "mail", 3s), short_run,
                                     claimed_job("default", "mail", -5s)};
  metrics.claimed(jobs);
  const std::string text = metrics.text();
  EXPECT_EQ(sample(text, R"(faultline_lease_acquisitions_total{queue="default"})"), 3);
  EXPECT_EQ(sample(text, R"(faultline_queue_wait_seconds_count{kind="mail",queue="default"})"), 3);
  EXPECT_EQ(sample(text, R"(faultline_queue_wait_seconds_sum{kind="mail",queue="default"})"), 6);
}

TEST(MetricsTest, a_job_that_was_there_already_is_not_counted_as_added) {
  Metrics metrics;
  const std::vector<NewJob> jobs{{.kind = "mail"}, {.kind = "mail"}};
  const std::vector<Submission> submissions{{}, {.status = Submission::Status::existing}};
  metrics.enqueued(jobs, submissions);
  EXPECT_EQ(sample(metrics.text(), R"(faultline_jobs_enqueued_total{kind="mail",queue="default"})"), 1);
}

TEST(MetricsTest, expired_leases_are_counted_by_where_their_jobs_went) {
  Metrics metrics;
  const auto lease = [](JobState next) {
    return ExpiredLease{
        .queue = "default", .next_state = next, .expired_at = DatabaseTime{1h}, .loss = Loss::alone};
  };
  const std::vector<ExpiredLease> expired{lease(JobState::available), lease(JobState::dead),
                                          lease(JobState::held)};
  const std::vector<SweepProblem> problems{{.queue = "default", .message = "poison"}};
  metrics.swept({.expired = expired, .problems = problems, .ended_at = DatabaseTime{1h + 4s}});
  const Error error{.code = ErrorCode::unavailable, .message = "gone"};
  metrics.swept({.error = &error});
  const std::string text = metrics.text();
  for (const std::string state : {"available", "dead", "held"})
    EXPECT_EQ(sample(text, "faultline_lease_expirations_total{loss=\"alone\",queue=\"default\",state=\"" +
                               state + "\"}"),
              1);
  EXPECT_EQ(sample(text, R"(faultline_lease_recovery_seconds_count{queue="default"})"), 1);
  EXPECT_EQ(sample(text, R"(faultline_lease_recovery_seconds_sum{queue="default"})"), 4);
  EXPECT_EQ(sample(text, R"(faultline_jobs_retried_total{cause="expired",queue="default"})"), 1);
  EXPECT_EQ(sample(text, R"(faultline_jobs_dead_total{cause="expired",queue="default"})"), 1);
  EXPECT_EQ(sample(text, R"(faultline_sweep_problems_total{queue="default"})"), 1);
  EXPECT_EQ(sample(text, "faultline_watchdog_ticks_total"), 2);
  EXPECT_EQ(sample(text, "faultline_watchdog_errors_total"), 1);
  EXPECT_GT(sample(text, "faultline_watchdog_last_tick_timestamp_seconds"), 1e9);
}

TEST(MetricsTest, refused_writes_are_there_before_the_first_one) {
  Metrics metrics;
  const std::string name = R"(faultline_stale_writes_blocked_total{reason="token_mismatch",verb="complete"})";
  EXPECT_EQ(sample(metrics.text(), name), 0);
  metrics.stale(Outcome::Kind::succeeded, StaleReason::token_mismatch);
  EXPECT_EQ(sample(metrics.text(), name), 1);
  metrics.stale("a verb of tomorrow", StaleReason::cancelled);
  EXPECT_EQ(
      sample(metrics.text(), R"(faultline_stale_writes_blocked_total{reason="cancelled",verb="other"})"), 1);
}

TEST(MetricsTest, any_number_of_queues_and_kinds_makes_a_bounded_number_of_series) {
  Metrics metrics;
  std::vector<NewJob> jobs;
  for (int queue = 0; queue < 150; ++queue) {
    for (int kind = 0; kind < 150; ++kind)
      jobs.push_back({.queue = "q" + std::to_string(queue), .kind = "k" + std::to_string(kind)});
  }
  const std::vector<Submission> added(jobs.size());
  metrics.enqueued(jobs, added);
  std::vector<QueueCounts> counts;
  for (int queue = 0; queue < 1'000; ++queue)
    counts.push_back({.queue = "q" + std::to_string(queue), .dead = 1, .oldest_due_age = queue * 1s});
  metrics.show_queues(counts);

  const std::string text = metrics.text();
  std::size_t pairs = 0;
  std::size_t queues = 0;
  for (const auto& [name, value] : samples_of(text)) {
    if (name.starts_with("faultline_jobs_enqueued_total")) ++pairs;
    if (name.starts_with("faultline_lease_renewals_total")) ++queues;
  }
  EXPECT_EQ(queues, Metrics::kQueuesMax + 1);
  EXPECT_LE(pairs, Metrics::kPairsMax + Metrics::kQueuesMax + 1);
  EXPECT_GT(pairs, Metrics::kPairsMax / 2);
  EXPECT_EQ(sum_of(text, "faultline_jobs_enqueued_total"), 150 * 150) << "none is lost";
  double dead = 0;
  for (const auto& [name, value] : samples_of(text)) {
    if (name.starts_with("faultline_queue_jobs") && name.contains("state=\"dead\"")) dead += value;
  }
  EXPECT_EQ(dead, 1'000);
  EXPECT_EQ(sample(text, R"(faultline_queue_oldest_due_age_seconds{queue="other"})"), 999);
}

TEST(MetricsTest, nothing_is_shown_of_a_database_that_is_away) {
  Metrics metrics;
  count_everything(metrics, "default", "mail");
  const std::string depth = R"(faultline_queue_jobs{queue="default",state="available"})";
  EXPECT_EQ(sample(metrics.text(), depth), 3);
  metrics.database_is_lost();
  metrics.database_is_lost();
  EXPECT_EQ(sample(metrics.text(), depth), -1);
  EXPECT_EQ(sample(metrics.text(), "faultline_database_up"), 0);
  EXPECT_EQ(sample(metrics.text(), "faultline_database_connections"), -1);
  EXPECT_EQ(sample(metrics.text(), "faultline_database_losses_total"), 1);
  metrics.show_database({});
  EXPECT_EQ(sample(metrics.text(), "faultline_database_up"), 1);
}

TEST(MetricsTest, threads_count_at_the_same_time_and_lose_nothing) {
  Metrics metrics;
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&metrics, thread] {
        metrics::Finder find{metrics};
        for (int round = 0; round < kRounds; ++round) {
          metrics::Series& series = find("default", "k" + std::to_string((round + thread) % 7));
          const std::vector<metrics::Settled> settled(10, {.series = &series, .held = 1ms});
          metrics.settled(settled);
          metrics.renewed(series);
          if (round % 50 == 0) static_cast<void>(metrics.text());
        }
      });
    }
  }
  const std::string text = metrics.text();
  EXPECT_EQ(sum_of(text, "faultline_jobs_settled_total"), kThreads * kRounds * 10);
  EXPECT_EQ(sum_of(text, "faultline_lease_held_seconds_count"), kThreads * kRounds * 10);
  EXPECT_EQ(sum_of(text, "faultline_lease_renewals_total"), kThreads * kRounds);
}

}  // namespace
}  // namespace faultline::testing

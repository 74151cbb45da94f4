// The events that a worker really tells, checked against the list of all events.

#include "base/events.h"

#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "collector.h"
#include "faultline/watchdog.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::IsSupersetOf;

/// Whether an event is on the list, with these fields and what belongs to a job.
void expect_listed(const Event& event) {
  const EventInfo* info = find_event(event.name);
  ASSERT_NE(info, nullptr) << event.name;
  std::set<std::string> needed;
  std::set<std::string> known{"trace_id"};
  std::istringstream words{std::string{info->fields}};
  for (std::string word; words >> word;) {
    const bool optional = word.ends_with('?');
    if (optional) word.pop_back();
    known.insert(word);
    if (!optional) needed.insert(word);
  }
  std::set<std::string> told;
  for (const auto& [name, value] : event.fields) told.insert(name);
  EXPECT_THAT(told, IsSupersetOf(needed)) << to_json_line(event);
  EXPECT_THAT(known, IsSupersetOf(told)) << to_json_line(event);
  EXPECT_FALSE(event.worker.empty()) << to_json_line(event);
  if (info->about != "job") return;
  EXPECT_TRUE(event.job && event.token) << to_json_line(event);
  EXPECT_TRUE(told.contains("trace_id")) << to_json_line(event);
}

class EventsTest : public WorkerTest {};

TEST_F(EventsTest, what_a_worker_tells_is_on_the_list_with_job_token_worker_and_trace) {
  std::mutex mutex;
  std::vector<Event> events;
  WorkerOptions made = options();
  made.log = [&, also = events_.sink()](const Event& event) {
    also(event);
    const std::lock_guard lock{mutex};
    events.push_back(event);
  };
  made.slots = 1;
  made.watchdog = false;
  const Watchdog watchdog =
      must(Watchdog::start({.database = database_.dsn(), .tick = ms{50}, .log = made.log, .name = "dog"}));
  Gate gate;
  Worker worker{made};
  worker.handle("good", [](Context& ctx) { ctx.log("hello"); });
  worker.handle("bad", [](Context&) { throw std::runtime_error("no"); });
  worker.handle("buried", [](Context&) { return Bury{"never"}; });
  worker.handle("late", [&](Context&) { gate.pass(); });
  const auto add = [&](std::string kind) {
    return enqueue({.kind = std::move(kind), .attempts_max = 1, .traceparent = kTraceparent});
  };
  const JobId good = add("good");
  const JobId bad = add("bad");
  const JobId buried = add("buried");
  const JobId unknown = add("unknown");
  must(worker.start());
  ASSERT_TRUE(reaches(good, JobState::succeeded));
  for (const JobId dead : {bad, buried, unknown}) ASSERT_TRUE(reaches(dead, JobState::dead));
  const JobId late = enqueue({.kind = "late", .traceparent = kTraceparent});
  ASSERT_TRUE(gate.reached_by(1));
  script(
      "UPDATE faultline.jobs SET lease_expires_at = faultline.clock() - interval '1 second' WHERE state = "
      "'running';"
      "UPDATE faultline.grants SET check_at = faultline.clock() - interval '1 second'");
  ASSERT_TRUE(eventually([&] { return history(late).attempts.size() >= 1; }));
  ASSERT_TRUE(eventually([&] { return events_.count("lease_expired") >= 1; }));
  gate.open();
  ASSERT_TRUE(eventually([&] { return events_.count("stale_write_blocked") >= 1; }));
  worker.drain();

  for (const std::string_view name :
       {"worker_started", "lease_acquired", "execution_started", "handler_log", "job_settled",
        "execution_failed", "no_handler", "job_buried", "lease_expired", "stale_write_blocked",
        "worker_draining", "worker_exit"}) {
    EXPECT_GE(events_.count(name), 1U) << name;
  }
  const std::lock_guard lock{mutex};
  for (const Event& event : events) expect_listed(event);
}

TEST_F(EventsTest, a_lost_heartbeat_names_the_job_whose_lease_runs_out_first) {
  set_ttl(ms{1'000});
  const JobId id = enqueue({.traceparent = kTraceparent});
  Gate gate;
  WorkerOptions made = options();
  made.watchdog = false;
  Worker worker{made};
  worker.handle("test", [&](Context& ctx) { static_cast<void>(gate.pass(ctx.stop_token())); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  script("ALTER TABLE faultline.jobs RENAME TO jobs_elsewhere");
  const bool told = eventually([&] { return events_.count("heartbeat_lost") >= 1; });
  script("ALTER TABLE faultline.jobs_elsewhere RENAME TO jobs");
  gate.open();
  ASSERT_TRUE(told);

  const Event event = events_.of("heartbeat_lost").front();
  EXPECT_EQ(event.job, id);
  EXPECT_EQ(event.token, FenceToken{1});
  expect_listed(event);
}

}  // namespace
}  // namespace faultline::testing

#include "drills/real_time.h"

#include <algorithm>
#include <csignal>
#include <thread>

#include <nlohmann/json.hpp>

#include "drills/audit.h"
#include "drills/child.h"
#include "drills/must.h"
#include "faultline/store.h"
#include "schema/scratch_databases.h"

namespace faultline::drills {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLeaseTtl{1'000};
constexpr milliseconds kStall{2'500};
constexpr std::chrono::seconds kPatience{60};

Deadline soon() { return Deadline::clock::now() + kPatience; }

/// What a worker process said.
struct Line {
  std::string text;
  nlohmann::json event;

  [[nodiscard]] std::string name() const { return field("event"); }
  [[nodiscard]] std::string field(const char* key) const {
    return event.contains(key) && event[key].is_string() ? event[key].get<std::string>() : "";
  }
};

Schedule the_story() {
  return {
      .lease_ttl = kLeaseTtl,
      .tenures = {{.overshoot = kStall - kLeaseTtl}, {}},
      .finish = Finish::transact,
      .comebacks = {{.worker = 0, .tenure = 1, .timing = Timing::after_commit, .verbs = {Verb::transact}}}};
}

/// A worker process, and all that it has said.
class RaceWorker {
 public:
  RaceWorker(const std::string& database, const std::string& queue, std::size_t number, bool stalls)
      : child_(arguments(queue, number, stalls), {{"DATABASE_URL", database}}) {}

  [[nodiscard]] Child& process() { return child_; }
  [[nodiscard]] const std::vector<Line>& lines() const { return lines_; }

  /// Until it says this.
  const Line& wait_for(std::string_view name) {
    while (next()) {
      if (lines_.back().name() == name) return lines_.back();
    }
    throw DrillError("a worker process ended before it said " + std::string{name});
  }
  /// Until its end.
  void wait() {
    while (next()) {
    }
    if (const int code = child_.wait(); code != 0)
      throw DrillError("a worker process ended with code " + std::to_string(code));
  }
  [[nodiscard]] Lease lease(JobId job) const {
    for (const Line& line : lines_) {
      const auto lease_id = Uuid::parse(line.field("lease_id"));
      if (lease_id)
        return {.job = job,
                .token = {line.event.value("token", std::int64_t{0})},
                .lease_id = *lease_id,
                .worker = line.field("worker")};
    }
    throw DrillError("a worker process did not say which lease it had");
  }
  [[nodiscard]] bool settled() const {
    return std::ranges::any_of(lines_, [](const Line& line) { return line.name() == "job_settled"; });
  }

 private:
  static std::vector<std::string> arguments(const std::string& queue, std::size_t number, bool stalls) {
    std::vector<std::string> words{"drill", "lease-race-worker", "--name", worker_name(number), "--queue",
                                   queue};
    if (stalls) words.emplace_back("--stall");
    return words;
  }

  bool next() {
    auto text = child_.read_line(soon());
    if (!text) return false;
    auto event = nlohmann::json::parse(*text, nullptr, false);
    if (!event.is_object()) throw DrillError("a worker process said what is no event: " + *text);
    lines_.push_back({.text = std::move(*text), .event = std::move(event)});
    return true;
  }

  Child child_;
  std::vector<Line> lines_;
};

/// A refusal as the worker's log has it.
std::optional<Reply> to_reply(const Line& line) {
  const auto reason = parse_stale_reason(line.field("reason"));
  if (!reason) return std::nullopt;
  Reply reply{.status = Verdict::Status::stale, .stale = {.reason = *reason}};
  if (const std::string token = line.field("current_token"); !token.empty())
    reply.stale.current_token = FenceToken{std::stoll(token)};
  if (const std::string worker = line.field("current_worker"); !worker.empty())
    reply.stale.current_worker = worker;
  reply.stale.current_state = parse_job_state(line.field("current_state"));
  return reply;
}

class RealTimeRace {
 public:
  RealTimeRace(std::string database, Store& store, std::string queue)
      : database_(std::move(database)), store_(store), queue_(std::move(queue)) {
    history_.schedule = the_story();
  }

  RaceHistory run() {
    must(store_.set_queue(queue_, {.backoff_base = milliseconds{0}}));
    history_.job =
        must(store_.enqueue({.queue = queue_, .kind = std::string{kRaceKind}, .lease_ttl = kLeaseTtl})).job;
    RaceWorker a{database_, queue_, 0, true};
    a.wait_for("handler_log");
    a.process().send(SIGSTOP);
    const Deadline wakes = Deadline::clock::now() + kStall;
    RaceWorker b{database_, queue_, 1, false};
    sweep();
    b.wait();
    std::this_thread::sleep_until(wakes);
    a.process().send(SIGCONT);
    a.process().write_line("go on");
    a.wait();
    write_down(a, b);
    return std::move(history_);
  }

  /// What all processes said, in the order of their clock.
  [[nodiscard]] std::vector<std::string> trace() const {
    std::vector<Line> sorted = said_;
    std::ranges::stable_sort(sorted, {}, [](const Line& line) { return line.field("at"); });
    std::vector<std::string> texts;
    for (Line& line : sorted) texts.push_back(std::move(line.text));
    return texts;
  }

 private:
  void sweep() {
    const Deadline deadline = soon();
    while (Deadline::clock::now() < deadline) {
      for (const ExpiredLease& lease : must(store_.expire_leases()).expired) {
        if (lease.job != history_.job) continue;
        say({.name = "lease_expired",
             .severity = Severity::warning,
             .at = std::chrono::system_clock::now(),
             .worker = "watchdog",
             .job = lease.job,
             .token = lease.token,
             .queue = queue_,
             .fields = {{"lost_by", lease.worker},
                        {"next_state", std::string{to_string(lease.next_state)}}}});
        return;
      }
      std::this_thread::sleep_for(milliseconds{20});
    }
    throw DrillError("the lease of A did not run out");
  }

  void say(const Event& event) {
    const std::string text = to_json_line(event);
    said_.push_back({.text = text, .event = nlohmann::json::parse(text)});
  }

  void write_down(const RaceWorker& a, const RaceWorker& b) {
    for (const RaceWorker* worker : {&a, &b})
      said_.insert(said_.end(), worker->lines().begin(), worker->lines().end());
    history_.leases = {a.lease(history_.job), b.lease(history_.job)};
    history_.result = "by " + worker_name(1);
    history_.finish = Reply{.status = b.settled() ? Verdict::Status::committed : Verdict::Status::stale};
    const Comeback& comeback = history_.schedule.comebacks.front();
    const auto late = [&](Verb verb, Reply reply) {
      history_.late_writes.push_back(
          {.lease = history_.leases.front(), .verb = verb, .comeback = comeback, .reply = std::move(reply)});
    };
    if (a.settled()) late(Verb::transact, {.status = Verdict::Status::committed});
    for (const Line& line : a.lines()) {
      const auto reply = to_reply(line);
      if (reply && line.name() == "stale_write_blocked") late(Verb::transact, *reply);
      // A heartbeat that was on its way when the process was stopped.
      if (reply && line.name() == "lease_lost") late(Verb::heartbeat, *reply);
    }
    if (history_.late_writes.empty()) throw DrillError("A came back and did not try to commit");
  }

  const std::string database_;
  Store& store_;
  const std::string queue_;
  RaceHistory history_;
  std::vector<Line> said_;
};

}  // namespace

LeaseRaceReport run_real_time_races(const LeaseRaceOptions& options) {
  schema::ScratchDatabases scratch{options.database, "drill"};
  const std::stop_callback interrupted{options.stop, [&] { scratch.drop_all(); }};
  const auto begun = std::chrono::steady_clock::now();
  const std::string database = scratch.create();
  auto auditor = must(pg::Connection::open({.dsn = database}, soon()));
  must(auditor.exec_script(kCreateWrites, soon()));
  Store store = must(Store::open({.database = database}));

  LeaseRaceReport report{.threads = 1, .shapes = 1};
  for (std::size_t number = 0; number < options.runs; ++number) {
    RealTimeRace race{database, store, "lease-race-" + std::to_string(number + 1)};
    const RaceHistory history = race.run();
    report.add(history, check(history, read_findings(auditor, history.job)), number);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    if (options.on_trace) options.on_trace(race.trace());
    if (options.on_progress) {
      options.on_progress({.done = report.runs,
                           .runs = options.runs,
                           .stale_accepted = report.stale_accepted,
                           .seconds = report.seconds});
    }
  }
  scratch.drop_all();
  return report;
}

}  // namespace faultline::drills

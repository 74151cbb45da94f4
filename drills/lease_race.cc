#include "drills/lease_race.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "drills/audit.h"
#include "drills/must.h"
#include "drills/race.h"
#include "drills/race_environment.h"
#include "schema/scratch_databases.h"

namespace faultline::drills {
namespace {

constexpr std::size_t kBrokenShown = 10;
constexpr std::chrono::milliseconds kProgressEvery{100};

/// The late writer acted before the other side did, as far as its answer shows.
bool came_first(const LateWrite& late) {
  const Stale& stale = late.reply.stale;
  switch (late.comeback.timing) {
    case Timing::against_claim:
      return !stale.current_worker;
    case Timing::against_sweep:
      return stale.current_worker.has_value();
    default:
      return stale.current_state == JobState::running;
  }
}

std::size_t threads_for(std::size_t runs) {
  // Each has a dozen connections, and a server has a hundred for everybody.
  const std::size_t most =
      std::clamp<std::size_t>(2 * std::size_t{std::thread::hardware_concurrency()}, 1, 4);
  return std::clamp<std::size_t>(runs / 20, 1, most);
}

class LeaseRaces {
 public:
  explicit LeaseRaces(const LeaseRaceOptions& options)
      : options_(options), scratch_(options.database, "drill") {}

  LeaseRaceReport run() {
    // Whoever interrupts ends the process next: what must not stay behind goes at once.
    const std::stop_callback interrupted{options_.stop, [&] { scratch_.drop_all(); }};
    const auto begun = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    };
    report_.seed = options_.seed;
    report_.threads = threads_for(options_.runs);
    running_ = report_.threads;
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < report_.threads; ++i) threads.emplace_back([&] { run_races(); });
      wait(seconds);
    }
    if (problem_) std::rethrow_exception(problem_);
    report_.seconds = seconds();
    report_.shapes = shapes_.size();
    compare_totals();
    scratch_.drop_all();
    return std::move(report_);
  }

 private:
  template <class F>
  void wait(const F& seconds) {
    std::unique_lock lock{mutex_};
    while (!changed_.wait_for(lock, kProgressEvery, [&] { return running_ == 0; })) {
      if (!options_.on_progress) continue;
      const DrillProgress progress{.done = report_.runs,
                                   .runs = options_.runs,
                                   .stale_accepted = report_.stale_accepted,
                                   .seconds = seconds()};
      lock.unlock();
      options_.on_progress(progress);
      lock.lock();
    }
  }

  void run_races() {
    try {
      RaceEnvironment environment{scratch_.create()};
      while (const auto number = next_race()) race(environment, *number);
      const DatabaseTotals totals = read_totals(environment.auditor);
      const std::lock_guard lock{mutex_};
      totals_ += totals;
    } catch (...) {
      const std::lock_guard lock{mutex_};
      if (!problem_) problem_ = std::current_exception();
    }
    const std::lock_guard lock{mutex_};
    --running_;
    changed_.notify_all();
  }

  std::optional<std::size_t> next_race() {
    const std::lock_guard lock{mutex_};
    if (problem_ || begun_ == options_.runs) return std::nullopt;
    return begun_++;
  }

  void race(RaceEnvironment& environment, std::size_t number) {
    const RaceHistory history = run_race(environment, make_schedule(seed_of_race(options_.seed, number)));
    const Findings findings = read_findings(environment.auditor, history.job);
    const RaceVerdict verdict = check(history, findings);
    std::vector<std::string> lines;
    if (options_.on_trace) lines = trace_of(history, number);

    const std::lock_guard lock{mutex_};
    report_.add(history, verdict, number);
    shapes_.insert(describe(history.schedule));
    seen_ += {.succeeded = static_cast<std::int64_t>(verdict.successes),
              .live = static_cast<std::int64_t>(findings.live.size()),
              .evidence = static_cast<std::int64_t>(findings.evidence.size())};
    if (options_.on_trace) options_.on_trace(lines);
  }

  [[nodiscard]] std::vector<std::string> trace_of(const RaceHistory& history, std::size_t number) const {
    std::vector<std::string> lines;
    for (Event event : history.events) {
      if (options_.runs > 1) event.fields.emplace_back("race", std::to_string(number));
      lines.push_back(to_json_line(event));
    }
    return lines;
  }

  /// Nothing reached a job after its race had been looked at.
  void compare_totals() {
    if (totals_ == seen_) return;
    ++report_.violations;
    report_.broken.push_back(
        {.number = options_.runs,
         .schedule = "all races together",
         .violations = {"the tables have " + std::to_string(totals_.succeeded) + " successes, " +
                        std::to_string(totals_.live) + " live jobs and " + std::to_string(totals_.evidence) +
                        " rows of evidence; the races left " + std::to_string(seen_.succeeded) + ", " +
                        std::to_string(seen_.live) + " and " + std::to_string(seen_.evidence)}});
  }

  const LeaseRaceOptions& options_;
  schema::ScratchDatabases scratch_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::size_t running_ = 0;
  std::size_t begun_ = 0;
  LeaseRaceReport report_;
  std::set<std::string> shapes_;
  DatabaseTotals totals_;  ///< what the tables hold in the end
  DatabaseTotals seen_;    ///< what was found after each race, added up
  std::exception_ptr problem_;
};

}  // namespace

void LeaseRaceReport::add(const RaceHistory& history, const RaceVerdict& verdict, std::size_t number) {
  ++runs;
  races += verdict.reclaimed ? 1 : 0;
  successes += verdict.successes;
  ended_succeeded += verdict.ended_succeeded ? 1 : 0;
  late_writes += verdict.late_writes;
  stale_blocked += verdict.blocked;
  stale_accepted += verdict.accepted;
  for (const LateWrite& late : history.late_writes) {
    const std::string timing{to_string(late.comeback.timing)};
    ++by_verb[std::string{to_string(late.verb)}];
    ++by_timing[timing];
    if (!is_concurrent(late.comeback.timing)) continue;
    FinishLine& line = finish_lines[timing];
    ++(came_first(late) ? line.late_first : line.late_second);
  }
  if (verdict.violations.empty()) return;
  violations += verdict.violations.size();
  BrokenRace race{.number = number,
                  .seed = history.schedule.seed,
                  .schedule = describe(history.schedule),
                  .violations = {}};
  for (const Violation& violation : verdict.violations) {
    duplicates += violation.kind == Violation::Kind::duplicate ? 1 : 0;
    race.violations.push_back(violation.text);
  }
  if (broken.size() < kBrokenShown) broken.push_back(std::move(race));
}

LeaseRaceReport run_lease_races(const LeaseRaceOptions& options) { return LeaseRaces{options}.run(); }

}  // namespace faultline::drills

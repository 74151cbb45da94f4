#include "drills/race.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <latch>
#include <mutex>
#include <thread>

#include "drills/must.h"

namespace faultline::drills {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience{30};
constexpr std::string_view kWatchdog = "watchdog";

Reply to_reply(const Verdict& verdict) { return {.status = verdict.status, .stale = verdict.stale}; }
Reply to_reply(const Beat& beat) {
  return {.status = beat.status == Beat::Status::lost ? Verdict::Status::stale : Verdict::Status::committed,
          .stale = beat.stale};
}
Reply to_reply(const Effect& effect) {
  return {
      .status = effect.status == Effect::Status::stale ? Verdict::Status::stale : Verdict::Status::committed,
      .stale = effect.stale};
}

Reply settle(Store& store, const Lease& lease, Outcome outcome) {
  const Settlement settlement{.lease = lease, .outcome = std::move(outcome)};
  return to_reply(must(store.settle({&settlement, 1})).at(0));
}

Reply transact(Store& store, const Lease& lease, const std::string& result) {
  return to_reply(must(store.transact(lease, [&](Transaction& tx) {
    tx.exec(kInsertWrite, {lease.job, lease.worker});
    return Outcome::success(result);
  })));
}

Reply call_late(Store& store, const Lease& lease, std::size_t worker, Verb verb) {
  switch (verb) {
    case Verb::complete:
      return settle(store, lease, Outcome::success("late, by " + lease.worker));
    case Verb::fail:
      return settle(store, lease, Outcome::failure("late failure"));
    case Verb::snooze:
      return settle(store, lease, Outcome::snooze(milliseconds{1'000}));
    case Verb::release:
      return settle(store, lease, Outcome::release());
    case Verb::bury:
      return settle(store, lease, Outcome::bury("late burial"));
    case Verb::cancel:
      return settle(store, lease, Outcome::cancel("late cancellation"));
    case Verb::heartbeat:
      return to_reply(must(store.heartbeat({&lease, 1})).at(0));
    case Verb::extend:
      return to_reply(must(store.heartbeat({&lease, 1}, milliseconds{3'600'000})).at(0));
    case Verb::progress: {
      const ProgressReport report{.lease = lease, .fraction = 0.9, .note = "late"};
      return to_reply(must(store.progress({&report, 1})).at(0));
    }
    case Verb::check:
      return to_reply(must(store.check({&lease, 1})).at(0));
    case Verb::begin_effect: {
      const EffectKey key{.lease = lease, .key = late_effect_key(worker)};
      return to_reply(must(store.begin_effects({&key, 1})).at(0));
    }
    case Verb::record_effect: {
      const EffectResult result{.lease = lease, .key = effect_key(worker), .result = "late"};
      return to_reply(must(store.record_effects({&result, 1})).at(0));
    }
    case Verb::forget_effect: {
      const EffectKey key{.lease = lease, .key = effect_key(worker)};
      return to_reply(must(store.forget_effects({&key, 1})).at(0));
    }
    case Verb::transact:
      return transact(store, lease, "late, by " + lease.worker);
  }
  throw DrillError("there is no such verb");
}

/// An error is an answer too, and a wrong one: a late write is to be refused.
Reply write_late(Store& store, const Lease& lease, std::size_t worker, Verb verb) {
  try {
    return call_late(store, lease, worker, verb);
  } catch (const DrillError& error) {
    return {.status = Verdict::Status::unknown, .error = error.what()};
  }
}

/// A write under a lost lease was not refused: from here on nothing is as planned.
struct BrokenOff {};

class Race {
 public:
  Race(RaceEnvironment& environment, const Schedule& schedule)
      : environment_(environment), history_{.schedule = schedule} {}

  RaceHistory run() {
    try {
      play();
    } catch (const BrokenOff&) {
      environment_.use_another_queue();
    }
    return std::move(history_);
  }

 private:
  void play() {
    history_.job = must(environment_.watchdog.enqueue({.queue = environment_.queue,
                                                       .kind = std::string{kRaceKind},
                                                       .priority = schedule().priority,
                                                       .lease_ttl = schedule().lease_ttl}))
                       .job;
    for (std::size_t worker = 0; worker <= schedule().finisher(); ++worker) {
      alongside(worker, Timing::against_claim, [&] { claim(worker); });
      work(worker);
      come_back(worker, Timing::while_running);
      if (worker == schedule().finisher())
        finish(worker);
      else
        lose_lease(worker);
    }
    for (std::size_t worker = 0; worker <= schedule().finisher(); ++worker)
      tell("worker_exit", Severity::info, worker_name(worker), {});
  }

  [[nodiscard]] const Schedule& schedule() const { return history_.schedule; }

  void tell(std::string_view name, Severity severity, std::string worker, std::optional<FenceToken> token,
            std::vector<std::pair<std::string, std::string>> fields = {}) {
    Event event{.name = name,
                .severity = severity,
                .at = std::chrono::system_clock::now(),
                .worker = std::move(worker),
                .job = history_.job,
                .token = token,
                .queue = environment_.queue,
                .kind = std::string{kRaceKind},
                .fields = std::move(fields)};
    const std::lock_guard lock{mutex_};
    history_.events.push_back(std::move(event));
  }

  void claim(std::size_t worker) {
    const Deadline deadline = Deadline::clock::now() + kPatience;
    while (Deadline::clock::now() < deadline) {
      // A late writer may hold the row for a moment: then it is passed over.
      const auto claimed = must(environment_.workers.at(worker).claim(
          {.queue = environment_.queue, .worker = worker_name(worker)}));
      if (claimed.empty() && !broken_) continue;
      if (claimed.empty()) throw BrokenOff{};
      const ClaimedJob& job = claimed.front();
      expires_at_ = job.lease_expires_at;
      history_.leases.push_back(job.lease);
      tell("lease_acquired", Severity::debug, job.lease.worker, job.lease.token,
           {{"lease_expires_at", to_string(job.lease_expires_at)}});
      tell("execution_started", Severity::debug, job.lease.worker, job.lease.token);
      return;
    }
    throw DrillError(worker_name(worker) + " found no job to claim");
  }

  /// What a worker does with a good lease.
  void work(std::size_t worker) {
    const Tenure& tenure = schedule().tenures.at(worker);
    const Lease& lease = history_.leases.at(worker);
    Store& store = environment_.workers.at(worker);
    for (int beat = 0; beat < tenure.beats; ++beat) {
      environment_.clock.set(expires_at_ - schedule().lease_ttl / 2);
      const Beat answer = must(store.heartbeat({&lease, 1})).at(0);
      if (answer.status != Beat::Status::renewed) throw DrillError("a good lease was not renewed");
      expires_at_ = answer.lease_expires_at;
    }
    if (tenure.reports_progress) {
      const ProgressReport report{.lease = lease, .fraction = 0.5, .note = "half"};
      if (!must(store.progress({&report, 1})).at(0).committed())
        throw DrillError("progress under a good lease was refused");
    }
    if (tenure.begins_effect) {
      const EffectKey key{.lease = lease, .key = effect_key(worker)};
      if (must(store.begin_effects({&key, 1})).at(0).status != Effect::Status::begun)
        throw DrillError("an effect could not be begun under a good lease");
      history_.effects.push_back({.key = key.key, .lease = lease});
    }
  }

  void lose_lease(std::size_t worker) {
    const Tenure& tenure = schedule().tenures.at(worker);
    environment_.clock.set(expires_at_ + tenure.overshoot);
    come_back(worker, Timing::before_sweep);
    alongside(worker, Timing::against_sweep, [&] {
      sweep(worker, tenure.swept_by_successor ? environment_.workers.at(worker + 1) : environment_.watchdog);
    });
    come_back(worker, Timing::after_sweep);
  }

  void sweep(std::size_t worker, Store& store) {
    const Deadline deadline = Deadline::clock::now() + kPatience;
    while (Deadline::clock::now() < deadline) {
      // A late writer may hold the row for a moment: then the next sweep finds it.
      const auto expired = must(store.expire_leases()).expired;
      const auto ours = std::ranges::find(expired, history_.job, &ExpiredLease::job);
      if (ours == expired.end() && !broken_) continue;
      if (ours == expired.end()) throw BrokenOff{};
      tell("lease_expired", Severity::warning, std::string{kWatchdog}, ours->token,
           {{"lost_by", ours->worker}, {"next_state", std::string{to_string(ours->next_state)}}});
      return;
    }
    throw DrillError("the lease of " + worker_name(worker) + " was not found to have run out");
  }

  void finish(std::size_t worker) {
    history_.result = "by " + worker_name(worker);
    alongside(worker, Timing::against_commit, [&] { commit(worker); });
    come_back(worker, Timing::after_commit);
  }

  void commit(std::size_t worker) {
    const Lease& lease = history_.leases.at(worker);
    Store& store = environment_.workers.at(worker);
    if (schedule().finish == Finish::exchange) {
      const Settlement settlement{.lease = lease, .outcome = Outcome::success(history_.result)};
      const auto answer =
          must(store.exchange({&settlement, 1}, {.queue = environment_.queue, .worker = lease.worker}));
      history_.finish = to_reply(answer.verdicts.at(0));
    } else if (schedule().finish == Finish::transact) {
      history_.finish = transact(store, lease, history_.result);
    } else {
      history_.finish = settle(store, lease, Outcome::success(history_.result));
    }
    const bool committed = history_.finish->status == Verdict::Status::committed;
    tell(committed ? "job_settled" : "stale_write_blocked", committed ? Severity::debug : Severity::error,
         lease.worker, lease.token, {{"outcome", "succeeded"}});
  }

  [[nodiscard]] std::vector<const Comeback*> comebacks_at(std::size_t tenure, Timing timing) const {
    std::vector<const Comeback*> found;
    for (const Comeback& comeback : schedule().comebacks)
      if (comeback.tenure == tenure && comeback.timing == timing) found.push_back(&comeback);
    return found;
  }

  void come_back(std::size_t tenure, Timing timing) {
    for (const Comeback* comeback : comebacks_at(tenure, timing)) write_all(*comeback, lease_of(*comeback));
    if (broken_) throw BrokenOff{};
  }

  /// By value: the list of leases may grow meanwhile.
  [[nodiscard]] Lease lease_of(const Comeback& comeback) const { return history_.leases.at(comeback.worker); }

  void write_all(const Comeback& comeback, const Lease& lease) {
    for (const Verb verb : comeback.verbs) {
      const Reply reply = write_late(environment_.workers.at(comeback.worker), lease, comeback.worker, verb);
      tell_of(verb, lease, reply);
      if (reply.status != Verdict::Status::stale) broken_ = true;
      const std::lock_guard lock{mutex_};
      history_.late_writes.push_back({.lease = lease, .verb = verb, .comeback = comeback, .reply = reply});
    }
  }

  void tell_of(Verb verb, const Lease& lease, const Reply& reply) {
    std::vector<std::pair<std::string, std::string>> fields{{"verb", std::string{to_string(verb)}}};
    if (reply.status != Verdict::Status::stale) {
      if (!reply.error.empty()) fields.emplace_back("error", reply.error);
      tell(reply.error.empty() ? "stale_write_accepted" : "stale_write_failed", Severity::error, lease.worker,
           lease.token, std::move(fields));
      return;
    }
    fields.emplace_back("reason", to_string(reply.stale.reason));
    if (reply.stale.current_token)
      fields.emplace_back("current_token", std::to_string(reply.stale.current_token->value));
    if (reply.stale.current_worker) fields.emplace_back("current_worker", *reply.stale.current_worker);
    if (reply.stale.current_state)
      fields.emplace_back("current_state", std::string{to_string(*reply.stale.current_state)});
    tell("stale_write_blocked", Severity::warning, lease.worker, lease.token, std::move(fields));
  }

  /// Does `act` on this thread while those who come back at this timing write on threads of their own, all
  /// released at one moment.
  template <class F>
  void alongside(std::size_t tenure, Timing timing, const F& act) {
    const auto comebacks = comebacks_at(tenure, timing);
    if (comebacks.empty()) return act();
    std::latch start{static_cast<std::ptrdiff_t>(comebacks.size()) + 1};
    std::vector<std::exception_ptr> problems(comebacks.size());
    {
      std::vector<std::jthread> late;
      for (std::size_t i = 0; i < comebacks.size(); ++i) {
        late.emplace_back([&, i, lease = lease_of(*comebacks[i])] {
          start.arrive_and_wait();
          wait(comebacks[i]->offset);
          try {
            write_all(*comebacks[i], lease);
          } catch (...) {
            problems[i] = std::current_exception();
          }
        });
      }
      start.arrive_and_wait();
      wait(-std::ranges::min(comebacks, {}, &Comeback::offset)->offset);
      act();
    }
    for (const auto& problem : problems)
      if (problem) std::rethrow_exception(problem);
    if (broken_) throw BrokenOff{};
  }

  /// Shorter than a sleep could be: it decides who is likely to come first, and nothing else.
  static void wait(std::chrono::microseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }

  RaceEnvironment& environment_;
  DatabaseTime expires_at_{};  ///< of the newest lease
  std::mutex mutex_;           ///< guards the late writes and the events of history_
  RaceHistory history_;
  std::atomic<bool> broken_ = false;
};

}  // namespace

RaceHistory run_race(RaceEnvironment& environment, const Schedule& schedule) {
  return Race{environment, schedule}.run();
}

}  // namespace faultline::drills

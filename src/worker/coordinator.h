#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "faultline/worker.h"
#include "worker/queue_state.h"

namespace faultline::worker {

/// An attempt's outcome on its way to the database.
struct PendingOutcome {
  Attempt* attempt = nullptr;
  Outcome outcome;
  bool maybe_committed = false;  ///< an earlier try ended without an answer
};

/// The one thing that all parts of a worker share: which jobs are in hand, which wait for a slot, which
/// outcomes wait to be written, and what is to be done next. It knows no database and no handler; it only
/// decides.
///
/// Executors take jobs and bring outcomes, claim settlers take outcomes and bring jobs. Thread-safe.
class Coordinator {
 public:
  struct Options {
    std::vector<QueueShare> queues;
    std::size_t slots = 1;
    std::size_t prefetch_max = 0;
    std::chrono::milliseconds poll_max{};
    bool tells_stages = true;  ///< the link's heartbeats say which jobs have begun
  };

  explicit Coordinator(const Options& options);

  // For executors.

  struct Finished {
    Attempt* attempt = nullptr;
    bool owns_outcome = false;              ///< else somebody took the attempt away from this executor
    std::optional<Outcome> outcome{};       ///< if owned; absent: there is nothing to be written
    std::optional<Clock::duration> took{};  ///< if it ran
  };
  /// Where an executor puts what it has finished of the jobs that it took. If it takes long over one of them
  /// the coordinator fetches what is finished, and offers what has not begun to other slots: nothing waits
  /// for another's handler.
  class ResultBuffer {
   public:
    explicit ResultBuffer(Coordinator& coordinator);
    ResultBuffer(const ResultBuffer&) = delete;
    ResultBuffer& operator=(const ResultBuffer&) = delete;
    ~ResultBuffer();

    void put(Finished finished) {
      const std::lock_guard lock{mutex_};
      finished_.push_back(std::move(finished));
    }

   private:
    friend class Coordinator;

    Coordinator& coordinator_;
    std::optional<std::size_t>
        queue_index_{};            ///< of the jobs that the slot has; the coordinator's, as is the next
    Attempt* suspect_ = nullptr;   ///< the job, if it is one
    std::size_t left_ = 0;         ///< jobs that the coordinator has not got back: the last ones of `taken_`
    std::vector<Attempt*> taken_;  ///< the jobs; empty: there was one, or the rest was offered to others
    std::mutex mutex_;             // locked after the coordinator's
    std::vector<Finished> finished_;  // guarded by mutex_
  };
  /// Takes back all the jobs that the slot had, then waits for more. False: there will be none.
  [[nodiscard]] bool next_jobs(ResultBuffer& buffer, std::vector<Attempt*>& jobs);

  // For claim settlers.

  struct Claim {
    std::size_t queue_index = 0;
    std::string_view queue{};
    std::size_t limit = 0;
    bool ahead = false;            ///< there is no slot for all of them
    std::size_t suspects_max = 1;  ///< one suspect at a time, so that each is tried alone
  };
  struct Work {
    std::vector<PendingOutcome> outcomes;
    std::optional<Claim> claim;
  };
  /// Waits for something to be due: outcomes to write, jobs to claim, or both. False: it is all over.
  [[nodiscard]] bool next_work(Work& work);
  void claimed(const Claim& claim, std::vector<ClaimedJob> jobs, Clock::time_point sent_at);
  void claim_failed(const Claim& claim);
  struct Want {
    std::string_view queue{};
    std::size_t limit = 0;
  };
  /// How many more jobs of each queue there is room for now.
  [[nodiscard]] std::vector<Want> wants() const;
  /// Written, or refused: the attempts are over. `counted` is what of them was written.
  void settled(const std::vector<PendingOutcome>& outcomes, const WorkerStats& counted);
  void put_back(std::vector<PendingOutcome> outcomes);
  /// The database does not answer: no work is given out for a while, longer each time.
  void back_off();
  /// It answers again: work goes on at once.
  void resume();

  // For whoever takes an attempt away from the slots, or settles it by itself.

  /// The attempt's outcome, from somebody who had the right to finish it.
  void add_outcome(Attempt& attempt, Outcome outcome);
  /// The attempt is over, without a word to the database.
  void drop(Attempt& attempt);

  // For the heartbeater and the deadline monitor.

  [[nodiscard]] std::vector<std::shared_ptr<Batch>> batches() const;
  /// Called, under no lock, with every new batch.
  std::function<void(const Batch&)> on_new_batch;
  /// A fenced call is over that may have held a settlement back.
  void fenced_calls_over();

  // For the listener.

  /// There is something new in a queue. True: a claim settler is idle, and instead of waking it the caller
  /// does its work.
  [[nodiscard]] bool announced(std::string_view queue, Work& work);
  void announced_all();

  // Drain.

  /// No more claims. What is claimed at this moment comes back as an outcome that releases it.
  void stop_claiming();
  [[nodiscard]] bool claims_stopped() const;
  /// Jobs released since then, by whomever.
  [[nodiscard]] std::size_t given_back() const;
  /// Fetches what slots have finished, also those that are stuck.
  void fetch_finished();
  /// Until no handler runs, or `until`, or `hurry()`. True: none runs.
  [[nodiscard]] bool wait_for_handlers(Clock::time_point until);
  void hurry();
  /// Until every outcome is written, or `until`. Returns how many are not.
  [[nodiscard]] std::size_t wait_for_outcomes(Clock::time_point until);
  /// Executors and claim settlers end.
  void close();

  [[nodiscard]] WorkerStats stats() const;
  void count_stale(std::size_t stale);
  /// A fenced transaction settled its attempt by itself.
  void count_settled(Outcome::Kind outcome);

 private:
  struct Due {
    bool now = false;
    std::optional<std::size_t> queue_index{};  ///< to claim from
    std::size_t limit = 0;
    Clock::time_point wake{};  ///< when to look again if not now
  };
  [[nodiscard]] Due due(Clock::time_point now) const;
  [[nodiscard]] std::optional<std::size_t> queue_to_claim(Clock::time_point now, bool along,
                                                          std::size_t& limit, Clock::time_point& wake) const;
  [[nodiscard]] std::size_t wanted(const QueueState& queue, Clock::time_point now) const;
  /// A queue that was empty for a while has no claim to what it did not use.
  [[nodiscard]] double turn_of(const QueueState& queue) const { return std::max(queue.turn, virtual_time_); }
  [[nodiscard]] QueueState* queue_to_run(std::vector<std::shared_ptr<Batch>>& gone);
  /// A suspect is in hand, and what is not under way yet waits for it.
  [[nodiscard]] bool makes_room(Clock::time_point now) const;
  /// Gives the slot a suspect if its time has come: nothing else runs, or it has waited for that long enough.
  [[nodiscard]] bool take_suspect(ResultBuffer& buffer, std::vector<Attempt*>& jobs,
                                  std::vector<std::shared_ptr<Batch>>& gone);
  void suspect_is_over(ResultBuffer& buffer);
  void claim_is_over(const Claim& claim);
  void offer_to_others(ResultBuffer& buffer);
  void take_finished(ResultBuffer& buffer, std::vector<std::shared_ptr<Batch>>& gone);
  /// Fetches what slots have finished that have not come back for some time.
  void fetch_finished(Clock::time_point now, std::vector<std::shared_ptr<Batch>>& gone);
  [[nodiscard]] bool take_work(const Due& next, Work& work);
  void take_outcomes(std::vector<PendingOutcome>& outcomes);
  /// One of those who hold the attempt lets go. A batch that nobody holds is moved to `gone`, to be
  /// destroyed after the lock is released.
  void let_go(Attempt& attempt, std::vector<std::shared_ptr<Batch>>& gone);
  void add_outcome(Attempt& attempt, Outcome outcome, Clock::time_point now);
  void wake_claim_settler_if_due();
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] std::size_t running() const;

  const std::size_t slots_;
  const bool tells_stages_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable slots_changed_;
  std::condition_variable claim_settlers_changed_;
  std::condition_variable drained_;
  std::vector<QueueState> queues_;
  std::vector<std::shared_ptr<Batch>> batches_;
  std::deque<Attempt*> suspects_;       ///< claimed, and not yet taken by a slot
  Attempt* suspect_running_ = nullptr;  ///< one at a time
  bool suspect_asked_for_ = false;      ///< by a claim that is under way
  Clock::time_point room_until_{};      ///< how long others wait for a suspect
  std::vector<ResultBuffer*> buffers_;
  Clock::time_point fetch_at_ = Clock::time_point::max();
  std::vector<PendingOutcome> outcomes_;
  Clock::time_point oldest_outcome_{};
  std::size_t outcomes_in_flight_ = 0;
  std::size_t idle_claim_settlers_ = 0;
  Clock::time_point claim_settler_wakes_at_ =
      Clock::time_point::max();  ///< an idle one, by itself, at the latest
  double virtual_time_ = 0;
  std::size_t idle_slots_ = 0;
  bool claiming_ = true;
  std::size_t given_back_ = 0;
  bool hurried_ = false;
  bool closed_ = false;
  Clock::time_point back_off_until_{};
  std::chrono::milliseconds back_off_{};
  std::minstd_rand jitter_{std::random_device{}()};
  WorkerStats stats_;
};

}  // namespace faultline::worker

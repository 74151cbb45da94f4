#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "faultline/handler.h"
#include "faultline/job.h"
#include "faultline/store.h"
#include "trace/execution_span.h"
#include "worker/clock.h"

namespace faultline::worker {

class Batch;

/// A claimed job, from the claim to the end of its settlement. Its deadline is this process's monotonic
/// clock at the moment before the claim, or the last renewal that was confirmed, was sent, plus the TTL:
/// until then the database has certainly not let the lease run out, and past it the attempt counts on
/// nothing.
///
/// Who finishes it is decided by its state, once: a slot that begins it or finishes it, or somebody who
/// takes it away from the slots (a drain, a lost lease). Thread-safe where members are atomic.
class Attempt {
 public:
  Attempt(ClaimedJob claimed, std::size_t in_queue, Clock::time_point claim_sent_at, Batch& in)
      : job(std::move(claimed)), queue_index(in_queue), claimed_at(claim_sent_at), batch(in) {
    renew(claim_sent_at, job.lease_ttl);
  }

  const ClaimedJob job;
  const std::size_t queue_index;
  const Clock::time_point claimed_at;
  Batch& batch;

  // The right to finish it. Each of these succeeds once, and for one caller.

  [[nodiscard]] bool begin() { return change(State::waiting, State::running); }
  [[nodiscard]] bool take_away() { return change(State::waiting, State::finished); }
  [[nodiscard]] bool finish() { return change(State::running, State::finished); }
  [[nodiscard]] bool is_waiting() const { return state_.load() == State::waiting; }
  [[nodiscard]] bool is_running() const { return state_.load() == State::running; }

  // How far it is, for its heartbeats: what has begun counts as an attempt.

  /// Nothing runs beside it; or not any more.
  void run_alone(bool alone) { alone_.store(alone); }
  [[nodiscard]] Stage stage() const { return is_running() ? begun_stage() : Stage::waiting; }
  /// The same once it has begun.
  [[nodiscard]] Stage begun_stage() const { return alone_.load() ? Stage::alone : Stage::running; }
  /// It must be on record that it begins, before it does.
  [[nodiscard]] bool begins_on_record() const { return job.suspect || !may_run_twice(job.delivery); }

  // The lease.

  void renew(Clock::time_point sent_at, std::chrono::milliseconds good_for) {
    beaten_at_.store(sent_at.time_since_epoch().count());
    Clock::time_point until = sent_at + good_for;
    if (const auto limit = run_limit()) until = std::min(until, *limit);
    auto old = deadline_.load();
    while (old < until.time_since_epoch().count() &&
           !deadline_.compare_exchange_weak(old, until.time_since_epoch().count())) {
    }
  }
  [[nodiscard]] Clock::time_point deadline() const {
    return Clock::time_point{Clock::duration{deadline_.load()}};
  }
  [[nodiscard]] Clock::time_point beaten_at() const {
    return Clock::time_point{Clock::duration{beaten_at_.load()}};
  }
  [[nodiscard]] std::optional<Clock::time_point> run_limit() const {
    if (!job.run_max) return std::nullopt;
    return claimed_at + *job.run_max;
  }

  // The handler's stop token.

  /// True for the first caller with this reason. A lost lease outranks all else.
  bool stop(StopReason reason) {
    StopReason old = reason_.load();
    do {
      if (old == reason || old == StopReason::lease_lost ||
          (old != StopReason::none && reason == StopReason::draining))
        return false;
    } while (!reason_.compare_exchange_weak(old, reason));
    stop_.request_stop();
    return true;
  }
  bool cancel(std::string reason) {
    {
      const std::lock_guard lock{mutex_};
      if (cancel_reason_.empty()) cancel_reason_ = std::move(reason);
    }
    return stop(StopReason::cancelled);
  }
  /// Ends the attempt as the database's cancellation asks for.
  [[nodiscard]] Outcome cancellation() const {
    const std::lock_guard lock{mutex_};
    Outcome outcome{.kind = Outcome::Kind::cancelled};
    if (!cancel_reason_.empty()) outcome.error = cancel_reason_;
    return outcome;
  }
  [[nodiscard]] StopReason stop_reason() const { return reason_.load(); }
  [[nodiscard]] std::stop_token stop_token() const { return stop_.get_token(); }

  // Its span, if it is exported. Set by the slot that begins it.

  void trace(std::unique_ptr<trace::ExecutionSpan> execution) {
    execution_ = std::move(execution);
    traced_.store(execution_.get());
  }
  [[nodiscard]] trace::ExecutionSpan* execution() const { return traced_.load(); }

  // A heartbeat, say, that meets the job's own settlement on the way would be refused, and leave evidence of
  // a stale write that was none. So a fenced call enters first, and a settlement is sent when nobody is in.

  /// False when the settlement is on its way.
  [[nodiscard]] bool begin_fenced_call() {
    int calls = fenced_calls_.load();
    while (calls >= 0) {
      if (fenced_calls_.compare_exchange_weak(calls, calls + 1)) return true;
    }
    return false;
  }
  void end_fenced_call() {
    fenced_calls_.fetch_sub(1);
    fenced_calls_.notify_all();
  }
  [[nodiscard]] bool try_close() {
    int none = 0;
    return fenced_calls_.compare_exchange_strong(none, kClosed);
  }
  void close() {
    while (!try_close()) {
      if (const int calls = fenced_calls_.load(); calls > 0) fenced_calls_.wait(calls);
    }
  }
  void reopen() { fenced_calls_.store(0); }

 private:
  enum class State { waiting, running, finished };
  static constexpr int kClosed = -1;

  bool change(State from, State to) { return state_.compare_exchange_strong(from, to); }

  std::atomic<State> state_{State::waiting};
  std::atomic<bool> alone_{false};
  std::atomic<StopReason> reason_{StopReason::none};
  std::atomic<Clock::rep> beaten_at_{0};
  std::atomic<Clock::rep> deadline_{0};
  std::atomic<int> fenced_calls_{0};
  std::stop_source stop_;
  std::unique_ptr<trace::ExecutionSpan> execution_;
  std::atomic<trace::ExecutionSpan*> traced_{nullptr};  ///< execution_, for other threads
  mutable std::mutex mutex_;
  std::string cancel_reason_;  // guarded by mutex_
};

/// The jobs of one claim. Kept as long as one of them is not over, so that a claim costs one allocation or
/// few.
class Batch {
 public:
  std::deque<Attempt> attempts;
  /// Who holds its attempts: once each until its outcome is written, and once until no slot has it any more.
  /// The coordinator's to change.
  std::size_t holds = 0;
};

/// Holds an attempt's settlement back while a fenced call is under way.
class FencedCall {
 public:
  explicit FencedCall(Attempt& attempt) : attempt_(attempt), inside_(attempt.begin_fenced_call()) {}
  FencedCall(const FencedCall&) = delete;
  FencedCall& operator=(const FencedCall&) = delete;
  ~FencedCall() {
    if (inside_) attempt_.end_fenced_call();
  }
  explicit operator bool() const { return inside_; }

 private:
  Attempt& attempt_;
  bool inside_;
};

}  // namespace faultline::worker

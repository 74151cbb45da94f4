#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/bench_database.h"

namespace faultline::bench {

/// The baseline: what plain SQL costs for the least that a fenced queue does. One table of jobs with a lease
/// and a token per row, one index to claim by, one ledger row per finished job without its payload. No
/// queues, priorities, retries, cancellation, caps, counts, evidence, nor any way to find an expired lease.
/// It goes through the same libpq layer, in batches, with prepared statements and the same plan settings.
class Baseline {
 public:
  explicit Baseline(BenchDatabase& database);

  void fill(std::size_t jobs);
  /// As many finished jobs in its ledger.
  void retain(std::size_t jobs);
  /// Jobs per second of claim and settle, each a commit of its own.
  [[nodiscard]] double drain(std::size_t connections, std::size_t batch);
  /// Jobs per second into the table, each batch a commit: by COPY, or for small batches a multi-row INSERT.
  [[nodiscard]] double enqueue(std::size_t connections, std::size_t batch, std::size_t jobs);

  struct Sustained {
    std::size_t producers = 1;
    std::size_t producer_batch = 0;
    std::size_t consumers = 1;
    std::size_t consumer_batch = 0;
    std::size_t backlog_max = 0;
    std::chrono::milliseconds time{};
  };
  /// Jobs per second that are claimed and settled while others are added.
  [[nodiscard]] double sustained(const Sustained& how);

 private:
  void insert(pg::Connection& connection, std::size_t jobs);

  BenchDatabase& database_;
  std::atomic<std::uint64_t> next_id_;
};

/// The baseline's wake-up: an insert with a NOTIFY, a listener that wakes and claims.
class BaselineEcho {
 public:
  explicit BaselineEcho(BenchDatabase& database);
  ~BaselineEcho();
  BaselineEcho(const BaselineEcho&) = delete;
  BaselineEcho& operator=(const BaselineEcho&) = delete;

  /// How long from before the insert until the job is claimed.
  [[nodiscard]] std::chrono::duration<double, std::milli> once();

 private:
  void listen(const std::stop_token& stop);

  pg::Connection producer_;
  pg::Connection consumer_;
  std::mutex mutex_;
  std::condition_variable claimed_;
  std::vector<std::chrono::steady_clock::time_point> moments_;  // of claims; guarded by mutex_
  std::exception_ptr failure_;                                  // guarded by mutex_
  std::jthread listener_;
};

}  // namespace faultline::bench

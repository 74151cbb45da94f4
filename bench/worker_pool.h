#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/report.h"
#include "faultline/client.h"
#include "faultline/worker.h"

namespace faultline::bench {

/// The workers of a benchmark: objects in this process, each with threads and connections of its own.
struct WorkerPoolOptions {
  std::size_t workers = 1;
  std::size_t slots = 8;
  std::size_t connections = 2;  ///< of each worker, for claims and settlements
  std::size_t prefetch_max = 2'000;
  std::string server{};  ///< the URL of a Faultline server to go through; empty: to the database
};

class WorkerPool {
 public:
  WorkerPool(const std::string& database, const WorkerPoolOptions& options, const Handler& handler);

  void start();
  /// Drains all of them. Throws if one of them could not write down an outcome.
  void stop();

  /// Settlements that the database has acknowledged. A job that waited for a slot too long is given back, and
  /// so has more than one.
  [[nodiscard]] std::uint64_t settled() const;
  /// Until this many jobs were added and all have ended. Throws when nothing happens for a long time.
  void wait_until_done(Client& client, std::uint64_t jobs) const;

 private:
  void wait_for_settled(std::uint64_t settlements) const;

  std::vector<std::unique_ptr<Worker>> workers_;
};

/// The options as figures of a report, so that a run can be repeated.
void add_to(Report& report, const WorkerPoolOptions& options);

}  // namespace faultline::bench

#include "bench/worker_pool.h"

#include <chrono>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "bench/workload.h"

namespace faultline::bench {
namespace {

/// A queue that has not moved for this long never will.
constexpr std::chrono::seconds kStallMax{60};
/// Between two looks; short beside anything that is measured, and cheap.
constexpr std::chrono::milliseconds kLook{2};

}  // namespace

WorkerPool::WorkerPool(const std::string& database, const WorkerPoolOptions& options,
                       const Handler& handler) {
  for (std::size_t i = 0; i < options.workers; ++i) {
    WorkerOptions each{.name = "bench-" + std::to_string(i + 1),
                       .slots = options.slots,
                       .connections = options.connections,
                       .prefetch_max = options.prefetch_max,
                       .log = text_lines(std::cerr, Severity::warning)};
    if (options.server.empty()) each.database = database;
    auto worker = std::make_unique<Worker>(
        options.server.empty() ? Worker{std::move(each)} : Worker::connect(options.server, std::move(each)));
    worker->handle("bench", handler);
    workers_.push_back(std::move(worker));
  }
}

void WorkerPool::start() {
  for (const auto& worker : workers_) must(worker->start());
}

void WorkerPool::stop() {
  for (const auto& worker : workers_) {
    if (worker->drain().unsettled > 0) throw std::runtime_error("a worker could not write down all outcomes");
  }
}

std::uint64_t WorkerPool::settled() const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_) sum += worker->stats().settled;
  return sum;
}

void WorkerPool::wait_until_done(Client& client, std::uint64_t jobs) const {
  for (std::uint64_t expected = jobs; expected > 0;) {
    wait_for_settled(expected);
    // Each job that is left will be settled once more, at least.
    const std::uint64_t before = settled();
    std::int64_t left = 0;
    for (const QueueCounts& queue : must(client.counts("default")))
      left += queue.scheduled + queue.available + queue.running;
    expected = left > 0 ? before + static_cast<std::uint64_t>(left) : 0;
  }
}

void WorkerPool::wait_for_settled(std::uint64_t settlements) const {
  std::uint64_t last = 0;
  auto moved = Clock::now();
  for (;;) {
    const std::uint64_t now = settled();
    if (now >= settlements) return;
    if (now != last) moved = Clock::now();
    last = now;
    if (Clock::now() - moved > kStallMax) {
      throw std::runtime_error("the workers stopped at " + std::to_string(now) + " of " +
                               std::to_string(settlements) + " settlements");
    }
    std::this_thread::sleep_for(kLook);
  }
}

void add_to(Report& report, const WorkerPoolOptions& options) {
  report.add("workers", options.workers)
      .add("slots", options.slots, "handlers at once, in each worker")
      .add("connections", options.connections, "for claims and settlements, of each worker");
}

}  // namespace faultline::bench

#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/interrupt.h"
#include "metrics/metrics.h"

namespace faultline::server {

/// Looks at the database at an interval, for the metrics that nobody counts: how deep queues are, how the
/// database server is, and whether the promises hold. Needs no database to begin with, and survives its
/// absence. It has connections of its own: figures come also when everybody else has to wait.
class Collector {
 public:
  struct Options {
    std::string database;
    std::chrono::milliseconds sample_every{5'000};
    std::chrono::milliseconds audit_every{300'000};  ///< 0: never
    std::shared_ptr<metrics::Metrics> metrics;
  };

  explicit Collector(Options options);
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  ~Collector();

 private:
  void sample_periodically();
  void audit_periodically();
  [[nodiscard]] bool audit();

  const Options options_;
  Interrupt interrupt_;
  std::thread sampler_thread_;
  std::thread auditor_;
};

}  // namespace faultline::server

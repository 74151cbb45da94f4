#pragma once

#include <functional>
#include <memory>
#include <string>

#include "faultline/error.h"
#include "faultline/event.h"

namespace faultline::cli {

struct DemoOptions {
  std::string database;
  EventSink log;                       ///< is told of every job
  std::function<void(JobId)> on_race;  ///< a lease race is over, and its late write was refused
};

/// Something to look at: a trickle of jobs in the queue `demo`, with a worker that does them, fails some and
/// buries one now and then; and every minute, in the queue `demo-race`, a worker that stalls past its lease
/// while another does its job. What it leaves in the database is bounded.
class Demo {
 public:
  [[nodiscard]] static faultline::Expected<std::unique_ptr<Demo>> start(DemoOptions options);
  virtual ~Demo() = default;

  /// Adds no more jobs, and lets those that run finish.
  virtual void drain() = 0;
  virtual void hurry() = 0;
};

}  // namespace faultline::cli

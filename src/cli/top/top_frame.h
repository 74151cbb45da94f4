#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "audit/leases.h"
#include "cli/support/terminal.h"
#include "faultline/store.h"

namespace faultline::cli {

/// What `faultline top` shows at one moment.
struct TopFrame {
  struct QueueLine {
    Queue queue;
    QueueCounts counts;
    /// Jobs that came, and jobs that ended or died, per second since the frame before; absent in the first
    /// one. Taken from the counts, so that what retention retires meanwhile is missing.
    std::optional<double> enqueued_per_second{};
    std::optional<double> settled_per_second{};
    std::optional<double> failed_per_second{};  ///< attempts that failed or were lost
  };
  DatabaseTime at;
  std::vector<QueueLine> queues;
  std::vector<audit::WorkerLeases> workers;
  std::size_t stale_last_minute = 0;
  bool stale_more = false;  ///< there were more than were counted
  std::vector<StaleWrite> stale_latest;
};

/// Looks at the database. `connection` is for what the store does not tell.
[[nodiscard]] faultline::Expected<TopFrame> sample(Store& store, pg::Connection& connection, Deadline until);

/// Fills in the rates of `frame`, from the one before it.
void add_rates(TopFrame& frame, const TopFrame& before);

/// The frame in so many rows and columns: what does not fit is left out, and said to be. Without a size: all
/// of it.
[[nodiscard]] std::string top_text(const TopFrame& frame, bool colours,
                                   std::optional<TerminalSize> size = std::nullopt);
[[nodiscard]] nlohmann::json top_json(const TopFrame& frame);

}  // namespace faultline::cli

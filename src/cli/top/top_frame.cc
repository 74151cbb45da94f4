#include "cli/top/top_frame.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/printable.h"
#include "cli/stale/stale_text.h"
#include "cli/support/table_text.h"
#include "cli/support/terminal.h"
#include "service/encode.h"

namespace faultline::cli {
namespace {

constexpr std::size_t kWorkersMax = 100;
constexpr std::size_t kStaleCounted = 1'000;
constexpr std::size_t kStaleShown = 5;
constexpr std::chrono::minutes kLastMinute{1};

std::string one_digit(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string rate(const std::optional<double>& per_second) {
  return per_second ? one_digit(*per_second) : "-";
}

std::string age(std::chrono::microseconds time) {
  const double all = std::chrono::duration<double>(time).count();
  if (all < 100) return one_digit(all) + " s";
  if (all < 6'000) return std::to_string(std::lround(all / 60)) + " min";
  return std::to_string(std::lround(all / 3'600)) + " h";
}

std::string expiry(const TopFrame& frame, const audit::WorkerLeases& worker) {
  const std::chrono::microseconds left = worker.first_expiry - frame.at;
  return left.count() >= 0 ? "in " + age(left) : "over since " + age(-left);
}

std::int64_t jobs_in(const QueueCounts& counts) {
  return counts.scheduled + counts.available + counts.running + counts.held + counts.dead + counts.succeeded +
         counts.cancelled;
}

std::int64_t ended_in(const QueueCounts& counts) { return counts.succeeded + counts.cancelled + counts.dead; }

std::string queues_text(const TopFrame& frame) {
  std::vector<std::vector<std::string>> rows{{"QUEUE", "IN/S", "OUT/S", "AVAILABLE", "SCHEDULED", "RUNNING",
                                              "HELD", "DEAD", "SUCCEEDED", "CANCELLED", "OLDEST", ""}};
  for (const auto& line : frame.queues) {
    const QueueCounts& counts = line.counts;
    std::string running = std::to_string(counts.running);
    if (line.queue.running_max) running += "/" + std::to_string(*line.queue.running_max);
    rows.push_back({printable(line.queue.name), rate(line.enqueued_per_second), rate(line.settled_per_second),
                    std::to_string(counts.available), std::to_string(counts.scheduled), std::move(running),
                    std::to_string(counts.held), std::to_string(counts.dead),
                    std::to_string(counts.succeeded), std::to_string(counts.cancelled),
                    counts.oldest_due_age ? age(*counts.oldest_due_age) : "-",
                    line.queue.paused ? "paused" : ""});
  }
  return table_text(rows);
}

std::string workers_text(const TopFrame& frame) {
  if (frame.workers.empty()) return "No job is running.\n";
  std::vector<std::vector<std::string>> rows{{"WORKER", "RUNNING", "OLDEST", "FIRST LEASE ENDS", "QUEUES"}};
  for (const audit::WorkerLeases& worker : frame.workers) {
    std::string queues;
    for (const std::string& queue : worker.queues) queues += (queues.empty() ? "" : " ") + printable(queue);
    rows.push_back({printable(worker.worker), std::to_string(worker.running),
                    age(frame.at - worker.oldest_claim), expiry(frame, worker), std::move(queues)});
  }
  return table_text(rows);
}

std::string stale_text(const TopFrame& frame, bool colours) {
  const std::string count =
      std::to_string(frame.stale_last_minute) + (frame.stale_more ? " or more" : "") + " in the last minute";
  std::string text =
      "Stale writes refused: " + coloured(count, Colour::red, colours && frame.stale_last_minute > 0) + "\n";
  if (frame.stale_latest.empty()) return text;
  std::vector<std::vector<std::string>> rows{stale_header()};
  for (const StaleWrite& write : frame.stale_latest) rows.push_back(stale_cells(write));
  return text + table_text(rows);
}

nlohmann::json or_null(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

template <class T>
nlohmann::json as_http(const T& value) {
  using codec::write;
  JsonWriter out;
  write(out, value);
  return nlohmann::json::parse(out.take());
}

}  // namespace

faultline::Expected<TopFrame> sample(Store& store, pg::Connection& connection, Deadline until) {
  TopFrame frame;
  const auto now = store.now();
  if (!now) return std::unexpected(now.error());
  frame.at = *now;
  auto queues = store.queues();
  if (!queues) return std::unexpected(queues.error());
  auto counts = store.counts();
  if (!counts) return std::unexpected(counts.error());
  for (Queue& queue : *queues) {
    const auto counted = std::ranges::find(*counts, queue.name, &QueueCounts::queue);
    if (counted != counts->end()) frame.queues.push_back({.queue = std::move(queue), .counts = *counted});
  }
  auto workers = audit::leases_by_worker(connection, kWorkersMax, until);
  if (!workers) return std::unexpected(workers.error());
  frame.workers = std::move(*workers);
  auto stale = store.stale_writes(kStaleCounted);
  if (!stale) return std::unexpected(stale.error());
  frame.stale_last_minute = static_cast<std::size_t>(std::ranges::count_if(
      *stale, [&](const StaleWrite& write) { return write.at > frame.at - kLastMinute; }));
  frame.stale_more = frame.stale_last_minute >= kStaleCounted;
  stale->resize(std::min(stale->size(), kStaleShown));
  frame.stale_latest = std::move(*stale);
  return frame;
}

void add_rates(TopFrame& frame, const TopFrame& before) {
  const double passed = std::chrono::duration<double>(frame.at - before.at).count();
  if (passed <= 0) return;
  for (TopFrame::QueueLine& line : frame.queues) {
    const auto was = std::ranges::find(before.queues, line.queue.name,
                                       [](const TopFrame::QueueLine& queue) { return queue.queue.name; });
    if (was == before.queues.end()) continue;
    const auto per_second = [&](std::int64_t more) {
      return static_cast<double>(std::max<std::int64_t>(0, more)) / passed;
    };
    line.enqueued_per_second = per_second(jobs_in(line.counts) - jobs_in(was->counts));
    line.settled_per_second = per_second(ended_in(line.counts) - ended_in(was->counts));
  }
}

std::string top_text(const TopFrame& frame, bool colours) {
  return coloured("faultline top", Colour::bold, colours) + "  " + faultline::to_string(frame.at) + "\n\n" +
         queues_text(frame) + "\n" + workers_text(frame) + "\n" + stale_text(frame, colours);
}

nlohmann::json top_json(const TopFrame& frame) {
  nlohmann::json queues = nlohmann::json::array();
  for (const TopFrame::QueueLine& line : frame.queues) {
    nlohmann::json queue = as_http(service::QueueOverview{.queue = line.queue, .counts = line.counts});
    queue["enqueued_per_second"] = or_null(line.enqueued_per_second);
    queue["settled_per_second"] = or_null(line.settled_per_second);
    queues.push_back(std::move(queue));
  }
  nlohmann::json workers = nlohmann::json::array();
  for (const audit::WorkerLeases& worker : frame.workers) {
    workers.push_back({{"worker", worker.worker},
                       {"running", worker.running},
                       {"queues", worker.queues},
                       {"oldest_claim_at", faultline::to_string(worker.oldest_claim)},
                       {"first_expiry_at", faultline::to_string(worker.first_expiry)}});
  }
  nlohmann::json latest = nlohmann::json::array();
  for (const StaleWrite& write : frame.stale_latest) latest.push_back(as_http(write));
  return {{"at", faultline::to_string(frame.at)},
          {"queues", std::move(queues)},
          {"workers", std::move(workers)},
          {"stale_writes", {{"last_minute", frame.stale_last_minute}, {"latest", std::move(latest)}}}};
}

}  // namespace faultline::cli

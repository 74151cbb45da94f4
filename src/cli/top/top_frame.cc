#include "cli/top/top_frame.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>

#include "base/printable.h"
#include "base/utf8.h"
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
  return counts.scheduled + counts.retrying + counts.available + counts.running + counts.held + counts.dead +
         counts.succeeded + counts.cancelled;
}

std::int64_t ended_in(const QueueCounts& counts) { return counts.succeeded + counts.cancelled + counts.dead; }

using Row = std::vector<std::string>;

/// A part of the view: rows under a heading, the most important columns and rows first to stay.
struct Table {
  std::string what;  ///< of its rows: "queues"
  Row heading;
  std::vector<Row> rows;
  std::vector<std::string> spare{};  ///< columns that go first where there is no room, in this order
};

std::vector<std::size_t> widths_of(const Table& table) {
  std::vector<std::size_t> widths;
  for (const std::string& cell : table.heading) widths.push_back(characters_of(cell));
  for (const Row& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], characters_of(row[i]));
  }
  return widths;
}

std::size_t line_of(const std::vector<std::size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), 2 * widths.size()) - 2;
}

void remove_column(Table& table, const std::string& name) {
  const auto index = std::ranges::find(table.heading, name) - table.heading.begin();
  table.heading.erase(table.heading.begin() + index);
  for (Row& row : table.rows) row.erase(row.begin() + index);
}

/// A text that is too long says so by its last character.
std::string shortened(const std::string& text, std::size_t length) {
  if (characters_of(text) <= length) return text;
  return std::string{first_characters(text, length - 1)} + "…";
}

/// Names are long, numbers are not: the widest columns give way first.
void shorten(Table& table, std::size_t columns) {
  constexpr std::size_t kWidthMin = 8;
  std::vector<std::size_t> widths = widths_of(table);
  while (line_of(widths) > columns) {
    const auto widest = std::ranges::max_element(widths);
    if (*widest <= kWidthMin) return;
    --*widest;
  }
  for (std::size_t i = 0; i < widths.size(); ++i) {
    table.heading[i] = shortened(table.heading[i], widths[i]);
    for (Row& row : table.rows) row[i] = shortened(row[i], widths[i]);
  }
}

/// The table in its share of the screen, and a line about what it left out.
std::string fitted(Table table, std::size_t rows_max, std::size_t columns) {
  const std::size_t rows = std::min(table.rows.size(), rows_max);
  const std::size_t hidden = table.rows.size() - rows;
  table.rows.resize(rows);
  std::string without;
  for (const std::string& name : table.spare) {
    if (line_of(widths_of(table)) <= columns) break;
    remove_column(table, name);
    without += (without.empty() ? "" : ", ") + name;
  }
  shorten(table, columns);
  std::vector<Row> all{table.heading};
  std::ranges::move(table.rows, std::back_inserter(all));
  std::string text = table_text(all);
  std::string left_out;
  if (hidden > 0) left_out = std::to_string(hidden) + " more " + table.what;
  if (!without.empty()) left_out += (left_out.empty() ? "" : "; ") + ("without " + without);
  if (!left_out.empty()) text += shortened("… " + left_out, columns) + "\n";
  return text;
}

Table queues_table(const TopFrame& frame) {
  Table table{.what = "queues",
              .heading = {"QUEUE", "IN/S", "OUT/S", "FAIL/S", "DUE", "RETRY", "LATER", "RUN", "HELD", "DEAD",
                          "SUCCEEDED", "CANCELLED", "OLDEST", ""},
              .rows = {},
              .spare = {"CANCELLED", "SUCCEEDED", "HELD", "LATER", "IN/S", "OLDEST"}};
  for (const auto& line : frame.queues) {
    const QueueCounts& counts = line.counts;
    std::string running = std::to_string(counts.running);
    if (line.queue.running_max) running += "/" + std::to_string(*line.queue.running_max);
    table.rows.push_back(
        {printable(line.queue.name), rate(line.enqueued_per_second), rate(line.settled_per_second),
         rate(line.failed_per_second), std::to_string(counts.available), std::to_string(counts.retrying),
         std::to_string(counts.scheduled), std::move(running), std::to_string(counts.held),
         std::to_string(counts.dead), std::to_string(counts.succeeded), std::to_string(counts.cancelled),
         counts.oldest_due_age ? age(*counts.oldest_due_age) : "-", line.queue.paused ? "paused" : ""});
  }
  // Where something goes wrong stands first: a screen may have room for a few of many.
  std::vector<std::size_t> order(table.rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t i) { return frame.queues[i].failed_per_second.value_or(0); });
  std::vector<Row> sorted;
  for (const std::size_t i : order) sorted.push_back(std::move(table.rows[i]));
  table.rows = std::move(sorted);
  return table;
}

Table workers_table(const TopFrame& frame) {
  Table table{.what = "workers",
              .heading = {"WORKER", "RUNNING", "OLDEST", "FIRST LEASE ENDS", "QUEUES"},
              .rows = {},
              .spare = {"QUEUES"}};
  for (const audit::WorkerLeases& worker : frame.workers) {
    std::string queues;
    for (const std::string& queue : worker.queues) queues += (queues.empty() ? "" : " ") + printable(queue);
    table.rows.push_back({printable(worker.worker), std::to_string(worker.running),
                          age(frame.at - worker.oldest_claim), expiry(frame, worker), std::move(queues)});
  }
  return table;
}

Table stale_table(const TopFrame& frame) {
  Table table{.what = "refused writes",
              .heading = stale_header(),
              .rows = {},
              .spare = {"AT", "THEN", "QUEUE", "LATE", "TOKEN"}};
  for (const StaleWrite& write : frame.stale_latest) table.rows.push_back(stale_cells(write));
  return table;
}

std::string stale_count(const TopFrame& frame, bool colours) {
  const std::string count =
      std::to_string(frame.stale_last_minute) + (frame.stale_more ? " or more" : "") + " in the last minute";
  return "Stale writes refused: " + coloured(count, Colour::red, colours && frame.stale_last_minute > 0) +
         "\n";
}

/// How many rows each part may have, where all of them may have so many.
struct Shares {
  std::size_t queues, workers, stale;
};
Shares shares_of(const TopFrame& frame, std::optional<TerminalSize> size) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  if (!size) return {.queues = kAll, .workers = kAll, .stale = kAll};
  // The title, three headings, three lines about what is left out, the count of refused writes, empty lines.
  constexpr std::size_t kOthers = 13;
  const std::size_t room = size->rows > kOthers + 3 ? size->rows - kOthers : 3;
  const std::size_t stale = std::min(frame.stale_latest.size(), room / 4);
  const std::size_t workers = std::min(frame.workers.size(), (room - stale) / 2);
  const std::size_t queues = std::min(frame.queues.size(), room - stale - workers);
  return {.queues = queues, .workers = std::min(frame.workers.size(), room - stale - queues), .stale = stale};
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
    line.failed_per_second = per_second(line.counts.failures - was->counts.failures);
  }
}

std::string top_text(const TopFrame& frame, bool colours, std::optional<TerminalSize> size) {
  const std::size_t columns = size ? size->columns : std::numeric_limits<std::size_t>::max();
  const Shares shares = shares_of(frame, size);
  std::string text = coloured("faultline top", Colour::bold, colours) + "  " +
                     faultline::to_string(frame.at) + "\n\n" +
                     fitted(queues_table(frame), shares.queues, columns) + "\n";
  text +=
      frame.workers.empty() ? "No job is running.\n" : fitted(workers_table(frame), shares.workers, columns);
  text += "\n" + stale_count(frame, colours);
  if (!frame.stale_latest.empty()) text += fitted(stale_table(frame), shares.stale, columns);
  return text;
}

nlohmann::json top_json(const TopFrame& frame) {
  nlohmann::json queues = nlohmann::json::array();
  for (const TopFrame::QueueLine& line : frame.queues) {
    nlohmann::json queue = as_http(service::QueueOverview{.queue = line.queue, .counts = line.counts});
    queue["enqueued_per_second"] = or_null(line.enqueued_per_second);
    queue["settled_per_second"] = or_null(line.settled_per_second);
    queue["failed_per_second"] = or_null(line.failed_per_second);
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

#include "cli/jobs/timeline.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/utf8.h"

namespace faultline::cli {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kBarMin = 24;
constexpr std::size_t kWorkerMax = 18;
/// A job that was tried a thousand times is not read row by row.
constexpr std::size_t kRowsMax = 60;

struct Glyphs {
  std::string_view start, bar, succeeded, failed, expired, snoozed, released, cancelled, requeued, purged;
  std::string_view running, lease, lease_end, bounce, wall, waiting, axis_left, axis, axis_tick, axis_right;
  std::string_view cut;
};

constexpr Glyphs kUnicode{.start = "┣",
                          .bar = "━",
                          .succeeded = "✓",
                          .failed = "✗",
                          .expired = "╳",
                          .snoozed = "z",
                          .released = "○",
                          .cancelled = "⊘",
                          .requeued = "↻",
                          .purged = "∅",
                          .running = "▶",
                          .lease = "┄",
                          .lease_end = "┊",
                          .bounce = "↩",
                          .wall = "┃",
                          .waiting = "·",
                          .axis_left = "├",
                          .axis = "─",
                          .axis_tick = "┼",
                          .axis_right = "┤",
                          .cut = "…"};
constexpr Glyphs kAscii{.start = "[",
                        .bar = "=",
                        .succeeded = "+",
                        .failed = "x",
                        .expired = "X",
                        .snoozed = "z",
                        .released = "o",
                        .cancelled = "/",
                        .requeued = "@",
                        .purged = "0",
                        .running = ">",
                        .lease = "-",
                        .lease_end = ":",
                        .bounce = "<",
                        .wall = "|",
                        .waiting = ".",
                        .axis_left = "|",
                        .axis = "-",
                        .axis_tick = "+",
                        .axis_right = "|",
                        .cut = "~"};

std::string_view mark_of(const Glyphs& glyphs, std::string_view outcome) {
  const std::array marks{
      std::pair{std::string_view{"succeeded"}, glyphs.succeeded},
      std::pair{std::string_view{"expired"}, glyphs.expired},
      std::pair{std::string_view{"snoozed"}, glyphs.snoozed},
      std::pair{std::string_view{"released"}, glyphs.released},
      std::pair{std::string_view{"cancelled"}, glyphs.cancelled},
      std::pair{std::string_view{"requeued"}, glyphs.requeued},
      std::pair{std::string_view{"purged"}, glyphs.purged},
  };
  for (const auto& [word, mark] : marks) {
    if (word == outcome) return mark;
  }
  return glyphs.failed;
}

std::string padded(std::string text, std::size_t length) {
  const std::size_t has = characters_of(text);
  if (has < length) text.append(length - has, ' ');
  return text;
}

std::string shortened(const std::string& text, std::size_t length, std::string_view cut) {
  if (characters_of(text) <= length) return text;
  return std::string{first_characters(text, length - 1)}.append(cut);
}

/// The columns of the bars, each with what stands in it.
class Canvas {
 public:
  explicit Canvas(std::size_t columns) : cells_(columns, " ") {}

  void put(std::size_t column, std::string_view glyph) {
    if (column < cells_.size()) cells_[column] = glyph;
  }
  void fill(std::size_t from, std::size_t to, std::string_view glyph) {
    for (std::size_t column = from; column < to; ++column) put(column, glyph);
  }
  [[nodiscard]] std::string text() const {
    std::string out;
    for (const std::string_view cell : cells_) out += cell;
    return out;
  }

 private:
  std::vector<std::string_view> cells_;
};

struct Row {
  enum class Kind { attempt, act, running, bounced, waiting };
  Kind kind = Kind::attempt;
  DatabaseTime from{};
  DatabaseTime to{};
  std::string token{};
  std::string worker{};
  std::string words{};
  std::string_view mark{};
  std::vector<DatabaseTime> bounces{};
};

Row row_of(const Attempt& attempt, const Glyphs& glyphs) {
  Row row{.kind = attempt.started_at ? Row::Kind::attempt : Row::Kind::act,
          .from = attempt.started_at.value_or(attempt.ended_at),
          .to = attempt.ended_at,
          .token = std::to_string(attempt.token.value),
          .worker = printable(attempt.worker.value_or("")),
          .words = attempt.outcome,
          .mark = mark_of(glyphs, attempt.outcome)};
  if (attempt.started_at)
    row.words += " after " + human_duration(attempt.ended_at - *attempt.started_at);
  else
    row.words += " by " + row.worker;
  if (attempt.state == "dead" || attempt.state == "held") row.words += ", then " + attempt.state;
  if (attempt.written_by) row.words += ", by " + printable(*attempt.written_by);
  return row;
}

Row running_row(const Job& job, const TimelineStyle& style, const Glyphs& glyphs) {
  Row row{.kind = Row::Kind::running,
          .from = job.claimed_at.value_or(style.now),
          .to = style.now,
          .token = std::to_string(job.token.value),
          .worker = printable(job.worker.value_or("")),
          .mark = glyphs.running};
  row.words = "running for " + human_duration(row.to - row.from);
  if (job.lease_expires_at) {
    const microseconds left = *job.lease_expires_at - style.now;
    row.words += left > microseconds::zero() ? ", lease ends in " + human_duration(left)
                                             : ", lease ended " + human_duration(-left) + " ago";
  }
  if (job.cancel_requested_at) row.words += ", to be cancelled";
  return row;
}

/// Of writes that tell one story: the last one is the latest.
std::string words_of(const StaleWrite& write, std::size_t times) {
  std::string words = write.verb + " bounced" + (times > 1 ? " " + std::to_string(times) + " times" : "");
  words += ": " + std::to_string(write.token.value);
  if (write.current_token) {
    words += write.token < *write.current_token ? " < " : write.token == *write.current_token ? " = " : " > ";
    words += std::to_string(write.current_token->value);
  }
  words += ", " + std::string{to_string(write.reason)};
  if (const auto late = late_by(write))
    words += (times > 1 ? ", up to " : ", ") + human_duration(*late) + " late";
  return words;
}

bool same_story(const StaleWrite& a, const StaleWrite& b) {
  return a.verb == b.verb && a.reason == b.reason && a.token == b.token && a.worker == b.worker &&
         a.current_token == b.current_token;
}

/// A zombie's heartbeats are one row, with a mark for each.
std::vector<Row> bounced_rows(std::vector<StaleWrite> writes, const Glyphs& glyphs) {
  std::ranges::stable_sort(writes, {}, &StaleWrite::at);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < writes.size();) {
    const StaleWrite& first = writes[i];
    Row row{.kind = Row::Kind::bounced,
            .from = first.at,
            .token = std::to_string(first.token.value),
            .worker = printable(first.worker),
            .mark = glyphs.bounce};
    for (; i < writes.size() && same_story(first, writes[i]); ++i) row.bounces.push_back(writes[i].at);
    row.to = row.bounces.back();
    row.words = words_of(writes[i - 1], row.bounces.size());
    rows.push_back(std::move(row));
  }
  return rows;
}

Row waiting_row(const Job& job, DatabaseTime since, DatabaseTime now) {
  Row row{.kind = Row::Kind::waiting, .from = std::min(since, now), .to = now};
  if (job.state == JobState::scheduled)
    row.words = "waits, due in " + human_duration(job.run_at - now);
  else if (job.state == JobState::available)
    row.words = "waits for a worker";
  else
    row.words = std::string{to_string(job.state)} + ": waits for a person";
  return row;
}

std::vector<Row> rows_of(const JobHistory& history, const TimelineStyle& style, const Glyphs& glyphs) {
  std::vector<Row> rows;
  DatabaseTime last_end = history.job.created_at;
  for (const Attempt& attempt : history.attempts) {
    rows.push_back(row_of(attempt, glyphs));
    last_end = std::max(last_end, attempt.ended_at);
  }
  const JobState state = history.job.state;
  if (state == JobState::running) rows.push_back(running_row(history.job, style, glyphs));
  for (Row& row : bounced_rows(history.stale_writes, glyphs)) rows.push_back(std::move(row));
  std::ranges::stable_sort(rows, {}, &Row::from);
  if (state != JobState::running && state != JobState::succeeded && state != JobState::cancelled)
    rows.push_back(waiting_row(history.job, last_end, style.now));
  return rows;
}

/// From moments to columns.
class Axis {
 public:
  Axis(DatabaseTime begin, DatabaseTime end, std::size_t columns)
      : begin_(begin), span_(std::max(end - begin, microseconds{1})), columns_(columns) {}

  [[nodiscard]] std::size_t column(DatabaseTime at) const {
    const double part = static_cast<double>((at - begin_).count()) / static_cast<double>(span_.count());
    return static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(columns_ - 1) + 0.5);
  }
  [[nodiscard]] microseconds span() const { return span_; }
  [[nodiscard]] std::size_t columns() const { return columns_; }

 private:
  DatabaseTime begin_;
  microseconds span_;
  std::size_t columns_;
};

/// One column more than the axis has: for the wall after its end.
std::string draw(const Row& row, const Axis& axis, const Job& job, const Glyphs& glyphs) {
  Canvas canvas{axis.columns() + 1};
  const std::size_t from = axis.column(row.from);
  const std::size_t to = axis.column(row.to);
  switch (row.kind) {
    case Row::Kind::running:
      if (job.lease_expires_at) {
        const std::size_t end = axis.column(*job.lease_expires_at);
        canvas.fill(to, end, glyphs.lease);
        canvas.put(end, glyphs.lease_end);
      }
      [[fallthrough]];
    case Row::Kind::attempt:
      canvas.fill(from, to, glyphs.bar);
      if (from < to) canvas.put(from, glyphs.start);
      canvas.put(to, row.mark);
      break;
    case Row::Kind::act:
      canvas.put(to, row.mark);
      break;
    case Row::Kind::bounced:
      for (const DatabaseTime at : row.bounces) canvas.put(axis.column(at) + 1, glyphs.wall);
      for (const DatabaseTime at : row.bounces) canvas.put(axis.column(at), glyphs.bounce);
      break;
    case Row::Kind::waiting:
      canvas.fill(from, to + 1, glyphs.waiting);
      break;
  }
  return canvas.text();
}

std::string ruler(const Axis& axis, const Glyphs& glyphs) {
  Canvas canvas{axis.columns()};
  canvas.fill(0, axis.columns(), glyphs.axis);
  for (const std::size_t quarter : {1U, 2U, 3U})
    canvas.put((axis.columns() - 1) * quarter / 4, glyphs.axis_tick);
  canvas.put(0, glyphs.axis_left);
  canvas.put(axis.columns() - 1, glyphs.axis_right);
  return canvas.text();
}

/// "0" on the left, half of it in the middle, all of it on the right.
std::string scale(const Axis& axis) {
  const std::string half = human_duration(axis.span() / 2);
  const std::string whole = human_duration(axis.span());
  std::string line = "0";
  if (axis.columns() / 2 > half.size()) line = padded(line, axis.columns() / 2 - half.size() / 2) + half;
  if (axis.columns() > line.size() + whole.size()) line = padded(line, axis.columns() - whole.size());
  return line + whole;
}

DatabaseTime end_of(const std::vector<Row>& rows, const Job& job) {
  DatabaseTime end = job.created_at;
  for (const Row& row : rows) end = std::max(end, row.to);
  if (job.state == JobState::running && job.lease_expires_at) end = std::max(end, *job.lease_expires_at);
  return end;
}

void append_line(std::string& text, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
}

}  // namespace

std::string human_duration(microseconds duration) {
  using std::chrono::duration_cast;
  const auto count = duration.count();
  std::array<char, 64> text{};
  const auto pair_of = [&](std::int64_t large, const char* large_unit, std::int64_t small,
                           const char* small_unit) -> std::string {
    std::string out = std::to_string(large) + " " + large_unit;
    return small == 0 ? out : out + " " + std::to_string(small) + " " + small_unit;
  };
  if (count < 0) return "-" + human_duration(-duration);
  if (count < 1'000'000) return std::to_string(count / 1'000) + " ms";
  const std::int64_t seconds = count / 1'000'000;
  if (seconds < 60) {
    const std::int64_t tenths = count / 100'000;
    if (tenths % 10 == 0) return std::to_string(seconds) + " s";
    std::snprintf(text.data(), text.size(), "%.1f s", static_cast<double>(tenths) / 10.0);
    return text.data();
  }
  if (seconds < 3'600) return pair_of(seconds / 60, "min", seconds % 60, "s");
  if (seconds < 86'400) return pair_of(seconds / 3'600, "h", seconds % 3'600 / 60, "min");
  return pair_of(seconds / 86'400, "d", seconds % 86'400 / 3'600, "h");
}

std::optional<microseconds> late_by(const StaleWrite& write) {
  if (!write.lease_expired_at || write.at < *write.lease_expired_at) return std::nullopt;
  return write.at - *write.lease_expired_at;
}

std::string timeline_text(const JobHistory& history, const TimelineStyle& style) {
  const Glyphs& glyphs = style.ascii ? kAscii : kUnicode;
  std::vector<Row> rows = rows_of(history, style, glyphs);
  const DatabaseTime end = end_of(rows, history.job);
  const std::size_t left_out = rows.size() > kRowsMax ? rows.size() - kRowsMax : 0;
  rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(left_out));

  const std::string token_head = "TOKEN";
  const std::string worker_head = "WORKER";
  std::size_t token_width = token_head.size();
  std::size_t worker_width = worker_head.size();
  std::size_t words_width = 0;
  for (Row& row : rows) {
    row.worker = shortened(row.worker, kWorkerMax, glyphs.cut);
    token_width = std::max(token_width, row.token.size());
    worker_width = std::max(worker_width, characters_of(row.worker));
    words_width = std::max(words_width, characters_of(row.words));
  }
  const std::size_t others = token_width + 2 + worker_width + 2 + 1 + 2 + words_width;
  const Axis axis{history.job.created_at, end,
                  std::max(kBarMin, style.width > others ? style.width - others : 0)};

  const auto left = [&](const std::string& token, const std::string& worker) {
    return padded(token, token_width + 2) + padded(worker, worker_width + 2);
  };
  std::string text;
  append_line(text, left(token_head, worker_head) + scale(axis));
  append_line(text, left("", "") + ruler(axis, glyphs));
  if (left_out > 0)
    append_line(text, left("", "") + std::string{glyphs.cut} + " " + std::to_string(left_out) +
                          " earlier rows are left out; --json has them all");
  for (const Row& row : rows) {
    append_line(text, left(row.token, row.worker) + draw(row, axis, history.job, glyphs) + "  " + row.words);
  }
  return text;
}

}  // namespace faultline::cli

// Cursors of lists: one that was not made here is refused, and one that was says what it was made of.

#include "service/cursor.h"

#include <algorithm>
#include <string>

#include "fuzz/target.h"

namespace faultline::fuzz {
namespace {

/// The same filter, made of the same bytes, in both directions.
ListRequest filter_of(unsigned bits, std::string_view text) {
  ListRequest filter;
  if ((bits & 1U) != 0) filter.queue = text.substr(0, 3);
  if ((bits & 2U) != 0) filter.kind = text.substr(std::min<std::size_t>(3, text.size()));
  if ((bits & 4U) != 0) filter.state = static_cast<JobState>((bits >> 3U) % 7);
  return filter;
}

void read(const ListRequest& filter, std::string_view text) {
  if (const auto job = service::from_cursor(filter, text))
    require(service::to_cursor(filter, *job) == text, "only what was given out is taken back");
  if (const auto moment = service::stale_writes_from_cursor(text))
    require(service::to_cursor(*moment) == text, "only what was given out is taken back");
}

void write(const ListRequest& filter, std::string_view bytes) {
  JobId job;
  std::ranges::copy(bytes.substr(0, job.value.bytes.size()), job.value.bytes.begin());
  const std::string cursor = service::to_cursor(filter, job);
  const auto back = service::from_cursor(filter, cursor);
  require(back.has_value() && *back == job, "a cursor says what it was made of");
  ListRequest other = filter;
  other.queue = filter.queue.value_or("") + "x";
  require(!service::from_cursor(other, cursor), "a cursor is for its own filter only");
  require(!service::stale_writes_from_cursor(cursor), "a cursor is for its own list only");
}

}  // namespace

void run(std::string_view input) {
  const unsigned bits = take_byte(input);
  const ListRequest filter = filter_of(bits, input.substr(std::min<std::size_t>(16, input.size())));
  read({}, input);
  read(filter, input);
  write(filter, input);
}

}  // namespace faultline::fuzz

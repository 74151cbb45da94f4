#include "store/claim_cursor.h"

#include <algorithm>

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

/// A look from the beginning that is over this fast may be made whenever a claim comes back short.
constexpr milliseconds kFastLook{10};
constexpr int kShareOfTime = 20;
/// However long the last one took: in its time are outages, locks and full disks, too.
constexpr std::chrono::seconds kUntilNextLookMax{2};

}  // namespace

ClaimCursor::Scan ClaimCursor::next_scan(const std::string& queue, std::int16_t bucket,
                                         Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  ScanState& state = scans_[{queue, bucket}];
  const bool short_of_work = !state.busy && !state.full_scan_is_slow;
  if (short_of_work || now >= state.full_scan_due) {
    // Others go on from where they are while this one looks.
    state.full_scan_due = now + std::chrono::seconds{1};
    return {.from_the_beginning = true};
  }
  return {.from_the_beginning = false, .since = state.since};
}

bool ClaimCursor::found(const std::string& queue, std::int16_t bucket, const Scan& scan,
                        const std::vector<ClaimedJob>& jobs, std::size_t first_job, bool full,
                        Clock::time_point begun, Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  ScanState& state = scans_[{queue, bucket}];
  std::array<Position, kPriorities> last{};
  for (std::size_t i = first_job; i < jobs.size(); ++i) {
    Position& position = last[static_cast<std::size_t>(jobs[i].priority)];
    position = std::max(position, Position{.run_at = jobs[i].run_at, .id = jobs[i].lease.job.value});
  }
  for (std::size_t p = 0; p < last.size(); ++p) {
    if (last[p] == Position{}) continue;
    // A look from the beginning may go back: what it found there is worked off first.
    state.since[p] = scan.from_the_beginning ? last[p] : std::max(state.since[p], last[p]);
  }
  state.busy = full;
  if (scan.from_the_beginning) {
    const auto took = now - begun;
    state.full_scan_is_slow = took > kFastLook;
    state.full_scan_due = now + std::min<Clock::duration>(kShareOfTime * took, kUntilNextLookMax);
    return false;
  }
  return !full && (!state.full_scan_is_slow || now >= state.full_scan_due);
}

void ClaimCursor::rewind() {
  const std::lock_guard lock{mutex_};
  for (auto& [place, state] : scans_) state.full_scan_due = Clock::time_point{};
}

}  // namespace faultline::store

#include "store/claim_cursor.h"

#include <algorithm>

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

/// A look from the beginning that is over this fast may be made whenever a claim comes back short.
constexpr milliseconds kFastLook{10};
constexpr int kShareOfTime = 20;

}  // namespace

ClaimCursor::Look ClaimCursor::next_look(const std::string& queue, std::int16_t bucket,
                                         Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  Track& track = tracks_[{queue, bucket}];
  const bool short_of_work = !track.busy && !track.full_look_is_slow;
  if (short_of_work || now >= track.full_look_due) {
    // Others go on from where they are while this one looks.
    track.full_look_due = now + std::chrono::seconds{1};
    return {.from_the_beginning = true, .queue_is_capped = track.capped};
  }
  return {.from_the_beginning = false, .queue_is_capped = track.capped, .since = track.since};
}

bool ClaimCursor::found(const std::string& queue, std::int16_t bucket, const Look& look,
                        const std::vector<ClaimedJob>& jobs, std::size_t first_job, bool full,
                        Clock::time_point begun, Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  Track& track = tracks_[{queue, bucket}];
  std::array<Position, kPriorities> last{};
  for (std::size_t i = first_job; i < jobs.size(); ++i) {
    Position& position = last[static_cast<std::size_t>(jobs[i].priority)];
    position = std::max(position, Position{.run_at = jobs[i].run_at, .id = jobs[i].lease.job.value});
  }
  for (std::size_t p = 0; p < last.size(); ++p) {
    if (last[p] == Position{}) continue;
    // A look from the beginning may go back: what it found there is worked off first.
    track.since[p] = look.from_the_beginning ? last[p] : std::max(track.since[p], last[p]);
  }
  track.busy = full;
  if (look.from_the_beginning) {
    const auto took = now - begun;
    track.full_look_is_slow = took > kFastLook;
    track.full_look_due = now + kShareOfTime * took;
    return false;
  }
  return !full && (!track.full_look_is_slow || now >= track.full_look_due);
}

void ClaimCursor::look_back() {
  const std::lock_guard lock{mutex_};
  for (auto& [place, track] : tracks_) track.full_look_due = Clock::time_point{};
}

void ClaimCursor::set_capped(const std::string& queue, std::int16_t bucket, bool capped) {
  const std::lock_guard lock{mutex_};
  tracks_[{queue, bucket}].capped = capped;
}

}  // namespace faultline::store

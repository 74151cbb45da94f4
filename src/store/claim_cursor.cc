#include "store/claim_cursor.h"

#include <algorithm>

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFullLookInterval{1'000};
/// A look from the beginning that is over this fast may be made as often as anybody likes.
constexpr milliseconds kFastLook{10};
constexpr int kShareOfTime = 20;

}  // namespace

ClaimCursor::Look ClaimCursor::next_look(const std::string& queue, std::int16_t bucket, Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  Track& track = tracks_[{queue, bucket}];
  const bool short_of_work = !track.busy && now >= track.full_look_allowed;
  if (short_of_work || now >= track.full_look_due) {
    // Others go on from where they are while this one looks.
    track.full_look_due = now + kFullLookInterval;
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
    const bool slow = took > kFastLook;
    track.full_look_allowed = slow ? now + kShareOfTime * took : Clock::time_point{};
    track.full_look_due = now + std::max<Clock::duration>(kFullLookInterval, slow ? kShareOfTime * took : Clock::duration{});
    return false;
  }
  return !full && now >= track.full_look_allowed;
}

void ClaimCursor::set_capped(const std::string& queue, std::int16_t bucket, bool capped) {
  const std::lock_guard lock{mutex_};
  tracks_[{queue, bucket}].capped = capped;
}

}  // namespace faultline::store

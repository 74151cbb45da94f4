#include "store/announce.h"

#include "sql/statements.h"

namespace faultline::store {

bool Announcer::due(std::string_view queue, Commit commit, Clock::time_point now) {
  const std::lock_guard lock{mutex_};
  Made& made = commit == Commit::at_once ? at_once_ : later_;
  const auto last = made.find(queue);
  if (last == made.end()) {
    made.emplace(queue, now);
    return true;
  }
  if (now - last->second < kInterval) return false;
  last->second = now;
  return true;
}

void Announcer::announce(const std::set<std::string>& queues, Commit commit, pg::Unit& unit) {
  for (const std::string& queue : queues) {
    if (due(queue, commit)) unit.add(sql::kQueuesAnnounce, pg::Params{}.add(kChannel).add(queue));
  }
}

}  // namespace faultline::store

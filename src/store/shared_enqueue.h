#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "faultline/store.h"

namespace faultline::store {

/// Puts small submissions of several threads into one commit. The first ones go at once; those that come
/// while they are under way wait for them, and the first of these then goes for all: the busier the database,
/// the larger the batches. A thread alone never waits.
///
/// Nobody suffers for another: who shared a batch that failed goes by himself, and so does who has waited
/// for long. Thread-safe.
class SharedEnqueue {
 public:
  using Reply = Expected<std::vector<Submission>>;
  using Add = std::function<Reply(std::span<const NewJob>)>;

  /// `add` adds jobs, all or none.
  explicit SharedEnqueue(Add add) : add_(std::move(add)) {}

  /// Whether these may share a commit with others: few, small, and without keys, for which others may wait.
  [[nodiscard]] static bool takes(std::span<const NewJob> jobs);
  [[nodiscard]] Reply enqueue(std::span<const NewJob> jobs);

 private:
  struct Call {
    std::span<const NewJob> jobs;
    std::condition_variable changed{};
    bool taken = false;  ///< another thread goes for this one
    bool leads = false;  ///< this one goes for those that wait
    bool over = false;   ///< without a reply: it goes by itself
    std::optional<Reply> reply{};
  };

  /// Waits for a turn. False: the call has its reply, or goes by itself.
  bool wait_for_turn(Call& call, std::unique_lock<std::mutex>& lock);
  std::vector<Call*> take_waiting(std::size_t jobs);
  Reply add_for(const Call& call, std::span<Call* const> others);
  /// Lets those go that were added too, and gives the turn to the next one that waits.
  void end_turn(std::span<Call* const> others);

  const Add add_;
  std::mutex mutex_;
  std::size_t under_way_ = 0;  // guarded by mutex_, as what follows
  std::deque<Call*> waiting_{};
};

}  // namespace faultline::store

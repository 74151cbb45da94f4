#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/store.h"
#include "worker/clock.h"

namespace faultline::worker {

/// What a worker needs of its queue: the fenced verbs, from the database itself or through a server. What
/// each verb means stands at `Store`. Thread-safe. Calls block until they are answered, or fail by
/// themselves.
class Link {
 public:
  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  /// The problem, if one of these queues does not exist or cannot be reached.
  [[nodiscard]] virtual std::optional<Error> check_queues(std::span<const std::string> queues) = 0;
  /// Jobs come through a server: what a claim asked for and did not get comes later, unless `want` takes it
  /// back.
  [[nodiscard]] virtual bool through_server() const = 0;

  struct Claimed {
    std::vector<ClaimedJob> jobs;
    /// A moment of this process before the leases began: their TTL counted from here ends before they do.
    Clock::time_point since{};
  };
  [[nodiscard]] virtual Expected<Claimed> claim(const ClaimRequest& request) = 0;
  /// At most this many more jobs of the queue are wanted now.
  virtual void want(std::string_view queue, std::size_t limit) = 0;
  struct Exchange {
    std::vector<Verdict> verdicts;
    Claimed claimed;
  };
  /// Settles and claims, in one commit where that is possible. An error: nothing happened. Where it may have
  /// happened the verdicts are `unknown`.
  [[nodiscard]] virtual Expected<Exchange> exchange(std::span<const Settlement> settlements,
                                                    const ClaimRequest& request) = 0;
  [[nodiscard]] virtual Expected<std::vector<Verdict>> settle(std::span<const Settlement> settlements) = 0;
  [[nodiscard]] virtual Expected<std::vector<std::optional<Outcome::Kind>>> resolve(
      std::span<const Lease> leases) = 0;
  /// `stages`: how far each is. Through a server that is not told, and what was claimed has begun.
  [[nodiscard]] virtual Expected<std::vector<Beat>> heartbeat(std::span<const Lease> leases,
                                                              std::span<const Stage> stages) = 0;

  // For handlers. However slow they are, they hold up nothing of the above.

  [[nodiscard]] virtual Expected<std::vector<Verdict>> progress(std::span<const ProgressReport> reports) = 0;
  [[nodiscard]] virtual Expected<std::vector<Verdict>> check(std::span<const Lease> leases) = 0;
  /// As `heartbeat`, for `Context::extend`.
  [[nodiscard]] virtual Expected<std::vector<Beat>> extend(std::span<const Lease> leases,
                                                           std::chrono::milliseconds by) = 0;
  [[nodiscard]] virtual Expected<std::vector<Effect>> begin_effects(std::span<const EffectKey> keys) = 0;
  [[nodiscard]] virtual Expected<std::vector<Effect>> record_effects(
      std::span<const EffectResult> results) = 0;
  [[nodiscard]] virtual Expected<std::vector<Verdict>> forget_effects(std::span<const EffectKey> keys) = 0;
  /// `invalid_argument` where the link does not lead to a database.
  [[nodiscard]] virtual Expected<Verdict> transact(const Lease& lease,
                                                   const std::function<Outcome(Transaction&)>& body) = 0;

  /// The worker ends: calls under way, and later ones, fail as soon as that is possible.
  virtual void give_up() {}

  // Waking.

  /// Both are called from a thread of the link's; they may call the link.
  struct Callbacks {
    std::function<void(std::string_view queue)> announced;  ///< there are jobs
    std::function<void()> connected;                        ///< announcements may have been lost: look
  };
  /// Begins to announce jobs of these queues. Once, and before the first claim if it is ever called.
  virtual void listen(const std::vector<std::string>& queues, Callbacks callbacks) = 0;
  /// There will be no more claims: what comes unclaimed is given back, at once and in the background.
  virtual void stop_claims() = 0;
  /// Nothing is announced afterwards.
  virtual void stop_listening() = 0;
};

}  // namespace faultline::worker

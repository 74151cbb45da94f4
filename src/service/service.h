#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/event.h"
#include "faultline/store.h"
#include "metrics/metrics.h"
#include "service/access.h"
#include "service/problem.h"

namespace faultline::trace {
class Exporter;
}

namespace faultline::service {

struct ServiceOptions {
  std::string database;
  std::size_t connections = 4;  ///< for claims, settlements and submissions
  std::size_t waiting_max =
      10'000;  ///< items (jobs, leases, calls) that wait for the database; more are refused
  std::size_t consumers_max = 10'000;  ///< streams and long polls at once
  std::size_t payload_bytes_max = 1'048'576;
  std::size_t json_depth_max = 128;
  std::size_t batch_max = 1'000;  ///< jobs, leases or settlements in one call
  std::chrono::milliseconds call_timeout{10'000};
  std::chrono::milliseconds poll_max{
      500};            ///< the longest wait between two looks at a queue that somebody waits for
  bool listen = true;  ///< wake on announcements, besides polling
  EventSink log{};     ///< required
  /// `Authenticator::still_good`, for those who wait for jobs or watch. None: they stay as long as they like.
  std::function<std::optional<Problem>(const Principal&)> still_good{};
  trace::Exporter* exporter = nullptr;          ///< of spans; it outlives the service. Null: there are none
  std::shared_ptr<metrics::Metrics> metrics{};  ///< where it counts; none: nobody looks
};

/// Jobs for a consumer. Returns false if it is gone: then they are released at once, and not counted.
/// `sequence` is what the last `grant` before the claim said. Called on a thread of the service, one call at
/// a time for a consumer; must not block.
using Deliver = std::function<bool(std::vector<ClaimedJob> jobs, std::int64_t sequence)>;

/// Whoever waits or watches gets nothing more, and why: its key was revoked, or has expired. Called once, on
/// a thread of the service, when everything before has been told; must not block, and as in `Deliver` nothing
/// is destroyed from within.
using Ended = std::function<void(const Problem& why)>;

/// A stream or a long poll that waits for jobs of one queue. Destroyed, it gets nothing more: the destructor
/// waits for a delivery under way (so it must not be called from within one; return false there instead).
class Consumer {
 public:
  virtual ~Consumer() = default;
  /// It may be given `credit` jobs in all since it began.
  virtual void grant(std::int64_t credit, std::int64_t sequence) = 0;
};

/// Jobs by id, or all that match. Exactly one of both.
struct Selection {
  std::vector<JobId> ids{};
  std::optional<ListRequest> filter{};  ///< queue, kind, state; `before` and `limit` are not looked at
  bool dry_run = false;                 ///< with a filter: only count
  /// Names the call, so that it can be sent again; see `Store::cancel`. A filter selects again, and what the
  /// call did before to a job that it still matches is answered the same. Nil: the service names it.
  Uuid call{};
};
template <class Status>
struct Changed {
  std::vector<std::pair<JobId, Status>> items{};  ///< by id, in their order
  std::size_t matched = 0;                        ///< by filter
  std::size_t changed = 0;
};

struct QueueOverview {
  Queue queue;
  QueueCounts counts;
};

struct Page {
  std::vector<JobSummary> jobs;
  std::optional<std::string> next;  ///< the cursor of the next page
  std::size_t looked_at = 0;        ///< how many jobs were looked at for this one
};

/// One thing that happens now, for those who watch. `name` as in logs: job_enqueued, lease_acquired,
/// job_settled, stale_write_blocked, queue_changed, queues (a snapshot of all counts).
struct LiveEvent {
  std::uint64_t id = 0;  ///< grows by one
  std::string name;
  std::string queue;  ///< empty: not about one queue
  std::string json;   ///< one object, without newlines; never a payload
};

/// What both transports offer, without a wire: authorisation, limits, batching of what comes at the same
/// time, fair dispatch, over one `Store`. It keeps no state that matters: kill it at any moment.
///
/// Every call returns at once and answers through `done`, exactly once. Principals are checked here, so a
/// transport cannot forget to. Thread-safe.
class Service {
 public:
  /// Does not need the database: without it the service is not ready, answers `unavailable`, and recovers by
  /// itself.
  [[nodiscard]] static std::unique_ptr<Service> start(ServiceOptions options);
  virtual ~Service() = default;

  [[nodiscard]] virtual const ServiceOptions& options() const = 0;

  // Producing. Submissions that come at the same time share a transaction; each is all or nothing for itself.

  virtual void enqueue(const Principal& who, std::vector<NewJob> jobs,
                       Done<std::vector<Submission>> done) = 0;

  // Working.

  /// `worker` is a name for people. Fair among the consumers of a queue, and never beyond credit.
  [[nodiscard]] virtual ServiceResult<std::unique_ptr<Consumer>> consume(const Principal& who,
                                                                         std::string queue,
                                                                         std::string worker, Deliver deliver,
                                                                         Ended ended = {}) = 0;
  virtual void heartbeat(const Principal& who, std::vector<Lease> leases,
                         std::optional<std::chrono::milliseconds> extend, Done<std::vector<Beat>> done) = 0;
  virtual void settle(const Principal& who, std::vector<Settlement> settlements,
                      Done<std::vector<Verdict>> done) = 0;
  virtual void progress(const Principal& who, std::vector<ProgressReport> reports,
                        Done<std::vector<Verdict>> done) = 0;
  virtual void check(const Principal& who, std::vector<Lease> leases, Done<std::vector<Verdict>> done) = 0;
  virtual void resolve(const Principal& who, std::vector<Lease> leases,
                       Done<std::vector<std::optional<Outcome::Kind>>> done) = 0;
  virtual void begin_effects(const Principal& who, std::vector<EffectKey> keys,
                             Done<std::vector<Effect>> done) = 0;
  virtual void record_effects(const Principal& who, std::vector<EffectResult> results,
                              Done<std::vector<Effect>> done) = 0;
  virtual void forget_effects(const Principal& who, std::vector<EffectKey> keys,
                              Done<std::vector<Verdict>> done) = 0;

  // Looking and operating.

  virtual void job(const Principal& who, JobId id, Done<JobHistory> done) = 0;
  /// `cursor` is a `Page::next`, or empty.
  virtual void list(const Principal& who, ListRequest request, std::string cursor, Done<Page> done) = 0;
  virtual void queues(const Principal& who, Done<std::vector<QueueOverview>> done) = 0;
  /// `make`: one that there is not, too; otherwise that is `not_found`.
  virtual void set_queue(const Principal& who, std::string name, QueueSettings settings, bool make,
                         Done<QueueOverview> done) = 0;
  /// A queue that has live jobs is a `conflict`.
  virtual void delete_queue(const Principal& who, std::string name, Done<QueueDeletion> done) = 0;
  virtual void cancel(const Principal& who, Selection jobs, std::string reason,
                      Done<Changed<CancelStatus>> done) = 0;
  virtual void requeue(const Principal& who, Selection jobs, Done<Changed<RequeueStatus>> done) = 0;
  /// Removes dead jobs for good.
  virtual void purge(const Principal& who, Selection jobs, Done<Changed<PurgeStatus>> done) = 0;
  /// Says of an effect that was begun and never recorded whether it happened.
  virtual void decide_effect(const Principal& who, EffectFinding finding, Done<DecideStatus> done) = 0;
  struct StalePage {
    std::vector<StaleWrite> writes;
    std::optional<std::string> next;
  };
  virtual void stale_writes(const Principal& who, std::size_t limit, std::string cursor,
                            Done<StalePage> done) = 0;

  // Watching.

  /// A subscription; destroyed, it ends. `next` is called on a thread of the service, in order, and must not
  /// block.
  class EventSubscription {
   public:
    virtual ~EventSubscription() = default;
  };
  [[nodiscard]] virtual ServiceResult<std::unique_ptr<EventSubscription>> watch(
      const Principal& who, std::function<void(const std::shared_ptr<const LiveEvent>&)> next,
      Ended ended = {}) = 0;

  // Its own state.

  /// The database is reachable and its schema current, as of the last look, nothing impedes it, and it does
  /// not drain.
  [[nodiscard]] virtual bool ready() const = 0;
  /// Something outside of it keeps callers away, so that it is not ready; empty: no longer. Calls are
  /// answered nevertheless.
  virtual void impede(std::string why) = 0;
  /// Why not, for people; empty when ready.
  [[nodiscard]] virtual std::string why_not_ready() const = 0;
  struct Counters {
    std::uint64_t heartbeats = 0, refused_overload = 0;
    std::size_t consumers = 0, waiting = 0;
  };
  [[nodiscard]] virtual Counters counters() const = 0;

  /// Not ready any more; no more claims; consumers are told (an empty delivery with sequence -1). Calls are
  /// still answered, so that workers can report.
  virtual void drain() = 0;
  /// Answers what waits, refuses the rest. After it no callback is called.
  virtual void stop() = 0;
};

}  // namespace faultline::service

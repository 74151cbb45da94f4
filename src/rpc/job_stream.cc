#include "rpc/job_stream.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/server_context.h>

#include "rpc/call_log.h"
#include "rpc/status.h"
#include "service/give_back.h"
#include "wire/convert.h"

namespace faultline::rpc {

namespace pb = ::faultline::v1;
using service::JobInTransit;
using service::Problem;
using service::Transit;

namespace {

/// Messages are filled up to this, well below the 4 MiB that clients take unless they are told otherwise.
constexpr std::size_t kMessageBytes = 1'048'576;
/// What may wait here for a client that grants more than it reads: jobs, and about as many bytes.
constexpr std::size_t kUnsentMax = 1'000;
constexpr std::size_t kUnsentBytes = 4'194'304;

Problem malformed(std::string message, std::string hint) {
  return {.code = service::Code::malformed, .message = std::move(message), .hint = std::move(hint)};
}

}  // namespace

/// Reads grants, and writes what the service delivers, one message at a time. A job counts as sent when its
/// write has ended well; every other one is given back when the stream ends, as far as its delivery class
/// allows it.
///
/// The service delivers on its own threads while reactions come on gRPC's, several at once: `mutex_` guards
/// the state, and no call to gRPC or to the service is made under it. `grant_mutex_` keeps grants in order;
/// deliveries do not take it. The object lives until OnDone, which comes after Finish, which is called once:
/// by whoever finds, in `write_next`, that the stream is to end and that nothing is being written.
class JobStream final : public grpc::ServerBidiReactor<pb::StreamJobsRequest, pb::StreamJobsResponse> {
 public:
  JobStream(SharedState& shared, service::ServiceResult<service::Principal> who, CallLog log)
      : shared_(shared), log_(std::move(log)) {
    std::optional<Problem> problem;
    if (!who) {
      problem = std::move(who.error());
    } else {
      who_ = std::move(*who);
      log_.called_by(who_);
      problem = service::check_access(who_, service::Operation::claim);
      if (!problem) problem = enter();
    }
    if (problem) {
      log_.failed(*problem);
      end(to_status(*problem));
    } else {
      StartRead(&request_);
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // The client will grant nothing more. What it was given is still sent, as far as it can be.
      stop_claims();
      end(grpc::Status::OK);
      return;
    }
    if (const auto problem = take(request_)) {
      stop_claims();
      abort(to_status(*problem));
      return;
    }
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    std::vector<JobInTransit> written;
    {
      const std::lock_guard lock{mutex_};
      written = std::exchange(in_write_, {});
      if (ok) {
        writing_ = false;
        sent_ += static_cast<std::int64_t>(written.size());
      }
    }
    if (ok) {
      grant();
    } else {
      // The connection may have taken the message before it broke, and the client may have read it.
      release(give_back(std::move(written), Transit::begun));
      stop_claims();
      abort(grpc::Status{grpc::StatusCode::CANCELLED, "the stream broke"});
      // Only now that nothing waits: after a write that failed nobody begins another.
      const std::lock_guard lock{mutex_};
      writing_ = false;
    }
    write_next();
  }

  void OnCancel() override {
    stop_claims();
    abort(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    stop_claims();
    {
      const std::lock_guard lock{shared_.mutex};
      if (shared_.streams.erase(this) > 0) shared_.places.give_back(who_.account(), 1);
    }
    delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC hands it back here
  }

  /// Ends the stream once what waits is written, and says that this server stops.
  void go_away() {
    {
      const std::lock_guard lock{mutex_};
      if (!ending_) going_away_ = true;
    }
    end(grpc::Status::OK);
  }

 private:
  /// A job that waits to be written.
  struct Unsent {
    JobInTransit job;
    pb::JobAssignment message;
    std::size_t bytes;
    std::int64_t sequence;
  };

  ~JobStream() override = default;

  /// Takes one of the server's places.
  std::optional<Problem> enter() {
    const std::lock_guard lock{shared_.mutex};
    if (shared_.draining) {
      return Problem{.code = service::Code::unavailable,
                     .message = "this server stops",
                     .hint = "open the stream at another one, or try again",
                     .retry_after = std::chrono::milliseconds{1'000}};
    }
    if (!shared_.places.has_room(who_.account(), 1)) {
      const std::size_t mine = shared_.places.taken_by(who_.account());
      return Problem{.code = service::Code::overloaded,
                     .message = "there are " + std::to_string(shared_.places.taken()) + " streams already" +
                                (mine == 0 ? "" : ", " + std::to_string(mine) + " of them of this key"),
                     .hint = "try again later or at another server, or raise the limit of streams",
                     .retry_after = std::chrono::milliseconds{1'000}};
    }
    shared_.streams.insert(this);
    shared_.places.take(who_.account(), 1);
    return std::nullopt;
  }

  /// One message of the client.
  std::optional<Problem> take(pb::StreamJobsRequest& request) {
    if (request.credit() < 0) {
      return malformed("credit: it is negative", "say how many jobs the stream may have been sent in all");
    }
    if (!named_) {
      if (request.queue().empty()) {
        return malformed("queue: it is missing", "the first message of a stream names queue and worker");
      }
      auto consumer = shared_.service.consume(
          who_, std::move(*request.mutable_queue()), std::move(*request.mutable_worker()),
          [this](std::vector<ClaimedJob> jobs, std::int64_t sequence) {
            return deliver(std::move(jobs), sequence);
          },
          [this](const Problem& why) { abort(to_status(why)); });
      if (!consumer) return std::move(consumer.error());
      named_ = true;
      const std::lock_guard lock{mutex_};
      consumer_ = std::move(*consumer);
    }
    {
      const std::lock_guard lock{mutex_};
      credit_ = request.credit();
      sequence_ = request.sequence();
      if (ending_) return std::nullopt;
    }
    grant();
    return std::nullopt;
  }

  /// Tells the service how much may be delivered: what the client says, but only so far ahead of what it has
  /// read.
  void grant() {
    const std::lock_guard grants_in_order{grant_mutex_};
    std::shared_ptr<service::Consumer> consumer;
    std::int64_t credit = 0;
    std::int64_t sequence = 0;
    {
      const std::lock_guard lock{mutex_};
      const auto room = std::clamp<std::size_t>(kUnsentBytes / job_bytes_, 1, kUnsentMax);
      credit = std::min(credit_, sent_ + static_cast<std::int64_t>(room));
      sequence = sequence_;
      if (granted_ == std::pair{credit, sequence} || ending_) return;
      granted_ = {credit, sequence};
      consumer = consumer_;
    }
    if (consumer) consumer->grant(credit, sequence);
  }

  bool deliver(std::vector<ClaimedJob> jobs, std::int64_t sequence) {
    if (jobs.empty()) {
      if (sequence == -1) go_away();
      return true;
    }
    {
      const std::lock_guard lock{mutex_};
      if (ending_) return false;
      std::size_t bytes = 0;
      for (ClaimedJob& job : jobs) {
        JobInTransit sent = service::in_transit(job);
        pb::JobAssignment message = wire::to_proto(std::move(job));
        const std::size_t size = message.ByteSizeLong();
        unsent_.push_back({std::move(sent), std::move(message), size, sequence});
        bytes += size;
      }
      job_bytes_ = std::max<std::size_t>(bytes / jobs.size(), 1);
    }
    write_next();
    return true;
  }

  /// The stream ends with this status when everything that waits has been written.
  void end(grpc::Status status) {
    {
      const std::lock_guard lock{mutex_};
      if (!ending_) status_ = std::move(status);
      ending_ = true;
    }
    write_next();
  }

  /// The stream ends with this status now; what waits to be written is released. A write that is under way
  /// says itself how it ended.
  void abort(grpc::Status status) {
    std::vector<JobInTransit> lost;
    {
      const std::lock_guard lock{mutex_};
      for (Unsent& unsent : unsent_) lost.push_back(std::move(unsent.job));
      unsent_.clear();
      going_away_ = false;
      if (!aborted_) status_ = std::move(status);
      ending_ = aborted_ = true;
    }
    release(give_back(std::move(lost), Transit::not_begun));
    write_next();
  }

  /// Writes what waits, or ends the stream, unless a write is under way.
  void write_next() {
    std::optional<grpc::Status> last;
    {
      const std::lock_guard lock{mutex_};
      if (writing_ || finished_) return;
      if (!unsent_.empty() || going_away_) {
        compose();
        writing_ = true;
      } else if (ending_) {
        finished_ = true;
        last = status_;
      } else {
        return;
      }
    }
    if (last) {
      log_.answered(*last);
      Finish(*last);
    } else {
      StartWrite(&response_);
    }
  }

  /// Fills the next message, as far as it goes. Of several deliveries it has the sequence of the first:
  /// leases that began later than that says end later, too.
  void compose() {
    response_.Clear();
    std::size_t bytes = 0;
    while (!unsent_.empty()) {
      Unsent& next = unsent_.front();
      bytes += next.bytes;
      if (bytes > kMessageBytes && !in_write_.empty()) break;
      if (in_write_.empty()) response_.set_sequence(next.sequence);
      *response_.add_jobs() = std::move(next.message);
      in_write_.push_back(std::move(next.job));
      unsent_.pop_front();
    }
    if (unsent_.empty() && std::exchange(going_away_, false)) response_.set_going_away(true);
  }

  /// Waits for a delivery under way, so it must not be called from within one.
  void stop_claims() {
    std::shared_ptr<service::Consumer> consumer;
    const std::lock_guard lock{mutex_};
    consumer = std::move(consumer_);
  }

  /// They are given to somebody else at once. If that fails they come back when their leases run out.
  void release(std::vector<Settlement> releases) {
    if (releases.empty()) return;
    const std::size_t count = releases.size();
    shared_.service.settle(
        who_, std::move(releases),
        [log = shared_.log, count](const service::ServiceResult<std::vector<Verdict>>& verdicts) {
          Event event{.name = "jobs_released",
                      .at = std::chrono::system_clock::now(),
                      .fields = {{"jobs", std::to_string(count)},
                                 {"why", "their stream broke before they were sent"}}};
          if (!verdicts) {
            event.severity = Severity::warning;
            event.fields.emplace_back("error",
                                      verdicts.error().message + "; they wait until their leases run out");
          }
          log(event);
        });
  }

  SharedState& shared_;
  CallLog log_;
  service::Principal who_;
  pb::StreamJobsRequest request_;  // of the read under way
  bool named_ = false;             // only reads look at it, one at a time

  std::mutex grant_mutex_;
  std::pair<std::int64_t, std::int64_t> granted_{0, -1};  // credit and sequence

  std::mutex mutex_;  // guards all below
  std::shared_ptr<service::Consumer> consumer_;
  std::int64_t credit_ = 0;
  std::int64_t sequence_ = 0;
  std::int64_t sent_ = 0;
  std::size_t job_bytes_ = 1;  // of one of the last delivery, on average
  std::deque<Unsent> unsent_;
  bool writing_ = false;
  pb::StreamJobsResponse response_;  // of the write under way
  std::vector<JobInTransit> in_write_;
  bool going_away_ = false;  // still to be said
  bool ending_ = false;      // nothing more is taken from the service
  bool aborted_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

grpc::ServerBidiReactor<pb::StreamJobsRequest, pb::StreamJobsResponse>* open_job_stream(
    SharedState& shared, grpc::CallbackServerContext& context) {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): it deletes itself in OnDone
  return new JobStream(shared, caller(shared, context), CallLog{shared, context, "StreamJobs"});
}

void drain_job_streams(SharedState& shared) {
  // Under the lock a stream may end, but not go.
  const std::lock_guard lock{shared.mutex};
  shared.draining = true;
  for (JobStream* const stream : shared.streams) stream->go_away();
}

}  // namespace faultline::rpc

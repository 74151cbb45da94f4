#include "remote/job_subscription.h"

#include <algorithm>

namespace faultline::remote {
namespace {

/// How long a job may wait in the inbox before others should have it.
constexpr std::chrono::milliseconds kPatience{250};
constexpr std::chrono::milliseconds kWaitMin{50};
constexpr std::chrono::milliseconds kWaitMax{5'000};
/// How long a stream that is left may take to end by itself.
constexpr std::chrono::seconds kGrace{2};
/// A stream that ended sooner, and brought nothing, is not opened again at once.
constexpr std::chrono::seconds kShortLife{1};
/// A server that does not take a stream says so at once. One that takes it need not say anything.
constexpr std::chrono::milliseconds kTaken{200};
constexpr std::chrono::milliseconds kRefreshMax{1'000};
constexpr std::chrono::milliseconds kRefreshMin{100};

}  // namespace

/// One stream, from its opening to its end. All members are guarded by the subscription's mutex. It keeps
/// itself alive until gRPC is done with it.
class JobSubscription::Stream
    : public grpc::ClientBidiReactor<pb::StreamJobsRequest, pb::StreamJobsResponse> {
 public:
  Stream(JobSubscription& subscription, std::shared_ptr<ServerConnection> over)
      : connection(std::move(over)), subscription_(subscription) {}

  void start(std::shared_ptr<Stream> self, Clock::time_point now) {
    self_ = std::move(self);
    connection->authorize(context_);
    connection->stub().async()->StreamJobs(&context_, this);
    // Writes come from other threads, until nothing can be read any more.
    AddHold();
    refresh(now);
    StartRead(&incoming_);
    StartCall();
  }
  /// Tells the server the credit, and a new sequence.
  void refresh(Clock::time_point now) {
    refreshed_at = now;
    dirty_ = true;
    write();
  }
  /// No more messages; the server ends the stream when it has sent what it had.
  void half_close() {
    closing_ = true;
    write();
  }
  void cancel() { context_.TryCancel(); }

  /// A moment before the server claimed what came with this sequence.
  Clock::time_point sent_at(std::int64_t sequence) {
    while (sent_.size() > 1 && sent_.front().sequence < sequence) sent_.pop_front();
    return sent_.front().at;
  }

  const std::shared_ptr<ServerConnection> connection;
  const Clock::time_point began = Clock::now();
  std::int64_t received = 0;
  Clock::time_point refreshed_at{};
  Clock::time_point cancel_at = Clock::time_point::max();
  bool opened = false;

 private:
  struct Sent {
    std::int64_t sequence = 0;
    Clock::time_point at;
  };

  void write() {
    if (writing_ || over_ || closed_) return;
    if (closing_) {
      closed_ = true;
      StartWritesDone();
      return;
    }
    if (!std::exchange(dirty_, false)) return;
    outgoing_.Clear();
    if (sequence_ == 0) {
      outgoing_.set_queue(subscription_.options_.queue);
      outgoing_.set_worker(subscription_.options_.worker);
    }
    outgoing_.set_sequence(++sequence_);
    outgoing_.set_credit(received + static_cast<std::int64_t>(subscription_.credit_));
    sent_.push_back({.sequence = sequence_, .at = Clock::now()});
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void OnReadInitialMetadataDone(bool ok) override {
    const std::lock_guard lock{subscription_.mutex_};
    if (ok) subscription_.stream_opened(*this);
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock{subscription_.mutex_};
    writing_ = false;
    if (ok) write();
  }
  void OnReadDone(bool ok) override {
    {
      const std::lock_guard lock{subscription_.mutex_};
      if (ok) {
        subscription_.take_in(*this, incoming_);
        incoming_.Clear();
        StartRead(&incoming_);
        return;
      }
      over_ = true;
    }
    RemoveHold();
  }
  void OnDone(const grpc::Status& status) override {
    const std::lock_guard lock{subscription_.mutex_};
    // It may hold the last of its channel. gRPC joins its own threads when a channel goes, so no thread of
    // gRPC's may let go of it.
    subscription_.ended_.push_back(std::move(self_));
    subscription_.stream_ended(*this, status);
  }

  JobSubscription& subscription_;
  std::shared_ptr<Stream> self_;
  grpc::ClientContext context_;
  pb::StreamJobsRequest outgoing_;
  pb::StreamJobsResponse incoming_;
  std::deque<Sent> sent_;
  std::int64_t sequence_ = 0;
  bool dirty_ = false;
  bool writing_ = false;
  bool closing_ = false;
  bool closed_ = false;  ///< for writing
  bool over_ = false;
};

JobSubscription::JobSubscription(Options options, ServerConnections& connections, Callbacks callbacks)
    : options_(std::move(options)), connections_(connections), callbacks_(std::move(callbacks)) {}

JobSubscription::~JobSubscription() {
  stop();
  cancel();
  wait_until_ended();
}

// Claims.

void JobSubscription::set_credit(std::size_t credit) {
  if (stopped_) credit = 0;
  if (std::exchange(credit_, credit) != credit && current_) current_->refresh(Clock::now());
}

void JobSubscription::begin_claim(std::size_t limit) {
  const std::lock_guard lock{mutex_};
  claiming_ += limit;
  set_credit(claiming_ - std::min(claiming_, inbox_.size()));
}

std::vector<JobSubscription::Arrived> JobSubscription::end_claim(std::size_t limit) {
  const std::lock_guard lock{mutex_};
  claiming_ -= limit;
  const std::size_t count = std::min(limit, inbox_.size());
  std::vector<Arrived> taken{std::make_move_iterator(inbox_.begin()),
                             std::make_move_iterator(inbox_.begin() + static_cast<std::ptrdiff_t>(count))};
  inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<std::ptrdiff_t>(count));
  return taken;
}

void JobSubscription::put_back(std::vector<Arrived> jobs) {
  const std::lock_guard lock{mutex_};
  inbox_.insert(inbox_.begin(), std::make_move_iterator(jobs.begin()), std::make_move_iterator(jobs.end()));
}

void JobSubscription::want(std::size_t limit) {
  const std::lock_guard lock{mutex_};
  const std::size_t most = limit + claiming_;
  set_credit(std::min(credit_, most - std::min(most, inbox_.size())));
}

// The stream.

void JobSubscription::open(Clock::time_point now) {
  current_ = std::make_shared<Stream>(*this, connections_.current());
  current_->start(current_, now);
}

void JobSubscription::retire(Clock::time_point now) {
  current_->half_close();
  current_->cancel_at = now + kGrace;
  retired_.push_back(std::move(current_));
  current_.reset();
}

void JobSubscription::wait_to_open(const Stream& last, Clock::time_point now) {
  if (last.received > 0 || now - last.began >= kShortLife) wait_ = {};
  // Full jitter: workers that lost their server together do not come back together.
  std::uniform_int_distribution<std::int64_t> spread{0, wait_.count()};
  open_at_ = now + std::chrono::milliseconds{spread(jitter_)};
  wait_ = std::clamp(wait_ * 2, kWaitMin, kWaitMax);
}

void JobSubscription::stream_opened(Stream& stream) {
  stream.opened = true;
  if (&stream != current_.get()) return;
  trouble_.reset();
  callbacks_.opened();
}

void JobSubscription::take_in(Stream& stream, pb::StreamJobsResponse& message) {
  if (!stream.opened) stream_opened(stream);
  const Clock::time_point now = Clock::now();
  const Clock::time_point since = stream.sent_at(message.sequence());
  for (pb::JobAssignment& assignment : *message.mutable_jobs()) {
    ++stream.received;
    credit_ -= std::min<std::size_t>(credit_, 1);
    // What cannot be understood is left to its lease.
    auto job = wire::from_proto(std::move(assignment));
    if (!job) continue;
    shortest_ttl_ = std::min(shortest_ttl_, job->lease_ttl);
    Arrived arrived{.job = std::move(*job), .since = since, .at = now};
    if (stopped_)
      unwanted_.push_back(std::move(arrived));
    else
      inbox_.push_back(std::move(arrived));
  }
  if (!message.jobs().empty()) callbacks_.arrived();
  if (message.going_away() && &stream == current_.get()) {
    leave(stream.connection);
    wait_to_open(stream, now);
    retire(now);
    callbacks_.changed();
  }
}

void JobSubscription::leave(const std::shared_ptr<ServerConnection>& connection) {
  if (!to_leave_) to_leave_ = connection;
}

void JobSubscription::stream_ended(Stream& stream, const grpc::Status& status) {
  if (&stream == current_.get()) {
    Failed why = failed(status, stream.connection->target());
    if (!status.ok()) trouble_ = std::move(why.error);
    if (why.elsewhere) leave(stream.connection);
    wait_to_open(stream, Clock::now());
    current_.reset();
  } else {
    std::erase_if(retired_, [&](const auto& each) { return each.get() == &stream; });
  }
  changed_.notify_all();
  callbacks_.changed();
}

// Keeping it going.

Clock::duration JobSubscription::refresh_interval() const {
  return std::clamp(shortest_ttl_ / 10, kRefreshMin, kRefreshMax);
}

Clock::time_point JobSubscription::tend(Clock::time_point now) {
  // Released after the lock, which gRPC's threads may wait for.
  std::vector<std::shared_ptr<Stream>> ended;
  std::shared_ptr<ServerConnection> left;
  const std::lock_guard lock{mutex_};
  ended.swap(ended_);
  left.swap(to_leave_);
  if (left) connections_.leave(left);
  Clock::time_point next = now + kPatience;
  for (const auto& stream : retired_) {
    if (stream->cancel_at <= now) stream->cancel();
    next = std::min(next, std::max(stream->cancel_at, now + kWaitMin));
  }
  if (stopped_) return next;
  // Somebody found that the connection is not good.
  if (current_ && current_->connection != connections_.current()) retire(now);
  if (!current_ && open_at_ <= now) open(now);
  if (!current_) next = std::min(next, open_at_);
  if (current_ && !current_->opened) {
    if (current_->began + kTaken <= now && current_->connection->is_ready()) stream_opened(*current_);
    next = std::min(next, now + kTaken);
  }
  if (current_ && credit_ > 0) {
    if (current_->refreshed_at + refresh_interval() <= now) current_->refresh(now);
    next = std::min(next, current_->refreshed_at + refresh_interval());
  }
  while (inbox_.size() > claiming_ && inbox_.back().at + kPatience <= now) {
    unwanted_.push_back(std::move(inbox_.back()));
    inbox_.pop_back();
  }
  if (!unwanted_.empty()) callbacks_.arrived();
  return next;
}

std::vector<JobSubscription::Arrived> JobSubscription::unwanted() {
  const std::lock_guard lock{mutex_};
  return std::exchange(unwanted_, {});
}

void JobSubscription::stop() {
  const std::lock_guard lock{mutex_};
  if (std::exchange(stopped_, true)) return;
  std::ranges::move(inbox_, std::back_inserter(unwanted_));
  inbox_.clear();
  credit_ = 0;
  if (current_) retire(Clock::now());
  callbacks_.changed();
  callbacks_.arrived();
}

void JobSubscription::cancel() {
  const std::lock_guard lock{mutex_};
  for (const auto& stream : retired_) stream->cancel();
}

void JobSubscription::wait_until_ended() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return !current_ && retired_.empty(); });
}

std::optional<Error> JobSubscription::trouble() const {
  const std::lock_guard lock{mutex_};
  return trouble_;
}

}  // namespace faultline::remote

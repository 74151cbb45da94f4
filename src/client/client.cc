#include "faultline/client.h"

#include <algorithm>
#include <thread>

#include "store/validate.h"

namespace faultline {
namespace {

using std::chrono::milliseconds;

// How often `await` looks: soon at first, for jobs that take moments, and then ever more rarely.
constexpr milliseconds kFirstPause{2};
constexpr milliseconds kLongestPause{200};
/// What a look may take beyond the caller's time, so that one that begins in time can come to an end.
constexpr milliseconds kLookGrace{5'000};

/// The longest time that a caller may ask to wait: about a century, and no clock overflows.
constexpr milliseconds kForever{std::chrono::hours{24 * 365 * 100}};

bool has_ended(JobState state) {
  return state == JobState::succeeded || state == JobState::cancelled || state == JobState::dead;
}

Error no_such_job(JobId id) {
  return {.code = ErrorCode::invalid_argument,
          .message = "there is no job " + id.to_string(),
          .hint = "the transaction that adds it has not committed, or the job is past its queue's retention"};
}

/// The first answer of a batch of one.
template <class T>
Expected<T> only(Expected<std::vector<T>> answers) {
  if (!answers) return std::unexpected(std::move(answers.error()));
  return std::move(answers->front());
}

/// Some jobs, and those of them whose end has been seen.
class Awaited {
 public:
  Awaited(Store& store, std::span<const JobId> ids) : store_(store), ended_(ids.size()), ids_(ids) {
    for (std::size_t index = 0; index < ids.size(); ++index) open_.push_back(index);
  }

  [[nodiscard]] std::size_t open() const { return open_.size(); }
  [[nodiscard]] JobId first_open() const { return ids_[open_.front()]; }

  /// Looks at all open jobs at once, and takes those that have ended.
  [[nodiscard]] Expected<void> look(Deadline until) {
    auto states = store_.states(ids_of(open_), until);
    if (!states) return std::unexpected(std::move(states.error()));
    std::vector<std::size_t> done;
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const std::optional<JobState>& state = (*states)[i];
      if (!state) return std::unexpected(no_such_job(ids_[open_[i]]));
      if (has_ended(*state)) done.push_back(open_[i]);
    }
    return done.empty() ? Expected<void>{} : take(done, until);
  }

  [[nodiscard]] std::vector<Job> jobs() && {
    std::vector<Job> jobs;
    for (std::optional<Job>& job : ended_) jobs.push_back(std::move(*job));
    return jobs;
  }

 private:
  [[nodiscard]] std::vector<JobId> ids_of(const std::vector<std::size_t>& indices) const {
    std::vector<JobId> ids;
    for (const std::size_t index : indices) ids.push_back(ids_[index]);
    return ids;
  }

  [[nodiscard]] Expected<void> take(const std::vector<std::size_t>& done, Deadline until) {
    auto jobs = store_.jobs(ids_of(done), until);
    if (!jobs) return std::unexpected(std::move(jobs.error()));
    for (std::size_t i = 0; i < done.size(); ++i) {
      std::optional<Job>& job = (*jobs)[i];
      if (!job) return std::unexpected(no_such_job(ids_[done[i]]));
      // Somebody may have requeued it in between: then it has not ended.
      if (has_ended(job->state)) ended_[done[i]] = std::move(job);
    }
    std::erase_if(open_, [this](std::size_t index) { return ended_[index].has_value(); });
    return {};
  }

  Store& store_;
  std::vector<std::optional<Job>> ended_;
  std::vector<std::size_t> open_;
  std::span<const JobId> ids_;
};

Error still_open(const Awaited& awaited, milliseconds timeout) {
  const std::string others =
      awaited.open() > 1 ? " and " + std::to_string(awaited.open() - 1) + " others have" : " has";
  return {.code = ErrorCode::timed_out,
          .message = "job " + awaited.first_open().to_string() + others + " not ended within " +
                     std::to_string(timeout.count()) + " ms",
          .hint = "it goes on; await it again, or look at its state"};
}

}  // namespace

Expected<Client> Client::open(ClientOptions options) {
  if (auto problem = store::check_name("client's name", options.name))
    return std::unexpected(std::move(*problem));
  auto store = Store::open({.database = std::move(options.database),
                            .application_name = options.name,
                            .connections_max = options.connections_max,
                            .call_timeout = options.call_timeout});
  if (!store) return std::unexpected(std::move(store.error()));
  return Client{std::make_shared<Store>(std::move(*store)), std::move(options.name)};
}

Expected<Submission> Client::enqueue(const NewJob& job) { return store_->enqueue(job, KeyConflict::refuse); }

Expected<std::vector<Submission>> Client::enqueue(std::span<const NewJob> jobs) {
  return store_->enqueue(jobs, KeyConflict::refuse);
}

Expected<Submission> Client::enqueue_in(pg_conn* connection, const NewJob& job) {
  return only(enqueue_in(connection, std::span{&job, 1}));
}

Expected<std::vector<Submission>> Client::enqueue_in(pg_conn* connection, std::span<const NewJob> jobs) {
  return store_->enqueue_in(connection, jobs);
}

Expected<std::size_t> Client::enqueue_bulk(const std::function<std::optional<NewJob>()>& next) {
  return store_->enqueue_bulk(next);
}

Expected<std::optional<Job>> Client::get(JobId id) const { return store_->job(id); }
Expected<std::optional<JobHistory>> Client::history(JobId id) const { return store_->history(id); }
Expected<JobPage> Client::list(const ListRequest& request) const { return store_->list(request); }

Expected<Job> Client::await(JobId id, milliseconds timeout) const {
  return only(await(std::span{&id, 1}, timeout));
}

Expected<std::vector<Job>> Client::await(std::span<const JobId> ids, milliseconds timeout) const {
  const Deadline deadline = Deadline::clock::now() + std::clamp(timeout, milliseconds::zero(), kForever);
  Awaited awaited{*store_, ids};
  for (milliseconds pause = kFirstPause; awaited.open() > 0; pause = std::min(pause * 2, kLongestPause)) {
    const bool last = Deadline::clock::now() >= deadline;
    const auto looked = awaited.look(std::max(deadline, Deadline::clock::now()) + kLookGrace);
    // While the database is away there is nothing to do but to look again.
    if (!looked && (last || !may_pass(looked.error().code))) {
      return std::unexpected(looked.error());
    }
    if (awaited.open() == 0) break;
    if (last) return std::unexpected(still_open(awaited, timeout));
    std::this_thread::sleep_until(std::min(deadline, Deadline::clock::now() + pause));
  }
  return std::move(awaited).jobs();
}

Expected<CancelStatus> Client::cancel(JobId job, std::string_view reason, Uuid call) {
  return only(cancel(std::span{&job, 1}, reason, call));
}

Expected<std::vector<CancelStatus>> Client::cancel(std::span<const JobId> jobs, std::string_view reason,
                                                   Uuid call) {
  return store_->cancel(jobs, name_, reason, call);
}

Expected<RequeueStatus> Client::requeue(JobId job, Uuid call) {
  return only(requeue(std::span{&job, 1}, call));
}

Expected<std::vector<RequeueStatus>> Client::requeue(std::span<const JobId> jobs, Uuid call) {
  return store_->requeue(jobs, name_, call);
}

Expected<DecideStatus> Client::decide_effect(const EffectFinding& finding) {
  return store_->decide_effect(finding, name_);
}

Expected<void> Client::set_queue(std::string_view name, const QueueSettings& settings) {
  return store_->set_queue(name, settings);
}

Expected<void> Client::change_queue(std::string_view name, const QueueSettings& settings) {
  return store_->change_queue(name, settings);
}

Expected<QueueDeletion> Client::delete_queue(std::string_view name) { return store_->delete_queue(name); }

Expected<void> Client::pause(std::string_view queue) { return store_->pause(queue); }
Expected<void> Client::resume(std::string_view queue) { return store_->resume(queue); }
Expected<std::vector<Queue>> Client::queues() const { return store_->queues(); }

Expected<std::vector<QueueCounts>> Client::counts(const std::optional<std::string>& queue) const {
  return store_->counts(queue);
}

}  // namespace faultline

#include "store/enqueue.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "base/json_text.h"
#include "sql/statements.h"
#include "store/columns.h"
#include "store/ids.h"

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

/// Jobs are sent in calls of at most this many, and of about this many bytes: the server needs a few times as
/// much memory. All calls of a batch are one unit.
constexpr std::size_t kCallMax = 1'000;
constexpr std::size_t kCallBytesMax = 16 * 1024 * 1024;

constexpr std::string_view kConflict = "FL409";
constexpr std::string_view kConflictHint = "A key names one piece of work: use another one for this.";

std::int16_t some_bucket(const Backend& backend) {
  static std::atomic<unsigned> turn{static_cast<unsigned>(Uuid::random().bytes[0])};
  return static_cast<std::int16_t>(turn.fetch_add(1, std::memory_order_relaxed) %
                                   static_cast<unsigned>(backend.buckets()));
}

/// Calls `visit` with the index of every field of a new job's table, as a constant.
template <class Visit>
void for_each_index(const Visit& visit) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (visit(std::integral_constant<std::size_t, I>{}), ...);
  }(std::make_index_sequence<kFieldCount<NewJob>>{});
}

/// A call is for one queue, and keys are sent last, with their fingerprints.
constexpr bool is_sent_apart(const FieldInfo& field) {
  return field.name == facts::kQueue.name || field.name == facts::kIdempotencyKey.name;
}

pg::Type array_of(pg::Type element) {
  switch (element) {
    case pg::Type::int2:
      return pg::Type::int2_array;
    case pg::Type::int4:
      return pg::Type::int4_array;
    case pg::Type::int8:
      return pg::Type::int8_array;
    case pg::Type::timestamptz:
      return pg::Type::timestamptz_array;
    default:
      return pg::Type::text_array;
  }
}

/// Tags as the text of a JSON array, since an array of arrays would have to be a rectangle.
std::optional<std::string> tags_text(const std::vector<std::string>& tags) {
  if (tags.empty()) return std::nullopt;
  JsonWriter out;
  out.begin_array();
  for (const std::string& tag : tags) out.string(tag);
  out.end_array();
  return out.take();
}

/// One option of several jobs. Most jobs use few, and one that none of them uses is not sent.
template <class Range, class Value>
void add_option(pg::Params& params, pg::Type type, const Range& range, const Value& value) {
  if (std::ranges::any_of(range, [&](std::size_t i) { return value(i).has_value(); })) {
    params.add_array(type, range, value);
  } else {
    params.add_null(array_of(type));
  }
}

/// A batch of jobs on its way into the database: what was asked, and the ids and places they get.
class EnqueueBatch {
 public:
  EnqueueBatch(const Backend& backend, std::span<const NewJob> jobs, KeyConflict on_conflict)
      : jobs_(jobs), on_conflict_(on_conflict), submissions_(jobs.size()) {
    const std::int16_t bucket = some_bucket(backend);
    std::map<std::pair<std::string_view, std::string_view>, std::size_t> first_with_key;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const NewJob& job = jobs[i];
      if (!job.idempotency_key) {
        submissions_[i].job = new_job_id(bucket);
        plain_[{bucket, job.queue}].push_back(i);
        continue;
      }
      prints_.emplace(i, fingerprint(job));
      const auto [first, is_new] = first_with_key.try_emplace({job.queue, *job.idempotency_key}, i);
      if (!is_new) {
        repeats_.emplace_back(i, first->second);
        continue;
      }
      const std::int16_t place = bucket_of_key(job.queue, *job.idempotency_key, backend.buckets());
      submissions_[i].job = new_job_id(place);
      by_id_.emplace(submissions_[i].job.value, i);
      keyed_[{place, job.queue}].push_back(i);
    }
  }

  /// Queues that get jobs which are due at once: these are worth announcing.
  [[nodiscard]] std::set<std::string> due_queues() const {
    std::set<std::string> queues;
    std::string_view last;
    for (const NewJob& job : jobs_) {
      if (job.queue == last || !due_at_once(job)) continue;
      queues.insert(job.queue);
      last = job.queue;
    }
    return queues;
  }

  /// Of jobs that are refused if there is one: two of them have one key, and are not the same.
  [[nodiscard]] std::optional<pg::Error> conflict_within() const {
    if (on_conflict_ == KeyConflict::answer) return std::nullopt;
    for (const auto& [repeat, first] : repeats_) {
      if (prints_.at(repeat) == prints_.at(first)) continue;
      return pg::Error{.code = pg::Errc::raised,
                       .sqlstate = std::string{kConflict},
                       .message = "job " + std::to_string(repeat) +
                                  " of the batch has the idempotency key of job " + std::to_string(first) +
                                  " of the batch, and another kind or payload",
                       .hint = std::string{kConflictHint}};
    }
    return std::nullopt;
  }

  /// All of it as one unit. Sent again it adds nothing: the ids are the same.
  [[nodiscard]] pg::Unit unit() const {
    pg::Unit unit;
    for (const Places* places : {&plain_, &keyed_}) {
      for (const auto& [place, indices] : *places) {
        for (const std::span<const std::size_t> piece : pieces_of(indices)) {
          unit.add(sql::kJobsEnqueue, job_params(place, piece, places == &keyed_));
          // A job alone is not added if it is in conflict, and the answer tells.
          if (places == &keyed_ && on_conflict_ == KeyConflict::refuse && jobs_.size() > 1) {
            pg::Params params;
            params.add(place.first).add(place.second);
            add_keys(params, piece);
            unit.add(sql::kKeysRefuseConflicts, std::move(params));
          }
        }
      }
    }
    return unit;
  }

  /// Reads what the keys gave; the rest were created.
  [[nodiscard]] pg::Expected<std::vector<Submission>> submissions(std::span<const pg::Result> results) {
    for (const pg::Result& rows : results) {
      // An announcement is no answer about jobs.
      if (rows.columns() != 3) continue;
      for (int row = 0; row < rows.rows(); ++row) read_keyed(rows, row);
    }
    for (const auto& [repeat, first] : repeats_) {
      const auto owner = owner_prints_.find(first);
      const bool same =
          prints_.at(repeat) == (owner == owner_prints_.end() ? prints_.at(first) : owner->second);
      submissions_[repeat] = {.status = same ? Submission::Status::existing : Submission::Status::conflict,
                              .job = submissions_[first].job};
    }
    if (on_conflict_ == KeyConflict::refuse) {
      for (std::size_t i = 0; i < jobs_.size(); ++i) {
        if (submissions_[i].status != Submission::Status::conflict) continue;
        const std::string owner = submissions_[i].job.to_string();
        return std::unexpected(pg::Error{.code = pg::Errc::raised,
                                         .sqlstate = std::string{kConflict},
                                         .message = "idempotency key '" + *jobs_[i].idempotency_key +
                                                    "' belongs to job " + owner +
                                                    ", which has another kind or payload",
                                         .detail = owner,
                                         .hint = std::string{kConflictHint}});
      }
    }
    return std::move(submissions_);
  }

 private:
  /// A bucket and a queue. Everybody's units take them in this order, and so wait for keys in the same one.
  using Place = std::pair<std::int16_t, std::string_view>;
  using Places = std::map<Place, std::vector<std::size_t>>;

  [[nodiscard]] std::vector<std::span<const std::size_t>> pieces_of(
      std::span<const std::size_t> indices) const {
    std::vector<std::span<const std::size_t>> pieces;
    while (!indices.empty()) {
      std::size_t count = 0;
      std::size_t bytes = 0;
      while (count < std::min(kCallMax, indices.size())) {
        bytes += jobs_[indices[count]].payload.size();
        if (count > 0 && bytes > kCallBytesMax) break;
        ++count;
      }
      pieces.push_back(indices.first(count));
      indices = indices.subspan(count);
    }
    return pieces;
  }

  [[nodiscard]] pg::Params job_params(const Place& place, std::span<const std::size_t> piece,
                                      bool with_keys) const {
    const auto job = [&](std::size_t i) -> const NewJob& { return jobs_[i]; };
    pg::Params params;
    params.add(place.first).add(place.second);
    params.add_array(pg::Type::uuid, piece, [&](std::size_t i) { return submissions_[i].job.value; });
    // In the order of the table, which is the order of the statement's parameters.
    for_each_index([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      constexpr auto field = kNewJobField<I>;
      using T = std::remove_cvref_t<decltype(field.of(job(0)))>;
      if constexpr (is_sent_apart(field)) {
        return;
      } else if constexpr (std::same_as<T, std::vector<std::string>>) {
        add_option(params, pg::Type::text, piece, [&](std::size_t i) { return tags_text(field.of(job(i))); });
      } else {
        const auto value = [&](std::size_t i) { return column_value<I>(field.of(job(i))); };
        using Value = std::remove_cvref_t<decltype(value(0))>;
        if constexpr (requires(Value v) { v.has_value(); }) {
          add_option(params, pg::type_of<typename Value::value_type>(), piece, value);
        } else if constexpr (std::same_as<Value, pg::BytesView>) {
          params.add_array(pg::Type::bytea, piece, value);
        } else {
          params.add_array(pg::type_of<Value>(), piece, value);
        }
      }
    });
    if (with_keys) {
      add_keys(params, piece);
    } else {
      params.add_null(pg::Type::text_array).add_null(pg::Type::bytea_array);
    }
    return params;
  }

  void add_keys(pg::Params& params, std::span<const std::size_t> piece) const {
    params.add_array(pg::Type::text, piece,
                     [&](std::size_t i) { return std::string_view{*jobs_[i].idempotency_key}; });
    params.add_array(pg::Type::bytea, piece, [&](std::size_t i) { return pg::BytesView{prints_.at(i)}; });
  }

  void read_keyed(const pg::Result& rows, int row) {
    const JobId mine{rows.get<Uuid>(row, 0)};
    const JobId owner{rows.get<Uuid>(row, 1)};
    if (owner == mine) return;
    const std::size_t i = by_id_.at(mine.value);
    const pg::BytesView print = rows.get<pg::BytesView>(row, 2);
    Sha256& owner_print = owner_prints_[i];
    std::ranges::copy(print.first(std::min(print.size(), owner_print.size())), owner_print.begin());
    const bool same = owner_print == prints_.at(i);
    submissions_[i] = {.status = same ? Submission::Status::existing : Submission::Status::conflict,
                       .job = owner};
  }

  std::span<const NewJob> jobs_;
  KeyConflict on_conflict_;
  std::vector<Submission> submissions_;
  Places plain_;
  Places keyed_;
  std::map<Uuid, std::size_t> by_id_;                         // items with keys
  std::vector<std::pair<std::size_t, std::size_t>> repeats_;  // of a key in this batch: (item, first item)
  std::map<std::size_t, Sha256> prints_;
  std::map<std::size_t, Sha256> owner_prints_;  // of items whose key belongs to a job that was there
};

}  // namespace

std::optional<Error> check_jobs(Backend& backend, std::span<const NewJob> jobs, Deadline deadline) {
  std::string_view known_queue;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    auto problem = check_job(jobs[i], backend.limits());
    if (!problem && jobs[i].queue != known_queue) {
      problem = backend.check_queue_exists(jobs[i].queue, deadline);
      known_queue = jobs[i].queue;
    }
    if (!problem) continue;
    if (jobs.size() > 1) problem->message = "job " + std::to_string(i) + " of the batch: " + problem->message;
    return problem;
  }
  return std::nullopt;
}

Expected<std::vector<Submission>> enqueue(Backend& backend, std::span<const NewJob> jobs,
                                          KeyConflict on_conflict, Deadline deadline) {
  if (jobs.empty()) return std::vector<Submission>{};
  EnqueueBatch batch{backend, jobs, on_conflict};
  if (const auto conflict = batch.conflict_within()) return std::unexpected(translate(*conflict));
  bool sent = false;
  for (;;) {
    pg::Unit unit = batch.unit();
    backend.announcer().announce(batch.due_queues(), Announcer::Commit::at_once, unit);
    auto results = backend.try_run(unit, deadline);
    if (results) {
      auto submissions = batch.submissions(*results);
      if (!submissions) return std::unexpected(translate(submissions.error()));
      return std::move(*submissions);
    }
    const pg::Errc code = results.error().code;
    // An earlier sending of these very jobs was still under way, and has committed since: the next try finds
    // them.
    const bool again = code == pg::Errc::outcome_unknown || code == pg::Errc::unique_violation;
    if (!again || Deadline::clock::now() >= deadline) {
      Error error = translate(results.error());
      // The first try may have been committed, and the database cannot be asked.
      // Not so of a conflict: had it been, the keys would be these jobs'.
      if (sent && error.code != ErrorCode::conflict) error.code = ErrorCode::outcome_unknown;
      return std::unexpected(std::move(error));
    }
    sent = true;
  }
}

Expected<std::vector<Submission>> enqueue_in(Backend& backend, pg::Connection& connection,
                                             std::span<const NewJob> jobs, Deadline deadline) {
  if (auto problem = check_jobs(backend, jobs, deadline)) return std::unexpected(std::move(*problem));
  auto submissions = add_jobs_in(backend, connection, jobs, deadline);
  if (!submissions) return std::unexpected(translate(submissions.error()));
  return std::move(*submissions);
}

pg::Expected<std::vector<Submission>> add_jobs_in(Backend& backend, pg::Connection& connection,
                                                  std::span<const NewJob> jobs, Deadline deadline) {
  if (jobs.empty()) return std::vector<Submission>{};
  EnqueueBatch batch{backend, jobs, KeyConflict::refuse};
  if (auto conflict = batch.conflict_within()) return std::unexpected(std::move(*conflict));
  pg::Unit unit = batch.unit();
  backend.announcer().announce(batch.due_queues(), Announcer::Commit::later, unit);
  auto results = connection.run(unit, deadline);
  if (!results) return std::unexpected(std::move(results.error()));
  return batch.submissions(*results);
}

Expected<std::size_t> enqueue_bulk(Backend& backend, const std::function<std::optional<NewJob>()>& next) {
  Deadline deadline = backend.deadline();
  // Its connection is in a transaction from here on, and there may be no other.
  if (auto learnt = backend.learn_queues(deadline); !learnt)
    return std::unexpected(std::move(learnt.error()));
  auto connection = backend.acquire(deadline);
  if (!connection) return std::unexpected(translate(connection.error()));
  if (auto begun = (*connection)->begin(deadline); !begun) return std::unexpected(translate(begun.error()));
  // If anything goes wrong, nothing of it stays.
  const auto refuse = [&](Error error) {
    (*connection)->rollback(backend.deadline());
    return std::unexpected(std::move(error));
  };
  std::size_t count = 0;
  std::vector<NewJob> piece;
  for (bool more = true; more;) {
    std::size_t bytes = 0;
    piece.clear();
    while (piece.size() < kCallMax && bytes < kCallBytesMax) {
      std::optional<NewJob> job = next();
      if (!job) {
        more = false;
        break;
      }
      auto problem = check_job(*job, backend.limits());
      if (!problem && job->idempotency_key) {
        problem = Error{.code = ErrorCode::invalid_argument,
                        .message = "a bulk enqueue takes no idempotency keys",
                        .hint = "send jobs with keys in batches through enqueue"};
      }
      if (!problem && !backend.knows_queue(job->queue)) problem = unknown_queue(job->queue);
      if (problem) {
        problem->message = "job " + std::to_string(count) + " of the stream: " + problem->message;
        return refuse(std::move(*problem));
      }
      bytes += job->payload.size();
      piece.push_back(std::move(*job));
      ++count;
    }
    // A million jobs take as long as they take: the stream, not the clock, says when it is over.
    if (auto added = add_jobs_in(backend, **connection, piece, backend.deadline()); !added)
      return refuse(translate(added.error()));
  }
  if (auto committed = (*connection)->commit(backend.deadline()); !committed) {
    if (committed.error().code == pg::Errc::outcome_unknown) backend.outcome_was_unknown();
    return refuse(translate(committed.error()));
  }
  return count;
}

}  // namespace faultline::store

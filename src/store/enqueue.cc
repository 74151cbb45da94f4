#include "store/enqueue.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "pg/binary_copy.h"
#include "sql/statements.h"
#include "store/ids.h"

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

/// Jobs are sent in statements of at most this many, all in one unit.
constexpr std::size_t kStatementMax = 1'000;
/// From this many on, COPY is faster than its additional round trips cost.
constexpr std::size_t kCopyMin = 500;
/// COPY hands its data over in pieces of about this size.
constexpr std::size_t kCopyChunkBytes = 256 * 1024;

std::int16_t some_bucket(const Backend& backend) {
  static std::atomic<unsigned> turn{static_cast<unsigned>(Uuid::random().bytes[0])};
  return static_cast<std::int16_t>(turn.fetch_add(1, std::memory_order_relaxed) %
                                   static_cast<unsigned>(backend.buckets()));
}

std::optional<std::int32_t> ms32(const std::optional<milliseconds>& value) {
  return value ? std::optional{static_cast<std::int32_t>(value->count())} : std::nullopt;
}

/// A batch of jobs on its way into the database: what was asked, and the ids and places they get.
class EnqueueBatch {
 public:
  EnqueueBatch(const Backend& backend, std::span<const NewJob> jobs)
      : jobs_(jobs), submissions_(jobs.size()) {
    const std::int16_t bucket = some_bucket(backend);
    std::map<std::pair<std::string_view, std::string_view>, std::size_t> first_with_key;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const NewJob& job = jobs[i];
      if (!job.idempotency_key) {
        submissions_[i].job = new_job_id(bucket);
        plain_[bucket].push_back(i);
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
      keyed_[place].push_back(i);
    }
  }

  [[nodiscard]] bool has_keys() const { return !keyed_.empty(); }

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

  /// All of it as one unit. `resent`: an earlier one may have been committed.
  [[nodiscard]] pg::Unit unit(bool resent) const {
    pg::Unit unit;
    for (const auto& [bucket, indices] : plain_) {
      for (const std::span<const std::size_t> piece : pieces_of(indices)) {
        unit.add(sql::kJobsEnqueue, job_params(bucket, piece));
        if (resent) unit.add(sql::kJobsDropResubmitted, id_params(bucket, piece));
      }
    }
    for (const auto& [bucket, indices] : keyed_) {
      for (const std::span<const std::size_t> piece : pieces_of(indices)) {
        unit.add(sql::kKeysTake, key_params(bucket, piece));
        pg::Params params = job_params(bucket, piece);
        params.add_array(pg::Type::text, piece,
                         [&](std::size_t i) { return std::string_view{*jobs_[i].idempotency_key}; });
        params.add_array(pg::Type::bytea, piece, [&](std::size_t i) { return pg::BytesView{prints_.at(i)}; });
        unit.add(sql::kJobsEnqueueKeyed, std::move(params));
        if (resent) unit.add(sql::kJobsDropResubmitted, id_params(bucket, piece));
      }
    }
    return unit;
  }

  /// Reads what the keys gave; the rest were created.
  [[nodiscard]] std::vector<Submission> submissions(std::span<const pg::Result> results) {
    for (const pg::Result& rows : results) {
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
    return std::move(submissions_);
  }

  [[nodiscard]] const Submission& submission(std::size_t index) const { return submissions_[index]; }
  [[nodiscard]] std::vector<Submission> all_created() { return std::move(submissions_); }

 private:
  static std::vector<std::span<const std::size_t>> pieces_of(std::span<const std::size_t> indices) {
    std::vector<std::span<const std::size_t>> pieces;
    while (!indices.empty()) {
      pieces.push_back(indices.first(std::min(kStatementMax, indices.size())));
      indices = indices.subspan(pieces.back().size());
    }
    return pieces;
  }

  [[nodiscard]] pg::Params id_params(std::int16_t bucket, std::span<const std::size_t> piece) const {
    pg::Params params;
    params.add(bucket).add_array(pg::Type::uuid, piece,
                                 [&](std::size_t i) { return submissions_[i].job.value; });
    return params;
  }

  [[nodiscard]] pg::Params key_params(std::int16_t bucket, std::span<const std::size_t> piece) const {
    pg::Params params = id_params(bucket, piece);
    params.add_array(pg::Type::text, piece, [&](std::size_t i) { return std::string_view{jobs_[i].queue}; });
    params.add_array(pg::Type::text, piece,
                     [&](std::size_t i) { return std::string_view{*jobs_[i].idempotency_key}; });
    params.add_array(pg::Type::bytea, piece, [&](std::size_t i) { return pg::BytesView{prints_.at(i)}; });
    return params;
  }

  [[nodiscard]] pg::Params job_params(std::int16_t bucket, std::span<const std::size_t> piece) const {
    const auto job = [&](std::size_t i) -> const NewJob& { return jobs_[i]; };
    pg::Params params = id_params(bucket, piece);
    params.add_array(pg::Type::text, piece, [&](std::size_t i) { return std::string_view{job(i).queue}; });
    params.add_array(pg::Type::text, piece, [&](std::size_t i) { return std::string_view{job(i).kind}; });
    params.add_array(pg::Type::bytea, piece,
                     [&](std::size_t i) { return std::as_bytes(std::span{job(i).payload}); });
    params.add_array(pg::Type::boolean, piece,
                     [&](std::size_t i) { return job(i).encoding == Encoding::bytes; });
    params.add_array(pg::Type::int2, piece,
                     [&](std::size_t i) { return static_cast<std::int16_t>(job(i).priority); });
    params.add_array(pg::Type::timestamptz, piece, [&](std::size_t i) { return job(i).run_at; });
    params.add_array(pg::Type::int8, piece, [&](std::size_t i) {
      return static_cast<std::int64_t>(job(i).delay.value_or(milliseconds{0}).count());
    });
    params.add_array(pg::Type::int4, piece,
                     [&](std::size_t i) -> std::optional<std::int32_t> { return job(i).attempts_max; });
    params.add_array(pg::Type::int4, piece, [&](std::size_t i) { return ms32(job(i).lease_ttl); });
    params.add_array(pg::Type::int8, piece, [&](std::size_t i) -> std::optional<std::int64_t> {
      return job(i).run_max ? std::optional<std::int64_t>{job(i).run_max->count()} : std::nullopt;
    });
    params.add_array(pg::Type::int4, piece, [&](std::size_t i) { return ms32(job(i).backoff_base); });
    params.add_array(pg::Type::int4, piece, [&](std::size_t i) { return ms32(job(i).backoff_max); });
    params.add_array(pg::Type::text, piece, [&](std::size_t i) { return to_string(job(i).delivery); });
    params.add_array(pg::Type::text, piece, [&](std::size_t i) -> std::optional<std::string> {
      return job(i).tags.empty() ? std::nullopt : std::optional{nlohmann::json(job(i).tags).dump()};
    });
    // Most jobs belong to no trace, and then nothing is sent.
    if (std::ranges::any_of(piece, [&](std::size_t i) { return job(i).traceparent.has_value(); })) {
      params.add_array(pg::Type::text, piece, [&](std::size_t i) { return job(i).traceparent; });
    } else {
      params.add_null(pg::Type::text_array);
    }
    return params;
  }

  void read_keyed(const pg::Result& rows, int row) {
    const JobId mine{rows.get<Uuid>(row, 0)};
    const JobId owner{rows.get<Uuid>(row, 1)};
    for (const std::size_t i : keyed_.at(mine.bucket())) {
      if (submissions_[i].job != mine) continue;
      if (owner == mine) return;
      const pg::BytesView print = rows.get<pg::BytesView>(row, 2);
      Sha256& owner_print = owner_prints_[i];
      std::ranges::copy(print.first(std::min(print.size(), owner_print.size())), owner_print.begin());
      const bool same = owner_print == prints_.at(i);
      submissions_[i] = {.status = same ? Submission::Status::existing : Submission::Status::conflict,
                         .job = owner};
      return;
    }
  }

  std::span<const NewJob> jobs_;
  std::vector<Submission> submissions_;
  std::map<std::int16_t, std::vector<std::size_t>> plain_;
  std::map<std::int16_t, std::vector<std::size_t>> keyed_;
  std::vector<std::pair<std::size_t, std::size_t>> repeats_;  // of a key in this batch: (item, first item)
  std::map<std::size_t, Sha256> prints_;
  std::map<std::size_t, Sha256> owner_prints_;  // of items whose key belongs to a job that was there
};

/// Jobs on their way through COPY, all in one transaction. Most jobs use no option, and then only six columns
/// are sent; from the first job that does use one, a second COPY sends all columns.
class CopyIn {
 public:
  /// Gives the next job and its id, or nothing at the end. The job must live until the next call.
  using Source = std::function<const NewJob*(JobId&)>;

  CopyIn(Backend& backend, pg::Connection& connection, std::int16_t bucket, Source next, Deadline deadline)
      : backend_(backend),
        connection_(connection),
        bucket_(bucket),
        next_(std::move(next)),
        deadline_(deadline) {}

  /// If the source throws, nothing was copied and the transaction is the caller's to roll back.
  [[nodiscard]] pg::Expected<std::size_t> run() {
    if (auto begun = connection_.begin(deadline_); !begun) return std::unexpected(std::move(begun.error()));
    auto copied = copy_all();
    if (!copied) {
      connection_.rollback(deadline_);
      return copied;
    }
    if (auto committed = connection_.commit(deadline_); !committed) {
      return std::unexpected(std::move(committed.error()));
    }
    return copied;
  }

 private:
  struct Count {
    std::int64_t jobs = 0;
    bool due = false;  // one of them at least, at once
  };

  static bool is_plain(const NewJob& job) {
    return !job.run_at && !job.delay && !job.attempts_max && !job.lease_ttl && !job.run_max &&
           !job.backoff_base && !job.backoff_max && job.tags.empty() && job.encoding == Encoding::json &&
           job.delivery == Delivery::at_least_once && !job.traceparent;
  }

  static constexpr std::string_view kPlain =
      "COPY faultline.jobs (bucket, id, queue, kind, payload, priority) FROM STDIN (FORMAT binary)";
  static constexpr std::string_view kWhole =
      "COPY faultline.jobs (bucket, id, queue, kind, payload, priority, run_at, encoding, delivery, "
      "attempts_max, "
      "lease_ttl_ms, run_max_ms, backoff_base_ms, backoff_max_ms, tags, traceparent) FROM STDIN (FORMAT "
      "binary)";

  [[nodiscard]] pg::Expected<std::size_t> copy_all() {
    // COPY computes nothing, so what is due in a minute is due a minute from here.
    auto meta = connection_.exec(sql::kMetaGet, pg::Params{}.add(std::int16_t{0}), deadline_);
    if (!meta) return std::unexpected(std::move(meta.error()));
    now_ = meta->get<DatabaseTime>(0, 2);
    job_ = next_(id_);
    std::size_t rows = 0;
    while (job_ != nullptr) {
      whole_ = whole_ || !is_plain(*job_);
      bool first = true;
      auto copied = connection_.copy_in(
          whole_ ? kWhole : kPlain,
          [&](std::string& buffer) { return fill(buffer, std::exchange(first, false)); }, deadline_);
      if (!copied) return std::unexpected(std::move(copied.error()));
      rows += static_cast<std::size_t>(*copied);
    }
    pg::Unit unit;
    unit.add(sql::kJobsTallyCopied, tally_params());
    std::set<std::string> due_queues;
    for (const auto& [queue, count] : counts_) {
      if (count.due) due_queues.insert(queue);
    }
    backend_.announcer().announce(due_queues, Announcer::Commit::at_once, unit);
    auto tallied = connection_.run(unit, deadline_);
    if (!tallied) return std::unexpected(std::move(tallied.error()));
    return rows;
  }

  bool fill(std::string& buffer, bool first) {
    pg::BinaryCopy rows{buffer};
    if (first) rows.header();
    while (job_ != nullptr && (whole_ || is_plain(*job_))) {
      add_row(rows, *job_);
      job_ = next_(id_);
      if (buffer.size() >= kCopyChunkBytes) return true;
    }
    rows.trailer();
    return false;
  }

  void add_row(pg::BinaryCopy& rows, const NewJob& job) {
    rows.begin_row(whole_ ? 16 : 6);
    rows.add(bucket_).add(id_.value).add(job.queue).add(job.kind);
    rows.add(std::as_bytes(std::span{job.payload})).add(static_cast<std::int16_t>(job.priority));
    if (last_queue_ == nullptr || last_queue_->first != job.queue)
      last_queue_ = &*counts_.try_emplace(job.queue).first;
    ++last_queue_->second.jobs;
    last_queue_->second.due = last_queue_->second.due || due_at_once(job);
    if (!whole_) return;
    rows.add(job.run_at.value_or(now_ + job.delay.value_or(milliseconds{0})));
    rows.add(job.encoding == Encoding::json ? "json" : "bytes").add(to_string(job.delivery));
    rows.add(std::optional<std::int32_t>{job.attempts_max}).add(ms32(job.lease_ttl));
    rows.add(job.run_max ? std::optional<std::int64_t>{job.run_max->count()} : std::nullopt);
    rows.add(ms32(job.backoff_base)).add(ms32(job.backoff_max));
    if (job.tags.empty())
      rows.add_null();
    else
      rows.add_text_array(job.tags);
    if (job.traceparent)
      rows.add(*job.traceparent);
    else
      rows.add_null();
  }

  [[nodiscard]] pg::Params tally_params() const {
    pg::Params params;
    params.add(bucket_);
    params.add_array(pg::Type::text, counts_,
                     [](const auto& count) { return std::string_view{count.first}; });
    params.add_array(pg::Type::int8, counts_, [](const auto& count) { return count.second.jobs; });
    return params;
  }

  Backend& backend_;
  pg::Connection& connection_;
  std::int16_t bucket_;
  Source next_;
  Deadline deadline_;
  DatabaseTime now_;
  bool whole_ = false;
  const NewJob* job_ = nullptr;
  JobId id_;
  std::map<std::string, Count> counts_;
  std::pair<const std::string, Count>* last_queue_ = nullptr;
};

/// The batch by COPY, if that is possible and worth it. Nothing: send it as statements, `resent` if the
/// answer to the COPY was lost.
Expected<bool> try_copy(Backend& backend, std::span<const NewJob> jobs, const EnqueueBatch& batch,
                        bool& resent, Deadline deadline) {
  if (jobs.size() < kCopyMin) return false;
  auto connection = backend.acquire(deadline);
  if (!connection) return std::unexpected(translate(connection.error()));
  std::size_t at = 0;
  const auto next = [&](JobId& id) -> const NewJob* {
    if (at == jobs.size()) return nullptr;
    id = batch.submission(at).job;
    return &jobs[at++];
  };
  auto copied = CopyIn{backend, **connection, batch.submission(0).job.bucket(), next, deadline}.run();
  if (copied) return true;
  resent = copied.error().code == pg::Errc::outcome_unknown;
  if (resent || copied.error().retryable()) return false;
  return std::unexpected(translate(copied.error()));
}

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

Expected<std::vector<Submission>> enqueue(Backend& backend, std::span<const NewJob> jobs, Deadline deadline) {
  if (auto problem = check_jobs(backend, jobs, deadline)) return std::unexpected(std::move(*problem));
  if (jobs.empty()) return std::vector<Submission>{};
  EnqueueBatch batch{backend, jobs};
  bool resent = false;
  if (!batch.has_keys()) {
    auto copied = try_copy(backend, jobs, batch, resent, deadline);
    if (!copied) return std::unexpected(std::move(copied.error()));
    if (*copied) return batch.all_created();
  }
  for (;;) {
    pg::Unit unit = batch.unit(resent);
    backend.announcer().announce(batch.due_queues(), Announcer::Commit::at_once, unit);
    auto results = backend.try_run(unit, deadline);
    if (results) return batch.submissions(*results);
    if (results.error().code != pg::Errc::outcome_unknown) {
      Error error = translate(results.error());
      // The first try may have been committed, and the database cannot be asked.
      if (resent) error.code = ErrorCode::outcome_unknown;
      return std::unexpected(std::move(error));
    }
    resent = true;
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
  EnqueueBatch batch{backend, jobs};
  pg::Unit unit = batch.unit(false);
  backend.announcer().announce(batch.due_queues(), Announcer::Commit::later, unit);
  auto results = connection.run(unit, deadline);
  if (!results) return std::unexpected(std::move(results.error()));
  return batch.submissions(*results);
}

Expected<std::size_t> enqueue_bulk(Backend& backend, const std::function<std::optional<NewJob>()>& next) {
  Deadline deadline = backend.deadline();
  // While the COPY runs its connection answers no questions, and there may be no other.
  if (auto learnt = backend.learn_queues(deadline); !learnt)
    return std::unexpected(std::move(learnt.error()));
  auto connection = backend.acquire(deadline);
  if (!connection) return std::unexpected(translate(connection.error()));
  const std::int16_t bucket = some_bucket(backend);
  NewJob job;
  std::size_t count = 0;
  // A bad job ends the COPY by an exception of this function's own, and nothing of it stays.
  struct Refused {
    Error error;
  };
  const auto give = [&](JobId& id) -> const NewJob* {
    std::optional<NewJob> given = next();
    if (!given) return nullptr;
    job = std::move(*given);
    auto problem = check_job(job, backend.limits());
    if (!problem && job.idempotency_key) {
      problem = Error{.code = ErrorCode::invalid_argument,
                      .message = "a bulk enqueue takes no idempotency keys",
                      .hint = "send jobs with keys in batches through enqueue"};
    }
    if (!problem && !backend.knows_queue(job.queue)) problem = unknown_queue(job.queue);
    if (problem) {
      problem->message = "job " + std::to_string(count) + " of the stream: " + problem->message;
      throw Refused{std::move(*problem)};
    }
    id = new_job_id(bucket);
    ++count;
    return &job;
  };
  // A million jobs take as long as they take: the stream, not the clock, says when it is over.
  deadline = Deadline::clock::now() + std::chrono::hours{24};
  try {
    auto copied = CopyIn{backend, **connection, bucket, give, deadline}.run();
    if (!copied) return std::unexpected(translate(copied.error()));
    return *copied;
  } catch (Refused& refused) {
    (*connection)->rollback(deadline);
    return std::unexpected(std::move(refused.error));
  }
}

}  // namespace faultline::store

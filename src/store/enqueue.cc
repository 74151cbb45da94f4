#include "store/enqueue.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "base/json_text.h"
#include "pg/binary_copy.h"
#include "sql/statements.h"
#include "store/columns.h"
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

/// Calls `visit` with the index of every field of a new job's table, as a constant.
template <class Visit>
void for_each_index(const Visit& visit) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (visit(std::integral_constant<std::size_t, I>{}), ...);
  }(std::make_index_sequence<kFieldCount<NewJob>>{});
}

/// It is sent beside the others, by the statement for jobs with keys alone.
constexpr bool is_key(const FieldInfo& field) { return field.name == facts::kIdempotencyKey.name; }

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
    // In the order of the table, which is the order of the statements' parameters.
    for_each_index([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      constexpr auto field = kNewJobField<I>;
      using T = std::remove_cvref_t<decltype(field.of(job(0)))>;
      if constexpr (is_key(field)) {
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

  /// The columns that every job has: the others are options.
  static constexpr bool is_plain_column(const FieldInfo& field) {
    return field.name == facts::kQueue.name || field.name == facts::kKind.name ||
           field.name == facts::kPayload.name || field.name == facts::kPriority.name;
  }

  /// A delay becomes a moment here, and jobs with keys do not come this way.
  static constexpr bool is_option_column(const FieldInfo& field) {
    return !is_plain_column(field) && !is_key(field) && field.name != facts::kDelay.name;
  }

  static bool is_plain(const NewJob& job) {
    static const NewJob unset;
    bool plain = true;
    for_each_field<NewJob>([&](const auto& field) {
      plain = plain && (is_plain_column(field) || field.of(job) == field.of(unset));
    });
    return plain;
  }

  /// The COPY of the plain columns, or of all.
  static std::string copy_statement(bool whole) {
    std::string columns = "bucket, id";
    const auto add = [&](bool (*wanted)(const FieldInfo&)) {
      for_each_field<NewJob>([&](const FieldInfo& field) {
        if (wanted(field)) columns.append(", ").append(field.name);
      });
    };
    add(&is_plain_column);
    if (whole) add(&is_option_column);
    return "COPY faultline.jobs (" + columns + ") FROM STDIN (FORMAT binary)";
  }

  static std::int16_t count_columns(bool (*wanted)(const FieldInfo&)) {
    std::int16_t count = 0;
    for_each_field<NewJob>(
        [&](const FieldInfo& field) { count = static_cast<std::int16_t>(count + (wanted(field) ? 1 : 0)); });
    return count;
  }

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
          copy_statement(whole_),
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
    static const std::int16_t plain_columns = static_cast<std::int16_t>(2 + count_columns(&is_plain_column));
    static const std::int16_t option_columns = count_columns(&is_option_column);
    rows.begin_row(static_cast<std::int16_t>(plain_columns + (whole_ ? option_columns : 0)));
    rows.add(bucket_).add(id_.value);
    for_each_index([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      if constexpr (is_plain_column(kNewJobField<I>)) rows.add(column_value<I>(kNewJobField<I>.of(job)));
    });
    if (last_queue_ == nullptr || last_queue_->first != job.queue)
      last_queue_ = &*counts_.try_emplace(job.queue).first;
    ++last_queue_->second.jobs;
    last_queue_->second.due = last_queue_->second.due || due_at_once(job);
    if (!whole_) return;
    for_each_index([&]<std::size_t I>(std::integral_constant<std::size_t, I>) {
      if constexpr (is_option_column(kNewJobField<I>)) add_option_column<I>(rows, job);
    });
  }

  template <std::size_t I>
  void add_option_column(pg::BinaryCopy& rows, const NewJob& job) const {
    const auto& value = kNewJobField<I>.of(job);
    if constexpr (kNewJobField<I>.name == facts::kRunAt.name) {
      rows.add(value.value_or(now_ + job.delay.value_or(milliseconds{0})));
    } else if constexpr (std::same_as<std::remove_cvref_t<decltype(value)>, std::vector<std::string>>) {
      if (value.empty()) {
        rows.add_null();
      } else {
        rows.add_text_array(value);
      }
    } else {
      rows.add(column_value<I>(value));
    }
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

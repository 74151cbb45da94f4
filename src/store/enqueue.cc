#include "store/enqueue.h"

#include <algorithm>
#include <atomic>
#include <map>
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

/// A batch of jobs on its way into the database: what was asked, and the ids and places they get.
class Shipment {
 public:
  Shipment(const Backend& backend, std::span<const NewJob> jobs) : jobs_(jobs), answers_(jobs.size()) {
    const std::int16_t bucket = some_bucket(backend);
    std::map<std::pair<std::string_view, std::string_view>, std::size_t> first_with_key;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const NewJob& job = jobs[i];
      if (!job.idempotency_key) {
        answers_[i].job = new_job_id(bucket);
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
      answers_[i].job = new_job_id(place);
      keyed_[place].push_back(i);
    }
  }

  [[nodiscard]] bool has_keys() const { return !keyed_.empty(); }

  /// All of it as one unit. `resent`: an earlier one may have been committed.
  [[nodiscard]] pg::Unit unit(bool resent) const {
    pg::Unit unit;
    for (const auto& [bucket, indices] : plain_) {
      for_pieces(indices, [&](std::span<const std::size_t> piece) {
        unit.add(sql::kJobsEnqueue, job_params(bucket, piece));
        if (resent) unit.add(sql::kJobsDropResubmitted, id_params(bucket, piece));
      });
    }
    for (const auto& [bucket, indices] : keyed_) {
      for_pieces(indices, [&](std::span<const std::size_t> piece) {
        unit.add(sql::kKeysTake, key_params(bucket, piece));
        pg::Params params = job_params(bucket, piece);
        params.add_array(pg::Type::text, piece, [&](std::size_t i) { return std::string_view{*jobs_[i].idempotency_key}; });
        params.add_array(pg::Type::bytea, piece, [&](std::size_t i) { return pg::BytesView{prints_.at(i)}; });
        unit.add(sql::kJobsEnqueueKeyed, std::move(params));
        if (resent) unit.add(sql::kJobsDropResubmitted, id_params(bucket, piece));
      });
    }
    return unit;
  }

  /// Reads what the keys gave; the rest were created.
  [[nodiscard]] std::vector<Submission> answers(std::span<const pg::Result> results) {
    for (const pg::Result& rows : results) {
      if (rows.columns() != 3) continue;
      for (int row = 0; row < rows.rows(); ++row) read_keyed(rows, row);
    }
    for (const auto& [repeat, first] : repeats_) {
      answers_[repeat] = answers_[first];
      const bool same = prints_.at(repeat) == prints_.at(first);
      if (!same) answers_[repeat].status = Submission::Status::conflict;
      else if (answers_[first].status == Submission::Status::created) answers_[repeat].status = Submission::Status::existing;
    }
    return std::move(answers_);
  }

  [[nodiscard]] const Submission& answer(std::size_t index) const { return answers_[index]; }
  [[nodiscard]] std::vector<Submission> all_created() { return std::move(answers_); }

 private:
  template <class F>
  static void for_pieces(std::span<const std::size_t> indices, F&& use) {
    for (; !indices.empty(); indices = indices.subspan(std::min(kStatementMax, indices.size()))) {
      use(indices.first(std::min(kStatementMax, indices.size())));
    }
  }

  [[nodiscard]] pg::Params id_params(std::int16_t bucket, std::span<const std::size_t> piece) const {
    pg::Params params;
    params.add(bucket).add_array(pg::Type::uuid, piece, [&](std::size_t i) { return answers_[i].job.value; });
    return params;
  }

  [[nodiscard]] pg::Params key_params(std::int16_t bucket, std::span<const std::size_t> piece) const {
    pg::Params params = id_params(bucket, piece);
    params.add_array(pg::Type::text, piece, [&](std::size_t i) { return std::string_view{jobs_[i].queue}; });
    params.add_array(pg::Type::text, piece, [&](std::size_t i) { return std::string_view{*jobs_[i].idempotency_key}; });
    params.add_array(pg::Type::bytea, piece, [&](std::size_t i) { return pg::BytesView{prints_.at(i)}; });
    return params;
  }

  [[nodiscard]] pg::Params job_params(std::int16_t bucket, std::span<const std::size_t> piece) const {
    const auto job = [&](std::size_t i) -> const NewJob& { return jobs_[i]; };
    const auto ms32 = [](const std::optional<milliseconds>& value) -> std::optional<std::int32_t> {
      return value ? std::optional{static_cast<std::int32_t>(value->count())} : std::nullopt;
    };
    pg::Params params = id_params(bucket, piece);
    params.add_array(pg::Type::text, piece, [&](std::size_t i) { return std::string_view{job(i).queue}; });
    params.add_array(pg::Type::text, piece, [&](std::size_t i) { return std::string_view{job(i).kind}; });
    params.add_array(pg::Type::bytea, piece, [&](std::size_t i) { return std::as_bytes(std::span{job(i).payload}); });
    params.add_array(pg::Type::boolean, piece, [&](std::size_t i) { return job(i).encoding == Encoding::bytes; });
    params.add_array(pg::Type::int2, piece, [&](std::size_t i) { return static_cast<std::int16_t>(job(i).priority); });
    params.add_array(pg::Type::timestamptz, piece, [&](std::size_t i) { return job(i).run_at; });
    params.add_array(pg::Type::int8, piece, [&](std::size_t i) {
      return static_cast<std::int64_t>(job(i).delay.value_or(milliseconds{0}).count());
    });
    params.add_array(pg::Type::int4, piece, [&](std::size_t i) -> std::optional<std::int32_t> {
      return job(i).attempts_max;
    });
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
    return params;
  }

  void read_keyed(const pg::Result& rows, int row) {
    const JobId mine{rows.get<Uuid>(row, 0)};
    const JobId owner{rows.get<Uuid>(row, 1)};
    for (const std::size_t i : keyed_.at(mine.bucket())) {
      if (answers_[i].job != mine) continue;
      if (owner == mine) return;
      answers_[i] = {.status = rows.get<bool>(row, 2) ? Submission::Status::existing : Submission::Status::conflict,
                     .job = owner};
      return;
    }
  }

  std::span<const NewJob> jobs_;
  std::vector<Submission> answers_;
  std::map<std::int16_t, std::vector<std::size_t>> plain_;
  std::map<std::int16_t, std::vector<std::size_t>> keyed_;
  std::vector<std::pair<std::size_t, std::size_t>> repeats_;  // of a key in this batch: (item, first item)
  std::map<std::size_t, Sha256> prints_;
};

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

/// Jobs as rows of COPY. Most jobs use no option: then only these columns are sent.
class CopyStream {
 public:
  explicit CopyStream(std::int16_t bucket) : bucket_(bucket) {}

  static bool is_plain(const NewJob& job) {
    return !job.run_at && !job.delay && !job.attempts_max && !job.lease_ttl && !job.run_max && !job.backoff_base &&
           !job.backoff_max && job.tags.empty() && job.encoding == Encoding::json &&
           job.delivery == Delivery::at_least_once;
  }

  static constexpr std::string_view kPlainCopy =
      "COPY faultline.jobs (bucket, id, queue, kind, payload, priority) FROM STDIN (FORMAT binary)";

  void add(pg::BinaryCopy& rows, const NewJob& job, const JobId& id) {
    rows.begin_row(6);
    rows.add(bucket_).add(id.value).add(job.queue).add(job.kind);
    rows.add(std::as_bytes(std::span{job.payload})).add(static_cast<std::int16_t>(job.priority));
    if (last_queue_ == nullptr || last_queue_->first != job.queue) last_queue_ = &*counts_.try_emplace(job.queue).first;
    ++last_queue_->second;
  }

  [[nodiscard]] pg::Params tally_params() const {
    pg::Params params;
    params.add(bucket_);
    params.add_array(pg::Type::text, counts_, [](const auto& count) { return std::string_view{count.first}; });
    params.add_array(pg::Type::int8, counts_, [](const auto& count) { return count.second; });
    return params;
  }

 private:
  std::int16_t bucket_;
  std::map<std::string, std::int64_t> counts_;
  std::pair<const std::string, std::int64_t>* last_queue_ = nullptr;
};

/// Copies jobs in one transaction. `next` gives a job and its id, or nothing at the end.
pg::Expected<std::size_t> copy_jobs(pg::Connection& connection, std::int16_t bucket,
                                    const std::function<const NewJob*(JobId&)>& next, Deadline deadline) {
  if (auto begun = connection.begin(deadline); !begun) return std::unexpected(std::move(begun.error()));
  CopyStream stream{bucket};
  bool first = true;
  auto copied = connection.copy_in(
      CopyStream::kPlainCopy,
      [&](std::string& buffer) {
        pg::BinaryCopy rows{buffer};
        if (first) rows.header();
        first = false;
        JobId id;
        while (buffer.size() < kCopyChunkBytes) {
          const NewJob* job = next(id);
          if (job == nullptr) {
            rows.trailer();
            return false;
          }
          stream.add(rows, *job, id);
        }
        return true;
      },
      deadline);
  if (!copied) {
    connection.rollback(deadline);
    return std::unexpected(std::move(copied.error()));
  }
  auto tallied = connection.exec(sql::kJobsTallyCopied, stream.tally_params(), deadline);
  if (!tallied) {
    connection.rollback(deadline);
    return std::unexpected(std::move(tallied.error()));
  }
  if (auto committed = connection.commit(deadline); !committed) return std::unexpected(std::move(committed.error()));
  return static_cast<std::size_t>(*copied);
}

/// The batch by COPY, if that is possible and worth it. Nothing: send it as statements, `resent` if the
/// answer to the COPY was lost.
Expected<bool> try_copy(Backend& backend, std::span<const NewJob> jobs, const Shipment& shipment, bool& resent,
                        Deadline deadline) {
  if (jobs.size() < kCopyMin || !std::ranges::all_of(jobs, CopyStream::is_plain)) return false;
  auto connection = backend.acquire(deadline);
  if (!connection) return std::unexpected(translate(connection.error()));
  std::size_t at = 0;
  auto copied = copy_jobs(
      **connection, shipment.answer(0).job.bucket(),
      [&](JobId& id) -> const NewJob* {
        if (at == jobs.size()) return nullptr;
        id = shipment.answer(at).job;
        return &jobs[at++];
      },
      deadline);
  if (copied) return true;
  resent = copied.error().code == pg::Errc::outcome_unknown;
  if (resent || copied.error().retryable()) return false;
  return std::unexpected(translate(copied.error()));
}

}  // namespace

Expected<std::vector<Submission>> enqueue(Backend& backend, std::span<const NewJob> jobs, Deadline deadline) {
  if (auto problem = check_jobs(backend, jobs, deadline)) return std::unexpected(std::move(*problem));
  if (jobs.empty()) return std::vector<Submission>{};
  Shipment shipment{backend, jobs};
  bool resent = false;
  if (!shipment.has_keys()) {
    auto copied = try_copy(backend, jobs, shipment, resent, deadline);
    if (!copied) return std::unexpected(std::move(copied.error()));
    if (*copied) return shipment.all_created();
  }
  for (;;) {
    auto results = backend.try_run(shipment.unit(resent), deadline);
    if (results) return shipment.answers(*results);
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
  if (jobs.empty()) return std::vector<Submission>{};
  Shipment shipment{backend, jobs};
  auto results = connection.run(shipment.unit(false), deadline);
  if (!results) return std::unexpected(translate(results.error()));
  return shipment.answers(*results);
}

Expected<std::size_t> enqueue_bulk(Backend& backend, const std::function<std::optional<NewJob>()>& next,
                                   Deadline deadline) {
  auto connection = backend.acquire(deadline);
  if (!connection) return std::unexpected(translate(connection.error()));
  const std::int16_t bucket = some_bucket(backend);
  std::optional<Error> refused;
  struct Refused {};
  NewJob job;
  std::size_t count = 0;
  std::string known_queue;
  // A bad job ends the COPY by an exception of this function's own, and nothing of it stays.
  const auto refuse = [&](Error error) {
    error.message = "job " + std::to_string(count) + " of the stream: " + error.message;
    refused = std::move(error);
    throw Refused{};
  };
  const auto give = [&](JobId& id) -> const NewJob* {
    std::optional<NewJob> given = next();
    if (!given) return nullptr;
    job = std::move(*given);
    if (auto problem = check_job(job, backend.limits())) refuse(std::move(*problem));
    if (!CopyStream::is_plain(job) || job.idempotency_key) {
      refuse({.code = ErrorCode::invalid_argument,
              .message = "a bulk enqueue takes only queue, kind, JSON payload and priority",
              .hint = "send jobs with other options, or keys, in batches through enqueue"});
    }
    if (job.queue != known_queue) {
      if (auto problem = backend.check_queue_exists(job.queue, deadline)) refuse(std::move(*problem));
      known_queue = job.queue;
    }
    id = new_job_id(bucket);
    ++count;
    return &job;
  };
  try {
    auto copied = copy_jobs(**connection, bucket, give, deadline);
    if (!copied) return std::unexpected(translate(copied.error()));
    return *copied;
  } catch (const Refused&) {
    (*connection)->rollback(deadline);
    return std::unexpected(std::move(*refused));
  }
}

}  // namespace faultline::store

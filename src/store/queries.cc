#include "store/queries.h"

#include <algorithm>
#include <map>

#include "sql/statements.h"
#include "store/by_bucket.h"

namespace faultline::store {
namespace {

using std::chrono::milliseconds;

/// Up to this many due and scheduled jobs are counted one by one; see queues_counts.sql.
constexpr std::int64_t kCountOneByOne = 10'000;

std::optional<milliseconds> read_ms(const pg::Result& rows, int row, int column) {
  const auto count = rows.get<std::optional<std::int64_t>>(row, column);
  return count ? std::optional{milliseconds{*count}} : std::nullopt;
}

std::optional<std::string> read_bytes(const pg::Result& rows, int row, int column) {
  if (rows.is_null(row, column)) return std::nullopt;
  const pg::BytesView bytes = rows.get<pg::BytesView>(row, column);
  return std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

int read_int(const pg::Result& rows, int row, int column) {
  return static_cast<int>(rows.get<std::int64_t>(row, column));
}

Job read_job(const pg::Result& rows, int row) {
  Job job;
  int column = 0;
  job.id = JobId{rows.get<Uuid>(row, column++)};
  job.queue = rows.get<std::string>(row, column++);
  job.kind = rows.get<std::string>(row, column++);
  job.state = parse_job_state(rows.get<std::string_view>(row, column++)).value_or(JobState::available);
  job.priority = read_int(rows, row, column++);
  job.attempt = read_int(rows, row, column++);
  if (const auto attempts = rows.get<std::optional<std::int64_t>>(row, column++)) {
    job.attempts_max = static_cast<int>(*attempts);
  }
  job.token = FenceToken{rows.get<std::int64_t>(row, column++)};
  job.run_at = rows.get<DatabaseTime>(row, column++);
  job.created_at = rows.get<DatabaseTime>(row, column++);
  job.claimed_at = rows.get<std::optional<DatabaseTime>>(row, column++);
  job.lease_expires_at = rows.get<std::optional<DatabaseTime>>(row, column++);
  job.finished_at = rows.get<std::optional<DatabaseTime>>(row, column++);
  job.worker = rows.get<std::optional<std::string>>(row, column++);
  job.delivery = parse_delivery(rows.get<std::string_view>(row, column++)).value_or(Delivery::at_least_once);
  job.encoding = rows.get<bool>(row, column++) ? Encoding::bytes : Encoding::json;
  job.payload = read_bytes(rows, row, column++).value_or("");
  job.result = read_bytes(rows, row, column++);
  job.last_error = rows.get<std::optional<std::string>>(row, column++);
  job.progress = rows.get<std::optional<double>>(row, column++);
  job.progress_note = rows.get<std::optional<std::string>>(row, column++);
  job.cancel_requested_at = rows.get<std::optional<DatabaseTime>>(row, column++);
  job.cancel_reason = rows.get<std::optional<std::string>>(row, column++);
  job.idempotency_key = rows.get<std::optional<std::string>>(row, column++);
  if (!rows.is_null(row, column)) job.tags = rows.get<std::vector<std::string>>(row, column);
  ++column;
  job.lease_ttl = read_ms(rows, row, column++);
  job.run_max = read_ms(rows, row, column++);
  job.requeues = read_int(rows, row, column++);
  job.traceparent = rows.get<std::optional<std::string>>(row, column++);
  return job;
}

Attempt read_attempt(const pg::Result& rows, int row) {
  return {.token = FenceToken{rows.get<std::int64_t>(row, 0)},
          .lease_id = rows.get<std::optional<Uuid>>(row, 1),
          .attempt = read_int(rows, row, 2),
          .outcome = rows.get<std::string>(row, 3),
          .state = rows.get<std::string>(row, 4),
          .worker = rows.get<std::optional<std::string>>(row, 5),
          .started_at = rows.get<std::optional<DatabaseTime>>(row, 6),
          .ended_at = rows.get<DatabaseTime>(row, 7),
          .error = rows.get<std::optional<std::string>>(row, 8),
          .requeues = read_int(rows, row, 9)};
}

StaleWrite read_stale_write(const pg::Result& rows, int row) {
  StaleWrite write{
      .at = rows.get<DatabaseTime>(row, 0),
      .job = JobId{rows.get<Uuid>(row, 1)},
      .verb = rows.get<std::string>(row, 2),
      .reason = parse_stale_reason(rows.get<std::string_view>(row, 3)).value_or(StaleReason::token_mismatch),
      .queue = rows.get<std::optional<std::string>>(row, 4),
      .token = FenceToken{rows.get<std::int64_t>(row, 5)},
      .lease_id = rows.get<Uuid>(row, 6),
      .worker = rows.get<std::string>(row, 7),
      .current_lease_id = rows.get<std::optional<Uuid>>(row, 9),
      .current_worker = rows.get<std::optional<std::string>>(row, 10),
      .current_state = rows.get<std::optional<std::string>>(row, 11)};
  if (const auto token = rows.get<std::optional<std::int64_t>>(row, 8))
    write.current_token = FenceToken{*token};
  return write;
}

EffectRecord read_effect(const pg::Result& rows, int row) {
  return {.key = rows.get<std::string>(row, 0),
          .token = FenceToken{rows.get<std::int64_t>(row, 1)},
          .worker = rows.get<std::string>(row, 2),
          .started_at = rows.get<DatabaseTime>(row, 3),
          .recorded_at = rows.get<std::optional<DatabaseTime>>(row, 4),
          .result = read_bytes(rows, row, 5)};
}

JobSummary read_summary(const pg::Result& rows, int row) {
  return {.id = JobId{rows.get<Uuid>(row, 0)},
          .queue = rows.get<std::string>(row, 1),
          .kind = rows.get<std::string>(row, 2),
          .state = parse_job_state(rows.get<std::string_view>(row, 3)).value_or(JobState::available),
          .priority = read_int(rows, row, 4),
          .attempt = read_int(rows, row, 5),
          .token = FenceToken{rows.get<std::int64_t>(row, 6)},
          .run_at = rows.get<DatabaseTime>(row, 7),
          .created_at = rows.get<DatabaseTime>(row, 8),
          .finished_at = rows.get<std::optional<DatabaseTime>>(row, 9),
          .worker = rows.get<std::optional<std::string>>(row, 10),
          .last_error = rows.get<std::optional<std::string>>(row, 11)};
}

bool names_a_bucket(const Backend& backend, JobId id) {
  return id.bucket() >= 0 && id.bucket() < backend.buckets();
}

pg::Params one_job(JobId id) { return id_params(id.bucket(), {id}); }

/// Runs a statement on jobs in each of their buckets, and answers in the order of `ids` with what `read`
/// makes of a row. The rows' first column is the job.
template <class T>
Expected<std::vector<std::optional<T>>> look_up(Backend& backend, const pg::Statement& statement,
                                                std::span<const JobId> ids, Deadline deadline,
                                                T (*read)(const pg::Result&, int row)) {
  std::map<JobId, T> found;
  for (const auto& [bucket, group] : by_bucket(backend, ids)) {
    auto rows = backend.read(statement, id_params(bucket, group), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) {
      found.insert_or_assign(JobId{rows->template get<Uuid>(row, 0)}, read(*rows, row));
    }
  }
  std::vector<std::optional<T>> answers;
  answers.reserve(ids.size());
  for (const JobId& id : ids) {
    const auto it = found.find(id);
    answers.push_back(it == found.end() ? std::nullopt : std::optional{it->second});
  }
  return answers;
}

JobState read_state(const pg::Result& rows, int row) {
  return parse_job_state(rows.get<std::string_view>(row, 1)).value_or(JobState::available);
}

/// The statements that together list what a request asks for, in one bucket.
pg::Unit list_unit(const ListRequest& request, std::int16_t bucket) {
  constexpr auto highest = [] {
    Uuid uuid;
    uuid.bytes.fill(0xFF);
    return uuid;
  }();
  pg::Params base;
  base.add(bucket)
      .add(request.before ? request.before->value : highest)
      .add(static_cast<std::int64_t>(request.limit));
  base.add(request.queue).add(request.kind);
  std::optional<std::string_view> state;
  if (request.state) state = to_string(*request.state);
  pg::Params with_state = base;
  with_state.add(state);

  const bool finished = request.state == JobState::succeeded || request.state == JobState::cancelled;
  const bool parked = request.state == JobState::dead || request.state == JobState::held;
  pg::Unit unit;
  if (request.state == JobState::running)
    unit.add(sql::kJobsListRunning, base);
  else if (parked && request.queue)
    unit.add(sql::kJobsListParked, with_state);
  else if (!finished)
    unit.add(sql::kJobsListLive, with_state);
  if (finished || !request.state) {
    unit.add(request.queue ? sql::kJobsListFinishedOfQueue : sql::kJobsListFinished, with_state);
  }
  return unit;
}

}  // namespace

Expected<std::optional<Job>> find_job(Backend& backend, JobId id, Deadline deadline) {
  if (!names_a_bucket(backend, id)) return std::nullopt;
  auto rows = backend.read(sql::kJobGet, one_job(id), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  if (rows->rows() == 0) return std::nullopt;
  return read_job(*rows, 0);
}

Expected<std::vector<std::optional<Job>>> find_jobs(Backend& backend, std::span<const JobId> ids,
                                                    Deadline deadline) {
  return look_up<Job>(backend, sql::kJobGet, ids, deadline, read_job);
}

Expected<std::vector<std::optional<JobState>>> find_states(Backend& backend, std::span<const JobId> ids,
                                                           Deadline deadline) {
  return look_up<JobState>(backend, sql::kJobsStates, ids, deadline, read_state);
}

Expected<std::optional<JobHistory>> find_history(Backend& backend, JobId id, Deadline deadline) {
  if (!names_a_bucket(backend, id)) return std::nullopt;
  const auto by_id = [&] { return pg::Params{}.add(id.bucket()).add(id.value); };
  pg::Unit unit;
  unit.add(sql::kJobGet, one_job(id)).add(sql::kJobAttempts, by_id());
  unit.add(sql::kJobStaleWrites, by_id()).add(sql::kJobEffects, by_id());
  auto results = backend.read(unit, deadline);
  if (!results) return std::unexpected(std::move(results.error()));
  const auto& [job, attempts, stale_writes, effects] =
      std::tie((*results)[0], (*results)[1], (*results)[2], (*results)[3]);
  if (job.rows() == 0) return std::nullopt;
  JobHistory history{.job = read_job(job, 0)};
  for (int row = 0; row < attempts.rows(); ++row) history.attempts.push_back(read_attempt(attempts, row));
  for (int row = 0; row < stale_writes.rows(); ++row) {
    history.stale_writes.push_back(read_stale_write(stale_writes, row));
  }
  for (int row = 0; row < effects.rows(); ++row) history.effects.push_back(read_effect(effects, row));
  return history;
}

Expected<std::vector<JobSummary>> list_jobs(Backend& backend, const ListRequest& request, Deadline deadline) {
  if (auto problem = check_list(request)) return std::unexpected(std::move(*problem));
  std::map<JobId, JobSummary, std::greater<>> newest_first;
  for (int bucket = 0; bucket < backend.buckets(); ++bucket) {
    auto results = backend.read(list_unit(request, static_cast<std::int16_t>(bucket)), deadline);
    if (!results) return std::unexpected(std::move(results.error()));
    // A job that finishes between the statements is in both answers; the later one is right.
    for (const pg::Result& rows : *results) {
      for (int row = 0; row < rows.rows(); ++row) {
        JobSummary summary = read_summary(rows, row);
        newest_first.insert_or_assign(summary.id, std::move(summary));
      }
    }
  }
  std::vector<JobSummary> page;
  for (auto& [id, summary] : newest_first) {
    if (page.size() == request.limit) break;
    page.push_back(std::move(summary));
  }
  return page;
}

Expected<std::vector<StaleWrite>> list_stale_writes(Backend& backend, std::size_t limit,
                                                    std::optional<DatabaseTime> before, Deadline deadline) {
  if (auto problem = check_list({.limit = limit})) return std::unexpected(std::move(*problem));
  std::vector<StaleWrite> writes;
  for (int bucket = 0; bucket < backend.buckets(); ++bucket) {
    pg::Params params;
    params.add(static_cast<std::int16_t>(bucket)).add(static_cast<std::int64_t>(limit));
    params.add(before.value_or(DatabaseTime::max()));
    auto rows = backend.read(sql::kStaleWritesList, std::move(params), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) writes.push_back(read_stale_write(*rows, row));
  }
  std::ranges::stable_sort(writes, std::ranges::greater{}, &StaleWrite::at);
  // The next page begins before the last moment of this one, so a moment is on one page whole.
  while (writes.size() > limit && writes.back().at < writes[limit - 1].at) writes.pop_back();
  return writes;
}

Expected<std::vector<Queue>> list_queues(Backend& backend, Deadline deadline) {
  auto rows = backend.read(sql::kQueuesList, pg::Params{}.add(std::int16_t{0}), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  std::vector<Queue> queues;
  for (int row = 0; row < rows->rows(); ++row) {
    Queue queue{.name = rows->get<std::string>(row, 0),
                .paused = rows->get<bool>(row, 1),
                .lease_ttl = milliseconds{rows->get<std::int64_t>(row, 3)},
                .attempts_max = read_int(*rows, row, 4),
                .backoff_base = milliseconds{rows->get<std::int64_t>(row, 5)},
                .backoff_max = milliseconds{rows->get<std::int64_t>(row, 6)},
                .retention = milliseconds{rows->get<std::int64_t>(row, 7)},
                .key_retention = milliseconds{rows->get<std::int64_t>(row, 8)},
                .created_at = rows->get<DatabaseTime>(row, 9),
                .updated_at = rows->get<DatabaseTime>(row, 10)};
    if (const auto cap = rows->get<std::optional<std::int64_t>>(row, 2))
      queue.running_max = static_cast<int>(*cap);
    queues.push_back(std::move(queue));
  }
  return queues;
}

Expected<std::vector<QueueCounts>> count_jobs(Backend& backend, const std::optional<std::string>& queue,
                                              Deadline deadline) {
  std::map<std::string, QueueCounts> counts;
  for (int bucket = 0; bucket < backend.buckets(); ++bucket) {
    auto rows = backend.read(
        sql::kQueuesCounts,
        pg::Params{}.add(static_cast<std::int16_t>(bucket)).add(kCountOneByOne).add(queue), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) {
      QueueCounts& count = counts[rows->get<std::string>(row, 0)];
      const auto number = [&](int column) { return rows->get<std::int64_t>(row, column); };
      const std::int64_t scheduled = number(7);
      count.queue = rows->get<std::string>(row, 0);
      count.scheduled += scheduled;
      count.available += number(1) - scheduled;
      count.running += number(2);
      count.held += number(3);
      count.dead += number(4);
      count.succeeded += number(5);
      count.cancelled += number(6);
      if (const auto oldest = rows->get<std::optional<DatabaseTime>>(row, 8)) {
        const std::chrono::microseconds age = rows->get<DatabaseTime>(row, 9) - *oldest;
        count.oldest_due_age = std::max(age, count.oldest_due_age.value_or(age));
      }
    }
  }
  std::vector<QueueCounts> result;
  for (auto& [name, count] : counts) result.push_back(std::move(count));
  return result;
}

Expected<DatabaseTime> database_time(Backend& backend, Deadline deadline) {
  auto rows = backend.read(sql::kMetaGet, pg::Params{}.add(std::int16_t{0}), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  return rows->get<DatabaseTime>(0, 2);
}

}  // namespace faultline::store

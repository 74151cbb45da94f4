#include "store/queries.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "sql/statements.h"
#include "store/by_bucket.h"
#include "store/rows.h"

namespace faultline::store {
namespace {

/// All rows of a result.
template <class Struct>
std::vector<Struct> read_all(const pg::Result& rows) {
  const RowReader<Struct> reader{rows};
  std::vector<Struct> values;
  values.reserve(static_cast<std::size_t>(rows.rows()));
  for (int row = 0; row < rows.rows(); ++row) values.push_back(reader.read(row));
  return values;
}

bool names_a_bucket(const Backend& backend, JobId id) {
  return id.bucket() >= 0 && id.bucket() < backend.buckets();
}

pg::Params one_job(JobId id) { return id_params(id.bucket(), {id}); }

std::vector<std::pair<JobId, Job>> jobs_of(const pg::Result& rows) {
  std::vector<std::pair<JobId, Job>> found;
  for (Job& job : read_all<Job>(rows)) {
    const JobId id = job.id;
    found.emplace_back(id, std::move(job));
  }
  return found;
}

std::vector<std::pair<JobId, JobState>> states_of(const pg::Result& rows) {
  const int id = column_of(rows, "id");
  const int state = column_of(rows, "state");
  std::vector<std::pair<JobId, JobState>> found;
  for (int row = 0; row < rows.rows(); ++row) {
    found.emplace_back(JobId{rows.get<Uuid>(row, id)},
                       parse_job_state(rows.get<std::string_view>(row, state)).value_or(JobState::available));
  }
  return found;
}

std::vector<std::pair<JobId, std::string>> queues_of(const pg::Result& rows) {
  const int id = column_of(rows, "id");
  const int queue = column_of(rows, "queue");
  std::vector<std::pair<JobId, std::string>> found;
  for (int row = 0; row < rows.rows(); ++row)
    found.emplace_back(JobId{rows.get<Uuid>(row, id)}, rows.get<std::string>(row, queue));
  return found;
}

/// Runs a statement on jobs in each of their buckets, and answers in the order of `ids` with what `read`
/// finds in the rows.
template <class T>
Expected<std::vector<std::optional<T>>> look_up(Backend& backend, const pg::Statement& statement,
                                                std::span<const JobId> ids, Deadline deadline,
                                                std::vector<std::pair<JobId, T>> (*read)(const pg::Result&)) {
  std::map<JobId, T> found;
  for (const auto& [bucket, group] : by_bucket(backend, ids)) {
    auto rows = backend.read(statement, id_params(bucket, group), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (auto& [id, value] : read(*rows)) found.insert_or_assign(id, std::move(value));
  }
  std::vector<std::optional<T>> answers;
  answers.reserve(ids.size());
  for (const JobId& id : ids) {
    const auto it = found.find(id);
    answers.push_back(it == found.end() ? std::nullopt : std::optional{it->second});
  }
  return answers;
}

/// How many jobs one page looks at, where no index finds what is asked for: some ten milliseconds' worth.
constexpr std::int64_t kLooksMax = 5'000;
/// And each statement in each bucket at least.
constexpr std::int64_t kLooksMin = 100;
/// A running job is looked up by its key, somewhere in the table: that costs as much as to walk over so many.
constexpr std::int64_t kLooksPerLookup = 5;

/// A listing in one bucket by one statement.
struct Source {
  const pg::Statement* statement;
  std::int16_t bucket;
};

/// What a statement found, and how far it looked.
struct Looked {
  std::vector<JobSummary> jobs;
  std::optional<JobId> end;  ///< there may be more below; none: nothing is left
  std::size_t looked_at = 0;
};

/// The statement that finds live jobs of any queue.
const pg::Statement& among_all(const ListRequest& request) {
  return request.state == JobState::running ? sql::kJobsListRunning : sql::kJobsListLive;
}

/// The statements that together list what a request asks for.
std::vector<const pg::Statement*> statements_of(const ListRequest& request) {
  const bool finished = request.state == JobState::succeeded || request.state == JobState::cancelled;
  const bool parked = request.state == JobState::dead || request.state == JobState::held;
  std::vector<const pg::Statement*> statements;
  if (parked)
    statements.push_back(request.queue ? &sql::kJobsListParkedOfQueue : &sql::kJobsListParked);
  else if (!finished)
    statements.push_back(request.queue ? &sql::kJobsListOfQueue : &among_all(request));
  if (finished || !request.state)
    statements.push_back(request.queue ? &sql::kJobsListFinishedOfQueue : &sql::kJobsListFinished);
  return statements;
}

Expected<Looked> look_through(Backend& backend, const ListRequest& request, Source source,
                              std::int64_t looks_max, Deadline deadline) {
  constexpr auto highest = [] {
    Uuid uuid;
    uuid.bytes.fill(0xFF);
    return uuid;
  }();
  std::optional<std::string_view> state;
  if (request.state) state = to_string(*request.state);
  if (source.statement == &sql::kJobsListRunning) looks_max /= kLooksPerLookup;
  pg::Params params;
  params.add(source.bucket).add(request.before ? request.before->value : highest);
  params.add(static_cast<std::int64_t>(request.limit)).add(request.queue).add(request.kind).add(state);
  params.add(looks_max);
  auto rows = backend.read(*source.statement, std::move(params), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  Looked looked;
  if (rows->rows() == 0) return looked;
  const int found = column_of(*rows, "found");
  const RowReader<JobSummary> reader{*rows};
  for (int row = 0; row < rows->rows(); ++row) {
    if (rows->get<bool>(row, found)) looked.jobs.push_back(reader.read(row));
  }
  const int last = rows->rows() - 1;
  const auto looks = rows->get<std::int64_t>(last, column_of(*rows, "looked"));
  if (source.statement == &sql::kJobsListOfQueue && looks > looks_max) {
    auto walk = look_through(backend, request, {&among_all(request), source.bucket}, looks_max, deadline);
    if (walk) walk->looked_at += static_cast<std::size_t>(looks);
    return walk;
  }
  looked.looked_at = static_cast<std::size_t>(looks);
  const bool full = looked.jobs.size() == request.limit;
  const bool cut_off = looks == looks_max && source.statement != &sql::kJobsListOfQueue;
  if (full || cut_off) looked.end = JobId{rows->get<Uuid>(last, column_of(*rows, "id"))};
  return looked;
}

}  // namespace

Expected<std::optional<Job>> find_job(Backend& backend, JobId id, Deadline deadline) {
  if (!names_a_bucket(backend, id)) return std::nullopt;
  auto rows = backend.read(sql::kJobGet, one_job(id), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  if (rows->rows() == 0) return std::nullopt;
  return RowReader<Job>{*rows}.read(0);
}

Expected<std::vector<std::optional<Job>>> find_jobs(Backend& backend, std::span<const JobId> ids,
                                                    Deadline deadline) {
  return look_up<Job>(backend, sql::kJobGet, ids, deadline, &jobs_of);
}

Expected<std::vector<std::optional<JobState>>> find_states(Backend& backend, std::span<const JobId> ids,
                                                           Deadline deadline) {
  return look_up<JobState>(backend, sql::kJobsStates, ids, deadline, &states_of);
}

Expected<std::vector<std::optional<std::string>>> find_queues_of(Backend& backend, std::span<const JobId> ids,
                                                                 Deadline deadline) {
  return look_up<std::string>(backend, sql::kJobsQueues, ids, deadline, &queues_of);
}

Expected<std::optional<JobHistory>> find_history(Backend& backend, JobId id, Deadline deadline) {
  if (!names_a_bucket(backend, id)) return std::nullopt;
  const auto by_id = [&] { return pg::Params{}.add(id.bucket()).add(id.value); };
  pg::Unit unit;
  unit.add(sql::kJobGet, one_job(id)).add(sql::kJobAttempts, by_id());
  unit.add(sql::kJobStaleWrites, by_id()).add(sql::kJobEffects, by_id());
  unit.add(sql::kJobEffectDecisions, by_id());
  auto results = backend.read(unit, deadline);
  if (!results) return std::unexpected(std::move(results.error()));
  const auto& [job, attempts, stale_writes, effects, decisions] =
      std::tie((*results)[0], (*results)[1], (*results)[2], (*results)[3], (*results)[4]);
  if (job.rows() == 0) return std::nullopt;
  JobHistory history{.job = RowReader<Job>{job}.read(0),
                     .attempts = read_all<Attempt>(attempts),
                     .stale_writes = read_all<StaleWrite>(stale_writes),
                     .effects = read_all<EffectRecord>(effects),
                     .decisions = read_all<EffectDecision>(decisions)};
  return history;
}

Expected<JobPage> list_jobs(Backend& backend, const ListRequest& request, Deadline deadline) {
  if (auto problem = check_list(request)) return std::unexpected(std::move(*problem));
  const std::vector<const pg::Statement*> statements = statements_of(request);
  const auto sources = static_cast<std::int64_t>(statements.size()) * backend.buckets();
  const std::int64_t looks_max = std::max(kLooksMin, kLooksMax / sources);
  JobPage page;
  std::map<JobId, JobSummary, std::greater<>> newest_first;
  for (int bucket = 0; bucket < backend.buckets(); ++bucket) {
    for (const pg::Statement* statement : statements) {
      auto looked =
          look_through(backend, request, {statement, static_cast<std::int16_t>(bucket)}, looks_max, deadline);
      if (!looked) return std::unexpected(std::move(looked.error()));
      page.looked_at += looked->looked_at;
      // Below the place where one of them ended, nothing is known of what it would have found.
      if (looked->end) page.next = std::max(*looked->end, page.next.value_or(*looked->end));
      // A job that finishes between the statements is in both answers; the later one is right.
      for (JobSummary& summary : looked->jobs) {
        const JobId id = summary.id;
        newest_first.insert_or_assign(id, std::move(summary));
      }
    }
  }
  for (auto& [id, summary] : newest_first) {
    if (page.next && id < *page.next) break;
    if (page.jobs.size() == request.limit) {
      page.next = page.jobs.back().id;
      break;
    }
    page.jobs.push_back(std::move(summary));
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
    std::ranges::move(read_all<StaleWrite>(*rows), std::back_inserter(writes));
  }
  std::ranges::stable_sort(writes, std::ranges::greater{}, &StaleWrite::at);
  // The next page begins before the last moment of this one, so a moment is on one page whole.
  while (writes.size() > limit && writes.back().at < writes[limit - 1].at) writes.pop_back();
  return writes;
}

Expected<std::vector<Queue>> list_queues(Backend& backend, Deadline deadline) {
  auto rows = backend.read(sql::kQueuesList, pg::Params{}.add(std::int16_t{0}), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  return read_all<Queue>(*rows);
}

Expected<std::vector<QueueCounts>> count_jobs(Backend& backend, const std::optional<std::string>& queue,
                                              Deadline deadline) {
  std::map<std::string, QueueCounts> counts;
  for (int bucket = 0; bucket < backend.buckets(); ++bucket) {
    auto rows = backend.read(sql::kQueuesCounts,
                             pg::Params{}.add(static_cast<std::int16_t>(bucket)).add(queue), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) {
      const auto number = [&](std::string_view name) {
        return rows->get<std::int64_t>(row, column_of(*rows, name));
      };
      const auto name = rows->get<std::string>(row, column_of(*rows, "queue"));
      QueueCounts& count = counts[name];
      const std::int64_t scheduled = number("scheduled");
      const std::int64_t retrying = number("retrying");
      count.queue = name;
      count.scheduled += scheduled;
      count.retrying += retrying;
      count.available += number("waiting") - scheduled - retrying;
      count.running += number("running");
      count.held += number("held");
      count.dead += number("dead");
      count.succeeded += number("succeeded");
      count.cancelled += number("cancelled");
      count.failures += number("failures");
      const auto oldest = rows->get<std::optional<DatabaseTime>>(row, column_of(*rows, "oldest_due_at"));
      if (oldest) {
        const std::chrono::microseconds age = rows->get<DatabaseTime>(row, column_of(*rows, "now")) - *oldest;
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

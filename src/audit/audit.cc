#include "audit/audit.h"

#include <algorithm>
#include <array>

#include "schema/migrator.h"
#include "sql/statements.h"
#include "store/answer.h"
#include "store/backend.h"

namespace faultline::audit {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kRollbackMax{5};

/// An invariant, and the statement that finds the rows which break it: their number, and of the first ones a
/// name and what is wrong. Each collects all of them before it takes the first: the planner, which sees that
/// few rows are wanted, would else choose plans that are good at finding a few, and walk over a table again
/// and again.
struct Invariant {
  std::string_view name;
  std::string_view promise;
  const pg::Statement* statement;
};

constexpr std::array kInvariants{
    Invariant{"no_job_is_lost", "A job is waiting, running or finished until its retention has passed.",
              &sql::kAuditNoJobIsLost},
    Invariant{"one_end_per_requeue", "A job finishes once, and once more for each requeue.",
              &sql::kAuditOneEndPerRequeue},
    Invariant{"live_is_not_finished", "A job that has finished does not wait or run.",
              &sql::kAuditLiveIsNotFinished},
    Invariant{"finished_is_final", "Nothing happens to a finished job except a requeue.",
              &sql::kAuditFinishedIsFinal},
    Invariant{"requeues_on_record", "Every requeue that a job counts is in the ledger.",
              &sql::kAuditRequeuesOnRecord},
    Invariant{"refused_stays_refused", "A lease that was refused by the fence commits nothing later.",
              &sql::kAuditRefusedStaysRefused},
    Invariant{"one_row_per_token", "A token ends one attempt or act, and no second one.",
              &sql::kAuditOneRowPerToken},
    Invariant{"ledger_has_no_gap", "Every token that was given out is in the ledger, or runs.",
              &sql::kAuditLedgerHasNoGap},
    Invariant{"token_follows_ledger", "A job's token is never behind its ledger's, nor ahead of it.",
              &sql::kAuditTokenFollowsLedger},
    Invariant{"state_follows_ledger", "A job that nobody runs is where its last attempt left it.",
              &sql::kAuditStateFollowsLedger},
    Invariant{"ledger_row_is_whole", "An attempt's end has its lease, and a job's end has the job.",
              &sql::kAuditLedgerRowIsWhole},
    Invariant{"history_is_a_chain", "Each attempt is the next one, and a job stays in its queue.",
              &sql::kAuditHistoryIsAChain},
    Invariant{"attempt_follows_ledger", "A job counts the attempts that its ledger has.",
              &sql::kAuditAttemptFollowsLedger},
    Invariant{"job_row_is_sound",
              "A live job will be found when its time has come, and is within all bounds.",
              &sql::kAuditJobRowIsSound},
    Invariant{"running_has_a_lease", "A running job has a lease, and no other job has one.",
              &sql::kAuditRunningHasALease},
    Invariant{"lease_is_watched", "A watchdog will look at every running job when its lease ends.",
              &sql::kAuditLeaseIsWatched},
    Invariant{"lease_within_run_max", "No lease lasts longer than its job may run.",
              &sql::kAuditLeaseWithinRunMax},
    Invariant{"cancel_of_running", "Only a running job waits to be cancelled.", &sql::kAuditCancelOfRunning},
    Invariant{"attempts_within_max", "No job is tried more often than it may be.",
              &sql::kAuditAttemptsWithinMax},
    Invariant{"running_within_cap", "A queue runs no more jobs than its cap allows.",
              &sql::kAuditRunningWithinCap},
    Invariant{"tallies_are_the_counts", "A queue's counters are the number of its jobs.",
              &sql::kAuditTalliesAreTheCounts},
    Invariant{"job_has_a_queue", "Every live job is in a queue that exists.", &sql::kAuditJobHasAQueue},
    Invariant{"job_in_its_bucket", "A job is in the bucket that its id names.", &sql::kAuditJobInItsBucket},
    Invariant{"effects_have_a_lease", "An effect was begun and recorded under a lease of its job.",
              &sql::kAuditEffectsHaveALease},
    Invariant{"effect_row_is_sound",
              "An effect is open, recorded or taken back, and what people decided holds.",
              &sql::kAuditEffectRowIsSound},
    Invariant{"evidence_has_a_job", "A refused write is about a job that is on record, and its token.",
              &sql::kAuditEvidenceHasAJob},
    Invariant{"job_has_its_key", "The idempotency key of a live job names this job.",
              &sql::kAuditJobHasItsKey},
    Invariant{"bucket_is_whole", "What the schema was made with is there.", &sql::kAuditBucketIsWhole},
    Invariant{"keys_follow_jobs", "An idempotency key lives as long as its job, and expires after it.",
              &sql::kAuditKeysFollowJobs},
};

milliseconds time_left(Deadline until) {
  return std::max(milliseconds{1},
                  std::chrono::floor<milliseconds>(until - std::chrono::steady_clock::now()));
}

/// One snapshot for all statements, read-only, and plans for walking over whole tables, whatever the session
/// is set to. Its snapshot holds vacuum back, so it ends with its client, also in the middle of a walk. A
/// script, because the isolation level must be set before anything else, also behind a pooler.
constexpr std::string_view kBeginning =
    "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;"
    "SET LOCAL plan_cache_mode = auto; SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on;"
    "SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on; SET LOCAL jit = off;"
    "SET LOCAL work_mem = '64MB'; SET LOCAL client_connection_check_interval = '2s'";

/// Each statement has what is left of the time, and not all of it once more.
std::string statement_timeout(Deadline until) {
  constexpr std::int64_t kTimeoutMax = 2'147'483'647;
  return "SET LOCAL statement_timeout = " + std::to_string(std::min(kTimeoutMax, time_left(until).count()));
}

Error translate(const pg::Error& error) {
  Error result = store::translate(error);
  if (error.code == pg::Errc::deadline_exceeded || error.code == pg::Errc::query_canceled) {
    result.code = ErrorCode::timed_out;
    result.hint =
        "nothing was found out: the tables are large, so give the audit more time, or ask for some checks "
        "only";
  } else if (error.code == pg::Errc::insufficient_privilege) {
    result.hint = "an audit needs the role faultline_reader, or another one of Faultline's";
  }
  return result;
}

/// Adds what breaks the invariant in one bucket.
pg::Expected<void> look(pg::Connection& connection, const Invariant& invariant, std::int16_t bucket,
                        std::size_t examples_max, Check& check, Deadline until) {
  if (auto set = connection.exec_script(statement_timeout(until), until); !set)
    return std::unexpected(std::move(set.error()));
  // The number of all stands in every row, so at least one is asked for.
  pg::Params params;
  params.add(bucket).add(static_cast<std::int64_t>(std::max<std::size_t>(1, examples_max)));
  auto rows = connection.exec(*invariant.statement, params, until);
  if (!rows) return std::unexpected(std::move(rows.error()));
  if (rows->rows() > 0) check.violations += rows->get<std::int64_t>(0, 0);
  for (int row = 0; row < rows->rows() && check.examples.size() < examples_max; ++row) {
    check.examples.push_back(
        {.row = rows->get<std::string>(row, 1), .detail = rows->get<std::string>(row, 2)});
  }
  return {};
}

bool is_wanted(const Invariant& invariant, std::span<const std::string> only) {
  return only.empty() || std::ranges::find(only, invariant.name) != only.end();
}

pg::Expected<Report> check_all(pg::Connection& connection, std::size_t examples_max,
                               std::span<const std::string> only, Deadline until) {
  auto meta = connection.exec(sql::kMetaGet, pg::Params{}.add(std::int16_t{0}), until);
  if (!meta) return std::unexpected(std::move(meta.error()));
  const auto buckets = meta->get<std::int16_t>(0, 0);
  Report report{.at = meta->get<DatabaseTime>(0, 2), .checks = {}};
  for (const Invariant& invariant : kInvariants) {
    if (!is_wanted(invariant, only)) continue;
    Check& check = report.checks.emplace_back(
        Check{.name = std::string{invariant.name}, .promise = std::string{invariant.promise}});
    for (std::int16_t bucket = 0; bucket < buckets; ++bucket) {
      if (auto looked = look(connection, invariant, bucket, examples_max, check, until); !looked)
        return std::unexpected(std::move(looked.error()));
    }
  }
  return report;
}

}  // namespace

std::int64_t Report::violations() const {
  std::int64_t all = 0;
  for (const Check& check : checks) all += check.violations;
  return all;
}

std::vector<std::string> check_names() {
  std::vector<std::string> names;
  for (const Invariant& invariant : kInvariants) names.emplace_back(invariant.name);
  return names;
}

Expected<Report> check(pg::Connection& connection, std::size_t examples_max, Deadline until,
                       std::span<const std::string> only) {
  const std::vector<std::string> names = check_names();
  for (const std::string& name : only) {
    if (std::ranges::find(names, name) != names.end()) continue;
    std::string all;
    for (const std::string& each : names) all += (all.empty() ? "" : ", ") + each;
    return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                                 .message = "there is no check " + name,
                                 .hint = "there are " + all});
  }
  if (const auto current = schema::check(connection, until); !current)
    return std::unexpected(schema::to_error(current.error()));
  if (const auto begun = connection.exec_script(kBeginning, until); !begun)
    return std::unexpected(translate(begun.error()));
  auto report = store::answer_to(ErrorCode::internal, [&]() -> Expected<Report> {
    auto found = check_all(connection, examples_max, only, until);
    if (!found) return std::unexpected(translate(found.error()));
    return std::move(*found);
  });
  // Nothing was written: however it ends, there is nothing to keep.
  connection.rollback(std::chrono::steady_clock::now() + kRollbackMax);
  return report;
}

}  // namespace faultline::audit

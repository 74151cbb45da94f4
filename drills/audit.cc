#include "drills/audit.h"

#include "drills/must.h"

namespace faultline::drills {
namespace {

constexpr pg::Statement kLedger{"audit_ledger",
                                "SELECT token, lease_id, outcome::text, state::text, coalesce(worker, ''),"
                                "       coalesce(convert_from(result, 'UTF8'), '')"
                                "  FROM faultline.ledger WHERE bucket = $1 AND job_id = $2 ORDER BY token"};
constexpr pg::Statement kLive{"audit_live",
                              "SELECT state::text, token FROM faultline.jobs WHERE bucket = $1 AND id = $2"};
constexpr pg::Statement kEvidence{
    "audit_evidence",
    "SELECT verb, reason::text, token, lease_id, worker, current_token, current_worker,"
    "       coalesce(current_state::text, '')"
    "  FROM faultline.stale_writes WHERE bucket = $1 AND job_id = $2 ORDER BY at, id"};
constexpr pg::Statement kEffects{"audit_effects",
                                 "SELECT key, lease_id, recorded_at IS NOT NULL"
                                 "  FROM faultline.effects WHERE bucket = $1 AND job_id = $2 ORDER BY key"};
constexpr pg::Statement kWrites{"audit_writes", "SELECT worker FROM public.race_writes WHERE job = $1"};
// Rows of the queue '' are the schema's own.
constexpr pg::Statement kTotals{"audit_totals",
                                "SELECT (SELECT count(*) FROM faultline.ledger WHERE outcome = 'succeeded'),"
                                "       (SELECT count(*) FROM faultline.jobs WHERE queue <> ''),"
                                "       (SELECT count(*) FROM faultline.stale_writes)"};

Deadline soon() { return Deadline::clock::now() + std::chrono::seconds{60}; }

Findings::LedgerRow ledger_row(const pg::Result& rows, int row) {
  return {.token = {rows.get<std::int64_t>(row, 0)},
          .lease_id = rows.get<std::optional<Uuid>>(row, 1),
          .outcome = rows.get<std::string>(row, 2),
          .state = rows.get<std::string>(row, 3),
          .worker = rows.get<std::string>(row, 4),
          .result = rows.get<std::string>(row, 5)};
}

Findings::Evidence evidence(const pg::Result& rows, int row) {
  Findings::Evidence found{.verb = rows.get<std::string>(row, 0),
                           .reason = rows.get<std::string>(row, 1),
                           .token = {rows.get<std::int64_t>(row, 2)},
                           .lease_id = rows.get<Uuid>(row, 3),
                           .worker = rows.get<std::string>(row, 4),
                           .current_worker = rows.get<std::optional<std::string>>(row, 6),
                           .current_state = rows.get<std::string>(row, 7)};
  if (const auto token = rows.get<std::optional<std::int64_t>>(row, 5))
    found.current_token = FenceToken{*token};
  return found;
}

}  // namespace

Findings read_findings(pg::Connection& connection, JobId job) {
  pg::Unit unit;
  for (const auto& statement : {kLedger, kLive, kEvidence, kEffects})
    unit.add(statement, pg::Params{}.add(job.bucket()).add(job.value));
  unit.add(kWrites, pg::Params{}.add(job.value));
  const auto results = must(connection.run(unit, soon()));
  Findings findings;
  for (int row = 0; row < results[0].rows(); ++row) findings.ledger.push_back(ledger_row(results[0], row));
  for (int row = 0; row < results[1].rows(); ++row) {
    findings.live.push_back(
        {.state = results[1].get<std::string>(row, 0), .token = {results[1].get<std::int64_t>(row, 1)}});
  }
  for (int row = 0; row < results[2].rows(); ++row) findings.evidence.push_back(evidence(results[2], row));
  for (int row = 0; row < results[3].rows(); ++row) {
    findings.effects.push_back({.key = results[3].get<std::string>(row, 0),
                                .lease_id = results[3].get<Uuid>(row, 1),
                                .recorded = results[3].get<bool>(row, 2)});
  }
  for (int row = 0; row < results[4].rows(); ++row)
    findings.writes.push_back(results[4].get<std::string>(row, 0));
  return findings;
}

DatabaseTotals& DatabaseTotals::operator+=(const DatabaseTotals& other) {
  succeeded += other.succeeded;
  live += other.live;
  evidence += other.evidence;
  return *this;
}

DatabaseTotals read_totals(pg::Connection& connection) {
  const auto row = must(connection.exec(kTotals, {}, soon()));
  return {.succeeded = row.get<std::int64_t>(0, 0),
          .live = row.get<std::int64_t>(0, 1),
          .evidence = row.get<std::int64_t>(0, 2)};
}

}  // namespace faultline::drills

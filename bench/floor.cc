#include "floor.h"

namespace faultline::bench {
namespace {

constexpr pg::Statement kClaim{"floor_claim", R"(
    WITH due AS MATERIALIZED (
        SELECT id FROM floor.jobs WHERE state = 0 AND run_at <= statement_timestamp()
         ORDER BY run_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED)
    UPDATE floor.jobs j
       SET state = 1, token = j.token + 1, lease_id = $2::uuid, worker = 'floor',
           lease_expires_at = statement_timestamp() + interval '30 s'
      FROM due WHERE j.id = due.id
    RETURNING j.id, j.token, j.payload)"};

constexpr pg::Statement kSettle{"floor_settle", R"(
    WITH ended AS (
        DELETE FROM floor.jobs j USING unnest($1::uuid[], $2::bigint[]) AS mine(id, token)
         WHERE j.id = mine.id AND j.token = mine.token AND j.lease_id = $3::uuid
           AND j.lease_expires_at > statement_timestamp()
        RETURNING j.id, j.token, j.worker)
    , booked AS (INSERT INTO floor.ledger (job_id, token, worker) SELECT id, token, worker FROM ended)
    SELECT id FROM ended)"};

}  // namespace

pg::Connection connect_planned(const Server& server) {
  pg::ConnectOptions options{.dsn = server.dsn()};
  options.settings = {{"plan_cache_mode", "force_generic_plan"},
                      {"enable_seqscan", "off"},
                      {"enable_bitmapscan", "off"},
                      {"enable_hashjoin", "off"},
                      {"enable_mergejoin", "off"},
                      {"jit", "off"}};
  return must(pg::Connection::open(options, in_time()));
}

Floor::Floor(Server& server) : server_(server) {
  server_.script(
      "CREATE SCHEMA floor;"
      "CREATE TABLE floor.jobs (id uuid PRIMARY KEY, state smallint NOT NULL DEFAULT 0,"
      "    run_at timestamptz NOT NULL DEFAULT statement_timestamp(), token bigint NOT NULL DEFAULT 0,"
      "    lease_id uuid, lease_expires_at timestamptz, worker text, payload bytea NOT NULL);"
      "CREATE INDEX ON floor.jobs (run_at) WHERE state = 0;"
      "CREATE TABLE floor.ledger (job_id uuid, token bigint, worker text,"
      "    ended_at timestamptz NOT NULL DEFAULT statement_timestamp(), PRIMARY KEY (job_id, token));");
}

void Floor::fill(std::size_t jobs) {
  // Ids in the order of time, as the store's are; a moment apart, so that the index of due jobs is in order.
  server_.script(
      "TRUNCATE floor.jobs, floor.ledger;"
      "INSERT INTO floor.jobs (id, run_at, payload)"
      "SELECT (lpad(to_hex(i), 12, '0') || substr(md5(i::text), 1, 20))::uuid,"
      "       statement_timestamp() - interval '1 minute' + i * interval '1 microsecond', '" +
      std::string{kPayload} + "'::bytea FROM generate_series(1, " + std::to_string(jobs) + ") AS i;");
  server_.script("VACUUM ANALYZE floor.jobs");
}

double Floor::drain(std::size_t connections, std::size_t batch) {
  std::vector<pg::Connection> open;
  for (std::size_t i = 0; i < connections; ++i) open.push_back(connect_planned(server_));
  return measure(connections, [&](std::size_t thread) -> std::size_t {
    pg::Connection& connection = open[thread];
    const Uuid lease = Uuid::random();
    const pg::Result claimed = must(
        connection.exec(kClaim, pg::Params{}.add(static_cast<std::int64_t>(batch)).add(lease), in_time()));
    if (claimed.rows() == 0) return 0;
    pg::Params params;
    params.begin_array(pg::Type::uuid);
    for (int row = 0; row < claimed.rows(); ++row) params.push(claimed.get<Uuid>(row, 0));
    params.end_array().begin_array(pg::Type::int8);
    for (int row = 0; row < claimed.rows(); ++row) params.push(claimed.get<std::int64_t>(row, 1));
    params.end_array().add(lease);
    const pg::Result settled = must(connection.exec(kSettle, params, in_time()));
    if (settled.rows() != claimed.rows()) throw std::runtime_error("the floor lost a job");
    return static_cast<std::size_t>(settled.rows());
  });
}

}  // namespace faultline::bench

#include "bench/baseline.h"

#include <exception>
#include <span>

#include "bench/workload.h"
#include "pg/binary_copy.h"
#include "store/plan_settings.h"

namespace faultline::bench {
namespace {

constexpr pg::Statement kClaim{"baseline_claim", R"(
    WITH due AS MATERIALIZED (
        SELECT id FROM baseline.jobs WHERE state = 0 AND run_at <= statement_timestamp()
         ORDER BY run_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED)
    UPDATE baseline.jobs j
       SET state = 1, token = j.token + 1, lease_id = $2::uuid, worker = 'baseline',
           lease_expires_at = statement_timestamp() + interval '30 s'
      FROM due WHERE j.id = due.id
    RETURNING j.id, j.token, j.payload)"};

constexpr pg::Statement kSettle{"baseline_settle", R"(
    WITH ended AS (
        DELETE FROM baseline.jobs j USING unnest($1::uuid[], $2::bigint[]) AS mine(id, token)
         WHERE j.id = mine.id AND j.token = mine.token AND j.lease_id = $3::uuid
           AND j.lease_expires_at > statement_timestamp()
        RETURNING j.id, j.token, j.worker)
    , booked AS (INSERT INTO baseline.ledger (job_id, token, worker) SELECT id, token, worker FROM ended)
    SELECT id FROM ended)"};

constexpr pg::Statement kInsert{"baseline_insert", R"(
    INSERT INTO baseline.jobs (id, payload) SELECT id, $2::bytea FROM unnest($1::uuid[]) AS new(id))"};

constexpr pg::Statement kInsertAndNotify{"baseline_insert_and_notify", R"(
    WITH new AS (INSERT INTO baseline.jobs (id, payload) VALUES ($1::uuid, $2::bytea))
    SELECT pg_notify('baseline', ''))"};

/// From this many rows on, COPY is faster than its additional round trips cost.
constexpr std::size_t kCopyMin = 500;

/// A connection whose plans are as steady as those of the store's.
pg::Connection connect_planned(const BenchDatabase& database) {
  pg::ConnectOptions options{.dsn = database.dsn()};
  options.settings = store::plan_settings();
  return must(pg::Connection::open(options, in_time()));
}

std::vector<pg::Connection> connect_planned(const BenchDatabase& database, std::size_t count) {
  std::vector<pg::Connection> open;
  for (std::size_t i = 0; i < count; ++i) open.push_back(connect_planned(database));
  return open;
}

pg::BytesView payload() { return std::as_bytes(std::span{kPayload}); }

/// Ids in the order of time, as the store's are.
Uuid id_of(std::uint64_t number) {
  Uuid id;
  for (std::size_t i = 0; i < 8; ++i) id.bytes[i] = static_cast<std::uint8_t>(number >> (56U - 8U * i));
  return id;
}

pg::Result claim(pg::Connection& connection, std::size_t batch, const Uuid& lease) {
  return must(
      connection.exec(kClaim, pg::Params{}.add(static_cast<std::int64_t>(batch)).add(lease), in_time()));
}

void settle(pg::Connection& connection, const pg::Result& claimed, const Uuid& lease) {
  pg::Params params;
  params.begin_array(pg::Type::uuid);
  for (int row = 0; row < claimed.rows(); ++row) params.push(claimed.get<Uuid>(row, 0));
  params.end_array().begin_array(pg::Type::int8);
  for (int row = 0; row < claimed.rows(); ++row) params.push(claimed.get<std::int64_t>(row, 1));
  params.end_array().add(lease);
  const pg::Result settled = must(connection.exec(kSettle, params, in_time()));
  if (settled.rows() != claimed.rows()) throw std::runtime_error("the baseline lost a job");
}

/// Claims a batch and settles it. How many jobs it was.
std::size_t work(pg::Connection& connection, std::size_t batch) {
  const Uuid lease = Uuid::random();
  const pg::Result claimed = claim(connection, batch, lease);
  if (claimed.rows() > 0) settle(connection, claimed, lease);
  return static_cast<std::size_t>(claimed.rows());
}

}  // namespace

Baseline::Baseline(BenchDatabase& database) : database_(database), next_id_(0x0190'0000'0000ULL << 16U) {
  database_.script(
      "CREATE SCHEMA baseline;"
      "CREATE TABLE baseline.jobs (id uuid PRIMARY KEY, state smallint NOT NULL DEFAULT 0,"
      "    run_at timestamptz NOT NULL DEFAULT statement_timestamp(), token bigint NOT NULL DEFAULT 0,"
      "    lease_id uuid, lease_expires_at timestamptz, worker text, payload bytea NOT NULL);"
      "CREATE INDEX ON baseline.jobs (run_at) WHERE state = 0;"
      "CREATE TABLE baseline.ledger (job_id uuid, token bigint, worker text,"
      "    ended_at timestamptz NOT NULL DEFAULT statement_timestamp(), PRIMARY KEY (job_id, token));");
}

void Baseline::fill(std::size_t jobs) {
  // A moment apart, so that the index of due jobs is in order.
  database_.script(
      "TRUNCATE baseline.jobs, baseline.ledger;"
      "INSERT INTO baseline.jobs (id, run_at, payload)"
      "SELECT (lpad(to_hex(i), 12, '0') || substr(md5(i::text), 1, 20))::uuid,"
      "       statement_timestamp() - interval '1 minute' + i * interval '1 microsecond', '" +
      std::string{kPayload} + "'::bytea FROM generate_series(1, " + std::to_string(jobs) + ") AS i;");
  database_.script("VACUUM ANALYZE baseline.jobs");
}

void Baseline::retain(std::size_t jobs) {
  database_.script(
      "INSERT INTO baseline.ledger (job_id, token, worker)"
      "SELECT (lpad(to_hex(i), 12, '0') || substr(md5(i::text), 1, 20))::uuid, 1, 'baseline'"
      "  FROM generate_series(1, " +
      std::to_string(jobs) + ") AS i;");
  database_.script("VACUUM ANALYZE baseline.ledger");
}

double Baseline::drain(std::size_t connections, std::size_t batch) {
  auto open = connect_planned(database_, connections);
  return measure(connections, [&](std::size_t thread) { return work(open[thread], batch); });
}

void Baseline::insert(pg::Connection& connection, std::size_t jobs) {
  const std::uint64_t first = next_id_.fetch_add(jobs);
  if (jobs < kCopyMin) {
    pg::Params params;
    params.begin_array(pg::Type::uuid);
    for (std::size_t i = 0; i < jobs; ++i) params.push(id_of(first + i));
    params.end_array().add(payload());
    must(connection.exec(kInsert, params, in_time()));
    return;
  }
  must(connection.copy_in(
      "COPY baseline.jobs (id, payload) FROM STDIN (FORMAT binary)",
      [&](std::string& buffer) {
        pg::BinaryCopy rows{buffer};
        rows.header();
        for (std::size_t i = 0; i < jobs; ++i) {
          rows.begin_row(2);
          rows.add(id_of(first + i)).add(payload());
        }
        rows.trailer();
        return false;
      },
      in_time()));
}

double Baseline::enqueue(std::size_t connections, std::size_t batch, std::size_t jobs) {
  auto open = connect_planned(database_, connections);
  std::atomic<std::size_t> begun{0};
  return measure(connections, [&](std::size_t thread) -> std::size_t {
    if (begun.fetch_add(batch) >= jobs) return 0;
    insert(open[thread], batch);
    return batch;
  });
}

double Baseline::sustained(const Sustained& how) {
  auto open = connect_planned(database_, how.producers + how.consumers);
  std::atomic<std::size_t> added{0};
  std::atomic<std::size_t> settled{0};
  const auto begun = Clock::now();
  const auto end = begun + how.time;
  (void)measure(how.producers + how.consumers, [&](std::size_t thread) -> std::size_t {
    if (Clock::now() >= end) return 0;
    if (thread >= how.producers) {
      const std::size_t done = work(open[thread], how.consumer_batch);
      settled += done;
      if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    } else if (added - settled < how.backlog_max) {
      added += how.producer_batch;
      insert(open[thread], how.producer_batch);
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds{500});
    }
    return 1;
  });
  return static_cast<double>(settled) / std::chrono::duration<double>(Clock::now() - begun).count();
}

BaselineEcho::BaselineEcho(BenchDatabase& database)
    : producer_(connect_planned(database)), consumer_(connect_planned(database)) {
  must(consumer_.listen("baseline", in_time()));
  listener_ = std::jthread{[this](const std::stop_token& stop) {
    try {
      listen(stop);
    } catch (...) {
      const std::lock_guard lock{mutex_};
      failure_ = std::current_exception();
      claimed_.notify_one();
    }
  }};
}

BaselineEcho::~BaselineEcho() = default;

void BaselineEcho::listen(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const auto woken = must(consumer_.wait_for_notifications(Clock::now() + std::chrono::milliseconds{200}));
    if (woken.empty()) continue;
    const Uuid lease = Uuid::random();
    const pg::Result job = claim(consumer_, 1, lease);
    const auto now = Clock::now();
    if (job.rows() == 0) continue;
    {
      const std::lock_guard lock{mutex_};
      moments_.push_back(now);
    }
    claimed_.notify_one();
    settle(consumer_, job, lease);
  }
}

std::chrono::duration<double, std::milli> BaselineEcho::once() {
  const auto before = Clock::now();
  must(producer_.exec(kInsertAndNotify, pg::Params{}.add(Uuid::random()).add(payload()), in_time()));
  std::unique_lock lock{mutex_};
  if (!claimed_.wait_for(lock, std::chrono::minutes{1}, [&] { return !moments_.empty() || failure_; }))
    throw std::runtime_error("the baseline's listener was not woken");
  if (failure_) std::rethrow_exception(failure_);
  const auto claimed = moments_.back();
  moments_.clear();
  return claimed - before;
}

}  // namespace faultline::bench

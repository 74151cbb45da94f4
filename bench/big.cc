#include "bench/big.h"

#include <algorithm>
#include <thread>

#include "audit/audit.h"
#include "faultline/store.h"

namespace faultline::bench {
namespace {

using Millis = std::chrono::duration<double, std::milli>;

/// Half of all jobs are in the queue `default`, the others in all the others, few in each. The first ones of
/// `default` run, a thousand per claim; one in a thousand of the others is dead, and one in a hundred is
/// scheduled.
constexpr std::string_view kFunctions = R"sql(
CREATE SCHEMA big;
CREATE FUNCTION big.id(i bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(1700000000000 + i), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8'
            || substr(md5(i::text), 4, 11) || '0000')::uuid $$;
CREATE FUNCTION big.queue(i bigint, queues bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN i % 2 = 0 THEN 'default' ELSE 'q' || (i / 2) % queues END $$;
)sql";

constexpr std::string_view kJobs = R"sql(
INSERT INTO faultline.jobs (bucket, id, queue, kind, payload, state, run_at, token, attempt, worker, lease_id,
                            lease_expires_at, claimed_at, granted_ttl_ms, delayed, died_at)
SELECT 0, big.id($finished + i), big.queue(i, $queues), 'bench', '$payload',
       (CASE WHEN runs THEN 'running' WHEN dead THEN 'dead' ELSE 'available' END)::faultline.job_state,
       CASE WHEN dead THEN 'infinity' WHEN later THEN t.now + interval '10 days'
            ELSE t.now - interval '1 day' + i * interval '1 microsecond' END,
       (runs OR dead)::integer, (runs OR dead)::integer, CASE WHEN runs THEN 'bench' END,
       CASE WHEN runs THEN md5(((i - 1) / 2000)::text)::uuid END, CASE WHEN runs THEN t.now + interval '1 day' END,
       CASE WHEN runs THEN t.now END, CASE WHEN runs THEN 86400000 END, later, CASE WHEN dead THEN t.now END
  FROM (SELECT i, i % 2 = 0 AND i <= 2 * $running AS runs, i % 1000 = 501 AS dead, i % 100 = 51 AS later
          FROM generate_series($first, $last) AS i) AS each,
       (SELECT faultline.clock() AS now) AS t
)sql";

constexpr std::string_view kFinished = R"sql(
INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, lease_id, started_at, lease_expires_at, ended_at,
                              state, requeues, queue, worker, priority, delivery, encoding, run_at, created_at, kind, payload)
SELECT 0, 1, e.state::text::faultline.outcome, big.id(e.i), 1, gen_random_uuid(), t.now, t.now, t.now, e.state, 0,
       big.queue(e.i, $queues), 'bench', 5, 'at_least_once', 'json', t.now, t.now, 'bench', '$payload'
  FROM (SELECT i, (CASE WHEN i % 10000 = 1 THEN 'cancelled' ELSE 'succeeded' END)::faultline.job_state AS state
          FROM generate_series($first, $last) AS i) AS e,
       (SELECT faultline.clock() AS now) AS t
)sql";

/// What goes with the jobs: claims, ends of the dead ones' attempts, counts; and a queue with a cap whose
/// counts nobody has folded for long.
constexpr std::string_view kRest = R"sql(
INSERT INTO faultline.grants (bucket, check_at, lease_id, job_ids)
SELECT 0, min(j.lease_expires_at), j.lease_id, array_agg(j.id) FROM faultline.jobs j WHERE j.state = 'running' GROUP BY j.lease_id;
INSERT INTO faultline.ledger (bucket, attempt, outcome, job_id, token, lease_id, started_at, lease_expires_at, ended_at,
                              state, requeues, queue, worker)
SELECT 0, 1, 'buried', j.id, 1, gen_random_uuid(), j.died_at, j.died_at, j.died_at, 'dead', 0, j.queue, 'bench'
  FROM faultline.jobs j WHERE j.died_at IS NOT NULL;
INSERT INTO faultline.tallies (bucket, queue, available, delayed, running, dead, succeeded, cancelled)
SELECT 0, c.queue, sum(c.available), sum(c.delayed), sum(c.running), sum(c.dead), sum(c.succeeded), sum(c.cancelled)
  FROM (SELECT j.queue, count(*) FILTER (WHERE j.state = 'available') AS available,
               count(*) FILTER (WHERE j.delayed AND j.state = 'available') AS delayed,
               count(*) FILTER (WHERE j.state = 'running') AS running, count(*) FILTER (WHERE j.state = 'dead') AS dead,
               0 AS succeeded, 0 AS cancelled
          FROM faultline.jobs j WHERE j.queue <> '' GROUP BY j.queue
        UNION ALL
        SELECT l.queue, 0, 0, 0, 0, count(*) FILTER (WHERE l.state = 'succeeded'),
               count(*) FILTER (WHERE l.state = 'cancelled')
          FROM faultline.ledger l GROUP BY l.queue) AS c
 GROUP BY c.queue;
INSERT INTO faultline.queues (bucket, name, running_max) VALUES (0, 'capped', 1000000);
INSERT INTO faultline.jobs (bucket, id, queue, kind, payload)
SELECT 0, faultline.new_id(0::smallint), 'capped', 'bench', '$payload' FROM generate_series(1, 1000);
INSERT INTO faultline.tallies (bucket, queue, available)
SELECT 0, 'capped', CASE WHEN i <= 1000 THEN 1 ELSE 0 END FROM generate_series(1, 20000) AS i;
)sql";

class BigBench {
 public:
  BigBench(BenchDatabase& database, const BigOptions& options, const Say& say)
      : database_(database),
        options_(options),
        running_(std::min<std::size_t>(100'000, options.live / 4 / 1'000 * 1'000)),
        say_(say),
        sql_(database.connect()) {}

  Report run() {
    fill();
    measure_claims();
    figure("counts_of_all_queues", [](Store& store) { must(store.counts()); });
    figure("counts_of_a_small_queue", [](Store& store) { must(store.counts("q1")); });
    figure("prune_with_nothing_due", [](Store& store) { must(store.prune()); });
    measure_listings();
    measure_audit();
    measure_sweep();
    report_.add("live", options_.live).add("finished", options_.finished).add("queues", options_.queues);
    report_.add("running", running_);
    return std::move(report_);
  }

 private:
  [[nodiscard]] std::string filled_in(std::string_view text, std::size_t first = 0,
                                      std::size_t last = 0) const {
    std::string sql{text};
    const std::vector<std::pair<std::string, std::string>> words{
        {"$payload", std::string{kPayload}},
        {"$finished", std::to_string(options_.finished)},
        {"$queues", std::to_string(options_.queues)},
        {"$running", std::to_string(running_)},
        {"$first", std::to_string(first)},
        {"$last", std::to_string(last)}};
    for (const auto& [word, value] : words) {
      for (std::size_t at = sql.find(word); at != std::string::npos; at = sql.find(word, at + value.size()))
        sql.replace(at, word.size(), value);
    }
    return sql;
  }

  void run_script(std::string_view sql) { must(sql_.exec_script(sql, in_time())); }
  void fill_in_parts(std::string_view text, std::size_t rows, const std::string& what) {
    constexpr std::size_t kPart = 500'000;
    for (std::size_t first = 1; first <= rows; first += kPart) {
      const std::size_t last = std::min(rows, first + kPart - 1);
      say_("filling in " + what + ": " + std::to_string(last) + " of " + std::to_string(rows));
      run_script(filled_in(text, first, last));
    }
  }
  void fill() {
    run_script(kFunctions);
    run_script(
        filled_in("INSERT INTO faultline.queues (bucket, name) SELECT 0, 'q' || i FROM generate_series(0, "
                  "$queues - 1) AS i"));
    fill_in_parts(kJobs, options_.live, "live jobs");
    fill_in_parts(kFinished, options_.finished, "finished jobs");
    run_script(filled_in(kRest));
    // As a quiet night would leave it.
    for (const char* step : {"VACUUM ANALYZE", "CHECKPOINT"}) run_script(step);
  }

  /// Buffers of all tables that were read so far by sessions that have ended.
  std::int64_t buffers() {
    const auto number = [&](std::string_view sql) {
      return must(sql_.exec({"", sql}, {}, in_time())).get<std::int64_t>(0, 0);
    };
    while (number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
                  "pg_backend_pid() AND backend_type = 'client backend'") >
           1)  // the database's own, which is idle
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    return number(
        "SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)"
        "           + coalesce(toast_blks_read + toast_blks_hit + tidx_blks_read + tidx_blks_hit, 0))::bigint"
        "  FROM pg_statio_user_tables WHERE schemaname = 'faultline'");
  }
  Store open() const {
    return must(Store::open({.database = database_.dsn(), .call_timeout = std::chrono::minutes{10}}));
  }
  void add(const std::string& name, double ms, std::int64_t read, const std::string& note = {}) {
    report_.add_number(name + "_ms", ms, 2, note).add(name + "_buffers", read);
    say_(name + ": " + std::to_string(ms) + " ms, " + std::to_string(read) + " buffers");
  }

  /// The median of some calls on a session that has made one, and the buffers of a first one.
  template <class Act>
  void figure(const std::string& name, const Act& act, const std::string& note = {}) {
    const std::int64_t before = buffers();
    {
      Store store = open();
      act(store);
    }
    const std::int64_t read = buffers() - before;
    std::vector<double> took;
    Store store = open();
    act(store);
    for (std::size_t round = 0; round < options_.rounds; ++round) {
      const auto begun = Clock::now();
      act(store);
      took.push_back(Millis{Clock::now() - begun}.count());
    }
    add(name, median(std::move(took)), read, note);
  }

  void measure_claims() {
    const auto claim = [](const std::string& queue) {
      return [queue](Store& store) {
        if (must(store.claim({.queue = queue, .worker = "bench", .limit = 10})).size() != 10)
          throw std::runtime_error("there was nothing to claim in " + queue);
      };
    };
    figure("claim_10", claim("default"), "where the last one found work; the buffers are of a first one");
    // A store that is new looks from the beginning.
    std::vector<double> took;
    std::int64_t read = 0;
    for (std::size_t round = 0; round < options_.rounds; ++round) {
      const std::int64_t before = buffers();
      {
        Store store = open();
        must(store.now());
        const auto begun = Clock::now();
        claim("default")(store);
        took.push_back(Millis{Clock::now() - begun}.count());
      }
      read = buffers() - before;
    }
    add("claim_10_from_the_beginning", median(std::move(took)), read, "over all running jobs");
    figure("claim_10_capped", claim("capped"), "beside 20,000 differences that nobody has folded");
  }

  void measure_listings() {
    const std::vector<std::pair<std::string, ListRequest>> listings{
        {"list_newest", {}},
        {"list_small_queue", {.queue = "q1"}},
        {"list_large_queue", {.queue = "default"}},
        {"list_kind_nowhere", {.kind = "none"}},
        {"list_dead", {.state = JobState::dead}},
        {"list_dead_of_queue", {.queue = "q1", .state = JobState::dead}},
        {"list_held", {.state = JobState::held}},
        {"list_scheduled", {.state = JobState::scheduled}},
        {"list_running", {.state = JobState::running}},
        {"list_succeeded", {.state = JobState::succeeded}},
        {"list_cancelled", {.state = JobState::cancelled}},
        {"list_cancelled_of_queue", {.queue = "default", .state = JobState::cancelled}},
    };
    for (const auto& [name, request] : listings) {
      figure(name, [&request](Store& store) { must(store.list(request)); });
    }
  }

  void measure_audit() {
    say_("auditing");
    const std::int64_t before = buffers();
    const auto begun = Clock::now();
    std::int64_t violations = 0;
    {
      auto connection = database_.connect();
      violations = must(audit::check(connection, 1, in_time())).violations();
    }
    const double ms = Millis{Clock::now() - begun}.count();
    add("audit", ms, buffers() - before);
    report_.add("audit_violations", violations);
  }

  /// All that run are lost at once: what the watchdog does about it, a thousand jobs at a time.
  void measure_sweep() {
    run_script(
        "UPDATE faultline.jobs SET lease_expires_at = faultline.clock() - interval '1 minute' WHERE state = "
        "'running' "
        "AND granted_ttl_ms = 86400000;"
        "UPDATE faultline.grants SET check_at = faultline.clock() - interval '1 minute' WHERE "
        "cardinality(job_ids) > 900");
    const std::int64_t before = buffers();
    std::vector<double> took;
    std::size_t expired = 0;
    {
      Store store = open();
      for (bool more = true; more;) {
        const auto begun = Clock::now();
        const SweepReport swept = must(store.expire_leases(1'000));
        took.push_back(Millis{Clock::now() - begun}.count());
        expired += swept.expired.size();
        more = swept.more && !swept.expired.empty();
      }
    }
    const std::int64_t read = buffers() - before;
    if (expired < running_) throw std::runtime_error("the sweeps found " + std::to_string(expired) + " jobs");
    add("sweep_of_1000", median(took), read / static_cast<std::int64_t>(took.size()),
        "of " + std::to_string(expired) + " lost jobs");
    report_.add_number("sweep_of_1000_max_ms", quantile(took, 1.0), 2);
  }

  BenchDatabase& database_;
  const BigOptions options_;
  const std::size_t running_;
  const Say& say_;
  pg::Connection sql_;
  Report report_{"big: what large tables do to it"};
};

}  // namespace

Report big(BenchDatabase& database, const BigOptions& options, const Say& say) {
  return BigBench{database, options, say}.run();
}

}  // namespace faultline::bench

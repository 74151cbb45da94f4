#include "bench/store.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/baseline.h"
#include "faultline/store.h"
#include "pg/binary_copy.h"

namespace faultline::bench {
namespace {

using nlohmann::json;

class StoreBench {
 public:
  StoreBench(BenchDatabase& database, const StoreBenchOptions& options, const Say& say)
      : database_(database), baseline_(database), rounds_(options.rounds), scale_(options.scale), say_(say) {}

  json run() {
    json report;
    report["claim_settle_jobs_per_s"] = grid();
    for (const std::size_t batch : {100U, 500U}) compare_with_baseline(report, batch);
    compare_enqueue(report);
    compare_snapshot(report);
    compare_retained(report);
    enqueue_million(report);
    return report;
  }

 private:
  [[nodiscard]] std::size_t scaled(std::size_t jobs) const {
    return std::max<std::size_t>(static_cast<std::size_t>(std::ceil(scale_ * static_cast<double>(jobs))), 1);
  }

  Store open(std::size_t connections) const { return open(connections, database_.dsn()); }
  static Store open(std::size_t connections, const std::string& dsn) {
    return must(Store::open(
        {.database = dsn, .connections_max = connections, .call_timeout = std::chrono::minutes{5}}));
  }

  static void fill(Store& store, std::size_t jobs) { must(store.enqueue_bulk(bench_jobs(jobs))); }

  /// Jobs per second of claim and settle, each a commit of its own.
  double drain(Store& store, std::size_t connections, std::size_t batch) {
    return measure(connections, [&](std::size_t) -> std::size_t {
      const auto claimed = must(store.claim({.worker = "bench", .limit = batch}));
      if (claimed.empty()) return 0;
      std::vector<Settlement> done;
      done.reserve(claimed.size());
      for (const ClaimedJob& job : claimed) done.push_back({.lease = job.lease});
      for (const Verdict& verdict : must(store.settle(done))) {
        if (!verdict.committed()) throw std::runtime_error("the store lost a job");
      }
      return claimed.size();
    });
  }

  /// The same with each settlement and the next claim in one commit.
  double drain_by_exchange(Store& store, std::size_t connections, std::size_t batch) {
    std::vector<std::vector<Settlement>> pending(connections);
    return measure(connections, [&](std::size_t thread) -> std::size_t {
      auto next = must(store.exchange(pending[thread], {.worker = "bench", .limit = batch}));
      const std::size_t settled = pending[thread].size();
      pending[thread].clear();
      for (const ClaimedJob& job : next.claimed) pending[thread].push_back({.lease = job.lease});
      return next.claimed.empty() ? settled : std::max<std::size_t>(settled, 1);
    });
  }

  [[nodiscard]] std::size_t jobs_for(std::size_t batch) const {
    static const std::map<std::size_t, std::size_t> jobs{
        {1, 2'000}, {10, 15'000}, {100, 60'000}, {500, 80'000}};
    return scaled(jobs.at(batch));
  }

  double measured_drain(std::size_t connections, std::size_t batch, std::size_t jobs) {
    database_.clear();
    Store store = open(connections);
    fill(store, jobs);
    return drain(store, connections, batch);
  }

  json grid() {
    json rows = json::array();
    for (const std::size_t batch : {1U, 10U, 100U, 500U}) {
      for (const std::size_t connections : {1U, 2U, 4U, 8U}) {
        const double ours = measured_drain(connections, batch, jobs_for(batch));
        baseline_.fill(jobs_for(batch));
        const double baseline = baseline_.drain(connections, batch);
        rows.push_back({{"batch", batch},
                        {"connections", connections},
                        {"store", std::round(ours)},
                        {"baseline", std::round(baseline)}});
        say_("batch " + std::to_string(batch) + ", " + std::to_string(connections) +
             " connections: " + std::to_string(static_cast<long>(ours)) + " jobs/s, baseline " +
             std::to_string(static_cast<long>(baseline)));
      }
    }
    return rows;
  }

  /// Claim and settle as a worker does them, each settlement and the next claim in one commit (exchange), and
  /// apart, each beside the baseline. Rounds are taken in turns, and a ratio is the median of the rounds'
  /// ratios: what disturbs the machine disturbs all.
  void compare_with_baseline(json& report, std::size_t batch) {
    constexpr std::size_t connections = 4;
    const std::size_t jobs = scaled(120'000);
    std::vector<double> together;
    std::vector<double> apart;
    std::vector<double> baselines;
    std::vector<double> together_ratios;
    std::vector<double> apart_ratios;
    for (std::size_t round = 0; round < rounds_; ++round) {
      apart.push_back(measured_drain(connections, batch, jobs));
      baseline_.fill(jobs);
      baselines.push_back(baseline_.drain(connections, batch));
      database_.clear();
      Store store = open(connections);
      fill(store, jobs);
      together.push_back(drain_by_exchange(store, connections, batch));
      together_ratios.push_back(together.back() / baselines.back());
      apart_ratios.push_back(apart.back() / baselines.back());
    }
    const std::string suffix = std::to_string(batch);
    report["claim_settle_" + suffix + "_jobs_per_s"] = std::round(median(together));
    report["claim_then_settle_" + suffix + "_jobs_per_s"] = std::round(median(apart));
    report["baseline_" + suffix + "_jobs_per_s"] = std::round(median(baselines));
    report["claim_settle_vs_baseline_" + suffix] = median(together_ratios);
    report["claim_then_settle_vs_baseline_" + suffix] = median(apart_ratios);
    say_("batch " + suffix + ": " + std::to_string(median(together_ratios)) + " of the baseline, apart " +
         std::to_string(median(apart_ratios)));
  }

  /// A plain COPY of the same rows into the same table.
  double raw_copy(std::size_t jobs) {
    pg::Connection connection = database_.connect();
    std::size_t left = jobs;
    bool first = true;
    std::uint64_t number = 0x0190'0000'0000ULL << 16U;
    return measure(1, [&](std::size_t) -> std::size_t {
      if (left == 0) return 0;
      must(connection.copy_in(
          "COPY faultline.jobs (bucket, id, queue, kind, payload, priority) FROM STDIN (FORMAT binary)",
          [&](std::string& buffer) {
            pg::BinaryCopy rows{buffer};
            if (first) rows.header();
            first = false;
            while (buffer.size() < 256 * 1024) {
              if (left == 0) {
                rows.trailer();
                return false;
              }
              --left;
              Uuid id;
              ++number;
              for (std::size_t i = 0; i < 8; ++i)
                id.bytes[i] = static_cast<std::uint8_t>(number >> (56U - 8U * i));
              rows.begin_row(6);
              rows.add(std::int16_t{0}).add(id).add("default").add("bench");
              rows.add(std::as_bytes(std::span{kPayload})).add(std::int16_t{5});
            }
            return true;
          },
          in_time()));
      return jobs;
    });
  }

  void compare_enqueue(json& report) {
    const std::size_t jobs = scaled(200'000);
    std::vector<double> ours;
    std::vector<double> raw;
    std::vector<double> ratios;
    std::vector<double> batches;
    for (std::size_t round = 0; round < rounds_; ++round) {
      database_.clear();
      Store store = open(1);
      bool filled = false;
      ours.push_back(measure(1, [&](std::size_t) -> std::size_t {
        if (std::exchange(filled, true)) return 0;
        fill(store, jobs);
        return jobs;
      }));
      database_.clear();
      raw.push_back(raw_copy(jobs));
      database_.clear();
      const std::vector<NewJob> batch(1'000, bench_job());
      std::size_t sent = 0;
      batches.push_back(measure(1, [&](std::size_t) -> std::size_t {
        if (sent == 50) return 0;
        ++sent;
        return must(store.enqueue(batch)).size();
      }));
      ratios.push_back(ours.back() / raw.back());
    }
    database_.clear();
    report["enqueue_bulk_jobs_per_s"] = std::round(median(ours));
    report["enqueue_batch_1000_jobs_per_s"] = std::round(median(batches));
    report["raw_copy_jobs_per_s"] = std::round(median(raw));
    report["enqueue_vs_copy"] = median(ratios);
    say_("enqueue: " + std::to_string(median(ratios)) + " of a raw COPY");
  }

  double long_drain(std::size_t jobs, const std::string& dsn) {
    Store store = open(4, dsn);
    fill(store, jobs);
    return drain(store, 4, 100);
  }

  /// A snapshot that is held keeps every dead row and index entry of the drain in place.
  void compare_snapshot(json& report) {
    const std::size_t jobs = scaled(150'000);
    std::vector<double> plain;
    std::vector<double> held;
    std::vector<double> ratios;
    for (std::size_t round = 0; round < rounds_; ++round) {
      database_.clear();
      plain.push_back(long_drain(jobs, database_.dsn()));
      database_.clear();
      pg::Connection holder = database_.connect();
      must(holder.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM faultline.jobs",
                              in_time()));
      held.push_back(long_drain(jobs, database_.dsn()));
      must(holder.exec_script("ROLLBACK", in_time()));
      ratios.push_back(held.back() / plain.back());
    }
    report["plain_jobs_per_s"] = std::round(median(plain));
    report["snapshot_jobs_per_s"] = std::round(median(held));
    report["snapshot_vs_plain"] = median(ratios);
    say_("with a held snapshot: " + std::to_string(median(ratios)) + " of without");
  }

  /// Two databases that differ by a million finished jobs, drained in turns.
  void compare_retained(json& report) {
    const std::size_t jobs = scaled(100'000);
    const std::string with_retained = database_.make_database();
    retain(with_retained, scaled(1'000'000));
    pg::Connection connection = must(pg::Connection::open({.dsn = with_retained}, in_time()));
    std::vector<double> plain;
    std::vector<double> retained;
    std::vector<double> ratios;
    for (std::size_t round = 0; round < rounds_; ++round) {
      database_.clear();
      plain.push_back(long_drain(jobs, database_.dsn()));
      must(connection.exec_script("VACUUM ANALYZE faultline.jobs", in_time()));
      retained.push_back(long_drain(jobs, with_retained));
      ratios.push_back(retained.back() / plain.back());
    }
    report["retained_jobs_per_s"] = std::round(median(retained));
    report["retained_vs_plain"] = median(ratios);
    say_("with a million finished jobs: " + std::to_string(median(ratios)) + " of without");
    database_.clear();
  }

  void enqueue_million(json& report) {
    Store store = open(1);
    const std::size_t before = peak_memory_kib();
    fill(store, scaled(1'000'000));
    report["enqueue_million_memory_growth_kib"] = peak_memory_kib() - before;
  }

  BenchDatabase& database_;
  Baseline baseline_;
  std::size_t rounds_;
  double scale_;
  const Say& say_;
};

}  // namespace

nlohmann::json compare_store(BenchDatabase& database, const StoreBenchOptions& options, const Say& say) {
  return StoreBench{database, options, say}.run();
}

void retain(const std::string& dsn, std::size_t jobs) {
  pg::Connection connection = must(pg::Connection::open({.dsn = dsn}, in_time()));
  must(connection.exec_script(
      "INSERT INTO faultline.ledger (bucket, job_id, token, lease_id, attempt, outcome, state, requeues, "
      "queue,"
      "    worker, started_at, priority, delivery, encoding, run_at, created_at, kind, payload)"
      "SELECT 0, (lpad(to_hex(i), 12, '0') || substr(md5(i::text), 1, 16) || '0000')::uuid, 1,"
      "       gen_random_uuid(), 1, 'succeeded', 'succeeded', 0, 'default', 'bench', now(), 5, "
      "'at_least_once',"
      "       'json', now(), now(), 'bench', '" +
          std::string{kPayload} + "'::bytea FROM generate_series(1, " + std::to_string(jobs) + ") AS i",
      in_time()));
  must(connection.exec_script("VACUUM ANALYZE faultline.ledger", in_time()));
}

}  // namespace faultline::bench

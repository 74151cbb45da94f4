#include "bench/latency.h"

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "bench/baseline.h"
#include "faultline/client.h"

namespace faultline::bench {
namespace {

using Millis = std::chrono::duration<double, std::milli>;

/// Where a handler says when it began.
class StartSignal {
 public:
  void notify() {
    const auto now = Clock::now();
    {
      const std::lock_guard lock{mutex_};
      notified_ = now;
    }
    wake_.notify_one();
  }
  [[nodiscard]] Clock::time_point wait() {
    std::unique_lock lock{mutex_};
    if (!wake_.wait_for(lock, std::chrono::minutes{1}, [&] { return notified_.has_value(); }))
      throw std::runtime_error("a job did not begin within a minute");
    return *std::exchange(notified_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Clock::time_point> notified_;  // guarded by mutex_
};

struct Samples {
  std::vector<double> ours;
  std::vector<double> after_commit;
  std::vector<double> baseline;
};

enum class Baselines { none, in_turns };

Samples sample(BenchDatabase& database, const LatencyOptions& options, Baselines baselines) {
  std::optional<Baseline> baseline;
  std::optional<BaselineEcho> echo;
  if (baselines == Baselines::in_turns) {
    baseline.emplace(database);
    echo.emplace(database);
  }
  StartSignal signal;
  WorkerPool worker_pool{database.dsn(), options.worker_pool, [&signal](Context&) { signal.notify(); }};
  worker_pool.start();
  auto client = must(Client::open({.database = database.dsn()}));
  std::mt19937 random{std::random_device{}()};
  std::uniform_real_distribution<double> pause{0, static_cast<double>(options.pause_max.count())};
  const auto rest = [&] { std::this_thread::sleep_for(Millis{pause(random)}); };
  Samples samples;
  for (std::size_t i = 0; i < options.jobs; ++i) {
    rest();
    const auto before = Clock::now();
    must(client.enqueue(bench_job()));
    const auto committed = Clock::now();
    const auto begun = signal.wait();
    samples.ours.push_back(Millis{begun - before}.count());
    samples.after_commit.push_back(Millis{begun - committed}.count());
    if (!echo) continue;
    rest();
    samples.baseline.push_back(echo->once().count());
  }
  worker_pool.wait_until_done(client, options.jobs);
  worker_pool.stop();
  return samples;
}

}  // namespace

std::vector<double> latencies(BenchDatabase& database, const LatencyOptions& options) {
  return sample(database, options, Baselines::none).ours;
}

Report latency(BenchDatabase& database, const LatencyOptions& options, const Say& say) {
  say("adding " + std::to_string(options.jobs) + " jobs one by one, in turns with as many by hand");
  const Samples samples = sample(database, options, Baselines::in_turns);
  const double p50 = quantile(samples.ours, 0.50);
  const double p99 = quantile(samples.ours, 0.99);
  const double baseline_p50 = quantile(samples.baseline, 0.50);
  const double baseline_p99 = quantile(samples.baseline, 0.99);
  Report report{"latency: one job at a time on an idle system"};
  report.add_number("p50_ms", p50, 3, "from before the enqueue call to the handler's first line")
      .add_number("p99_ms", p99, 3)
      .add_number("max_ms", quantile(samples.ours, 1.0), 3)
      .add_number("after_commit_p50_ms", quantile(samples.after_commit, 0.50), 3,
                  "from the return of the enqueue call; less than 0 where the handler was sooner")
      .add_number("after_commit_p99_ms", quantile(samples.after_commit, 0.99), 3)
      .add_number("baseline_p50_ms", baseline_p50, 3, "by hand: insert and NOTIFY, wake, claim")
      .add_number("baseline_p99_ms", baseline_p99, 3)
      .add_number("p50_vs_baseline", p50 / baseline_p50, 3)
      .add_number("p99_vs_baseline", p99 / baseline_p99, 3)
      .add("jobs", options.jobs);
  add_to(report, options.worker_pool);
  return report;
}

}  // namespace faultline::bench

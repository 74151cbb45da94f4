#include "bench/latency.h"

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "bench/floor.h"
#include "faultline/client.h"

namespace faultline::bench {
namespace {

using Millis = std::chrono::duration<double, std::milli>;

/// Where a handler says when it began.
class Bell {
 public:
  void ring() {
    const auto now = Clock::now();
    {
      const std::lock_guard lock{mutex_};
      rung_ = now;
    }
    wake_.notify_one();
  }
  [[nodiscard]] Clock::time_point wait() {
    std::unique_lock lock{mutex_};
    if (!wake_.wait_for(lock, std::chrono::minutes{1}, [&] { return rung_.has_value(); }))
      throw std::runtime_error("a job did not begin within a minute");
    return *std::exchange(rung_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Clock::time_point> rung_;  // guarded by mutex_
};

struct Samples {
  std::vector<double> ours;
  std::vector<double> after_commit;
  std::vector<double> floor;
};

enum class Floors { none, in_turns };

Samples sample(Server& server, const LatencyOptions& options, Floors floors) {
  std::optional<Floor> floor;
  std::optional<FloorEcho> echo;
  if (floors == Floors::in_turns) {
    floor.emplace(server);
    echo.emplace(server);
  }
  Bell bell;
  Fleet fleet{server.dsn(), options.fleet, [&bell](Context&) { bell.ring(); }};
  fleet.start();
  auto client = must(Client::open({.database = server.dsn()}));
  std::mt19937 random{std::random_device{}()};
  std::uniform_real_distribution<double> pause{0, static_cast<double>(options.pause_max.count())};
  const auto rest = [&] { std::this_thread::sleep_for(Millis{pause(random)}); };
  Samples samples;
  for (std::size_t i = 0; i < options.jobs; ++i) {
    rest();
    const auto before = Clock::now();
    must(client.enqueue(bench_job()));
    const auto committed = Clock::now();
    const auto begun = bell.wait();
    samples.ours.push_back(Millis{begun - before}.count());
    samples.after_commit.push_back(Millis{begun - committed}.count());
    if (!echo) continue;
    rest();
    samples.floor.push_back(echo->once().count());
  }
  fleet.wait_for_settled(options.jobs);
  fleet.stop();
  return samples;
}

}  // namespace

std::vector<double> latencies(Server& server, const LatencyOptions& options) {
  return sample(server, options, Floors::none).ours;
}

Report latency(Server& server, const LatencyOptions& options, const Say& say) {
  say("adding " + std::to_string(options.jobs) + " jobs one by one, in turns with as many by hand");
  const Samples samples = sample(server, options, Floors::in_turns);
  const double p50 = quantile(samples.ours, 0.50);
  const double p99 = quantile(samples.ours, 0.99);
  const double floor_p50 = quantile(samples.floor, 0.50);
  const double floor_p99 = quantile(samples.floor, 0.99);
  Report report{"latency: one job at a time on an idle system"};
  report.add_number("p50_ms", p50, 3, "from before the enqueue call to the handler's first line")
      .add_number("p99_ms", p99, 3)
      .add_number("max_ms", quantile(samples.ours, 1.0), 3)
      .add_number("after_commit_p50_ms", quantile(samples.after_commit, 0.50), 3,
                  "from the return of the enqueue call; less than 0 where the handler was sooner")
      .add_number("after_commit_p99_ms", quantile(samples.after_commit, 0.99), 3)
      .add_number("floor_p50_ms", floor_p50, 3, "by hand: insert and NOTIFY, wake, claim")
      .add_number("floor_p99_ms", floor_p99, 3)
      .add_number("p50_vs_floor", p50 / floor_p50, 3)
      .add_number("p99_vs_floor", p99 / floor_p99, 3)
      .add("jobs", options.jobs);
  add_to(report, options.fleet);
  return report;
}

}  // namespace faultline::bench

#include "bench/workload.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <exception>
#include <fstream>
#include <mutex>
#include <thread>

namespace faultline::bench {

std::function<std::optional<NewJob>()> bench_jobs(std::size_t count) {
  return [left = count, job = bench_job()]() mutable -> std::optional<NewJob> {
    if (left == 0) return std::nullopt;
    --left;
    return job;
  };
}

double measure(std::size_t threads, const std::function<std::size_t(std::size_t thread)>& work) {
  std::atomic<std::size_t> jobs{0};
  std::barrier start{static_cast<std::ptrdiff_t>(threads) + 1};
  std::vector<std::jthread> running;
  std::exception_ptr failure;
  std::mutex mutex;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      start.arrive_and_wait();
      try {
        while (const std::size_t done = work(thread)) jobs += done;
      } catch (...) {
        const std::lock_guard lock{mutex};
        failure = std::current_exception();
      }
    });
  }
  const auto begun = Clock::now();
  start.arrive_and_wait();
  running.clear();
  const std::chrono::duration<double> took = Clock::now() - begun;
  if (failure) std::rethrow_exception(failure);
  return static_cast<double>(jobs) / took.count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Compared in_turns(std::size_t rounds, const std::function<double()>& ours,
                  const std::function<double()>& other) {
  std::vector<double> our_rates;
  std::vector<double> other_rates;
  std::vector<double> ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    our_rates.push_back(ours());
    other_rates.push_back(other());
    ratios.push_back(our_rates.back() / other_rates.back());
  }
  return {.ours = median(our_rates), .other = median(other_rates), .ratio = median(ratios)};
}

double quantile(std::vector<double> values, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  const std::size_t index = std::clamp<std::size_t>(rank, 1, values.size()) - 1;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(index));
  return values[index];
}

std::size_t peak_memory_kib() {
  std::ifstream status{"/proc/self/status"};
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6));
  }
  return 0;
}

}  // namespace faultline::bench

#include "bench/http.h"

#include <atomic>
#include <memory>

#include "bench/baseline.h"
#include "bench/bench_server.h"
#include "bench/http_client.h"

namespace faultline::bench {
namespace {

std::string request_for(std::size_t batch) {
  const std::string job = R"({"kind":"bench","payload":)" + std::string{kPayload} + "}";
  if (batch == 1) return post("/v1/jobs", job);
  std::string body = "[" + job;
  for (std::size_t i = 1; i < batch; ++i) body += "," + job;
  return post("/v1/jobs", body + "]");
}

double add_over_http(BenchDatabase& database, const BenchServer& server, const HttpOptions& options) {
  database.clear();
  const std::string request = request_for(options.batch);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (std::size_t i = 0; i < options.connections; ++i)
    clients.push_back(std::make_unique<HttpClient>(server.http_port()));
  std::atomic<std::size_t> begun{0};
  return measure(options.connections, [&](std::size_t thread) -> std::size_t {
    if (begun.fetch_add(options.batch) >= options.jobs) return 0;
    if (const int status = clients[thread]->exchange(request); status != 201)
      throw std::runtime_error("a request was answered with " + std::to_string(status));
    return options.batch;
  });
}

}  // namespace

Report http(BenchDatabase& database, const HttpOptions& options, const Say& say) {
  const BenchServer server{database.dsn()};
  Baseline baseline{database};
  const Compared rates = in_turns(
      options.rounds,
      [&] {
        say("adding " + std::to_string(options.jobs) + " jobs over HTTP, then as many by hand");
        return add_over_http(database, server, options);
      },
      [&] {
        baseline.fill(0);
        return baseline.enqueue(options.connections, options.batch, options.jobs);
      });
  Report report{"http: " + std::to_string(options.connections) + " connections, " +
                std::to_string(options.batch) + " job(s) in a request"};
  report.add_number("jobs_per_s", rates.ours, 0, "acknowledged after their commit")
      .add_number("baseline_jobs_per_s", rates.other, 0,
                  "by hand: a commit for each request, on as many connections")
      .add_number("vs_baseline", rates.ratio, 3)
      .add("batch", options.batch)
      .add("connections", options.connections)
      .add("jobs", options.jobs)
      .add("rounds", options.rounds);
  return report;
}

}  // namespace faultline::bench

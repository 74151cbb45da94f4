#include <cstdlib>
#include <iostream>

#include "bench/big.h"
#include "bench/drain.h"
#include "bench/enqueue.h"
#include "bench/grpc.h"
#include "bench/http.h"
#include "bench/latency.h"
#include "bench/store.h"
#include "bench/sustained.h"
#include "cli/commands.h"

namespace faultline::cli {
namespace {

using Measure = std::function<CommandResult(bench::BenchDatabase&, const bench::Say&)>;

CommandResult to_result(const bench::Report& report) {
  return {.text = report.text(), .json = report.json()};
}

/// A benchmark works beside the database that was named, and else on a server of its own.
Expected<std::optional<std::string>> named_database(const Context& context) {
  auto named = context.named_database();
  if (!named) return std::unexpected(named.error());
  if (named->empty()) return std::nullopt;
  return std::move(*named);
}

Expected<CommandResult> run(Context& context, const Measure& measure) {
  const auto beside = named_database(context);
  if (!beside) return std::unexpected(beside.error());
  if (*beside) {
    // For the words of an unreachable database.
    if (const auto reachable = context.connect_to(**beside); !reachable)
      return std::unexpected(reachable.error());
  }
  const bench::Say say = [quiet = context.options().json](const std::string& line) {
    if (!quiet) std::cerr << line << '\n' << std::flush;
  };
  try {
    bench::BenchDatabase database{*beside, context.stop_token()};
    return measure(database, say);
  } catch (const std::exception& error) {
    return std::unexpected(
        Failure{.code = "benchmark_failed",
                .message = "the benchmark could not be carried out: " +
                           without_passwords_of(beside->value_or(""), error.what()),
                .hint = "it needs a server with room, and a login that may create databases"});
  }
}

/// Numbers of things: at least one, and not a slip of the finger.
CLI::Range some(std::size_t most) { return CLI::Range{std::size_t{1}, most}; }

void add_worker_pool_options(CLI::App& command, bench::WorkerPoolOptions& worker_pool) {
  command
      .add_option("--workers", worker_pool.workers, "Workers, each with threads and connections of its own")
      ->check(some(64))
      ->capture_default_str();
  command.add_option("--slots", worker_pool.slots, "Handlers at once, in each worker")
      ->check(some(1'000))
      ->capture_default_str();
  command
      .add_option("--worker-connections", worker_pool.connections,
                  "For claims and settlements, of each worker")
      ->check(some(64))
      ->capture_default_str();
  command.add_option("--prefetch", worker_pool.prefetch_max, "Jobs that a worker may claim ahead")
      ->check(some(100'000))
      ->capture_default_str();
}

void add_jobs_option(CLI::App& command, std::size_t& jobs) {
  command.add_option("--jobs", jobs, "How many jobs")->check(some(100'000'000))->capture_default_str();
}

void add_rounds_option(CLI::App& command, std::size_t& rounds) {
  command.add_option("--rounds", rounds, "How often it is measured; the median counts")
      ->check(some(99))
      ->capture_default_str();
}

/// A benchmark `name` with these options; `add_options(command, options)`, `measure(database, options, say)`.
template <class Options, class AddOptions, class Run>
void add_benchmark(CLI::App& bench, Action& chosen, const std::string& name, const std::string& about,
                   Options defaults, const AddOptions& add_options, Run measure) {
  auto* command = bench.add_subcommand(name, about);
  command->fallthrough();
  const auto options = std::make_shared<Options>(std::move(defaults));
  add_options(*command, *options);
  command->callback([&chosen, options, measure] {
    chosen = [options, measure](Context& context) -> Expected<CommandResult> {
      return run(context, [&](bench::BenchDatabase& database, const bench::Say& say) {
        return measure(database, *options, say);
      });
    };
  });
}

void add_drain(CLI::App& bench, Action& chosen) {
  add_benchmark(
      bench, chosen, "drain", "How fast workers empty a full queue", bench::DrainOptions{},
      [](CLI::App& command, bench::DrainOptions& options) {
        add_jobs_option(command, options.jobs);
        add_rounds_option(command, options.rounds);
        add_worker_pool_options(command, options.worker_pool);
      },
      [](bench::BenchDatabase& database, const bench::DrainOptions& options, const bench::Say& say) {
        return to_result(bench::drain(database, options, say));
      });
}

struct SustainedArguments {
  std::size_t seconds = 10;
  bench::SustainedOptions options;
};

void add_sustained(CLI::App& bench, Action& chosen) {
  add_benchmark(
      bench, chosen, "sustained", "How many jobs a second go all the way while others are added",
      SustainedArguments{},
      [](CLI::App& command, SustainedArguments& arguments) {
        auto& options = arguments.options;
        command.add_option("--seconds", arguments.seconds, "For how long")
            ->check(some(86'400))
            ->capture_default_str();
        command.add_flag("--snapshot", options.snapshot, "Hold a REPEATABLE READ snapshot open throughout");
        command.add_option("--retained", options.retained, "Finished jobs that the ledger holds beforehand")
            ->check(CLI::Range(std::size_t{0}, std::size_t{100'000'000}))
            ->capture_default_str();
        command.add_option("--producers", options.producers, "Threads that add jobs")
            ->check(some(64))
            ->capture_default_str();
        command.add_option("--batch", options.batch, "Jobs that a producer adds at once")
            ->check(some(100'000))
            ->capture_default_str();
        command
            .add_option("--backlog", options.backlog_max,
                        "Producers wait while this many jobs are unfinished")
            ->check(some(100'000'000))
            ->capture_default_str();
        add_worker_pool_options(command, options.worker_pool);
      },
      [](bench::BenchDatabase& database, const SustainedArguments& arguments, const bench::Say& say) {
        bench::SustainedOptions options = arguments.options;
        options.time = std::chrono::seconds{arguments.seconds};
        return to_result(bench::sustained(database, options, say));
      });
}

struct LatencyArguments {
  std::size_t pause_ms_max = 30;
  bench::LatencyOptions options;
};

void add_latency(CLI::App& bench, Action& chosen) {
  add_benchmark(
      bench, chosen, "latency", "How soon a job begins on an idle system", LatencyArguments{},
      [](CLI::App& command, LatencyArguments& arguments) {
        add_jobs_option(command, arguments.options.jobs);
        command.add_option("--pause-ms-max", arguments.pause_ms_max, "The longest random pause before a job")
            ->check(some(60'000))
            ->capture_default_str();
        add_worker_pool_options(command, arguments.options.worker_pool);
      },
      [](bench::BenchDatabase& database, const LatencyArguments& arguments, const bench::Say& say) {
        bench::LatencyOptions options = arguments.options;
        options.pause_max = std::chrono::milliseconds{arguments.pause_ms_max};
        return to_result(bench::latency(database, options, say));
      });
}

void add_enqueue(CLI::App& bench, Action& chosen) {
  add_benchmark(
      bench, chosen, "enqueue", "How fast jobs are added", bench::EnqueueOptions{},
      [](CLI::App& command, bench::EnqueueOptions& options) {
        command.add_option("--batch", options.batch, "Jobs in a batch, which is a commit")
            ->check(some(100'000))
            ->capture_default_str();
        command.add_option("--connections", options.connections, "Connections that add jobs")
            ->check(some(64))
            ->capture_default_str();
        add_jobs_option(command, options.jobs);
        add_rounds_option(command, options.rounds);
      },
      [](bench::BenchDatabase& database, const bench::EnqueueOptions& options, const bench::Say& say) {
        return to_result(bench::enqueue(database, options, say));
      });
}

void add_http(CLI::App& bench, Action& chosen) {
  add_benchmark(
      bench, chosen, "http", "How fast jobs are added over HTTP", bench::HttpOptions{},
      [](CLI::App& command, bench::HttpOptions& options) {
        command.add_option("--batch", options.batch, "Jobs in a request")
            ->check(some(1'000))
            ->capture_default_str();
        command
            .add_option("--connections", options.connections,
                        "Kept-alive connections, one request at a time each")
            ->check(some(512))
            ->capture_default_str();
        add_jobs_option(command, options.jobs);
        add_rounds_option(command, options.rounds);
      },
      [](bench::BenchDatabase& database, const bench::HttpOptions& options, const bench::Say& say) {
        return to_result(bench::http(database, options, say));
      });
}

void add_grpc(CLI::App& bench, Action& chosen) {
  add_benchmark(
      bench, chosen, "grpc", "How fast remote workers work through a server", bench::GrpcOptions{},
      [](CLI::App& command, bench::GrpcOptions& options) {
        add_jobs_option(command, options.jobs);
        add_rounds_option(command, options.rounds);
        command.add_option("--latency-jobs", options.latency_jobs, "How many jobs for the latency")
            ->check(some(1'000'000))
            ->capture_default_str();
        add_worker_pool_options(command, options.worker_pool);
      },
      [](bench::BenchDatabase& database, const bench::GrpcOptions& options, const bench::Say& say) {
        return to_result(bench::grpc(database, options, say));
      });
}

void add_store(CLI::App& bench, Action& chosen) {
  add_benchmark(
      bench, chosen, "store", "The store's verbs without the worker runtime", bench::StoreBenchOptions{},
      [](CLI::App& command, bench::StoreBenchOptions& options) {
        add_rounds_option(command, options.rounds);
        command.add_option("--scale", options.scale, "A share of the usual numbers of jobs")
            ->check(CLI::Range(0.0001, 100.0))
            ->capture_default_str();
      },
      [](bench::BenchDatabase& database, const bench::StoreBenchOptions& options, const bench::Say& say) {
        const nlohmann::json report = bench::compare_store(database, options, say);
        return CommandResult{.text = report.dump(2) + "\n", .json = report};
      });
}

void add_big(CLI::App& bench, Action& chosen) {
  add_benchmark(
      bench, chosen, "big", "What large tables do to claims, counts, listings, retention, sweeps and audits",
      bench::BigOptions{},
      [](CLI::App& command, bench::BigOptions& options) {
        command.add_option("--live", options.live, "Jobs that wait, run or are dead")
            ->check(CLI::Range(std::size_t{10'000}, std::size_t{100'000'000}))
            ->capture_default_str();
        command.add_option("--finished", options.finished, "Finished jobs that are kept")
            ->check(some(100'000'000))
            ->capture_default_str();
        command.add_option("--queues", options.queues, "Queues, beside the large one")
            ->check(some(1'000'000))
            ->capture_default_str();
        add_rounds_option(command, options.rounds);
      },
      [](bench::BenchDatabase& database, const bench::BigOptions& options, const bench::Say& say) {
        return to_result(bench::big(database, options, say));
      });
}

}  // namespace

void add_bench_command(CLI::App& app, Action& chosen) {
  auto* bench = app.add_subcommand("bench",
                                   "Measure Faultline beside hand-written SQL, both in the same run: on a "
                                   "durable PostgreSQL that is made for it, or "
                                   "in a scratch database beside the one that --database names");
  bench->fallthrough();
  bench->require_subcommand(1);
  add_drain(*bench, chosen);
  add_sustained(*bench, chosen);
  add_latency(*bench, chosen);
  add_enqueue(*bench, chosen);
  add_http(*bench, chosen);
  add_grpc(*bench, chosen);
  add_store(*bench, chosen);
  add_big(*bench, chosen);
}

}  // namespace faultline::cli

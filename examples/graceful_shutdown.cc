// The life of a worker process: it works until SIGTERM or SIGINT, and then lets go of its jobs in an orderly
// way.
//
//   example_graceful_shutdown DATABASE_URL

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>

#include "example.h"
#include "faultline/client.h"
#include "faultline/worker.h"

using namespace std::chrono_literals;
using example::must;
using faultline::Context;

namespace {

/// Sleeps, but not through a stop: returns early when the handler should end.
void sleep_unless_stopped(Context& ctx, std::chrono::milliseconds time) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock{mutex};
  wake.wait_for(lock, ctx.stop_token(), time, [] { return false; });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string database = example::database_url(argc, argv);
  faultline::Client client = must(faultline::Client::open({.database = database}));

  // A handler that runs longer than `drain_max` is given back while it runs; nothing it does can be committed
  // then.
  faultline::Worker worker{{.database = database, .drain_max = 10s}};
  std::atomic<int> running = 0;
  const auto begin = [&] {
    if (++running == 2) std::cout << "two jobs are running; send SIGTERM\n" << std::flush;
  };

  // Nearly done, it finishes: what is finished in time counts.
  worker.handle("short", [&](Context& ctx) {
    begin();
    while (ctx.stop_reason() == faultline::StopReason::none) sleep_unless_stopped(ctx, 1s);
    return "finished while draining";
  });
  // With a long way to go, it stops: the job goes back, its attempt does not count, another worker takes it
  // at once.
  worker.handle("long", [&](Context& ctx) {
    begin();
    for (;;) {
      ctx.throw_if_stopped();
      sleep_unless_stopped(ctx, 1s);
    }
  });

  const auto shorter = must(client.enqueue({.kind = "short"})).job;
  const auto longer = must(client.enqueue({.kind = "long"})).job;
  must(worker.run());  // until a signal; a second signal would hurry

  for (const auto id : {shorter, longer}) {
    const auto job = must(client.get(id)).value();
    std::cout << job.kind << ": " << to_string(job.state) << ", attempts: " << job.attempt << '\n';
  }
  must(client.cancel(longer, "the example is over"));
}

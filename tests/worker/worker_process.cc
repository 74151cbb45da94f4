// A worker process: `worker_process DATABASE NAME [DIR]` works the default queue with `Worker::run` until it
// is told to stop.
//
//   "short" jobs end at once; "count" jobs add a row to the table `ran`, in the settlement's transaction;
//   "crash" jobs end the process by SIGSEGV; "hold" jobs write the file DIR/<job> and wait until the file
//   DIR/go is there, whatever they are told.
//
// It prints "started", then at its end the drain's report, and exits with 0.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "faultline/worker.h"

int main(int argc, char** argv) {
  using namespace faultline;
  const std::filesystem::path directory = argc > 3 ? argv[3] : ".";
  Worker worker{{.database = argv[1],
                 .name = argv[2],
                 .slots = 4,
                 .poll_max = std::chrono::milliseconds{50},
                 .log = [](const Event& event) {
                   if (event.name == "worker_started" || event.name == "worker_draining")
                     std::cout << to_text_line(event) << '\n' << std::flush;
                 }}};
  worker.handle("short", [](Context&) {})
      .handle("crash",
              [](Context&) {
                std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would make an exit of it
                std::raise(SIGSEGV);
              })
      .handle("count",
              [](Context& ctx) {
                ctx.commit([&](Transaction& tx) {
                  tx.exec("INSERT INTO ran (job) VALUES ($1)", {ctx.job().lease.job.to_string()});
                });
              })
      .handle("hold", [&](Context& ctx) {
        std::ofstream{directory / ctx.job().lease.job.to_string()} << "here";
        while (!std::filesystem::exists(directory / "go"))
          std::this_thread::sleep_for(std::chrono::milliseconds{5});
      });
  const auto report = worker.run();
  if (!report) {
    std::cerr << report.error().describe() << '\n';
    return 1;
  }
  std::cout << "released " << report->released << " abandoned " << report->abandoned << " unsettled "
            << report->unsettled << '\n'
            << std::flush;
  // An abandoned handler is not waited for.
  std::_Exit(0);
}

// A program that knows Faultline only as it was installed.
//
//   outside DATABASE_URL

#include <chrono>
#include <iostream>

#include <faultline/client.h>
#include <faultline/worker.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  faultline::Worker worker{{.database = argv[1]}};
  worker.handle("greet", [](faultline::Context& ctx) { return "hello, " + ctx.payload(); });
  if (const auto started = worker.start(); !started) {
    std::cerr << started.error().describe() << '\n';
    return 1;
  }
  auto client = faultline::Client::open({.database = argv[1]});
  const auto sent = client->enqueue({.kind = "greet", .payload = "\"world\""});
  const auto job = client->await(sent->job, std::chrono::minutes{2});
  std::cout << job->result.value() << '\n';
}

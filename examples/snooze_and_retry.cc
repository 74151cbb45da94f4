// The ways in which an attempt ends otherwise than well, and what becomes of the job.
//
//   example_snooze_and_retry DATABASE_URL

#include <chrono>
#include <iostream>
#include <stdexcept>

#include "example.h"
#include "faultline/client.h"
#include "faultline/worker.h"

using namespace std::chrono_literals;
using example::must;
using faultline::Bury;
using faultline::Context;
using faultline::Fail;
using faultline::Outcome;
using faultline::Snooze;

int main(int argc, char** argv) {
  const std::string database = example::database_url(argc, argv);
  const auto say = [](const Context& ctx, const char* what) {
    std::cout << ctx.job().kind << ", attempt " << ctx.attempt() << ", token " << ctx.token().value << ": "
              << what << '\n';
  };
  faultline::Worker worker{{.database = database, .poll_max = 20ms}};

  // Not yet: the attempt is given back. The token is not, so this is attempt 1 twice.
  worker.handle("wait-for-file", [&](Context& ctx) -> Outcome {
    if (ctx.token().value == 1) {
      say(ctx, "not there yet");
      return Snooze{10ms};
    }
    say(ctx, "there it is");
    return Outcome::success("read");
  });

  // A failure is tried again after the backoff, or when it says; an exception is a failure, too.
  worker.handle("call-partner", [&](Context& ctx) -> Outcome {
    if (ctx.attempt() == 1) {
      say(ctx, "told to slow down");
      return Fail{.error = "429", .retry_in = 10ms};
    }
    if (ctx.attempt() == 2) {
      say(ctx, "throws");
      throw std::runtime_error("connection reset");
    }
    say(ctx, "answered");
    return Outcome::success("200");
  });

  // Attempts end somewhere: the job is dead, and waits for a person.
  worker.handle("import", [&](Context& ctx) {
    say(ctx, "throws");
    throw std::runtime_error("row 7 is broken");
  });

  // No attempt will ever help: dead at once, with the attempts unused.
  worker.handle("resize", [&](Context& ctx) -> Outcome {
    if (ctx.job().requeues == 0) {
      say(ctx, "gives up");
      return Bury{"not an image"};
    }
    say(ctx, "works, now that the program is repaired");
    return Outcome::success("resized");
  });

  must(worker.start());
  faultline::Client client = must(faultline::Client::open({.database = database}));
  const auto follow = [&](faultline::JobId id) {
    const auto job = must(client.await(id, 30s));
    std::cout << "  " << job.kind << " " << to_string(job.state) << ": "
              << job.result.value_or(job.last_error.value_or("")) << '\n';
    return id;
  };
  const auto run = [&](const char* kind) {
    return follow(must(client.enqueue({.kind = kind, .attempts_max = 3, .backoff_base = 10ms})).job);
  };

  run("wait-for-file");
  run("call-partner");
  run("import");
  const auto dead = run("resize");
  must(client.requeue(dead));
  follow(dead);
}

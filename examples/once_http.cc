// A payment at a server that Faultline knows nothing of. `once` makes the call, records its receipt, and
// gives the receipt to every later attempt. Where an attempt died between the call and the record, nobody
// here knows whether the money moved: the handler asks the server.
//
//   example_once_http DATABASE_URL

#include <chrono>
#include <iostream>
#include <stdexcept>

#include "example.h"
#include "faultline/client.h"
#include "faultline/worker.h"
#include "payment_server.h"

using namespace std::chrono_literals;
using example::must;
using faultline::Context;

int main(int argc, char** argv) {
  const std::string database = example::database_url(argc, argv);
  example::PaymentServer server;  // on a port of the loopback interface

  faultline::Worker worker{{.database = database, .poll_max = 50ms}};

  worker.handle("charge", [&](Context& ctx) {
    const std::string receipt = ctx.once("charge", [&] {
      std::cout << "attempt " << ctx.attempt() << " charges the card\n";
      return example::post(server.port(), "/charges", ctx.effect_id("charge"));
    });
    if (ctx.attempt() == 1) throw std::runtime_error("the mail server is down");
    std::cout << "attempt " << ctx.attempt() << " mails " << receipt << '\n';
    return receipt;
  });

  worker.handle("charge-carefully", [&](Context& ctx) {
    const std::string id = ctx.effect_id("charge");  // the same in every attempt
    return ctx.once(
        "charge",
        [&] {
          const std::string receipt = example::post(server.port(), "/charges", id);
          if (ctx.attempt() == 1)
            throw std::runtime_error("the answer is lost");  // the effect is unknown now
          return receipt;
        },
        [&](const faultline::UnknownEffect& effect) -> std::optional<std::string> {
          std::cout << "attempt " << ctx.attempt() << " asks the server what became of it\n";
          const std::string receipt = example::get(server.port(), "/charges/" + effect.id);
          return receipt.empty() ? std::nullopt : std::optional{receipt};  // nothing: charge now
        });
  });

  must(worker.start());
  faultline::Client client = must(faultline::Client::open({.database = database}));
  for (const char* kind : {"charge", "charge-carefully"}) {
    const auto added = must(client.enqueue({.kind = kind, .backoff_base = 10ms}));
    const auto job = must(client.await(added.job, 30s));
    std::cout << kind << ": " << *job.result << " after " << job.attempt << " attempts, " << server.charges()
              << " charged\n";
  }
}

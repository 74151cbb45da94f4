// The whole of it: a kind of job, a handler, a worker, a job, its result.
//
//   example_hello DATABASE_URL

#include <iostream>

#include "example.h"
#include "faultline/client.h"
#include "faultline/json.h"
#include "faultline/worker.h"

using namespace std::chrono_literals;
using example::must;
using faultline::json_handler;
using faultline::json_job;

struct Greeting {
  std::string name;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Greeting, name)

int main(int argc, char** argv) {
  const std::string database = example::database_url(argc, argv);

  faultline::Worker worker{{.database = database}};
  worker.handle("greet", json_handler<Greeting>([](const Greeting& who) { return "hello, " + who.name; }));
  must(worker.start());

  faultline::Client client = must(faultline::Client::open({.database = database}));
  const auto added = must(client.enqueue(json_job("greet", Greeting{"world"})));
  std::cout << *must(client.await(added.job, 10s)).result << '\n';
}

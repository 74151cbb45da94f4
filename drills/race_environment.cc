#include "drills/race_environment.h"

#include "drills/history.h"
#include "drills/must.h"

namespace faultline::drills {
namespace {

constexpr std::size_t kWorkersMax = 3;

pg::Connection connect(const std::string& dsn) {
  return must(pg::Connection::open({.dsn = dsn, .application_name = "faultline-drill"},
                                   Deadline::clock::now() + std::chrono::seconds{60}));
}

Store open_store(const std::string& dsn) {
  return must(Store::open(
      {.database = dsn, .application_name = "faultline-drill", .connections_max = 1, .transactions_max = 1}));
}

std::vector<Store> open_workers(const std::string& dsn) {
  std::vector<Store> workers;
  for (std::size_t i = 0; i < kWorkersMax; ++i) workers.push_back(open_store(dsn));
  return workers;
}

}  // namespace

RaceEnvironment::RaceEnvironment(const std::string& dsn)
    : clock(connect(dsn)), watchdog(open_store(dsn)), workers(open_workers(dsn)), auditor(connect(dsn)) {
  must(auditor.exec_script(kCreateWrites, Deadline::clock::now() + std::chrono::seconds{60}));
  use_another_queue();
}

void RaceEnvironment::use_another_queue() {
  queue = "lease-race-" + std::to_string(++queues_);
  must(watchdog.set_queue(queue, {.backoff_base = std::chrono::milliseconds{0}}));
}

}  // namespace faultline::drills

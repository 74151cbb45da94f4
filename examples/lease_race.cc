// Two workers and one job: the first stalls past its lease, the second does the work, the first comes back.
//
//   example_lease_race DATABASE_URL

#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include "example.h"
#include "faultline/store.h"

using example::must;
using faultline::Outcome;
using faultline::Settlement;
using faultline::Store;

int main(int argc, char** argv) {
  Store store = must(Store::open({.database = example::database_url(argc, argv)}));

  const auto job = must(store.enqueue({
      .kind = "welcome-mail",
      .payload = R"({"user": 7})",
      .lease_ttl = std::chrono::milliseconds{100},
      .backoff_base = std::chrono::milliseconds{0},
  }));

  const auto a = must(store.claim({.worker = "A"})).at(0);
  std::cout << "A claims the job with token " << a.lease.token.value << ", and stalls\n";

  while (must(store.expire_leases()).expired.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  std::cout << "the watchdog ends A's lease\n";

  const auto b = must(store.claim({.worker = "B"})).at(0);
  const Settlement done_by_b{.lease = b.lease, .outcome = Outcome::success("sent by B")};
  must(store.settle({&done_by_b, 1}));
  std::cout << "B claims it with token " << b.lease.token.value << ", and commits\n";

  const Settlement done_by_a{.lease = a.lease, .outcome = Outcome::success("sent by A")};
  const auto late = must(store.settle({&done_by_a, 1})).at(0);
  std::cout << "A comes back: " << (late.committed() ? "committed" : "refused, ")
            << faultline::to_string(late.stale.reason) << ", the current token is "
            << late.stale.current_token->value << '\n';

  const auto history = must(store.history(job.job));
  std::cout << "the job " << faultline::to_string(history->job.state) << ": " << *history->job.result
            << ", with " << history->attempts.size() << " attempts and " << history->stale_writes.size()
            << " stale write on record\n";
  return 0;
}

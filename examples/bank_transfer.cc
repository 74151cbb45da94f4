// A transfer between two accounts whose rows are in the same database as the job. The transfer and the job's
// end commit together or not at all: the money moves exactly once, whatever happens to the workers.
//
//   example_bank_transfer DATABASE_URL

#include <chrono>
#include <iostream>
#include <thread>

#include "example.h"
#include "faultline/client.h"
#include "faultline/json.h"
#include "faultline/worker.h"
#include "sql.h"

using namespace std::chrono_literals;
using example::must;
using faultline::Context;
using faultline::Transaction;

struct Transfer {
  std::string from;
  std::string to;
  int amount = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Transfer, from, to, amount)

namespace {

void move_money(Transaction& tx, const Transfer& transfer) {
  const auto debit = tx.exec("UPDATE accounts SET balance = balance - $2 WHERE name = $1 AND balance >= $2",
                             {transfer.from, transfer.amount});
  // Thrown, a Bury rolls back what was done so far. Returned, it would commit it.
  if (debit.affected() == 0) throw faultline::Bury{transfer.from + " has not enough"};
  tx.exec("UPDATE accounts SET balance = balance + $2 WHERE name = $1", {transfer.to, transfer.amount});
}

}  // namespace

int main(int argc, char** argv) {
  const std::string database = example::database_url(argc, argv);
  const example::Sql sql{database};
  sql("DROP TABLE IF EXISTS accounts");
  sql("CREATE TABLE accounts (name text PRIMARY KEY, balance int NOT NULL)");
  sql("INSERT INTO accounts VALUES ('alice', 100), ('bob', 0)");
  const std::string balances = "SELECT string_agg(name || ' ' || balance, ', ' ORDER BY name) FROM accounts";

  faultline::Client client = must(faultline::Client::open({.database = database}));
  const Transfer transfer{.from = "alice", .to = "bob", .amount = 30};
  const auto job = must(
      client.enqueue(faultline::json_job("transfer", transfer, {.lease_ttl = 500ms, .backoff_base = 0ms})));

  // Worker B, as a worker looks.
  faultline::Worker b{{.database = database, .name = "B"}};
  b.handle("transfer", faultline::json_handler<Transfer>([](const Transfer& wanted, Context& ctx) {
             ctx.commit([&](Transaction& tx) { move_money(tx, wanted); });
           }));

  // Worker A, played by hand: it has claimed the transfer and begun it, and stalls until its lease has run
  // out and B has done the work.
  faultline::Store a = must(faultline::Store::open({.database = database}));
  const auto claimed = must(a.claim({.worker = "A"})).at(0);
  const auto late = must(a.transact(claimed.lease, [&](Transaction& tx) {
    std::cout << "A begins the transfer, and stalls\n";
    while (must(a.expire_leases()).expired.empty()) std::this_thread::sleep_for(20ms);
    must(b.start());
    const auto done = must(client.await(job.job, 30s));
    std::cout << "B does it, and the job " << to_string(done.state) << ": " << sql(balances) << '\n';
    move_money(tx, transfer);
    std::cout << "A goes on, and does it too: " << tx.exec(balances).get<std::string>(0, 0) << '\n';
    return faultline::Outcome::success();
  }));
  std::cout << "A cannot commit, " << to_string(late.stale.reason) << ": " << sql(balances) << '\n';

  const auto greedy = must(client.enqueue(faultline::json_job("transfer", Transfer{"bob", "alice", 1'000})));
  const auto refused = must(client.await(greedy.job, 30s));
  std::cout << "a transfer of too much is " << to_string(refused.state) << ", " << *refused.last_error << ": "
            << sql(balances) << '\n';
}

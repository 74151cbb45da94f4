// An order and the job that ships it, in one transaction of the program's own: both exist, or neither does.
//
//   example_transactional_enqueue DATABASE_URL

#include <iostream>

#include "example.h"
#include "faultline/client.h"
#include "sql.h"

using example::must;

int main(int argc, char** argv) {
  const std::string database = example::database_url(argc, argv);
  faultline::Client client = must(faultline::Client::open({.database = database}));
  const example::Sql sql{database};  // a PGconn* of the program's own

  const auto place_order = [&](int order) {
    sql("INSERT INTO orders VALUES (" + std::to_string(order) + ")");
    // On the program's connection, and so in its transaction: no outbox, and nothing to clean up.
    return must(client.enqueue_in(sql.get(), {.kind = "ship", .payload = std::to_string(order)})).job;
  };
  const auto report = [&](const std::string& when, faultline::JobId job) {
    std::cout << when << ": " << sql("SELECT count(*) FROM orders") << " order, the job "
              << (must(client.get(job)) ? "exists" : "does not exist") << '\n';
  };
  sql("CREATE TEMPORARY TABLE orders (number int PRIMARY KEY)");

  sql("BEGIN");
  const auto first = place_order(1);
  report("before the commit", first);
  sql("COMMIT");
  report("after it", first);

  sql("BEGIN");
  const auto second = place_order(2);
  sql("ROLLBACK");  // the customer's card was declined
  report("after a rollback", second);

  must(client.cancel(first, "the example is over"));
}

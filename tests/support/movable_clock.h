#pragma once

#include <chrono>

#include "support/database.h"

namespace faultline::testing {

/// Takes a database's clock into the test's hand: time stands still until the test moves it. Replaces
/// faultline.clock() and faultline.clock_now(), which all of the protocol's time comes from.
class MovableClock {
 public:
  explicit MovableClock(const std::string& dsn) : connection_(connect(dsn)) {
    must(connection_.exec_script(
        "CREATE TABLE faultline.movable_clock (at timestamptz NOT NULL);"
        "GRANT SELECT ON faultline.movable_clock TO PUBLIC;"
        "INSERT INTO faultline.movable_clock VALUES ('2030-01-01 00:00:00+00');"
        "CREATE OR REPLACE FUNCTION faultline.clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE"
        "    AS 'SELECT c.at FROM faultline.movable_clock c';"
        // VOLATILE in PL/pgSQL reads with a snapshot of its own: the time of now, not of the statement.
        "CREATE OR REPLACE FUNCTION faultline.clock_now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE"
        "    AS $$ BEGIN RETURN (SELECT c.at FROM faultline.movable_clock c); END $$;",
        soon()));
  }

  void advance(std::chrono::microseconds by) {
    must(connection_.exec(
        {"", "UPDATE faultline.movable_clock SET at = at + $1::bigint * interval '1 microsecond'"},
        pg::Params{}.add(std::int64_t{by.count()}), soon()));
  }

 private:
  pg::Connection connection_;
};

}  // namespace faultline::testing

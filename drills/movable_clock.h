#pragma once

#include <chrono>
#include <string_view>
#include <utility>

#include "drills/must.h"
#include "faultline/time.h"
#include "pg/connection.h"

namespace faultline::drills {

/// Takes a database's clock into the caller's hand: time stands still until it is moved. Replaces
/// faultline.clock() and faultline.clock_now(), which all of the protocol's time comes from: only ever in a
/// database that was made for this. Throws DrillError.
class MovableClock {
 public:
  static constexpr std::string_view kInstall =
      "CREATE TABLE faultline.movable_clock (at timestamptz NOT NULL);"
      "GRANT SELECT ON faultline.movable_clock TO PUBLIC;"
      "INSERT INTO faultline.movable_clock VALUES ('2030-01-01 00:00:00+00');"
      // Both in PL/pgSQL, which keeps its plan: a body in SQL would be planned for each statement anew.
      // STABLE reads with the statement's snapshot: the time of the statement.
      "CREATE OR REPLACE FUNCTION faultline.clock() RETURNS timestamptz LANGUAGE plpgsql STABLE PARALLEL "
      "SAFE AS $$ BEGIN RETURN (SELECT c.at FROM faultline.movable_clock c); END $$;"
      // VOLATILE reads with a snapshot of its own: the time of now.
      "CREATE OR REPLACE FUNCTION faultline.clock_now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE"
      "    AS $$ BEGIN RETURN (SELECT c.at FROM faultline.movable_clock c); END $$;";

  explicit MovableClock(pg::Connection connection) : MovableClock(std::move(connection), Installed{}) {
    must(connection_.exec_script(kInstall, soon()));
  }
  struct Installed {};
  /// Of a database in which one is installed.
  MovableClock(pg::Connection connection, Installed /*tag*/) : connection_(std::move(connection)) {}

  void advance(std::chrono::microseconds by) {
    must(connection_.exec(
        {"clock_advance",
         "UPDATE faultline.movable_clock SET at = at + $1::bigint * interval '1 microsecond'"},
        pg::Params{}.add(std::int64_t{by.count()}), soon()));
  }
  void set(DatabaseTime at) {
    must(connection_.exec({"clock_set", "UPDATE faultline.movable_clock SET at = $1"}, pg::Params{}.add(at),
                          soon()));
  }

 private:
  static Deadline soon() { return Deadline::clock::now() + std::chrono::seconds{60}; }

  pg::Connection connection_;
};

}  // namespace faultline::drills

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "faultline/error.h"
#include "faultline/time.h"
#include "pg/connection.h"

namespace faultline::audit {

/// One row that breaks a promise.
struct Violation {
  std::string row;     ///< what names it: a job's id, a queue, a token
  std::string detail;  ///< what is wrong with it, for a person at 3 a.m.
};

/// One invariant, and whether it holds.
struct Check {
  std::string name;                   ///< stable, snake_case
  std::string promise;                ///< one sentence: what must be true
  std::int64_t violations = 0;        ///< 0: it holds
  std::vector<Violation> examples{};  ///< the first few of them
};

struct Report {
  DatabaseTime at;
  std::vector<Check> checks;

  [[nodiscard]] std::int64_t violations() const;
};

/// Checks all invariants on the live database, in one read-only transaction with one snapshot, so that work
/// that goes on meanwhile cannot look like a violation. `only` these checks, by name; empty: all.
[[nodiscard]] Expected<Report> check(pg::Connection& connection, std::size_t examples_max, Deadline until,
                                     std::span<const std::string> only = {});

/// The names of all checks, in their order.
[[nodiscard]] std::vector<std::string> check_names();

}  // namespace faultline::audit

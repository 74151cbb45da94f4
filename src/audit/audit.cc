#include "audit/audit.h"

namespace faultline::audit {

std::int64_t Report::violations() const {
  std::int64_t all = 0;
  for (const Check& check : checks) all += check.violations;
  return all;
}

Expected<Report> check(pg::Connection& /*connection*/, std::size_t /*examples_max*/, Deadline /*until*/) {
  return Report{};
}

}  // namespace faultline::audit

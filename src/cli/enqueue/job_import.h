#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/support/output.h"
#include "faultline/store.h"

namespace faultline::cli {

struct ImportOptions {
  std::string path;       ///< "-": standard input
  std::string import_id;  ///< empty: made from the file
  bool skip_bad = false;
  bool quiet = false;  ///< says nothing while it works
};

struct ImportReport {
  std::string import_id;
  std::uint64_t lines = 0;  ///< with a job on them, good or bad
  std::uint64_t created = 0;
  std::uint64_t existing = 0;   ///< an earlier run had added them
  std::uint64_t conflicts = 0;  ///< the key is another job's: not added
  std::uint64_t bad = 0;
  std::vector<std::string> problems;  ///< the first of the bad lines and conflicts, each with its line number
};

/// Adds the jobs of a file of JSON lines, each an object as POST /v1/jobs takes it, in batches. A line
/// without an idempotency key gets one of the import's id and the line's number: what an earlier run of the
/// same import added is not added twice, however that run ended. Without a store the lines are only checked.
///
/// A file that can be read again is its own import: its id is a hash of its name and of its first line, so
/// that a line that is corrected does not change it. What comes through a pipe gets a new id each time.
[[nodiscard]] Expected<ImportReport> import_jobs(Store* store, const ImportOptions& options);

}  // namespace faultline::cli

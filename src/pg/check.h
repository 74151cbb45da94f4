#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace faultline::pg {

/// An assertion that stays on in release builds: a bug in the calling code ends the process, because
/// going on would send or read the wrong bytes.
inline void check(bool holds, const char* rule,
                  const std::source_location where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: %s: broken rule: %s\n", where.file_name(), static_cast<unsigned>(where.line()),
               where.function_name(), rule);
  std::abort();
}

}  // namespace faultline::pg

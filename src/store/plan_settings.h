#pragma once

#include <string>
#include <utility>
#include <vector>

namespace faultline::store {

/// The settings of every session of the store. Its statements are planned by the shape of their text and the
/// schema's indexes, never by what ANALYZE last thought of the tables: a plan that was made on an empty queue
/// must be right on a full one.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> plan_settings() {
  return {{"plan_cache_mode", "force_generic_plan"},
          {"enable_seqscan", "off"},
          {"enable_bitmapscan", "off"},
          {"enable_hashjoin", "off"},
          {"enable_mergejoin", "off"},
          {"jit", "off"},
          // What was acknowledged is on disk, whatever the database's default is: a claim that a crash
          // forgets would give its token out a second time.
          {"synchronous_commit", "on"},
          {"idle_in_transaction_session_timeout", "60s"}};
}

}  // namespace faultline::store

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace faultline::store {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// The settings of sessions that run a user's SQL: nothing that its plans could depend on. What was
/// acknowledged is on disk, whatever the database's default is: a claim that a crash forgets would give its
/// token out a second time.
/// A statement that waits for a lock ends when its client has gone: nobody is left to read its answer, and
/// the connections of a server are few.
[[nodiscard]] inline Settings transaction_settings() {
  return {{"synchronous_commit", "on"},
          {"idle_in_transaction_session_timeout", "60s"},
          {"client_connection_check_interval", "2s"}};
}

/// The settings of every statement of the store's own. Its statements are planned by the shape of their text
/// and the schema's indexes, never by what ANALYZE last thought of the tables: a plan that was made on an
/// empty queue must be right on a full one.
[[nodiscard]] inline Settings plan_settings() {
  Settings settings = transaction_settings();
  settings.insert(settings.end(), {{"plan_cache_mode", "force_generic_plan"},
                                   {"enable_seqscan", "off"},
                                   {"enable_bitmapscan", "off"},
                                   {"enable_hashjoin", "off"},
                                   {"enable_mergejoin", "off"},
                                   {"jit", "off"}});
  return settings;
}

}  // namespace faultline::store

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/error.h"
#include "faultline/event.h"
#include "faultline/time.h"
#include "pg/connection.h"
#include "service/authenticator.h"

namespace faultline::keys {

/// What a new key is good for.
struct NewKey {
  std::string name;  ///< for people: in logs, and who cancelled or requeued
  service::Scopes scopes;
  std::optional<std::vector<std::string>> queues{};  ///< nothing: all
  std::optional<std::chrono::seconds> expires_in{};
};

/// A key as the database has it: without its secret, of which it has only a hash.
struct Key {
  std::string id;  ///< the part of the key that is no secret: names it in listings and for `revoke`
  std::string name;
  service::Scopes scopes;
  std::optional<std::vector<std::string>> queues{};
  DatabaseTime created_at;
  std::optional<DatabaseTime> expires_at{};
  std::optional<DatabaseTime> revoked_at{};
  bool expired = false;                        ///< by the database's time, when it was read
  std::optional<DatabaseTime> last_used_at{};  ///< to the minute, as far as servers have said so
};

struct CreatedKey {
  Key key;
  std::string secret;  ///< the whole key as callers send it: flk_ID_SECRET. Shown once, kept nowhere
};

/// How many keys may be good at a time: every server keeps all of them in memory.
inline constexpr std::int64_t kKeysMax = 10'000;

[[nodiscard]] Expected<CreatedKey> create(pg::Connection& connection, const NewKey& key, Deadline until);
[[nodiscard]] Expected<std::vector<Key>> list(pg::Connection& connection, Deadline until);
/// False if there is no such key. To revoke it twice is no error.
[[nodiscard]] Expected<bool> revoke(pg::Connection& connection, std::string_view id, Deadline until);

/// Why callers are turned away, for those who run the server: callers are told the same words whatever it
/// was. A revoked key is not known any more.
inline constexpr std::array<std::string_view, 5> kRefusals{"missing", "malformed", "unknown", "wrong_secret",
                                                           "expired"};

/// Keeps all keys at hand, so that telling who calls needs no round trip: read again every `refresh`, on a
/// thread and a connection of its own. So a revoked key is good for at most that long, as long as the
/// database answers; when the database is away the last ones known count, and expiry is judged by the
/// database's time as last seen plus the time since. Notes in the database that keys are in use.
class Keyring : public service::Authenticator {
 public:
  struct Options {
    std::string database;
    std::chrono::milliseconds refresh{2'000};
    EventSink log{};
    /// Somebody was turned away; one of `kRefusals`. On the thread that asked.
    std::function<void(std::string_view why)> refused{};
  };
  [[nodiscard]] static std::unique_ptr<Keyring> start(Options options);
};

}  // namespace faultline::keys

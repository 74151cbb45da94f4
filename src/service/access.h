#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service/problem.h"

namespace faultline::service {

/// What a key may be good for. `admin` does not include the others: a key names all that it is good for.
enum class Scope : std::uint8_t { produce = 1, work = 2, read = 4, admin = 8 };
[[nodiscard]] std::string_view to_string(Scope scope);
[[nodiscard]] std::optional<Scope> parse_scope(std::string_view text);

class Scopes {
 public:
  Scopes() = default;
  Scopes(std::initializer_list<Scope> scopes) {
    for (const Scope scope : scopes) add(scope);
  }
  void add(Scope scope) { bits_ = static_cast<std::uint8_t>(bits_ | static_cast<std::uint8_t>(scope)); }
  [[nodiscard]] bool has(Scope scope) const { return (bits_ & static_cast<std::uint8_t>(scope)) != 0; }
  friend bool operator==(const Scopes&, const Scopes&) = default;

 private:
  std::uint8_t bits_ = 0;
};

/// Who calls: an API key, the owner of a client certificate, or anybody on a server that asks for neither.
struct Principal {
  std::string name;
  Scopes scopes;
  std::optional<std::vector<std::string>> queues{};  ///< nothing: all
  /// What tells it from others of the same name, and may be shown: of a key the part that is no secret. Empty
  /// where nobody was asked who they are.
  std::string id{};

  [[nodiscard]] static Principal anybody();  ///< may do everything
  [[nodiscard]] bool may_use(std::string_view queue) const;
  /// In logs and in the record: `billing (flk_0123456789ab)`.
  [[nodiscard]] std::string label() const;
  /// On whose account it is that something waits; empty where nobody was asked who they are.
  [[nodiscard]] std::string account() const { return id.empty() ? std::string{} : label(); }
};

/// Everything that can be asked of a server. One list, for both transports, so that no address is forgotten.
enum class Operation {
  enqueue,       // produce
  claim,         // work
  heartbeat,     // work
  settle,        // work
  progress,      // work
  check,         // work
  resolve,       // work
  effects,       // work
  get_job,       // read
  list_jobs,     // read
  list_queues,   // read
  list_stale,    // read
  watch_events,  // read
  metrics,       // read
  cancel,        // admin
  requeue,       // admin
  purge,         // admin
  decide,        // admin
  set_queue,     // admin
  delete_queue,  // admin
};
[[nodiscard]] Scope scope_of(Operation operation);
/// Nothing, or why not (forbidden). With a queue, whether the key is bound to others. What is about all
/// queues together is not for a key that is bound to some.
[[nodiscard]] std::optional<Problem> check_access(const Principal& who, Operation operation,
                                                  std::optional<std::string_view> queue = std::nullopt);

}  // namespace faultline::service

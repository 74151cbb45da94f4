#include "service/access.h"

#include <algorithm>

namespace faultline::service {

std::string_view to_string(Scope scope) {
  switch (scope) {
    case Scope::produce:
      return "produce";
    case Scope::work:
      return "work";
    case Scope::read:
      return "read";
    case Scope::admin:
      return "admin";
  }
  return "";
}

std::optional<Scope> parse_scope(std::string_view text) {
  for (const Scope scope : {Scope::produce, Scope::work, Scope::read, Scope::admin}) {
    if (text == to_string(scope)) return scope;
  }
  return std::nullopt;
}

Principal Principal::anybody() {
  return {.name = "anybody", .scopes = {Scope::produce, Scope::work, Scope::read, Scope::admin}};
}

bool Principal::may_use(std::string_view queue) const {
  return !queues || std::ranges::find(*queues, queue) != queues->end();
}

std::string Principal::label() const { return id.empty() ? name : name + " (" + id + ")"; }

Scope scope_of(Operation operation) {
  switch (operation) {
    case Operation::enqueue:
      return Scope::produce;
    case Operation::claim:
    case Operation::heartbeat:
    case Operation::settle:
    case Operation::progress:
    case Operation::check:
    case Operation::resolve:
    case Operation::effects:
      return Scope::work;
    case Operation::get_job:
    case Operation::list_jobs:
    case Operation::list_queues:
    case Operation::list_stale:
    case Operation::watch_events:
    case Operation::metrics:
      return Scope::read;
    case Operation::cancel:
    case Operation::requeue:
    case Operation::purge:
    case Operation::decide:
    case Operation::set_queue:
    case Operation::delete_queue:
      return Scope::admin;
  }
  return Scope::admin;
}

std::optional<Problem> check_access(const Principal& who, Operation operation,
                                    std::optional<std::string_view> queue) {
  const Scope scope = scope_of(operation);
  if (!who.scopes.has(scope)) {
    const std::string name{to_string(scope)};
    return Problem{.code = Code::forbidden,
                   .message = "this key does not have the scope " + name,
                   .hint = "use a key with the scope " + name};
  }
  if (operation == Operation::metrics && who.queues) {
    return Problem{.code = Code::forbidden,
                   .message = "the metrics are about all queues, and this key is bound to some",
                   .hint = "use a key that is bound to none"};
  }
  if (queue && !who.may_use(*queue)) {
    return Problem{.code = Code::forbidden,
                   .message = "this key is not good for the queue \"" + std::string{*queue} + "\"",
                   .hint = "use a key that is bound to this queue, or to none"};
  }
  return std::nullopt;
}

}  // namespace faultline::service

#include "keys/keys.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/sha256.h"
#include "base/utf8.h"
#include "keys/secret.h"
#include "keys/stored.h"
#include "schema/migrator.h"
#include "sql/statements.h"

namespace faultline::keys {
namespace {

using service::Scope;

constexpr std::size_t kNameBytesMax = 128;
constexpr std::size_t kQueuesMax = 1'000;
constexpr std::chrono::days kExpiresMax{3'650};
constexpr std::array kScopes{Scope::produce, Scope::work, Scope::read, Scope::admin};

Error invalid(std::string message, std::string hint) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .hint = std::move(hint)};
}

std::optional<Error> check_name(const std::string& what, std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20U || c == '\x7f'; };
  if (!name.empty() && name.size() <= kNameBytesMax && !find_invalid_utf8(name) &&
      std::ranges::none_of(name, is_control)) {
    return std::nullopt;
  }
  return invalid("the " + what + " cannot be",
                 "it has 1 to 128 bytes, is UTF-8, and has no control characters");
}

std::optional<Error> check_key(const NewKey& key) {
  if (auto problem = check_name("name of the key", key.name)) return problem;
  if (key.scopes == service::Scopes{})
    return invalid("the key would be good for nothing",
                   "give at least one scope: produce, work, read or admin");
  if (key.queues) {
    if (key.queues->empty() || key.queues->size() > kQueuesMax)
      return invalid("the key would be bound to " + std::to_string(key.queues->size()) + " queues",
                     "name 1 to 1000 queues, or none to allow all");
    for (const std::string& queue : *key.queues) {
      if (auto problem = check_name("name of a queue", queue)) return problem;
    }
  }
  if (key.expires_in && (*key.expires_in < std::chrono::seconds{1} || *key.expires_in > kExpiresMax))
    return invalid("the key cannot expire then", "it may last for 1 second to 3650 days, or for ever");
  return std::nullopt;
}

Error translate(const pg::Error& error) {
  Error result{.message = error.describe()};
  switch (error.code) {
    case pg::Errc::outcome_unknown:
      result.code = ErrorCode::outcome_unknown;
      result.hint = "it may have been done: look at `faultline keys list`";
      break;
    case pg::Errc::insufficient_privilege:
      result.code = ErrorCode::permission_denied;
      result.hint = "keys are the owner's: GRANT faultline_owner TO this login";
      break;
    case pg::Errc::undefined_object:
      result.code = ErrorCode::wrong_schema;
      result.hint = "run `faultline migrate` on the database";
      break;
    case pg::Errc::read_only:
      result.code = ErrorCode::unavailable;
      result.hint = "this is a standby or a read-only session; connect to the primary";
      break;
    case pg::Errc::cannot_connect:
    case pg::Errc::connection_lost:
    case pg::Errc::deadline_exceeded:
    case pg::Errc::query_canceled:
    case pg::Errc::out_of_resources:
      result.code = ErrorCode::unavailable;
      result.hint = "nothing was changed; try again";
      break;
    default:
      break;
  }
  return result;
}

/// Runs one statement on a database whose schema is the one that this program speaks.
Expected<pg::Result> run(pg::Connection& connection, const pg::Statement& statement, const pg::Params& params,
                         Deadline until) {
  if (const auto checked = schema::check(connection, until); !checked)
    return std::unexpected(schema::to_error(checked.error()));
  auto result = connection.exec(statement, params, until);
  if (!result) return std::unexpected(translate(result.error()));
  return std::move(*result);
}

pg::Params params_of(const NewKey& key, const KeyText& text) {
  std::vector<Scope> scopes;
  std::ranges::copy_if(kScopes, std::back_inserter(scopes),
                       [&](Scope scope) { return key.scopes.has(scope); });
  const Sha256 hash = hash_of(text.secret);
  pg::Params params;
  params.add(kBucket).add(text.id).add(key.name).add(pg::BytesView{hash});
  params.add_array(pg::Type::text, scopes, [](Scope scope) { return to_string(scope); });
  if (key.queues)
    params.add_array(pg::Type::text, *key.queues, [](const std::string& queue) { return queue; });
  else
    params.add_null(pg::Type::text_array);
  params.add(key.expires_in ? std::optional<std::int64_t>{key.expires_in->count()} : std::nullopt);
  params.add(kKeysMax);
  return params;
}

}  // namespace

Expected<CreatedKey> create(pg::Connection& connection, const NewKey& key, Deadline until) {
  if (auto problem = check_key(key)) return std::unexpected(std::move(*problem));
  const KeyText text = random_key();
  const auto rows = run(connection, sql::kApiKeysCreate, params_of(key, text), until);
  if (!rows) return std::unexpected(rows.error());
  if (rows->rows() == 0) {
    return std::unexpected(
        invalid("there are " + std::to_string(kKeysMax) + " keys, and there may be no more",
                "revoke those that nobody uses: faultline keys list, faultline keys revoke ID"));
  }
  return CreatedKey{.key = {.id = text.id,
                            .name = key.name,
                            .scopes = key.scopes,
                            .queues = key.queues,
                            .created_at = rows->get<DatabaseTime>(0, 0),
                            .expires_at = rows->get<std::optional<DatabaseTime>>(0, 1)},
                    .secret = text.whole()};
}

Expected<std::vector<Key>> list(pg::Connection& connection, Deadline until) {
  const auto rows = run(connection, sql::kApiKeysList, pg::Params{}.add(kBucket), until);
  if (!rows) return std::unexpected(rows.error());
  std::vector<Key> keys;
  for (int row = 0; row < rows->rows(); ++row) {
    keys.push_back({.id = rows->get<std::string>(row, 0),
                    .name = rows->get<std::string>(row, 1),
                    .scopes = scopes_of(rows->get<std::vector<std::string>>(row, 2)),
                    .queues = rows->get<std::optional<std::vector<std::string>>>(row, 3),
                    .created_at = rows->get<DatabaseTime>(row, 4),
                    .expires_at = rows->get<std::optional<DatabaseTime>>(row, 5),
                    .revoked_at = rows->get<std::optional<DatabaseTime>>(row, 6),
                    .expired = rows->get<bool>(row, 7),
                    .last_used_at = rows->get<std::optional<DatabaseTime>>(row, 8)});
  }
  return keys;
}

Expected<bool> revoke(pg::Connection& connection, std::string_view id, Deadline until) {
  // PostgreSQL cannot hold it, so there is no such key.
  if (check_name("id", id)) return false;
  const auto rows = run(connection, sql::kApiKeysRevoke, pg::Params{}.add(kBucket).add(id), until);
  if (!rows) return std::unexpected(rows.error());
  return rows->rows() > 0;
}

}  // namespace faultline::keys

#include <chrono>
#include <memory>

#include "cli/commands.h"
#include "cli/support/failures.h"
#include "cli/support/table_text.h"
#include "config/settings.h"
#include "keys/keys.h"

namespace faultline::cli {
namespace {

using service::Scope;

constexpr std::chrono::seconds kAnswerMax{30};

Deadline soon() { return Deadline::clock::now() + kAnswerMax; }

std::vector<std::string> names_of(const service::Scopes& scopes) {
  std::vector<std::string> names;
  for (const Scope scope : {Scope::produce, Scope::work, Scope::read, Scope::admin}) {
    if (scopes.has(scope)) names.emplace_back(service::to_string(scope));
  }
  return names;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string_view state_of(const keys::Key& key) {
  return key.revoked_at ? "revoked" : key.expired ? "expired" : "good";
}

nlohmann::json time_or_null(const std::optional<DatabaseTime>& time) {
  return time ? nlohmann::json(faultline::to_string(*time)) : nlohmann::json();
}

nlohmann::json to_json(const keys::Key& key) {
  return {{"id", key.id},
          {"name", key.name},
          {"state", state_of(key)},
          {"scopes", names_of(key.scopes)},
          {"queues", key.queues ? nlohmann::json(*key.queues) : nlohmann::json()},
          {"created_at", faultline::to_string(key.created_at)},
          {"expires_at", time_or_null(key.expires_at)},
          {"revoked_at", time_or_null(key.revoked_at)},
          {"last_used_at", time_or_null(key.last_used_at)}};
}

std::string expiry_of(const keys::Key& key) {
  return key.expires_at ? faultline::to_string(*key.expires_at) : "never";
}

std::string queues_of(const keys::Key& key) { return key.queues ? joined(*key.queues) : "all"; }

/// What the command line says of a new key.
struct CreateRequest {
  std::string name;
  std::vector<std::string> scopes;
  std::vector<std::string> queues;
  std::string expires;
};

Expected<keys::NewKey> to_new_key(const CreateRequest& request) {
  keys::NewKey key{.name = request.name};
  for (const std::string& word : request.scopes) {
    const auto scope = service::parse_scope(word);
    if (!scope)
      return std::unexpected(
          wrong_usage("there is no scope \"" + word + "\"", "scopes are produce, work, read and admin"));
    key.scopes.add(*scope);
  }
  if (!request.queues.empty()) key.queues = request.queues;
  if (!request.expires.empty()) {
    const auto lasts = config::parse_duration(request.expires);
    if (!lasts)
      return std::unexpected(wrong_usage("--expires: \"" + request.expires + "\" is not a duration",
                                         "write a whole number with s, m, h or d, such as 90d"));
    key.expires_in = std::chrono::ceil<std::chrono::seconds>(*lasts);
  }
  return key;
}

Expected<CommandResult> create(Context& context, const CreateRequest& request) {
  const auto key = to_new_key(request);
  if (!key) return std::unexpected(key.error());
  auto connection = context.connect();
  if (!connection) return std::unexpected(connection.error());
  const auto created = keys::create(*connection, *key, soon());
  if (!created) return std::unexpected(to_failure(created.error()));
  const keys::Key& made = created->key;
  nlohmann::json json = to_json(made);
  json["key"] = created->secret;
  return CommandResult{
      .text = table_text({{"key", created->secret},
                          {"id", made.id},
                          {"name", made.name},
                          {"scopes", joined(names_of(made.scopes))},
                          {"queues", queues_of(made)},
                          {"expires", expiry_of(made)}}) +
              "The key is not shown again: the database has only a hash of it. Keep it where secrets are "
              "kept.\n",
      .json = std::move(json)};
}

Expected<CommandResult> list(Context& context) {
  auto connection = context.connect();
  if (!connection) return std::unexpected(connection.error());
  const auto found = keys::list(*connection, soon());
  if (!found) return std::unexpected(to_failure(found.error()));
  std::vector<std::vector<std::string>> rows{
      {"ID", "STATE", "SCOPES", "CREATED", "EXPIRES", "LAST USED", "QUEUES", "NAME"}};
  nlohmann::json json = nlohmann::json::array();
  for (const keys::Key& key : *found) {
    rows.push_back({key.id, std::string{state_of(key)}, joined(names_of(key.scopes)),
                    faultline::to_string(key.created_at), expiry_of(key),
                    key.last_used_at ? faultline::to_string(*key.last_used_at) : "never", queues_of(key),
                    key.name});
    json.push_back(to_json(key));
  }
  return CommandResult{
      .text = found->empty() ? "There are no keys. Make one with: faultline keys create\n" : table_text(rows),
      .json = {{"keys", std::move(json)}}};
}

Expected<CommandResult> revoke(Context& context, const std::string& id) {
  auto connection = context.connect();
  if (!connection) return std::unexpected(connection.error());
  const auto revoked = keys::revoke(*connection, id, soon());
  if (!revoked) return std::unexpected(to_failure(revoked.error()));
  if (!*revoked) {
    // Who gives the whole key instead of its id must not find it in a log.
    return std::unexpected(
        Failure{.code = "unknown_key",
                .message = "there is no key of that id",
                .hint = "an id is the part of a key between flk_ and the next _; see: faultline keys "
                        "list"});
  }
  return CommandResult{.text = "The key " + id + " is revoked. Servers stop accepting it within seconds.\n",
                       .json = {{"id", id}, {"revoked", true}}};
}

void add_create(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("create", "Make a key and show it, this once");
  verb->fallthrough();
  const auto request = std::make_shared<CreateRequest>();
  verb->add_option("--name", request->name, "For people: who or what uses it")->type_name("NAME")->required();
  verb->add_option("--scope", request->scopes,
                   "What it is good for: produce, work, read or admin; may be repeated")
      ->type_name("SCOPE")
      ->allow_extra_args(false)
      ->required();
  verb->add_option("--queue", request->queues,
                   "Binds it to this queue; may be repeated (default: all queues)")
      ->type_name("QUEUE")
      ->allow_extra_args(false);
  verb->add_option("--expires", request->expires, "When it stops being good, such as 90d (default: never)")
      ->type_name("DURATION");
  verb->callback(
      [&chosen, request] { chosen = [request](Context& context) { return create(context, *request); }; });
}

}  // namespace

void add_keys_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("keys", "Make, list and revoke the API keys of servers");
  command->fallthrough();
  command->require_subcommand(1);
  add_create(*command, chosen);

  auto* list_command = command->add_subcommand("list", "List all keys");
  list_command->fallthrough();
  list_command->callback([&chosen] { chosen = list; });

  auto* revoke_command = command->add_subcommand("revoke", "End a key");
  revoke_command->fallthrough();
  const auto id = std::make_shared<std::string>();
  revoke_command->add_option("ID", *id, "The key's id, as `keys list` shows it")->required();
  revoke_command->callback(
      [&chosen, id] { chosen = [id](Context& context) { return revoke(context, *id); }; });
}

}  // namespace faultline::cli

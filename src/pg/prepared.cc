#include "pg/prepared.h"

#include "pg/check.h"

namespace faultline::pg {

PreparedStatements::Entry* PreparedStatements::find(const Statement& statement, const Params& params) {
  const auto named = entries_.find(statement.name);
  if (named == entries_.end()) return nullptr;
  for (Entry& entry : named->second) {
    if (entry.types == params.types() && entry.sql == statement.sql) return &entry;
  }
  return nullptr;
}

PreparedStatements::Entry& PreparedStatements::add(const Statement& statement, const Params& params) {
  check(statement.name.size() <= 50, "a statement's name has at most 50 bytes");  // the server cuts at 63
  std::list<Entry>& named = entries_[std::string{statement.name}];
  std::string server_name{statement.name};
  if (!named.empty()) server_name += "/" + std::to_string(++variants_);
  return named.emplace_back(
      Entry{std::move(server_name), std::string{statement.sql}, params.types(), /*confirmed=*/false});
}

void PreparedStatements::drop_unconfirmed() {
  for (auto& [name, named] : entries_) {
    named.remove_if([](const Entry& entry) { return !entry.confirmed; });
  }
}

}  // namespace faultline::pg

#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "pg/params.h"
#include "pg/statement.h"

namespace faultline::pg {

/// What this session has prepared. A name may be used with several texts or parameter types: each is
/// prepared under a name of its own.
class PreparedStatements {
 public:
  struct Entry {
    std::string server_name;
    std::string sql;
    std::vector<std::uint32_t> types;
    bool confirmed = false;  // the server said so; until then a Parse for it is under way
  };

  [[nodiscard]] Entry* find(const Statement& statement, const Params& params);
  /// A new entry, to be confirmed or dropped.
  [[nodiscard]] Entry& add(const Statement& statement, const Params& params);
  void drop_unconfirmed();
  void clear() { entries_.clear(); }

 private:
  std::map<std::string, std::list<Entry>, std::less<>> entries_;
  int variants_ = 0;
};

}  // namespace faultline::pg

// base/dsn.h against libpq: whatever libpq reads as a password is not shown.

#include "base/dsn.h"

#include <memory>
#include <string>
#include <vector>

#include <libpq-fe.h>

#include "fuzz/target.h"

namespace faultline::fuzz {
namespace {

/// What a password is recognised by in the inputs, however it is escaped.
constexpr std::string_view kMarker = "hunter2";

struct Free {
  void operator()(PQconninfoOption* options) const { PQconninfoFree(options); }
};

std::vector<std::string> passwords_by_libpq(const std::string& dsn) {
  char* error = nullptr;
  const std::unique_ptr<PQconninfoOption, Free> options{PQconninfoParse(dsn.c_str(), &error)};
  PQfreemem(error);
  std::vector<std::string> found;
  for (const PQconninfoOption* each = options.get(); each != nullptr && each->keyword != nullptr; ++each) {
    if (std::string_view{each->keyword}.ends_with("password") && each->val != nullptr && *each->val != '\0')
      found.emplace_back(each->val);
  }
  return found;
}

}  // namespace

void run(std::string_view input) {
  const std::string dsn{input};
  const std::string shown = without_passwords(dsn);
  if (dsn.contains('\0')) return;
  for (const std::string& password : passwords_by_libpq(dsn)) {
    require(looks_like_a_dsn(dsn), "what libpq takes looks like a DSN");
    // A mask can spell one that is made of stars.
    if (!password.contains('*')) {
      require(!shown.contains(password), "a password is not shown");
      require(!without_passwords_of(dsn, "at \"" + password + "\"").contains(password),
              "a password is not shown in a message");
    }
    const bool alone = dsn.find(kMarker) == dsn.rfind(kMarker);
    require(!alone || !password.contains(kMarker) || !shown.contains(kMarker),
            "no spelling of a password is shown");
  }
}

}  // namespace faultline::fuzz

#pragma once

#include <expected>
#include <string>

#include "faultline/error.h"
#include "pg/result.h"

namespace faultline::store {

/// Calls what reads answers of the database. One that cannot be read becomes an error: a program of another
/// release, or a person, may have changed the functions that answer.
template <class Call>
auto answer_to(ErrorCode if_unreadable, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const pg::UnexpectedAnswer& unexpected) {
    return std::unexpected(Error{
        .code = if_unreadable,
        .message = std::string{"the database answered in an unknown form: "} + unexpected.what(),
        .hint = "its functions are not this program's; run `faultline migrate`, then `faultline doctor`"});
  }
}

}  // namespace faultline::store

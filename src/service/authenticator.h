#pragma once

#include <string_view>

#include "service/access.h"
#include "service/problem.h"

namespace faultline::service {

/// Tells who calls. Thread-safe; does not block.
class Authenticator {
 public:
  virtual ~Authenticator() = default;
  /// `bearer` is what follows "Bearer " in `authorization`; empty: there was none.
  [[nodiscard]] virtual ServiceResult<Principal> authenticate(std::string_view bearer) const = 0;
  /// Why somebody who was let in before would not be let in now, if so. Whoever stays for long is asked about
  /// again and again.
  [[nodiscard]] virtual std::optional<Problem> still_good(const Principal& /*who*/) const {
    return std::nullopt;
  }
};

/// For a server that asks for no keys: everybody may do everything.
class AllowAll : public Authenticator {
 public:
  [[nodiscard]] ServiceResult<Principal> authenticate(std::string_view) const override {
    return Principal::anybody();
  }
};

}  // namespace faultline::service

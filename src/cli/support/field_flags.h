#pragma once

#include <array>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/fields.h"
#include "cli/support/failures.h"

namespace faultline::cli {

/// The members of a struct as flags of a command: each that has a flag in its field table. Of NewJob and
/// QueueSettings. It must outlive the command's parsing.
template <class Struct>
class FieldFlags {
 public:
  /// Adds the flags, and returns them.
  std::vector<CLI::Option*> add_to(CLI::App& command);

  /// Sets what was given; the rest stays as it is.
  [[nodiscard]] Expected<void> read(Struct& into) const;

 private:
  std::array<std::vector<std::string>, kFieldCount<Struct>> given_;
};

}  // namespace faultline::cli

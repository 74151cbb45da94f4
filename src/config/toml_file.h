#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "faultline/error.h"

namespace faultline::config {

/// The largest file that is read.
inline constexpr std::size_t kFileMax = 1'048'576;

struct FileValue {
  std::string text;    ///< as it would stand on the command line
  std::string origin;  ///< faultline.toml:3
};

/// The settings that a file names. They stand at its top level, and all are known.
[[nodiscard]] Expected<std::map<std::string, FileValue>> read_toml(std::string_view text,
                                                                   const std::string& file_name);

}  // namespace faultline::config

#pragma once

// What the examples share and none is about: where the database is, and how a small program ends on an error.

#include <cstdlib>
#include <iostream>
#include <string>
#include <type_traits>
#include <utility>

#include "faultline/error.h"

namespace example {

/// The first argument, or DATABASE_URL.
inline std::string database_url(int argc, char** argv) {
  if (argc == 2) return argv[1];
  if (const char* url = std::getenv("DATABASE_URL"); argc == 1 && url != nullptr) return url;
  std::cerr << "usage: " << argv[0] << " DATABASE_URL\n";
  std::exit(2);
}

/// An example has no better answer to an error than to end with it. A program of your own may wait for the
/// database, or tell somebody.
template <class T>
T must(faultline::Expected<T> result) {
  if (!result) {
    std::cerr << result.error().describe() << '\n';
    std::exit(1);
  }
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace example

#pragma once

// Included by every header of Faultline, so that a compiler that is told to speak an older language says so
// first.

#if __cplusplus < 202100L
#error \
    "Faultline needs C++23: compile with -std=c++23 (in CMake: target_compile_features(NAME PRIVATE cxx_std_23))"
#elif !__has_include(<expected>)
#error "Faultline needs a standard library that has std::expected: libstdc++ 12 or newer"
#endif

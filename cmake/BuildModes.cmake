# How the presets of CMakePresets.json compile and link. Included before the first target.
#
#   Debug    quick to compile, and quick enough to run the whole test suite
#   Release  what ships: optimised as a whole and hardened
#
# Assertions stay on in both: a queue that has met a bug of its own must stop, not go on with a wrong state.

set(FAULTLINE_SANITIZE "" CACHE STRING "Sanitizers as for -fsanitize=, such as address,undefined")
option(FAULTLINE_PRECOMPILED_HEADERS "Precompile the standard headers that most sources use" ON)
option(FAULTLINE_FUZZ "Have the targets of fuzz/, which need clang" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

find_program(FAULTLINE_CCACHE ccache)
if(FAULTLINE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${FAULTLINE_CCACHE}")
  if(FAULTLINE_PRECOMPILED_HEADERS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)  # lets ccache see through a precompiled header
  endif()
endif()

# Ninja takes the colours out again when nobody looks.
set(CMAKE_COLOR_DIAGNOSTICS ON)
add_compile_definitions(_GLIBCXX_ASSERTIONS)
# Libraries and programs alike, so that they share precompiled headers.
add_compile_options(-fPIC -fno-semantic-interposition)
# Messages and debug information name files as the repository does, wherever it was checked out.
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")

if(FAULTLINE_SANITIZE)
  add_compile_options("-fsanitize=${FAULTLINE_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${FAULTLINE_SANITIZE}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Instrumented code confuses the flow analysis of g++. The other presets judge these warnings.
    set(FAULTLINE_MISLEADING_WARNINGS
      -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-restrict)
  endif()
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  include(Hardening)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()

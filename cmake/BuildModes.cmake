# How the presets of CMakePresets.json compile and link. Included before the first target.
#
#   Debug    quick to compile: the tests wait for PostgreSQL, not for our code
#   Release  what ships: optimised as a whole and hardened
#
# Assertions stay on in both: a queue that has met a bug of its own must stop, not go on with a wrong state.

set(FAULTLINE_SANITIZE "" CACHE STRING "Sanitizers as for -fsanitize=, such as address,undefined")
option(FAULTLINE_PRECOMPILED_HEADERS "Precompile the standard headers that most sources use" ON)
option(FAULTLINE_UNITY "Compile the sources of a target several at a time, which takes a third of the time" ON)
option(FAULTLINE_FUZZ "Have the targets of fuzz/, which need clang" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

# A source that cannot stand beside the others of its target is named ALONE (FaultlineTargets.cmake).
set(CMAKE_UNITY_BUILD "${FAULTLINE_UNITY}")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
if(FAULTLINE_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-subobject-linkage)  # g++ takes a source that is included by another one for a header
endif()

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
# gRPC's targets name dozens of libraries that only gRPC itself uses; dpkg's tools look into each one that a program names.
add_link_options(-Wl,--as-needed)
# Libraries and programs alike, so that they share precompiled headers.
# Inline functions are nobody's interface: the shared library must not export copies of the standard library's.
add_compile_options(-fPIC -fno-semantic-interposition -fvisibility-inlines-hidden)
# Messages and debug information name files as the repository does, wherever it was checked out.
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # The standard library of g++ 12 uses a function of its own that it has deprecated; clang says so when that header was precompiled.
  add_compile_options(-Wno-deprecated-declarations)
  # A system's header that was installed anew and says the same is no reason to refuse a precompiled one; ccache hands
  # those out by what the headers say.
  add_compile_options(-fpch-validate-input-files-content)
  # Linking every test program with lld takes a fraction of what ld takes.
  find_program(FAULTLINE_LLD ld.lld-19 REQUIRED)
  add_link_options("--ld-path=${FAULTLINE_LLD}")
endif()

if(FAULTLINE_SANITIZE)
  # Everything, the smallest helper of a test too: of an inline function the linker keeps one copy, and one without
  # instrumentation hides what a sanitizer has to see.
  string(REPLACE "address,undefined" "address" FAULTLINE_SANITIZE_test "${FAULTLINE_SANITIZE}")
  add_compile_options("-fsanitize=${FAULTLINE_SANITIZE_test}" -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${FAULTLINE_SANITIZE}")
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  include(Hardening)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()

# What a sanitizer looks at. `library` and `cli`: everything in src/, by all of them. `test`: the tests themselves, whose mistakes
# with memory and threads are found too, but not every overflow of an integer: that would cost as much as all the rest.
set(FAULTLINE_SANITIZE_library "${FAULTLINE_SANITIZE}")
if(FAULTLINE_FUZZ AND FAULTLINE_SANITIZE)
  string(APPEND FAULTLINE_SANITIZE_library ",fuzzer-no-link")
endif()
set(FAULTLINE_SANITIZE_cli "${FAULTLINE_SANITIZE_library}")

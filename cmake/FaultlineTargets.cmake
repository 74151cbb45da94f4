# One place that says how a folder becomes a target.
#
#   faultline_library(pg SOURCES connection.cc … DEPENDS faultline::base PostgreSQL::PostgreSQL)
#   faultline_program(faultline SOURCES main.cc DEPENDS faultline::store)   left at build/<preset>/faultline
#   faultline_test(pg_connection_test SOURCES pg/connection_test.cc DEPENDS faultline::pg)

set(FAULTLINE_DISCOVER_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/discover_suites_script.cmake")
# What the tests of a preset need: all of them, and those of `./dev test --sanitize`.
add_custom_target(all_tests)
add_custom_target(sanitized_tests)

add_library(faultline_options INTERFACE)
target_include_directories(faultline_options INTERFACE "${CMAKE_SOURCE_DIR}/include" "${CMAKE_SOURCE_DIR}/src")
# -pthread: some of what is linked asks for it, and all must be compiled alike to share precompiled headers.
target_compile_options(faultline_options INTERFACE -pthread
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  -Wold-style-cast -Woverloaded-virtual -Wimplicit-fallthrough
  -Wno-missing-field-initializers)  # leaving a member to its default is what designated initialisers are for

# What all sources of a set are compiled with: `library`, `test`, or `cli`, which has the headers of the command line as well.
function(faultline_compile_as target set)
  if(FAULTLINE_SANITIZE_${set})
    target_compile_options(${target} PRIVATE "-fsanitize=${FAULTLINE_SANITIZE_${set}}")
  endif()
  faultline_precompiled_headers(${target} ${set})
endfunction()

# Lets `target` use the precompiled headers of a set. Sources still include what they use: without precompiled headers, as
# `./dev lint` compiles them, a missing #include shows. All sources of a set have the same flags, or they could not share them.
function(faultline_precompiled_headers target set)
  if(NOT FAULTLINE_PRECOMPILED_HEADERS)
    return()
  endif()
  if(NOT TARGET faultline_headers_${set})
    set(headers <algorithm> <array> <chrono> <cstdint> <expected> <functional> <memory> <optional> <span> <string>
      <string_view> <utility> <vector>)
    file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/headers/${set}.cc" CONTENT "")
    add_library(faultline_headers_${set} OBJECT "${CMAKE_BINARY_DIR}/headers/${set}.cc")
    target_link_libraries(faultline_headers_${set} PRIVATE faultline_options)
    target_precompile_headers(faultline_headers_${set} PRIVATE ${headers})
    if(FAULTLINE_SANITIZE_${set})
      target_compile_options(faultline_headers_${set} PRIVATE "-fsanitize=${FAULTLINE_SANITIZE_${set}}")
    endif()
    if(set STREQUAL "cli")
      target_link_libraries(faultline_headers_${set} PRIVATE CLI11::CLI11 nlohmann_json::nlohmann_json)
      target_precompile_headers(faultline_headers_${set} PRIVATE <CLI/CLI.hpp> <nlohmann/json.hpp>)
    elseif(set STREQUAL "test")
      target_link_libraries(faultline_headers_${set} PRIVATE GTest::gtest GTest::gmock)
      target_precompile_headers(faultline_headers_${set} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM faultline_headers_${set})
endfunction()

# Sources are compiled several at a time; one whose names clash with its neighbours' is named ALONE as well.
function(faultline_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

function(faultline_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;ALONE" ${ARGN})
  add_library(faultline_${name} STATIC ${ARG_SOURCES})
  add_library(faultline::${name} ALIAS faultline_${name})
  target_link_libraries(faultline_${name} PUBLIC faultline_options ${ARG_DEPENDS})
  faultline_compile_alone(${ARG_ALONE})
  faultline_compile_as(faultline_${name} library)
endfunction()

function(faultline_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE faultline_options ${ARG_DEPENDS})
  faultline_compile_as(${name} cli)
  # Every command is a small world of the same names: list, show, Request.
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
endfunction()

# A test program. Its suites are ctest tests, each a process of its own that may use the run's PostgreSQL server
# (tests/support/database.h).
# SANITIZE address thread: which sanitizers look at it in `./dev test --sanitize`; in `./dev test --all` every one does that
# the labels leave.
# LABELS plain_only: nothing of ours runs in it that a sanitizer could look at. LABELS single_threaded: nothing for
# ThreadSanitizer. LABELS foreign_threads: it runs in gRPC's threads, which ThreadSanitizer cannot see into. There such a
# test is not built.
# LABELS safety: it says what must never happen, and gets no second chance from ./dev.
function(faultline_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS;SANITIZE;ALONE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE faultline_options ${ARG_DEPENDS} faultline_test_support)
  faultline_compile_alone(${ARG_ALONE})
  faultline_compile_as(${name} test)
  if((FAULTLINE_SANITIZE AND "plain_only" IN_LIST ARG_LABELS)
     OR (FAULTLINE_SANITIZE STREQUAL "thread" AND ("single_threaded" IN_LIST ARG_LABELS OR "foreign_threads" IN_LIST ARG_LABELS)))
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  add_dependencies(all_tests ${name})
  set(labels ${name})
  if("safety" IN_LIST ARG_LABELS)
    list(APPEND labels safety)
  endif()
  foreach(sanitizer IN LISTS ARG_SANITIZE)
    if(FAULTLINE_SANITIZE MATCHES "${sanitizer}")
      list(APPEND labels sanitize)
      add_dependencies(sanitized_tests ${name})
    endif()
  endforeach()
  faultline_discover_suites(${name} ${labels})
endfunction()

# Registers the suites of a test program with ctest once it is built: several cases in a process cost less than a process
# for each, and no case of one suite sees another suite's process.
function(faultline_discover_suites name)
  set(found "${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake")
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND "${CMAKE_COMMAND}" -P "${FAULTLINE_DISCOVER_SCRIPT}" "$<TARGET_FILE:${name}>" "${found}" ${ARGN}
    VERBATIM)
  set(include "${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake")
  file(WRITE "${include}" "if(EXISTS \"${found}\")\n  include(\"${found}\")\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include}")
endfunction()

# One place that says how a folder becomes a target.
#
#   faultline_library(pg SOURCES connection.cc … DEPENDS faultline::base PostgreSQL::PostgreSQL)
#   faultline_program(faultline SOURCES main.cc DEPENDS faultline::store)   left at build/<preset>/faultline
#   faultline_test(pg_connection_test SOURCES pg/connection_test.cc DEPENDS faultline::pg)

add_library(faultline_options INTERFACE)
target_include_directories(faultline_options INTERFACE "${CMAKE_SOURCE_DIR}/include" "${CMAKE_SOURCE_DIR}/src")
# -pthread: some of what is linked asks for it, and all must be compiled alike to share precompiled headers.
target_compile_options(faultline_options INTERFACE -pthread
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  -Wold-style-cast -Woverloaded-virtual -Wimplicit-fallthrough
  -Wno-missing-field-initializers  # leaving a member to its default is what designated initialisers are for
  ${FAULTLINE_MISLEADING_WARNINGS})

# Lets `target` use a set of precompiled headers: `library` or `test`. Sources still include what they use.
# All sources of a preset are compiled with the same flags, or g++ could not share the headers.
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
    if(set STREQUAL "test")
      target_link_libraries(faultline_headers_${set} PRIVATE GTest::gtest GTest::gmock)
      target_precompile_headers(faultline_headers_${set} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM faultline_headers_${set})
endfunction()

function(faultline_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(faultline_${name} STATIC ${ARG_SOURCES})
  add_library(faultline::${name} ALIAS faultline_${name})
  target_link_libraries(faultline_${name} PUBLIC faultline_options ${ARG_DEPENDS})
  faultline_precompiled_headers(faultline_${name} library)
endfunction()

function(faultline_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE faultline_options ${ARG_DEPENDS})
  faultline_precompiled_headers(${name} library)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
endfunction()

# Every test case is a ctest test of its own and may use the run's PostgreSQL server (tests/support/database.h).
# LABELS plain_only: nothing of ours runs in it that a sanitizer could look at. LABELS single_threaded: nothing for
# ThreadSanitizer. LABELS foreign_threads: it runs in gRPC's threads, which ThreadSanitizer cannot see into. There such a
# test is not even built by default.
# LABELS safety: it says what must never happen, and gets no second chance from ./dev.
# Few programs with many sources: under a sanitizer, linking takes longer than compiling.
function(faultline_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE faultline_options ${ARG_DEPENDS} faultline_test_support)
  faultline_precompiled_headers(${name} test)
  if((FAULTLINE_SANITIZE AND "plain_only" IN_LIST ARG_LABELS)
     OR (FAULTLINE_SANITIZE STREQUAL "thread" AND ("single_threaded" IN_LIST ARG_LABELS OR "foreign_threads" IN_LIST ARG_LABELS)))
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  set(common DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 FIXTURES_REQUIRED test_server)
  # The other labels have had their effect. (Several could not be handed on here.)
  if("safety" IN_LIST ARG_LABELS)
    list(APPEND common LABELS safety)
  endif()
  gtest_discover_tests(${name} ${common})
endfunction()

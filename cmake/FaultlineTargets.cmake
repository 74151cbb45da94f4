# One place that says how a folder becomes a target.
#
#   faultline_library(pg SOURCES connection.cc … DEPENDS faultline::base PostgreSQL::PostgreSQL)
#   faultline_test(pg_connection_test SOURCES pg/connection_test.cc DEPENDS faultline::pg)

add_library(faultline_options INTERFACE)
target_include_directories(faultline_options INTERFACE "${CMAKE_SOURCE_DIR}/include" "${CMAKE_SOURCE_DIR}/src")
target_compile_options(faultline_options INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion -Wnon-virtual-dtor
  -Wold-style-cast -Woverloaded-virtual -Wnull-dereference -Wimplicit-fallthrough)

function(faultline_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(faultline_${name} STATIC ${ARG_SOURCES})
  add_library(faultline::${name} ALIAS faultline_${name})
  target_link_libraries(faultline_${name} PUBLIC faultline_options ${ARG_DEPENDS})
endfunction()

function(faultline_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE faultline_options ${ARG_DEPENDS} GTest::gtest GTest::gmock)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()

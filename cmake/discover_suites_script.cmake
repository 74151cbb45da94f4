# cmake -P discover_suites_script.cmake PROGRAM OUTPUT LABEL…
#
# Asks a finished GoogleTest program for its suites, and writes a file for ctest with one test for each. Their cases stand in
# it too, for `./dev test REGEX`. What became of each case is left as XML in the folder results beside it.
cmake_minimum_required(VERSION 3.25)

set(program "${CMAKE_ARGV3}")
set(output "${CMAKE_ARGV4}")
set(labels "")
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 5 ${last})
  list(APPEND labels "${CMAKE_ARGV${i}}")
endforeach()

execute_process(COMMAND "${program}" --gtest_list_tests OUTPUT_VARIABLE listed RESULT_VARIABLE code TIMEOUT 60)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${program} --gtest_list_tests failed: ${code}")
endif()

# A suite stands in a line of its own and ends in a dot; its cases follow, indented. Behind a # is what a parameter's value is.
get_filename_component(folder "${output}" DIRECTORY)
string(REPLACE ";" " " listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")
set(text "")
foreach(line IN LISTS lines)
  if(line MATCHES "^  ([^ ]+)")
    string(APPEND text "# case ${suite}.${CMAKE_MATCH_1}\n")
  elseif(line MATCHES "^([^ ]+)\\.( |$)")
    set(suite "${CMAKE_MATCH_1}")
    string(REPLACE "/" "_" file "${suite}")
    string(APPEND text
      "add_test([==[${suite}]==] [==[${program}]==] [==[--gtest_filter=${suite}.*]==]"
      " [==[--gtest_output=xml:${folder}/results/${file}.xml]==])\n"
      "set_tests_properties([==[${suite}]==] PROPERTIES LABELS [==[${labels}]==] TIMEOUT 900 FIXTURES_REQUIRED test_server)\n")
  endif()
endforeach()
if(text STREQUAL "")
  message(FATAL_ERROR "${program} holds no test.")
endif()
file(WRITE "${output}" "${text}")

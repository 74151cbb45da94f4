# cmake -P embed_sql_script.cmake statements|functions|migrations OUTPUT_DIR FILE…
#
# Writes OUTPUT_DIR/<kind>.h and .cc. The header depends only on the names of the files, so a change inside a
# statement recompiles one source and relinks; it does not recompile those who include the header.
cmake_minimum_required(VERSION 3.25)

set(kind "${CMAKE_ARGV3}")
set(output_dir "${CMAKE_ARGV4}")
set(files "")
if(CMAKE_ARGC GREATER 5)
  math(EXPR last "${CMAKE_ARGC} - 1")
  foreach(i RANGE 5 ${last})
    list(APPEND files "${CMAKE_ARGV${i}}")
  endforeach()
endif()

# A raw string literal of `text` whose delimiter does not occur in it.
function(raw_literal text result)
  set(delimiter "sql")
  set(suffix 0)
  while(TRUE)
    string(FIND "${text}" ")${delimiter}\"" at)
    if(at EQUAL -1)
      break()
    endif()
    math(EXPR suffix "${suffix} + 1")
    set(delimiter "sql${suffix}")
  endwhile()
  set(${result} "R\"${delimiter}(${text})${delimiter}\"" PARENT_SCOPE)
endfunction()

# What the server sees of a statement file: no lines that are blank or only a comment, nothing around it.
function(strip_for_server text result)
  string(REPLACE "\r\n" "\n" text "${text}")
  string(REGEX REPLACE "\n[ \t]*--[^\n]*" "" text "\n${text}")
  string(REGEX REPLACE "\n([ \t]*\n)+" "\n" text "${text}")
  string(STRIP "${text}" text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# /*carried*/ -> kind, priority, …  and  /*carried j*/ -> j.kind, j.priority, …  as sql/carried_columns.sql has them;
# /*verb*/ -> what sql/verb_settings.sql has
function(expand_markers text result)
  file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../sql/carried_columns.sql" columns REGEX "^[a-z_]+$")
  while(text MATCHES "/\\*carried( ([a-z]+))?\\*/")
    set(marker "${CMAKE_MATCH_0}")
    set(prefix "")
    if(NOT "${CMAKE_MATCH_2}" STREQUAL "")
      set(prefix "${CMAKE_MATCH_2}.")
    endif()
    list(TRANSFORM columns PREPEND "${prefix}" OUTPUT_VARIABLE names)
    list(JOIN names ", " names)
    string(REPLACE "${marker}" "${names}" text "${text}")
  endwhile()
  if(text MATCHES "/\\*verb\\*/")
    file(READ "${CMAKE_CURRENT_LIST_DIR}/../sql/verb_settings.sql" settings)
    strip_for_server("${settings}" settings)
    string(REPLACE "/*verb*/" "${settings}" text "${text}")
  endif()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# jobs_claim -> kJobsClaim
function(constant_name name result)
  string(REPLACE "_" ";" words "${name}")
  set(constant "k")
  foreach(word IN LISTS words)
    string(SUBSTRING "${word}" 0 1 first)
    string(SUBSTRING "${word}" 1 -1 rest)
    string(TOUPPER "${first}" first)
    string(APPEND constant "${first}${rest}")
  endforeach()
  set(${result} "${constant}" PARENT_SCOPE)
endfunction()

function(write_if_changed path text)
  if(EXISTS "${path}")
    file(READ "${path}" before)
    if(before STREQUAL text)
      return()
    endif()
  endif()
  file(WRITE "${path}" "${text}")
endfunction()

function(embed_statements)
  set(declarations "")
  set(definitions "")
  set(addresses "")
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    file(READ "${file}" text)
    expand_markers("${text}" text)
    strip_for_server("${text}" sql)
    if(sql STREQUAL "")
      message(FATAL_ERROR "${file}: holds no statement.")
    endif()
    constant_name("${name}" constant)
    raw_literal("${sql}" literal)
    string(APPEND declarations "extern const pg::Statement ${constant};\n")
    string(APPEND definitions "constinit const pg::Statement ${constant}{.name = \"${name}\", .sql = ${literal}};\n\n")
    string(APPEND addresses "    &${constant},\n")
  endforeach()

  write_if_changed("${output_dir}/statements.h" "// Generated from sql/statements/.
#pragma once

#include <span>

#include \"pg/statement.h\"

namespace faultline::sql {

${declarations}
/// Every statement of sql/statements/, ordered by name.
[[nodiscard]] std::span<const pg::Statement* const> all_statements();

}  // namespace faultline::sql
")
  if(addresses STREQUAL "")
    set(all_statements "  return {};\n")
  else()
    set(all_statements "  static constexpr const pg::Statement* kAll[] = {\n${addresses}  };\n  return kAll;\n")
  endif()
  write_if_changed("${output_dir}/statements.cc" "// Generated from sql/statements/.
#include \"sql/statements.h\"

namespace faultline::sql {

${definitions}std::span<const pg::Statement* const> all_statements() {
${all_statements}}

}  // namespace faultline::sql
")
endfunction()

function(embed_functions)
  set(entries "")
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME_WE)
    file(READ "${file}" sql)
    if(NOT sql MATCHES "CREATE OR REPLACE FUNCTION faultline\\.${name}\\(")
      message(FATAL_ERROR "${file}: makes no function faultline.${name}.")
    endif()
    expand_markers("${sql}" sql)
    raw_literal("${sql}" literal)
    string(APPEND entries "    {.name = \"${name}\", .sql = ${literal}},\n")
  endforeach()

  write_if_changed("${output_dir}/functions.h" "// Generated from sql/functions/.
#pragma once

#include <span>
#include <string_view>

namespace faultline::sql {

struct Function {
  std::string_view name;
  std::string_view sql;  ///< creates it, or replaces its body, and says who may call it
};

/// Every function of sql/functions/, ordered by name.
extern const std::span<const Function> kFunctions;

}  // namespace faultline::sql
")
  write_if_changed("${output_dir}/functions.cc" "// Generated from sql/functions/.
#include \"sql/functions.h\"

namespace faultline::sql {
namespace {

constexpr Function kAllFunctions[] = {
${entries}};

}  // namespace

constinit const std::span<const Function> kFunctions{kAllFunctions};

}  // namespace faultline::sql
")
endfunction()

function(embed_migrations)
  set(entries "")
  foreach(file IN LISTS files)
    get_filename_component(base "${file}" NAME_WE)
    string(REGEX MATCH "^0*([0-9]+)_(.+)$" matched "${base}")
    set(version "${CMAKE_MATCH_1}")
    set(name "${CMAKE_MATCH_2}")
    file(READ "${file}" sql)
    expand_markers("${sql}" sql)
    raw_literal("${sql}" literal)
    string(APPEND entries "    {.version = ${version}, .name = \"${name}\", .sql = ${literal}},\n")
  endforeach()

  write_if_changed("${output_dir}/migrations.h" "// Generated from sql/migrations/.
#pragma once

#include <span>
#include <string_view>

namespace faultline::sql {

struct Migration {
  int version;
  std::string_view name;
  std::string_view sql;
};

/// Ordered by version: 1, 2, 3 and so on without a gap.
extern const std::span<const Migration> kMigrations;

}  // namespace faultline::sql
")
  if(entries STREQUAL "")
    set(definitions "constinit const std::span<const Migration> kMigrations;\n")
  else()
    set(definitions "namespace {

constexpr Migration kAll[] = {
${entries}};

}  // namespace

constinit const std::span<const Migration> kMigrations{kAll};
")
  endif()
  write_if_changed("${output_dir}/migrations.cc" "// Generated from sql/migrations/.
#include \"sql/migrations.h\"

namespace faultline::sql {

${definitions}
}  // namespace faultline::sql
")
endfunction()

if(kind STREQUAL "statements")
  embed_statements()
elseif(kind STREQUAL "functions")
  embed_functions()
elseif(kind STREQUAL "migrations")
  embed_migrations()
else()
  message(FATAL_ERROR "usage: cmake -P embed_sql_script.cmake statements|functions|migrations OUTPUT_DIR FILE…")
endif()

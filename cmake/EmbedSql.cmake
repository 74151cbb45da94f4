# Turns SQL files into named constants of the program, at build time.
#
#   faultline_embed_sql(STATEMENTS sql/statements FUNCTIONS sql/functions MIGRATIONS sql/migrations)
#
# makes the target faultline::sql with three headers:
#   "sql/statements.h"  jobs_claim.sql becomes faultline::sql::kJobsClaim, named "jobs_claim". Lines that hold only
#                       a `--` comment are for readers and are not sent to the server.
#   "sql/functions.h"   claim_jobs.sql makes the function faultline.claim_jobs; all of them, ordered by name, are
#                       faultline::sql::kFunctions.
#   "sql/migrations.h"  0001_name.sql and so on become faultline::sql::kMigrations, in order.
#
# In all of them /*carried*/ stands for the columns that sql/carried_columns.sql lists, and /*verb*/ for the lines of
# sql/verb_settings.sql.
#
# A name that would not make an identifier, and a gap or a duplicate in the numbers of the migrations, are errors
# when the build is configured.

set(FAULTLINE_EMBED_SQL_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/embed_sql_script.cmake")

function(faultline_check_statement_names)
  foreach(file IN LISTS ARGN)
    get_filename_component(name "${file}" NAME)
    if(NOT name MATCHES "^[a-z][a-z0-9]*(_[a-z0-9]+)*\\.sql$")
      message(FATAL_ERROR "${file}: a statement or function file is named in lower_snake_case, such as jobs_claim.sql.")
    endif()
  endforeach()
endfunction()

function(faultline_check_migration_numbers)
  set(expected 1)
  foreach(file IN LISTS ARGN)
    get_filename_component(name "${file}" NAME)
    if(NOT name MATCHES "^([0-9][0-9][0-9][0-9])_[a-z0-9_]+\\.sql$")
      message(FATAL_ERROR "${file}: a migration file is named NNNN_what_it_does.sql.")
    endif()
    # 10000 + number keeps math(EXPR) from seeing leading zeros.
    math(EXPR found "1${CMAKE_MATCH_1} - 10000")
    if(NOT found EQUAL expected)
      message(FATAL_ERROR "${file}: the next migration must be number ${expected}, and this is number ${found}. "
                          "Numbers start at 0001 and have no gaps and no duplicates.")
    endif()
    math(EXPR expected "${expected} + 1")
  endforeach()
endfunction()

function(faultline_embed_sql)
  cmake_parse_arguments(ARG "" "STATEMENTS;FUNCTIONS;MIGRATIONS" "" ${ARGN})
  # Bytewise order in every locale, and ordered by number for the migrations.
  file(GLOB statements CONFIGURE_DEPENDS "${ARG_STATEMENTS}/*.sql")
  file(GLOB functions CONFIGURE_DEPENDS "${ARG_FUNCTIONS}/*.sql")
  file(GLOB migrations CONFIGURE_DEPENDS "${ARG_MIGRATIONS}/*.sql")
  list(SORT statements)
  list(SORT functions)
  list(SORT migrations)
  faultline_check_statement_names(${statements} ${functions})
  faultline_check_migration_numbers(${migrations})

  set(include_dir "${CMAKE_CURRENT_BINARY_DIR}/generated")
  set(generated "")
  foreach(kind IN ITEMS statements functions migrations)
    # The files stand on the command line, so that one that is added or removed changes the command and reruns it.
    add_custom_command(
      OUTPUT "${include_dir}/sql/${kind}.h" "${include_dir}/sql/${kind}.cc"
      COMMAND "${CMAKE_COMMAND}" -P "${FAULTLINE_EMBED_SQL_SCRIPT}" ${kind} "${include_dir}/sql" ${${kind}}
      DEPENDS "${FAULTLINE_EMBED_SQL_SCRIPT}" "${CMAKE_CURRENT_SOURCE_DIR}/carried_columns.sql"
              "${CMAKE_CURRENT_SOURCE_DIR}/verb_settings.sql" ${${kind}}
      COMMENT "Embedding sql/${kind}"
      VERBATIM)
    list(APPEND generated "${include_dir}/sql/${kind}.h" "${include_dir}/sql/${kind}.cc")
  endforeach()

  add_library(faultline_sql STATIC ${generated})
  add_library(faultline::sql ALIAS faultline_sql)
  target_include_directories(faultline_sql PUBLIC "${include_dir}")
  target_link_libraries(faultline_sql PUBLIC faultline_options)
  # clang counts a migration of more than 64 KiB as pedantry.
  target_compile_options(faultline_sql PRIVATE -Wno-overlength-strings)
endfunction()

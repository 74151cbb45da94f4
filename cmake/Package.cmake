# The Debian package: what `cmake --install` gives and, as the component `debian`, what an operating system wants beside it:
# units, manual pages, completions, an example configuration. `./dev package` makes it from the release preset.
#
# Its installation starts, enables and migrates nothing: the only scripts in it are CPack's, for ldconfig.

set(debian_dir "${CMAKE_CURRENT_LIST_DIR}/debian")
set(made_dir "${CMAKE_BINARY_DIR}/debian")
set(in_debian COMPONENT debian EXCLUDE_FROM_ALL)

# The finished programs print the pages, when they are installed.
install(CODE "
  set(made \"${made_dir}\")
  file(REMOVE_RECURSE \"\${made}\")
  file(MAKE_DIRECTORY \"\${made}\")
  function(say_to file program)
    execute_process(COMMAND \"${CMAKE_BINARY_DIR}/\${program}\" \${ARGN} OUTPUT_FILE \"\${made}/\${file}\"
      COMMAND_ERROR_IS_FATAL ANY)
  endfunction()
  say_to(pages.txt faultline-dev man --all \"\${made}/man1\")
  say_to(faultline.bash faultline completion bash)
  say_to(faultline.zsh faultline completion zsh)
  say_to(faultline.toml faultline config example)
  file(GLOB pages \"\${made}/man1/*.1\")
  execute_process(COMMAND gzip -9n \${pages} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND gzip -9nc \"${CMAKE_SOURCE_DIR}/CHANGELOG.md\" OUTPUT_FILE \"\${made}/changelog.gz\"
    COMMAND_ERROR_IS_FATAL ANY)" ${in_debian})
install(DIRECTORY "${made_dir}/man1" DESTINATION share/man ${in_debian})
install(FILES "${made_dir}/faultline.bash" DESTINATION share/bash-completion/completions RENAME faultline ${in_debian})
install(FILES "${made_dir}/faultline.zsh" DESTINATION share/zsh/vendor-completions RENAME _faultline ${in_debian})
install(FILES "${CMAKE_SOURCE_DIR}/ops/systemd/faultline-server.service"
  "${CMAKE_SOURCE_DIR}/ops/systemd/faultline-worker@.service" DESTINATION lib/systemd/system ${in_debian})
install(DIRECTORY "${CMAKE_SOURCE_DIR}/ops" DESTINATION share/doc/faultline ${in_debian}
  PATTERN "systemd" EXCLUDE PATTERN "docker" EXCLUDE)
install(FILES "${made_dir}/changelog.gz" DESTINATION share/doc/faultline ${in_debian})
install(FILES "${debian_dir}/copyright" DESTINATION share/doc/faultline ${in_debian})
# It will hold a password.
install(FILES "${made_dir}/faultline.toml" DESTINATION /etc/faultline PERMISSIONS OWNER_READ OWNER_WRITE ${in_debian})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME faultline)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "Faultline's authors <faultline@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "crash-safe job queue on PostgreSQL")
set(CPACK_PACKAGE_DESCRIPTION "A job queue whose late workers change nothing: every write of a worker carries a fencing token,
and PostgreSQL refuses the stale ones and keeps evidence. The package has the program faultline
(server, worker, operator's tools), the C++ library with its headers, and systemd units, which are
neither enabled nor started by the installation.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# One package of two components: what is always installed, and what only a Debian wants.
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};faultline;ALL;/;${CMAKE_BINARY_DIR};faultline;debian;/")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "postgresql-15")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "haproxy, prometheus")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${debian_dir}/conffiles")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)

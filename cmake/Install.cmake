# What `cmake --install` gives: the public headers, the libraries, the .proto, a CMake package, pkg-config files, the program.
#
#   faultline::faultline   libfaultline.so         the public API on a database
#   faultline::remote      libfaultline-remote.so  Worker::connect, through a server: this one has gRPC
#
# They are shared objects, and there are no static ones. A static library would ask its users to link libpq, OpenSSL, libcurl and
# gRPC themselves, at the versions that it was built with; and built for link-time optimisation, as what ships is, it could
# be read only by the very compiler that made it. The shared ones keep what they are made with to themselves, and export
# the public API alone (cmake/package/*.map). The program `faultline` has the same code linked in statically, and so does
# not depend on where the libraries are.

include(CMakePackageConfigHelpers)

# faultline_shared_library(NAME OUTPUT_NAME EXPORT_NAME exports.map FOLDER…)
function(faultline_shared_library name output_name export_name exports)
  set(objects "")
  foreach(folder IN LISTS ARGN)
    list(APPEND objects $<TARGET_OBJECTS:faultline_${folder}>)
  endforeach()
  set(exports "${CMAKE_SOURCE_DIR}/cmake/package/${exports}")
  add_library(${name} SHARED ${objects})
  target_link_options(${name} PRIVATE "-Wl,--version-script=${exports}")
  if(NOT FAULTLINE_SANITIZE)
    # A folder that is missing shows here, and not in a program that uses the library.
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  # Until 1.0 a minor version may break the library's users, so it is part of the library's name.
  set_target_properties(${name} PROPERTIES
    OUTPUT_NAME ${output_name} EXPORT_NAME ${export_name}
    VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}"
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}"
    LINKER_LANGUAGE CXX
    LINK_DEPENDS "${exports}")
endfunction()

faultline_shared_library(faultline_shared faultline faultline faultline.map
  base metrics trace pg sql schema store client watchdog worker)
add_library(faultline::faultline ALIAS faultline_shared)
target_include_directories(faultline_shared INTERFACE
  "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(faultline_shared INTERFACE cxx_std_23)
target_link_libraries(faultline_shared PRIVATE PostgreSQL::PostgreSQL OpenSSL::SSL OpenSSL::Crypto CURL::libcurl
  prometheus-cpp::core Threads::Threads)

# What is neither its own nor public it has from an archive of `base`.
faultline_shared_library(faultline_remote_shared faultline-remote remote faultline-remote.map proto_lite wire_lite remote_lite)
target_link_libraries(faultline_remote_shared PUBLIC faultline_shared
  PRIVATE faultline_base gRPC::grpc++ protobuf::libprotobuf Threads::Threads)
# What is installed, built.
add_custom_target(faultline_installed DEPENDS faultline faultline_shared faultline_remote_shared)

# tools/package.sh makes a Debian package of each component.
set(in_development COMPONENT development)
install(TARGETS faultline RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
install(TARGETS faultline_shared EXPORT faultline-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library NAMELINK_COMPONENT development)
install(TARGETS faultline_remote_shared EXPORT faultline-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT remote_library NAMELINK_COMPONENT development)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/faultline" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" ${in_development}
  FILES_MATCHING PATTERN "*.h")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/proto" DESTINATION "${CMAKE_INSTALL_DATADIR}/faultline" ${in_development})

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/faultline")
install(EXPORT faultline-targets NAMESPACE faultline:: DESTINATION "${package_dir}" ${in_development})
write_basic_package_version_file("${CMAKE_BINARY_DIR}/package/faultline-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_SOURCE_DIR}/cmake/package/faultline-config.cmake"
  "${CMAKE_BINARY_DIR}/package/faultline-config-version.cmake" DESTINATION "${package_dir}" ${in_development})

# From the pkg-config files to the prefix, so that an installed tree may be moved.
file(RELATIVE_PATH prefix_from_pc "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
foreach(name faultline faultline-remote)
  configure_file("${CMAKE_SOURCE_DIR}/cmake/package/${name}.pc.in" "${CMAKE_BINARY_DIR}/package/${name}.pc" @ONLY)
  install(FILES "${CMAKE_BINARY_DIR}/package/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" ${in_development})
endforeach()

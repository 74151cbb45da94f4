# What `cmake --install` gives: the public headers, the library, a CMake package, a pkg-config file, the program.
#
# The library is one shared object, and there is no static one. A static library would ask its users to link libpq,
# OpenSSL, libcurl and gRPC themselves, at the versions that it was built with; and built for link-time optimisation, as what
# ships is, it could be read only by the very compiler that made it. The shared one carries everything that the public
# API needs, keeps libpq, OpenSSL, libcurl and gRPC to itself, and exports the public API alone (cmake/package/exports.map). The program
# `faultline` has the same code linked in statically, and so does not depend on where the library is.

include(CMakePackageConfigHelpers)

set(objects "")
foreach(folder base metrics trace pg sql schema store client watchdog worker proto wire remote)
  list(APPEND objects $<TARGET_OBJECTS:faultline_${folder}>)
endforeach()
set(exports "${CMAKE_CURRENT_LIST_DIR}/package/exports.map")

add_library(faultline_shared SHARED ${objects})
add_library(faultline::faultline ALIAS faultline_shared)
target_include_directories(faultline_shared INTERFACE
  "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(faultline_shared INTERFACE cxx_std_23)
target_link_libraries(faultline_shared PRIVATE PostgreSQL::PostgreSQL OpenSSL::SSL OpenSSL::Crypto CURL::libcurl gRPC::grpc++
  protobuf::libprotobuf prometheus-cpp::core Threads::Threads)
target_link_options(faultline_shared PRIVATE "-Wl,--version-script=${exports}")
if(NOT FAULTLINE_SANITIZE)
  # A folder that is missing above shows here, and not in a program that uses the library.
  target_link_options(faultline_shared PRIVATE -Wl,-z,defs)
endif()
# Until 1.0 a minor version may break the library's users, so it is part of the library's name.
set_target_properties(faultline_shared PROPERTIES
  OUTPUT_NAME faultline EXPORT_NAME faultline
  VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}"
  LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}"
  LINKER_LANGUAGE CXX
  LINK_DEPENDS "${exports}")

install(TARGETS faultline RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS faultline_shared EXPORT faultline-targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/faultline" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/faultline")
install(EXPORT faultline-targets NAMESPACE faultline:: FILE faultline-config.cmake DESTINATION "${package_dir}")
write_basic_package_version_file("${CMAKE_BINARY_DIR}/package/faultline-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/package/faultline-config-version.cmake" DESTINATION "${package_dir}")

# From the pkg-config file to the prefix, so that an installed tree may be moved.
file(RELATIVE_PATH prefix_from_pc "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file("${CMAKE_CURRENT_LIST_DIR}/package/faultline.pc.in" "${CMAKE_BINARY_DIR}/package/faultline.pc" @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/package/faultline.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

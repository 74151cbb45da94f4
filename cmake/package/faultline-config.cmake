# find_package(faultline) gives faultline::faultline, the public API on a database, and faultline::remote, which adds
# Worker::connect. A program that needs the latter may say so: find_package(faultline REQUIRED COMPONENTS remote).
include("${CMAKE_CURRENT_LIST_DIR}/faultline-targets.cmake")
set(faultline_remote_FOUND TRUE)
foreach(component IN LISTS faultline_FIND_COMPONENTS)
  if(faultline_FIND_REQUIRED_${component} AND NOT faultline_${component}_FOUND)
    set(faultline_FOUND FALSE)
    set(faultline_NOT_FOUND_MESSAGE "faultline has no component '${component}'; there is: remote.")
  endif()
endforeach()

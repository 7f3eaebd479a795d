# Libraries whose Debian packages have no CMake config. Their headers are system headers, so that our warnings leave
# them alone.

# orrery_plain_library(NAME HEADER LIBRARY VERSION PACKAGE): NAME::NAME, or an error that says what to install.
function(orrery_plain_library name header library version package)
  find_path(${name}_INCLUDE_DIR ${header})
  find_library(${name}_LIBRARY ${library})
  mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
  if(NOT ${name}_INCLUDE_DIR OR NOT ${name}_LIBRARY)
    message(FATAL_ERROR "${name} not found: install version ${version} (Debian: ${package})")
  endif()
  add_library(${name}::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${name}::${name} PROPERTIES
    IMPORTED_LOCATION ${${name}_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${${name}_INCLUDE_DIR})
endfunction()

orrery_plain_library(SimGrid simgrid/s4u.hpp simgrid 3.32 libsimgrid-dev)
orrery_plain_library(METIS metis.h metis 5.1 libmetis-dev)
orrery_plain_library(hwloc hwloc.h hwloc 2.9 libhwloc-dev)

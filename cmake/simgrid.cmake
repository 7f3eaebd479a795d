# SimGrid::SimGrid. Debian's package has no CMake config; its headers are system headers, so that our warnings
# leave them alone.
find_path(SIMGRID_INCLUDE_DIR simgrid/s4u.hpp)
find_library(SIMGRID_LIBRARY simgrid)
mark_as_advanced(SIMGRID_INCLUDE_DIR SIMGRID_LIBRARY)
if(NOT SIMGRID_INCLUDE_DIR OR NOT SIMGRID_LIBRARY)
  message(FATAL_ERROR "SimGrid not found: install version 3.32 (Debian: libsimgrid-dev)")
endif()
add_library(SimGrid::SimGrid UNKNOWN IMPORTED)
set_target_properties(SimGrid::SimGrid PROPERTIES
  IMPORTED_LOCATION ${SIMGRID_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${SIMGRID_INCLUDE_DIR})

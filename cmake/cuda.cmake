# The CUDA sources are built where a CUDA compiler is, and said to be left out where there is none.
#   ORRERY_CUDA=AUTO (default)  as said      ON  an error where there is none      OFF  never
set(ORRERY_CUDA AUTO CACHE STRING "Build the CUDA sources: AUTO, ON or OFF")
set_property(CACHE ORRERY_CUDA PROPERTY STRINGS AUTO ON OFF)

set(ORRERY_CUDA_FOUND OFF)
if(ORRERY_CUDA)
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)  # The toolkit's own place, often not in PATH.
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(ORRERY_CUDA_FOUND ON)
    add_subdirectory(executor/cuda/probe)
    add_subdirectory(executor/cuda)
  elseif(ORRERY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CUDA: no nvcc found; install the CUDA Toolkit 13 and set CUDACXX to its nvcc")
  else()
    message(STATUS "CUDA: no nvcc found; building without the CUDA sources (install the CUDA Toolkit 13 and set CUDACXX to build them)")
  endif()
endif()

# The CUDA backend is built where a CUDA compiler is, and said to be left out where there is none.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "CUDA: no nvcc found; building without the CUDA sources (install the CUDA Toolkit 13 and set CUDACXX to build them)")
endif()

# What the executor's kernels are compiled with: sources of their own for each set of vector instructions, of which
# one is chosen at run time, and oneDNN where it is found.
#   ORRERY_ONEDNN=AUTO (default)  as said      ON  an error where there is none      OFF  never
set(ORRERY_ONEDNN AUTO CACHE STRING "Offer oneDNN's matrix products: AUTO, ON or OFF")
set_property(CACHE ORRERY_ONEDNN PROPERTY STRINGS AUTO ON OFF)

# Every multiply-add that is fused says so: the compiler may fuse none by itself, or the sets would differ in bits.
set(loops_flags -O3 -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND loops_flags -Wno-maybe-uninitialized -Wno-uninitialized)  # Its own intrinsics start from undefined registers (GCC bug 105593).
endif()
# Three minutes of processor time with sanitizers, and a quarter of one without.
option(ORRERY_SANITIZE_LOOPS "With sanitizers: in the executor's vector loops too" ON)
if(ORRERY_SANITIZE AND NOT ORRERY_SANITIZE_LOOPS)
  list(APPEND loops_flags -fno-sanitize=all)
endif()
set(folder ${PROJECT_SOURCE_DIR}/executor/kernels)
set(avx2_flags "")
set(avx512_flags "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2_flags -mavx2 -mfma)
  set(avx512_flags -mavx2 -mfma -mavx512f -mavx512dq -mavx512bw -mavx512vl -mprefer-vector-width=512)
endif()
set_source_files_properties(${folder}/loops_scalar.cpp PROPERTIES COMPILE_OPTIONS "${loops_flags}")
set_source_files_properties(${folder}/loops_avx2.cpp PROPERTIES COMPILE_OPTIONS "${loops_flags};${avx2_flags}")
set_source_files_properties(${folder}/loops_avx512.cpp PROPERTIES COMPILE_OPTIONS "${loops_flags};${avx512_flags}")
# Plain loops, which -O3 alone makes vectors of.
set_source_files_properties(${folder}/convert.cpp ${folder}/exact_sum.cpp PROPERTIES COMPILE_OPTIONS -O3)
# The precompiled header is for the options that everything else is compiled with.
set_source_files_properties(${folder}/loops_scalar.cpp ${folder}/loops_avx2.cpp ${folder}/loops_avx512.cpp
  ${folder}/convert.cpp ${folder}/exact_sum.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)

if(ORRERY_ONEDNN)
  find_library(DNNL_LIBRARY dnnl)
  find_path(DNNL_INCLUDE_DIR dnnl.h)
  mark_as_advanced(DNNL_LIBRARY DNNL_INCLUDE_DIR)
  if(DNNL_LIBRARY AND DNNL_INCLUDE_DIR)
    target_link_libraries(orrery_executor PRIVATE ${DNNL_LIBRARY})
    target_compile_definitions(orrery_executor PRIVATE ORRERY_HAVE_ONEDNN)
  elseif(ORRERY_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "oneDNN: not found; install libdnnl-dev")
  else()
    message(STATUS "oneDNN: not found; building without it (install libdnnl-dev to offer its matrix products)")
  endif()
endif()

# Build options and the functions that the top-level list is written in.

option(ORRERY_TESTS "Build the tests (needs Catch2)" ON)
option(ORRERY_BENCHMARKS "Build the benchmarks (needs Google Benchmark)" ON)
option(ORRERY_FUZZ "Build the fuzz targets (clang only)" OFF)
option(ORRERY_WERROR "Treat warnings as errors" OFF)
option(ORRERY_HEADERS_ALONE "Also compile every public header by itself" ${ORRERY_WERROR})
if(ORRERY_WERROR)
  set(common_headers OFF)
else()
  set(common_headers ON)
endif()
option(ORRERY_COMMON_HEADERS "Parse what nearly every source includes once; off, every source's own includes are tried" ${common_headers})
option(ORRERY_LTO "Optimize across source files when linking" OFF)
set(ORRERY_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined or thread")

# Asserts stay on everywhere but in Release, so what people run by default checks its own promises.
# Lines in stack traces and profiles, but no variables: a fifth less to compile and link (-g in CMAKE_CXX_FLAGS has them).
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
# For the sanitizers: -O1 keeps them usable.
set(CMAKE_CXX_FLAGS_SANITIZED "-O1 -g1")

find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The tests' precompiled header is part of what is compared; its time stamps aren't.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

add_library(orrery_flags INTERFACE)
target_include_directories(orrery_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(orrery_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlapping copies in inlined std::string functions where there are none (GCC bug 105651).
  target_compile_options(orrery_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # libstdc++ 12's own std::stable_sort calls the deprecated std::get_temporary_buffer, which clang tells the caller.
  target_compile_options(orrery_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(ORRERY_WERROR)
  target_compile_options(orrery_flags INTERFACE -Werror)
endif()
if(ORRERY_SANITIZE)
  # Checks of every pointer for null and alignment double the time to compile; a null pointer ends the program anyhow.
  target_compile_options(orrery_flags INTERFACE -fsanitize=${ORRERY_SANITIZE} -fno-sanitize=null,alignment
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(orrery_flags INTERFACE -fsanitize=${ORRERY_SANITIZE})
endif()
if(ORRERY_FUZZ)
  # Coverage in everything; the driver itself only in the fuzz targets.
  target_compile_options(orrery_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(ORRERY_LTO)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()

# What nearly every source includes, parsed once: a third of the time to compile most of them. With further headers as
# arguments the target has a precompiled header of its own.
function(orrery_common_headers target)
  if(NOT ORRERY_COMMON_HEADERS)
    return()
  endif()
  set(common <fmt/format.h> <algorithm> <array> <cstdint> <map> <optional> <string> <variant> <vector>)
  if(ARGN)
    target_precompile_headers(${target} PRIVATE ${common} ${ARGN})
    return()
  endif()
  if(NOT TARGET orrery_common)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/common.cpp CONTENT "")
    add_library(orrery_common OBJECT ${CMAKE_BINARY_DIR}/common.cpp)
    target_link_libraries(orrery_common PRIVATE orrery_flags fmt::fmt)
    target_precompile_headers(orrery_common PRIVATE ${common})
    # g++ 12 takes what comes from a precompiled header for ours and warns of its library (GCC bug 105329 and its like).
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      target_compile_options(orrery_flags INTERFACE -Wno-stringop-overflow)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM orrery_common)
endfunction()

# orrery_module(NAME [FOLDERS folders…] [USES modules…] [LIBS libraries…] [PUBLIC_LIBS libraries…]): a static library
# from the folder NAME, or from others.
function(orrery_module name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;USES;LIBS;PUBLIC_LIBS" ${ARGN})
  if(NOT ARG_FOLDERS)
    set(ARG_FOLDERS ${name})
  endif()
  list(TRANSFORM ARG_FOLDERS REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/\\1/*.cpp" OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  add_library(orrery_${name} STATIC ${sources})
  list(TRANSFORM ARG_USES PREPEND orrery_)
  target_link_libraries(orrery_${name} PUBLIC orrery_flags ${ARG_USES} ${ARG_PUBLIC_LIBS} PRIVATE ${ARG_LIBS})
  orrery_common_headers(orrery_${name})
  set_property(GLOBAL APPEND PROPERTY ORRERY_FOLDERS ${ARG_FOLDERS})
endfunction()

# orrery_program(NAME FOLDER [USES modules…] [LIBS libraries…] [HEADERS headers…]): an executable at the top of the build
# folder. HEADERS: what most of its sources include beside the common ones.
function(orrery_program name folder)
  cmake_parse_arguments(ARG "" "" "USES;LIBS;HEADERS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  add_executable(${name} ${sources})
  list(TRANSFORM ARG_USES PREPEND orrery_)
  target_link_libraries(${name} PRIVATE orrery_flags ${ARG_USES} ${ARG_LIBS})
  orrery_common_headers(${name} ${ARG_HEADERS})
endfunction()

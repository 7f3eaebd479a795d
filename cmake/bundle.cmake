# A folder that runs on any x86-64 Linux whose glibc isn't older than that of the machine it was made on: `cmake --install`, or
# `cpack` for a TGZ; tools/bundle does both. glibc and the driver's libraries are the target's, all others come along.
# RPATH, not RUNPATH: the former also holds for what the libraries themselves need.
target_link_options(orrery PRIVATE LINKER:--disable-new-dtags)
set_target_properties(orrery PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS orrery RUNTIME_DEPENDENCY_SET orrery_libraries RUNTIME DESTINATION bin)
if(TARGET orrery-cuda)
  target_link_options(orrery-cuda PRIVATE LINKER:--disable-new-dtags)
  set_target_properties(orrery-cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS orrery-cuda RUNTIME_DEPENDENCY_SET orrery_libraries LIBRARY DESTINATION lib)
endif()
# For tools/gpu-test and measurements on the target; they need no other libraries than the program. Whoever wants them
# builds them.
foreach(test test_gpu kernel-speed product-speed)
  if(TARGET ${test})
    target_link_options(${test} PRIVATE LINKER:--disable-new-dtags)
    set_target_properties(${test} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS ${test} RUNTIME DESTINATION bin OPTIONAL)
  endif()
endforeach()
install(RUNTIME_DEPENDENCY_SET orrery_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|pthread|dl|rt|resolv|util|mvec|anl|nsl)\\.so" "^lib(cuda|nvidia-.*)\\.so"
  LIBRARY DESTINATION lib)

# The text lies beside the program, which looks for it there.
install(FILES ${CMAKE_BINARY_DIR}/orrery-corpus.txt DESTINATION bin)
install(DIRECTORY scenarios DESTINATION . FILES_MATCHING PATTERN "*.yaml" PATTERN "*.json" PATTERN "*.txt" PATTERN "*.xml" PATTERN "*.log")
install(FILES tests/data/topo/h200x2/topology.xml tests/data/topo/h200x2/smi-m.txt DESTINATION tests/data/topo/h200x2)  # scenarios/topology-*
install(FILES LICENSE DESTINATION .)
# What it was made of, for results.
install(CODE "execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY \"${PROJECT_SOURCE_DIR}\"
  OUTPUT_VARIABLE commit ERROR_QUIET)
  file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/COMMIT\" \"\${commit}\")")

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME orrery-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_VENDOR orrery)
include(CPack)

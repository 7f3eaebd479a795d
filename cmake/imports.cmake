# What reading files of other tools needs: ONNX's protobuf classes, a schema of our own for Chakra traces, xxHash.
find_package(Protobuf 3.21 REQUIRED)
find_library(ONNX_PROTO_LIBRARY onnx_proto)
find_path(ONNX_INCLUDE_DIR onnx/onnx_pb.h)
find_library(XXHASH_LIBRARY xxhash)
mark_as_advanced(ONNX_PROTO_LIBRARY ONNX_INCLUDE_DIR XXHASH_LIBRARY)
if(NOT ONNX_PROTO_LIBRARY OR NOT ONNX_INCLUDE_DIR)
  message(FATAL_ERROR "ONNX's protobuf classes not found (Debian: libonnx-dev)")
endif()
if(NOT XXHASH_LIBRARY)
  message(FATAL_ERROR "xxHash not found (Debian: libxxhash-dev)")
endif()

# Headers as system headers, so that our warnings leave generated code alone.
add_library(orrery_onnx INTERFACE)
target_include_directories(orrery_onnx SYSTEM INTERFACE ${ONNX_INCLUDE_DIR})
target_compile_definitions(orrery_onnx INTERFACE ONNX_ML=1 ONNX_NAMESPACE=onnx)
target_link_libraries(orrery_onnx INTERFACE ${ONNX_PROTO_LIBRARY} protobuf::libprotobuf)

set(generated ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated})
add_custom_command(
  OUTPUT ${generated}/chakra_trace.pb.cc ${generated}/chakra_trace.pb.h
  COMMAND protobuf::protoc --cpp_out=${generated} --proto_path=${PROJECT_SOURCE_DIR}/model chakra_trace.proto
  DEPENDS ${PROJECT_SOURCE_DIR}/model/chakra_trace.proto
  VERBATIM)
add_library(orrery_chakra STATIC ${generated}/chakra_trace.pb.cc ${generated}/chakra_trace.pb.h)
target_include_directories(orrery_chakra SYSTEM PUBLIC ${generated})
target_link_libraries(orrery_chakra PUBLIC protobuf::libprotobuf)

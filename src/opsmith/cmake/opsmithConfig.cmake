# Kernels for ExecuTorch, compiled once, as libraries for PyTorch and for ExecuTorch's runtime.
#
#   opsmith_lean_objects(custom_linear custom_linear.cpp)
#   opsmith_torch_library(custom_linear_torch custom_linear_torch.cpp LEAN custom_linear)
#   opsmith_executorch_library(custom_linear_executorch LEAN custom_linear)
#
# The first compiles sources without PyTorch's headers. The second makes a library that
# torch.ops.load_library loads, of these objects and of sources that use PyTorch and WRAP_TO_ATEN. The third
# makes one for the runtime in ExecuTorch's wheel, where EXECUTORCH_LIBRARY registers the kernels.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python3_EXECUTABLE}" -m opsmith.build.cmake facts
  OUTPUT_VARIABLE _opsmith_facts
  COMMAND_ERROR_IS_FATAL ANY)
cmake_language(EVAL CODE "${_opsmith_facts}")

function(opsmith_lean_objects target)
  add_library(${target} OBJECT ${ARGN})
  target_compile_options(${target} PRIVATE ${OPSMITH_LEAN_FLAGS})
  target_include_directories(${target} SYSTEM PRIVATE ${OPSMITH_LEAN_INCLUDE_DIRS})
  target_include_directories(${target} PRIVATE ${OPSMITH_INCLUDE_DIRS})
endfunction()

function(opsmith_torch_library target)
  cmake_parse_arguments(PARSE_ARGV 1 given "" "" "LEAN")
  if(NOT TARGET opsmith_lean_runtime)
    opsmith_lean_objects(opsmith_lean_runtime ${OPSMITH_LEAN_SOURCES})
  endif()
  add_library(${target} MODULE ${given_UNPARSED_ARGUMENTS} ${OPSMITH_BRIDGE_SOURCES})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_definitions(${target} PRIVATE OPSMITH_FOR_CPU)
  target_compile_options(${target} PRIVATE -fvisibility=hidden)
  target_include_directories(${target} PRIVATE ${OPSMITH_INCLUDE_DIRS})
  target_include_directories(${target} SYSTEM PRIVATE ${OPSMITH_TORCH_INCLUDE_DIRS})
  target_link_directories(${target} PRIVATE ${OPSMITH_TORCH_LIBRARY_DIR})
  target_link_libraries(${target} PRIVATE ${given_LEAN} opsmith_lean_runtime torch torch_cpu c10)
endfunction()

function(opsmith_executorch_library target)
  cmake_parse_arguments(PARSE_ARGV 1 given "" "" "LEAN")
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp" "")
  add_library(${target} MODULE "${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp")
  target_link_libraries(${target} PRIVATE ${given_LEAN} ${OPSMITH_EXECUTORCH_LIBRARIES})
endfunction()

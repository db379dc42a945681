# Kernels for ExecuTorch, compiled once, as libraries for PyTorch and for ExecuTorch's runtime.
#
#   opsmith_lean_objects(custom_linear custom_linear.cpp)
#   opsmith_torch_library(custom_linear_torch custom_linear_torch.cpp LEAN custom_linear)
#   opsmith_executorch_library(custom_linear_executorch LEAN custom_linear)
#
# The first compiles sources without PyTorch's headers. The second makes a library that
# torch.ops.load_library loads, of these objects and of sources that use PyTorch and WRAP_TO_ATEN. The third
# makes one for the runtime in ExecuTorch's wheel, where EXECUTORCH_LIBRARY registers the kernels; it needs
# ExecuTorch, and so does all that follows.
#
#   opsmith_kernels(my_kernels BACKEND backend.yaml PROGRAMS model.pte other.pte NO_RUNTIME_KERNELS)
#   target_link_libraries(my_runner PRIVATE my_kernels)
#
# makes a library of all that the backend's libraries have for these programs, and links it, with ExecuTorch's
# runtime and its headers (opsmith::executorch), into a program in C++. It registers its kernels by itself, and
# is linked although nothing refers to it. With NO_RUNTIME_KERNELS the program has no kernels but these, and
# the build fails where the libraries lack one; without, it may link ExecuTorch's own beside them.
#
# With a toolchain file for another processor, kernels are compiled by its compiler, and OPSMITH_EXECUTORCH has
# to be the folder `executorch` of ExecuTorch's wheel for that processor, unpacked.

find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(OPSMITH_EXECUTORCH "$ENV{OPSMITH_EXECUTORCH}" CACHE PATH "An ExecuTorch for another processor than this one's")
set(_opsmith_environment "OPSMITH_EXECUTORCH=${OPSMITH_EXECUTORCH}")
if(CMAKE_CROSSCOMPILING)
  set(_opsmith_compiler "${CMAKE_CXX_COMPILER}")
  if(CMAKE_CXX_COMPILER_TARGET)
    string(APPEND _opsmith_compiler " --target=${CMAKE_CXX_COMPILER_TARGET}")
  endif()
  if(CMAKE_SYSROOT)
    string(APPEND _opsmith_compiler " --sysroot=${CMAKE_SYSROOT}")
  endif()
  list(APPEND _opsmith_environment "CXX=${_opsmith_compiler}")
endif()
set(OPSMITH_COMMAND "${CMAKE_COMMAND}" -E env ${_opsmith_environment} "${Python3_EXECUTABLE}" -m)
execute_process(
  COMMAND ${OPSMITH_COMMAND} opsmith.build.cmake facts
  OUTPUT_VARIABLE _opsmith_facts
  COMMAND_ERROR_IS_FATAL ANY)
cmake_language(EVAL CODE "${_opsmith_facts}")

# Libraries that cannot be had are the reason, and -NOTFOUND after it.
function(_opsmith_check_found libraries)
  if(libraries MATCHES "-NOTFOUND$")
    string(REPLACE "-NOTFOUND" "" reason "${libraries}")
    message(FATAL_ERROR "${reason}")
  endif()
endfunction()

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
    # Together: most of the time of each goes into PyTorch's headers.
    add_library(opsmith_bridge OBJECT ${OPSMITH_BRIDGE_SOURCES})
    set_target_properties(opsmith_bridge PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0 POSITION_INDEPENDENT_CODE ON)
    _opsmith_use_torch(opsmith_bridge)
  endif()
  add_library(${target} MODULE ${given_UNPARSED_ARGUMENTS})
  _opsmith_use_torch(${target})
  target_link_directories(${target} PRIVATE ${OPSMITH_TORCH_LIBRARY_DIR})
  target_link_libraries(${target} PRIVATE ${given_LEAN} opsmith_lean_runtime opsmith_bridge torch torch_cpu c10)
endfunction()

function(_opsmith_use_torch target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_definitions(${target} PRIVATE OPSMITH_FOR_CPU)
  target_compile_options(${target} PRIVATE -fvisibility=hidden)
  target_include_directories(${target} PRIVATE ${OPSMITH_INCLUDE_DIRS})
  target_include_directories(${target} SYSTEM PRIVATE ${OPSMITH_TORCH_INCLUDE_DIRS})
endfunction()

function(opsmith_executorch_library target)
  cmake_parse_arguments(PARSE_ARGV 1 given "" "" "LEAN")
  _opsmith_check_found("${OPSMITH_EXECUTORCH_LIBRARIES}")
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp" "")
  add_library(${target} MODULE "${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp")
  target_link_libraries(${target} PRIVATE ${given_LEAN} ${OPSMITH_EXECUTORCH_LIBRARIES})
endfunction()

if(NOT TARGET opsmith::executorch)
  add_library(opsmith::executorch INTERFACE IMPORTED)
  set_target_properties(opsmith::executorch PROPERTIES
    INTERFACE_COMPILE_FEATURES cxx_std_17
    INTERFACE_COMPILE_DEFINITIONS C10_USING_CUSTOM_GENERATED_MACROS
    INTERFACE_INCLUDE_DIRECTORIES "${OPSMITH_INCLUDE_DIRS};${OPSMITH_EXECUTORCH_INCLUDE_DIRS}"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${OPSMITH_EXECUTORCH_INCLUDE_DIRS}"
    INTERFACE_LINK_LIBRARIES "${OPSMITH_EXECUTORCH_RUNNER_LIBRARIES}")
endif()

function(opsmith_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 given "NO_RUNTIME_KERNELS" "BACKEND" "PROGRAMS")
  if(NOT given_BACKEND OR given_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "opsmith_kernels(${target} …): write BACKEND and a backend.yaml, then PROGRAMS and .pte files")
  endif()
  _opsmith_check_found("${OPSMITH_EXECUTORCH_RUNNER_LIBRARIES}")
  # A name stands for a backend that comes with opsmith.
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${given_BACKEND}")
    set(given_BACKEND "${CMAKE_CURRENT_SOURCE_DIR}/${given_BACKEND}")
  endif()
  set(programs)
  set(options)
  foreach(program IN LISTS given_PROGRAMS)
    cmake_path(ABSOLUTE_PATH program NORMALIZE)
    list(APPEND programs "${program}")
    list(APPEND options --for "${program}")
  endforeach()
  if(given_NO_RUNTIME_KERNELS)
    list(APPEND options --no-runtime-kernels)
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}.kernels")
  set(library "${folder}/lib${target}.so")
  # Asked in each build, which costs little where nothing has changed: it knows the kernels' sources.
  add_custom_target(${target}_library
    COMMAND ${OPSMITH_COMMAND} opsmith executorch build "${given_BACKEND}" ${options} -o "${folder}"
            --name ${target}
    DEPENDS ${programs}
    BYPRODUCTS "${library}"
    COMMENT "Building the kernels of ${target}"
    VERBATIM)
  add_library(${target} SHARED IMPORTED GLOBAL)
  add_dependencies(${target} ${target}_library)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${library}"
    IMPORTED_SONAME "lib${target}.so"
    INTERFACE_LINK_LIBRARIES opsmith::executorch
    INTERFACE_LINK_OPTIONS "LINKER:--push-state,--no-as-needed,${library},--pop-state")
endfunction()

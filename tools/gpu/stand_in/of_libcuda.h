// The stand-in of libcuda, as the stand-ins of other libraries use it.
#pragma once

#include <dlfcn.h>

namespace stand_in {

template <class Function>
Function of_libcuda(const char* name) {
  return reinterpret_cast<Function>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name));
}

// Has `function(argument)` run as work of a stream.
inline int queue(void* stream, void (*function)(void*), void* argument) {
  static const auto launch = of_libcuda<int (*)(void*, void (*)(void*), void*)>("cuLaunchHostFunc");
  return launch(stream, function, argument);
}

// Where the host finds the memory of the device that is current in this thread; streams' threads have none.
inline void* view(const void* pointer) {
  static const auto found = of_libcuda<void* (*)(void*)>("opsmith_stand_in_view");
  return found(const_cast<void*>(pointer));
}

}  // namespace stand_in

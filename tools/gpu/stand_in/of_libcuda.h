// The stand-in of libcuda, as other stand-ins use it.
#pragma once

#include <dlfcn.h>

namespace stand_in {

template <class Function>
Function of_libcuda(const char* name) {
  return reinterpret_cast<Function>(dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), name));
}

}  // namespace stand_in

// opsmith_vendor_library.h: how drivers and kernels find a vendor's library when they are first used, so that
// they are built, and say what is missing, where there is none.
#pragma once

#include <dlfcn.h>
#include <glob.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <initializer_list>
#include <string>

namespace opsmith {

// The newest file, in order of names, that matches `pattern`, which goes on from the folder of the torch that
// this process has loaded; empty where there is none.
inline std::string beside_torch(const std::string& pattern) {
  void* const torch = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
  std::array<char, PATH_MAX> folder{};
  if (torch == nullptr || dlinfo(torch, RTLD_DI_ORIGIN, folder.data()) != 0) {
    return "";
  }
  glob_t found{};
  const bool any = glob((folder.data() + pattern).c_str(), 0, nullptr, &found) == 0;
  const std::string path = any ? found.gl_pathv[found.gl_pathc - 1] : "";
  globfree(&found);
  return path;
}

// The value of an environment variable; empty where it is not set.
inline std::string library_named_by(const char* variable) {
  const char* const named = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  return named != nullptr ? named : "";
}

// Opens the library `named`, or, where that is empty, the first of `others` that opens; null where none does.
inline void* open_vendor_library(const std::string& named, std::initializer_list<std::string> others) {
  if (!named.empty()) {
    return dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  for (const std::string& name : others) {
    if (void* const library = name.empty() ? nullptr : dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return library;
    }
  }
  return nullptr;
}

}  // namespace opsmith

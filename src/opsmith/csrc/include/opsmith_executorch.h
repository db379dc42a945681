// The C functions of a kernel library for ExecuTorch's runtime, for who links it or loads it.
//
// A library registers its kernels when it is loaded, or, where the runtime could not take them, none: the
// runtime itself would end the process. Of several libraries in one program, the functions are the first
// one's; those of the others are found by dlsym(). What a library could not do is on standard error as well.

#pragma once

#include <stddef.h>

#ifdef __cplusplus
#define OPSMITH_EXECUTORCH_API extern "C" __attribute__((visibility("default")))
#else
#define OPSMITH_EXECUTORCH_API
#endif

// Why nothing of the library was registered; empty where everything was.
OPSMITH_EXECUTORCH_API const char* opsmith_executorch_error(void);

// The description of the library, as JSON.
OPSMITH_EXECUTORCH_API const char* opsmith_executorch_description(void);

// Registers the kernel at `kernel` in the library's list under `key`, for a program that is loaded later.
// Returns why it did not, or an empty text.
OPSMITH_EXECUTORCH_API const char* opsmith_executorch_register(size_t kernel, const char* key);

// The kernel library that serves calls of `operator_name` with `key`, if that is one of this library's
// kernels; empty where another kernel does, and NULL where none does.
OPSMITH_EXECUTORCH_API const char* opsmith_executorch_server(const char* operator_name, const char* key);

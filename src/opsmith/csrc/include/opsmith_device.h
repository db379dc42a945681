/* For kernels that launch work on the device, in C or C++ and without PyTorch: where to launch it. The caller
 * of a kernel has made the device of its operands current. To use the driver itself, call what it exports:
 * opsmith_get_driver(), or functions of its own. */
#ifndef OPSMITH_DEVICE_H
#define OPSMITH_DEVICE_H

#include <opsmith_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The device that is current in this thread. */
int opsmith_current_device(void);

/* The stream that is current for `device` in this thread: torch.<name>.current_stream(). Work that is queued
 * there runs after what was queued before, and before what reads its results. */
opsmith_stream opsmith_current_stream(int device);

#ifdef __cplusplus
}
#endif

#endif /* OPSMITH_DEVICE_H */

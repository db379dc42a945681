/* opsmith_cuda.h: what the driver `cuda_driver` exports beside opsmith_get_driver() for NVIDIA's libraries,
 * whose functions take CUDA's own streams. The rules of opsmith_driver.h hold here too. */
#ifndef OPSMITH_CUDA_H
#define OPSMITH_CUDA_H

#include <opsmith_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The CUstream (cudaStream_t) of a stream, whose device is then current in this thread. */
opsmith_status opsmith_cuda_stream(opsmith_stream stream, void** cuda_stream);

#ifdef __cplusplus
}
#endif

#endif /* OPSMITH_CUDA_H */

/* The programs of chip and their arguments: what its kernels launch. */
#ifndef CHIP_H
#define CHIP_H

#include <opsmith_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHIP_MAX_DIMS = 8 };

/* A matrix of float32 in device memory; strides in elements. */
typedef struct chip_matrix {
  void* data;
  int64_t rows, columns, row_stride, column_stride;
} chip_matrix;

/* "matmul": out = a @ b */
typedef struct chip_matmul {
  chip_matrix a, b, out;
} chip_matmul;

/* float32 in device memory, with a stride in elements for each dimension: 0 where it is broadcast. Without
 * `data` it is `number` everywhere. */
typedef struct chip_operand {
  void* data;
  float number;
  int64_t strides[CHIP_MAX_DIMS];
} chip_operand;

/* "add": out = a + alpha * b; "mul": out = a * b; for each element of `shape`, the first dimension fastest */
typedef struct chip_pointwise {
  int64_t dims, shape[CHIP_MAX_DIMS];
  chip_operand out, a, b;
  float alpha;
} chip_pointwise;

/* Queues a program on `stream` and returns. `arguments`, of `size` bytes, are copied: they may be gone when
 * the program runs. What fails there is told by the call that waits for the stream. */
opsmith_status chip_launch(opsmith_stream stream, const char* program, const void* arguments, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* CHIP_H */

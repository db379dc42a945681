/* opsmith_collectives.h: what a driver exports beside opsmith_get_driver() if the vendor has a library of
 * collectives, so that torch.distributed goes by it. The rules of opsmith_driver.h hold here too.
 *
 * Calls are queued: they begin when what `stream` had pending is done, and return before they are done. All
 * ranks make the same calls in the same order, and none compares them. Addresses are of the communicator's
 * device; `in` may be `out`. What a rank that ends leaves pending at the others fails there, or waits until
 * they leave. Entries marked "optional" may be NULL: those collectives go by the host.
 */
#ifndef OPSMITH_COLLECTIVES_H
#define OPSMITH_COLLECTIVES_H

#include <opsmith_driver.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPSMITH_COLLECTIVES_ABI_VERSION 1u

/* A rank's part in a group, on one device. */
typedef struct opsmith_communicator_s* opsmith_communicator;

/* The id by which ranks find each other: made by one, and carried to the others by opsmith. */
typedef struct opsmith_group_id {
  uint8_t bytes[128];
} opsmith_group_id;

typedef enum opsmith_element {
  OPSMITH_FLOAT32 = 0,
  OPSMITH_FLOAT64 = 1,
  OPSMITH_FLOAT16 = 2,
  OPSMITH_BFLOAT16 = 3,
  OPSMITH_INT64 = 4,
  OPSMITH_INT32 = 5,
  OPSMITH_INT8 = 6,
  OPSMITH_UINT8 = 7
} opsmith_element;

typedef enum opsmith_reduction {
  OPSMITH_SUM = 0,
  OPSMITH_PRODUCT = 1,
  OPSMITH_MIN = 2,
  OPSMITH_MAX = 3
} opsmith_reduction;

typedef struct opsmith_collectives {
  uint32_t abi_version; /* OPSMITH_COLLECTIVES_ABI_VERSION of the header that it was built with */
  uint32_t struct_size; /* sizeof(opsmith_collectives), likewise */
  const char* name;     /* the library's, for errors */

  /* The message of this thread's last failed call; never NULL. */
  const char* (*last_error)(void);

  opsmith_status (*make_id)(opsmith_group_id* id);
  /* Returns when all `size` ranks have joined. */
  opsmith_status (*join)(const opsmith_group_id* id, int rank, int size, int device,
                         opsmith_communicator* communicator);
  /* Ends what the communicator has pending, done or not. Any thread may call it, while none is in another
   * call with the communicator. */
  void (*leave)(opsmith_communicator communicator);

  /* ---- optional ---- */
  opsmith_status (*all_reduce)(opsmith_communicator communicator, const void* in, void* out, size_t elements,
                               opsmith_element element, opsmith_reduction reduction, opsmith_stream stream);
  opsmith_status (*broadcast)(opsmith_communicator communicator, void* data, size_t bytes, int root,
                              opsmith_stream stream);
  /* `out` has the ranks' `bytes` one after the other. */
  opsmith_status (*all_gather)(opsmith_communicator communicator, const void* in, void* out, size_t bytes,
                               opsmith_stream stream);
  /* `in` has the `elements` of each rank one after the other. */
  opsmith_status (*reduce_scatter)(opsmith_communicator communicator, const void* in, void* out,
                                   size_t elements, opsmith_element element, opsmith_reduction reduction,
                                   opsmith_stream stream);
  /* `bytes` from each rank to each. */
  opsmith_status (*all_to_all)(opsmith_communicator communicator, const void* in, void* out, size_t bytes,
                               opsmith_stream stream);
} opsmith_collectives;

/* NULL from a driver's: the library is missing, and the driver's last_error() says so with the remedy. Ranks
 * that have it cannot go by the host with one that has not, so this is an error where a group is made. */
typedef const opsmith_collectives* (*opsmith_get_collectives_fn)(void);
#define OPSMITH_GET_COLLECTIVES_SYMBOL "opsmith_get_collectives"

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* OPSMITH_COLLECTIVES_H */

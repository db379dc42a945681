// The memory of a storage, exchanged for another size.
#pragma once

#include <c10/core/Storage.h>

namespace opsmith {

// Gives `storage` new memory of `bytes` on its device and keeps what fits of its contents, as
// UntypedStorage.resize_ and resize_ do.
void resize_storage(c10::StorageImpl* storage, size_t bytes);

}  // namespace opsmith

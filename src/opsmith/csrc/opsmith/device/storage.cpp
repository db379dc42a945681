// See storage.h.
#include <opsmith/device/storage.h>

#include <algorithm>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <opsmith/device/device_scope.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/device_work.h>

namespace opsmith {

void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  const c10::Device device = storage->device();
  TORCH_CHECK(
      storage->resizable(), "Trying to resize storage that is not resizable (", storage->nbytes(),
      " bytes on ", device,
      "): it does not own its memory, or shares it with another process. Copy it with .clone() first.");
  const size_t kept = std::min(bytes, storage->nbytes());
  const DeviceScope scope(device.index());
  c10::DataPtr memory = storage->allocator()->allocate(bytes);
  if (kept > 0) {
    const profile::StreamWork work("Memcpy DtoD", device.index(), profile::Kind::kCopy, kept);
    check(driver().copy(memory.get(), device.index(), storage->data(), device.index(), kept,
                        current_stream(device.index())),
          "copy a resized storage", device.index());
  }
  storage->set_data_ptr_noswap(std::move(memory));
  storage->set_nbytes(bytes);
}

}  // namespace opsmith

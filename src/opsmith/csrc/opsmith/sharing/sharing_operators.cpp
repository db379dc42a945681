// The operators of the `opsmith` namespace with which Python's reductions send and receive storages.
#include <string>
#include <tuple>

#include <torch/library.h>

#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>
#include <opsmith/device/waiting.h>
#include <opsmith/sharing/exports.h>
#include <opsmith/sharing/imports.h>

namespace opsmith {

namespace {

bool can_share_memory() {
  return driver().memory_export != nullptr;
}

void check_shareable(const at::Storage& storage) {
  if (is_imported(storage)) {
    synchronize_device(storage.device().index());
  } else {
    check_exportable(storage);
  }
}

std::tuple<std::string, int64_t> send_storage(const at::Storage& storage) {
  check_shareable(storage);
  const auto [address, memory] = is_imported(storage) ? forward_import(storage) : export_storage(storage);
  return {address, static_cast<int64_t>(memory)};
}

at::Storage receive_storage(const std::string& address, int64_t memory) {
  return import_storage(address, static_cast<uint64_t>(memory));
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("can_share_memory() -> bool", &can_share_memory);
  m.def("check_shareable(Storage storage) -> ()", &check_shareable);
  m.def("send_storage(Storage storage) -> (str address, int memory)", &send_storage);
  m.def("receive_storage(str address, int memory) -> Storage", &receive_storage);
  m.def("collect_shared_memory() -> ()", &flush_exports);
  m.def("stop_sharing() -> ()", &stop_exports);
}

}  // namespace

}  // namespace opsmith

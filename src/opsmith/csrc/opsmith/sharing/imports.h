// Memory of other processes that this one holds.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <c10/core/Storage.h>

namespace opsmith {

// The memory that export_storage() of some process announced in a message: of that process, or its own
// storage again if it was this one. Throws c10::Error, with a remedy, where it is gone, and what the driver
// says.
c10::Storage import_storage(const std::string& address, uint64_t memory);

bool is_imported(const c10::Storage& storage);

// Where another process finds memory that this one has imported, as export_storage(); one more message with
// it is under way.
std::pair<std::string, uint64_t> forward_import(const c10::Storage& storage);

}  // namespace opsmith

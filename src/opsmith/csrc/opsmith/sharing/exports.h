// Memory of this process that others hold, or are about to: kept alive, and answered for.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <c10/core/Storage.h>

namespace opsmith {

// Throws c10::Error, with a remedy, where the memory of `storage` cannot be given to another process, and
// what has failed in the work that was queued on its device, for which it waits.
void check_exportable(const c10::Storage& storage);

// Where another process finds the memory of `storage`: whom to ask, and for which number. From now on one
// message with it is under way; the memory is kept until that arrives and is given up, and cannot be resized
// meanwhile. Of what check_exportable() lets pass.
std::pair<std::string, uint64_t> export_storage(const c10::Storage& storage);

bool is_exported_here(const std::string& address);

// The storage that export_storage() named in a message to this process itself. Null if it is gone.
c10::Storage take_back(uint64_t memory);

// All that processes said or gave up before now has been heard.
void flush_exports();

// Nobody is answered any more. For the end of the process.
void stop_exports();

}  // namespace opsmith

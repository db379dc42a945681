// Opening a driver's library.
#pragma once

#include <string>

namespace opsmith {

// Opens the driver library at `path` and checks its ABI version. `use_host_window` false hides the driver's
// host window, so that everything works on copies (the description's `host_window: off`).
// Throws c10::Error with the reason and the remedy. Called once, before anything else of the device is used.
void load_driver(const std::string& path, bool use_host_window);

// Is called when a driver has been loaded. Registered when opsmith's library is.
using LoadObserver = void (*)();
void observe_load(LoadObserver observer);

}  // namespace opsmith

// Where the supported versions of PyTorch differ, and nowhere else.
#pragma once

#include <torch/headeronly/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 13
#error "opsmith supports torch 2.13 and later: pip install 'torch>=2.13,<2.14'"
#endif

// Selective build: which element types of which operators a kernel library is compiled for. Every dtype
// switch of a library asks here (see dtypes.h), so that what no program uses is never instantiated.
//
// Without a selection header everything is compiled. `opsmith executorch build --for` compiles with
// -DOPSMITH_SELECTION_HEADER="<generated>.h", which defines
//
//   namespace opsmith {
//   constexpr bool selected(const char* operator_name, executorch::aten::ScalarType dtype);
//   }
//
// true where a selected program calls the operator ("add.out": the manifest's name) with a Tensor argument of
// that dtype. An empty name asks for any operator at all.
#pragma once

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#ifdef OPSMITH_SELECTION_HEADER
#include OPSMITH_SELECTION_HEADER
#else
namespace opsmith {

constexpr bool selected(const char* /*operator_name*/, executorch::aten::ScalarType /*dtype*/) {
  return true;
}

}  // namespace opsmith
#endif

// See dense.h.
#include "dense.h"

#include <algorithm>

#include <c10/core/WrapDimMinimal.h>

namespace opsmith::compute {
namespace {

constexpr const char* kGroup =
#include "group.cl"
    ;

}  // namespace

Lines lines_of(const at::Tensor& tensor, int64_t dim) {
  const int64_t along = c10::maybe_wrap_dim(dim, tensor.dim());
  Lines lines;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    (d < along ? lines.outer : d == along ? lines.length : lines.inner) *= tensor.size(d);
  }
  return lines;
}

int64_t vector_width(int64_t step, std::initializer_list<at::Tensor> tensors) {
  constexpr int64_t kBytes = 16;
  if (limits().is_cpu != 0) {
    return 1;  // its compiler makes vectors of neighbouring work-items
  }
  int64_t largest = 2;
  bool aligned = true;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) {
      largest = std::max<int64_t>(largest, static_cast<int64_t>(tensor.element_size()));
      aligned = aligned && reinterpret_cast<int64_t>(tensor.const_data_ptr()) % kBytes == 0;
    }
  }
  const int64_t width = kBytes / largest;
  return aligned && step % width == 0 ? width : 1;
}

Runs line_runs(int64_t length, int64_t step, bool dense, std::initializer_list<at::Tensor> tensors) {
  constexpr int64_t kMostItems = 512, kWanted = 4, kMostKept = 8;
  if (limits().is_cpu != 0) {
    return {};
  }
  Runs runs{.width = dense ? vector_width(step, tensors) : 1, .items = 32};
  while (runs.items < kMostItems && runs.items * runs.width * kWanted < length) {
    runs.items *= 2;
  }
  const int64_t each = ceil_div(length, runs.items * runs.width);
  runs.kept = each <= kMostKept ? each : 0;
  return runs;
}

opsmith_compute_kernel group_kernel(const char* source, const std::string& definitions, const Runs& runs,
                                    at::ScalarType in, at::ScalarType computed, Grid& grid) {
  grid.items = {static_cast<size_t>(runs.items), 1, 1};
  const std::string how = definition("ITEMS_OF_GROUP", runs.items) + definition("WIDTH", runs.width) +
                          definition("RUN_BYTES", runs.width * static_cast<int64_t>(c10::elementSize(in))) +
                          (runs.kept > 0 ? definition("RUNS", runs.kept) : "") + definition("IN", in) +
                          definition("COMPUTE", computed);
  return kernel(source, how + definitions, kGroup);
}

at::ScalarType parameters_dtype(const at::Tensor& input, std::initializer_list<at::Tensor> parameters) {
  const at::ScalarType own = input.scalar_type();
  std::optional<at::ScalarType> dtype;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.defined()) {
      const at::ScalarType found = parameter.scalar_type();
      TORCH_CHECK(found == own || (at::isReducedFloatingType(own) && found == at::kFloat),
                  "mixed dtype: weight, bias and statistics of an input of ", own, " cannot be ", found);
      TORCH_CHECK(!dtype.has_value() || *dtype == found,
                  "weight, bias and statistics must have one dtype, but there are ", *dtype, " and ", found);
      dtype = found;
    }
  }
  return dtype.value_or(own);
}

}  // namespace opsmith::compute

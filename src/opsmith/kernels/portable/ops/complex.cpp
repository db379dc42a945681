// Complex numbers as pairs of real ones: conjugates, and copies of views of them.
#include <cstring>

#include "../complex_numbers.h"
#include "../movement.h"

namespace opsmith::portable::native {
namespace {

bool takes_complex(KernelRuntimeContext& context, const char* name, const Tensor& self) {
  return is_complex(self) || reject(context, Error::NotSupported, "\"%s\" not implemented for '%s'", name,
                                    name_of(self.scalar_type()));
}

using Floats = Types<Half, float, double>;

// The strides of both numbers of each element, in numbers.
Dims strides_of_parts(const Tensor& t) {
  Dims strides = strides_of(t);
  for (int64_t d = 0; d < strides.rank; ++d) {
    strides[d] *= 2;
  }
  return strides;
}

}  // namespace

Tensor& view_as_real_copy_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  if (!takes_complex(context, "view_as_real_copy.out", self)) {
    return out;
  }
  // ExecuTorch's converts the parts to other floats.
  const ScalarType part = part_of(self.scalar_type());
  OPSMITH_CHECK(context,
                out.scalar_type() == part || (in_executorch() && contains(Floats{}, out.scalar_type())),
                InvalidArgument, out, "out must have the dtype of self's parts, %s, but has %s",
                name_of(part), name_of(out.scalar_type()));
  OPSMITH_CHECK(context, self.dim() < kMaxDims, NotSupported, out,
                "view_as_real: at most %" PRId64 " dimensions", kMaxDims);
  Dims sizes = sizes_of(self);
  Dims strides = strides_of_parts(self);
  sizes.push_back(2);
  strides.push_back(1);
  if (resize(context, out, sizes)) {
    convert_strided(context, sizes, part, {static_cast<const char*>(self.const_data_ptr()), strides},
                    out.scalar_type(), destination_of(out));
  }
  return out;
}

// The conjugates, as they lie in memory: `out` is dense.
Tensor& conj_physical_out(KernelRuntimeContext& context, const Tensor& self, Tensor& out) {
  if (!takes_complex(context, "_conj_physical.out", self) || !same_dtype(context, self, out) ||
      !resize_like(context, out, self) || !one_dim_order(context, {&out, &self})) {
    return out;
  }
  const int64_t width = out.element_size();
  copy_strided(sizes_of(self), width, source_of(self), destination_of(out));
  // The sign is the highest bit of the second number: the last byte of the element, on every processor here.
  auto* const bytes = static_cast<unsigned char*>(out.mutable_data_ptr());
  for (int64_t i = 0; i < out.numel(); ++i) {
    bytes[(i + 1) * width - 1] ^= 0x80;
  }
  return out;
}

}  // namespace opsmith::portable::native

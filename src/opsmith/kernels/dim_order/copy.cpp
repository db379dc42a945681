// Copies to another dim order, and to another dtype on the way. Where the results lie, the program has
// decided: a dim order that is given is one that `out` must have.
#include <cstring>
#include <optional>

#include "../common/complex_dtypes.h"
#include "../common/resize.h"
#include "../common/strided_iteration.h"

namespace opsmith::dim_order::native {
namespace {

constexpr char kCopy[] = "dim_order_ops::_to_dim_order_copy.out";
constexpr int64_t kGrain = 8192;

using DimOrder = std::optional<ArrayRef<int64_t>>;

// Whether `out` lies as asked, or, where nothing is asked, as `like` does; rejects the call where not.
bool lies_so(KernelRuntimeContext& context, const DimOrder& asked, const Tensor* like, const Tensor& out) {
  if (!asked.has_value()) {
    return like == nullptr
               ? has_contiguous_order(out) || reject(context, Error::InvalidArgument,
                                                     "out has to be contiguous, as no dim order says "
                                                     "anything else")
               : one_layout(context, {&out, like});
  }
  bool is_that = asked->size() == out.dim_order().size();
  for (size_t i = 0; is_that && i < asked->size(); ++i) {
    is_that = (*asked)[i] == out.dim_order()[i];
  }
  return (is_that && (has_contiguous_order(out) || has_channels_last_order(out))) ||
         reject(context, Error::InvalidArgument,
                "out does not have the dim order that is asked for, which is contiguous or channels-last");
}

// Elements `step` apart in memory: the parts of complex numbers are 2.
template <class From, class To>
void convert(const From* from, int64_t from_step, To* to, int64_t to_step, const Tensor& self,
             const Tensor& out) {
  auto all = strided_over(out, self);
  for (size_t d = 0; d < all.rank(); ++d) {
    all[d].stride = {all[d].stride[0] * to_step, all[d].stride[1] * from_step};
  }
  const auto line = all.innermost();
  const auto next = all.innermost(1);
  for_each_row_in_threads<2>(all, kGrain, [&](const auto& at, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; ++row) {
      To* const t = to + at[0] + row * next.stride[0];
      const From* const f = from + at[1] + row * next.stride[1];
      if (line.stride[0] == 1 && line.stride[1] == 1) {
        for (int64_t i = 0; i < n; ++i) {
          t[i] = convert_value<To>(load_element(f + i));
        }
      } else {
        for (int64_t i = 0; i < n; ++i) {
          t[i * line.stride[0]] = convert_value<To>(load_element(f + i * line.stride[1]));
        }
      }
    }
  });
}

Tensor& copy(KernelRuntimeContext& context, const Tensor& self, bool non_blocking, const DimOrder& dim_order,
             Tensor& out) {
  OPSMITH_CHECK(context, !non_blocking || !in_executorch(), InvalidArgument, out,
                "only blocking copies are supported");
  if (!resize_like(context, out, self) || !lies_so(context, dim_order, &self, out) || out.numel() == 0) {
    return out;
  }
  if (self.scalar_type() == out.scalar_type() && same_layout(self, out)) {
    std::memcpy(out.mutable_data_ptr(), self.const_data_ptr(), self.nbytes());
    return out;
  }
  // A real number has no imaginary part, and of a complex one it gets the real part.
  if (is_complex(out) && !is_complex(self)) {
    std::memset(out.mutable_data_ptr(), 0, out.nbytes());
  }
  const auto converted = [](const Tensor& t) {
    return is_complex(t) ? part_of(t.scalar_type()) : t.scalar_type();
  };
  const auto step = [](const Tensor& t) { return is_complex(t) ? 2 : 1; };
  const int parts = is_complex(out) && is_complex(self) ? 2 : 1;
  with_dtype<kCopy>(context, RealB{}, converted(self), [&](auto from) {
    with_dtype<kCopy>(context, RealB{}, converted(out), [&](auto to) {
      for (int part = 0; part < parts; ++part) {
        convert(static_cast<const typename decltype(from)::type*>(self.const_data_ptr()) + part, step(self),
                static_cast<typename decltype(to)::type*>(out.mutable_data_ptr()) + part, step(out), self,
                out);
      }
    });
  });
  return out;
}

}  // namespace

Tensor& to_dim_order_copy_out(KernelRuntimeContext& context, const Tensor& self, bool non_blocking,
                              DimOrder dim_order, Tensor& out) {
  return copy(context, self, non_blocking, dim_order, out);
}

Tensor& clone_dim_order_out(KernelRuntimeContext& context, const Tensor& self, bool non_blocking,
                            DimOrder dim_order, Tensor& out) {
  return same_dtype(context, self, out) ? copy(context, self, non_blocking, dim_order, out) : out;
}

Tensor& empty_dim_order_out(KernelRuntimeContext& context, ArrayRef<int64_t> size, DimOrder dim_order,
                            Tensor& out) {
  Dims sizes;
  OPSMITH_CHECK(context, static_cast<int64_t>(size.size()) <= kMaxDims, NotSupported, out,
                "at most %" PRId64 " dimensions are supported, not %zu", kMaxDims, size.size());
  for (const int64_t each : size) {
    OPSMITH_CHECK(context, each >= 0, InvalidArgument, out,
                  "Trying to create tensor with negative dimension %" PRId64, each);
    sizes.push_back(each);
  }
  if (resize(context, out, sizes)) {
    lies_so(context, dim_order, nullptr, out);
  }
  return out;
}

}  // namespace opsmith::dim_order::native

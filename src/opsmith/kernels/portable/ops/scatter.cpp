// gather, scatter and their reductions. Lines along `dim` are independent of one another, so threads share
// them; within a line, duplicates are taken in order.
#include <cmath>
#include <limits>
#include <string_view>

#include "../../common/temporary.h"
#include "../index_values.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

// Everything that reads `index` along a dimension: its line and those of two tensors beside it.
struct Lines {
  Dims places;  // of the lines: the sizes of index, 1 along dim
  int64_t dim;
  int64_t length;
  Dims index;
  Dims of_whole;  // strides of the tensor that is indexed
  Dims beside;    // strides of the tensor that has index's places
};

// Strides of a tensor without dimensions are those of one with a single element.
Dims padded(Dims dims, int64_t value) {
  if (dims.rank == 0) {
    dims.push_back(value);
  }
  return dims;
}

Lines lines_of(int64_t dim, const Tensor& index, const Dims& whole, const Dims& beside) {
  Lines lines{padded(sizes_of(index), 1), dim, 0, padded(strides_of(index), 1), padded(whole, 1),
              padded(beside, 1)};
  lines.length = lines.places[dim];
  lines.places[dim] = lines.length == 0 ? 0 : 1;
  return lines;
}

void for_each_line(const Lines& lines, FunctionRef<void(const Dims&)> f) {
  for_each_place(lines.places, kGrain / std::max<int64_t>(1, lines.length), f);
}

// `index` lies within `whole` in every dimension but `dim` and, where there is one, within `src` in all.
bool indexable(KernelRuntimeContext& context, const char* name, const Tensor& whole, int64_t dim,
               const Tensor& index, const Tensor* src) {
  if (!Indices::accepts(context, name, index)) {
    return false;
  }
  if (index.numel() == 0) {
    return true;
  }
  const Dims sizes = padded(sizes_of(whole), 1);
  const Dims places = padded(sizes_of(index), 1);
  OPSMITH_CHECK(context, sizes.rank == places.rank, InvalidArgument, false,
                "Index tensor must have the same number of dimensions as self tensor");
  for (int64_t d = 0; d < places.rank; ++d) {
    OPSMITH_CHECK(context, d == dim || places[d] <= sizes[d], InvalidArgument, false,
                  "Size does not match at dimension %" PRId64 " expected index (%" PRId64
                  ") to be no larger than self (%" PRId64 ") apart from dimension %" PRId64,
                  d, places[d], sizes[d], dim);
  }
  if (src != nullptr) {
    const Dims given = padded(sizes_of(*src), 1);
    OPSMITH_CHECK(context, given.rank == places.rank, InvalidArgument, false,
                  "Index tensor must have the same number of dimensions as src tensor");
    for (int64_t d = 0; d < places.rank; ++d) {
      OPSMITH_CHECK(context, places[d] <= given[d], InvalidArgument, false,
                    "Expected index (%" PRId64 ") to be no larger than src (%" PRId64
                    ") at dimension %" PRId64,
                    places[d], given[d], d);
    }
  }
  return true;
}

// Each index's element of `self`, in the order in which the indices lie in memory.
template <class U, class Index>
void gather(const Tensor& self, int64_t dim, const Tensor& index, IndexCheck& check, Tensor& out) {
  const U* const from = static_cast<const U*>(self.const_data_ptr());
  const Index* const indices = static_cast<const Index*>(index.const_data_ptr());
  U* const to = static_cast<U*>(out.mutable_data_ptr());
  const Dims whole = padded(strides_of(self), 1);
  // Along `dim` the index says where in self an element is.
  Dims beside = whole;
  beside[dim] = 0;
  const int64_t step = whole[dim], size = self.dim() == 0 ? 1 : self.sizes()[dim];
  if (size == 0) {
    check.checked(indices[0]);
    return;
  }
  const auto all = strided(0, padded(sizes_of(index), 1), padded(strides_of(index), 1),
                           padded(strides_of(out), 1), beside);
  const auto line = all.innermost();
  const auto next = all.innermost(1);
  const bool is_dense = line.stride == StridedIterator<3>::Offsets{1, 1, 0};
  for_each_row_in_threads<3>(all, kGrain, [&](const auto& at, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; ++row) {
      const Index* const places = indices + at[0] + row * next.stride[0];
      U* const destination = to + at[1] + row * next.stride[1];
      const U* const source = from + at[2] + row * next.stride[2];
      bool wrong = false;
      const auto move = [&](int64_t place, int64_t to_at, int64_t from_at) {
        const bool is_wrong = static_cast<uint64_t>(place) >= static_cast<uint64_t>(size);
        wrong |= is_wrong;
        destination[to_at] = source[from_at + (is_wrong ? 0 : place) * step];
      };
      if (is_dense) {
        for (int64_t i = 0; i < n; ++i) {
          move(places[i], i, 0);
        }
      } else {
        for (int64_t i = 0; i < n; ++i) {
          move(places[i * line.stride[0]], i * line.stride[1], i * line.stride[2]);
        }
      }
      for (int64_t i = 0; wrong && i < n; ++i) {
        check.checked(places[i * line.stride[0]]);
      }
    }
  });
}

enum class Reduction { kAssign, kSum, kProduct, kMean, kMax, kMin };

// The copy of self into which elements are scattered, and where they come from: a tensor, or one element.
struct Scattered {
  const Tensor& self;
  int64_t dim;
  const Tensor& index;
  const Tensor* src;
  const void* value;
  Tensor& out;
};

// self, dim and index as every operator of this file takes them. -1 with the call rejected.
int64_t begin_scatter(KernelRuntimeContext& context, const char* name, const Tensor& self, int64_t dim,
                      const Tensor& index, const Tensor* src, Tensor& out) {
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return d;
  }
  OPSMITH_CHECK(context, src == nullptr || src->scalar_type() == self.scalar_type(), InvalidArgument, -1,
                "%s(): Expected self.dtype to be equal to src.dtype", name);
  OPSMITH_CHECK(context, out.scalar_type() == self.scalar_type(), InvalidArgument, -1,
                "%s(): Expected self.dtype to be equal to out.dtype", name);
  if (!indexable(context, name, self, d, index, src) || !resize(context, out, sizes_of(self))) {
    return -1;
  }
  copy_elements(context, self, out);
  return d;
}

Lines lines_of(const Scattered& call) {
  Dims beside = strides_of(call.index);
  if (call.src != nullptr) {
    beside = strides_of(*call.src);
  } else {
    for (int64_t i = 0; i < beside.rank; ++i) {
      beside[i] = 0;
    }
  }
  return lines_of(call.dim, call.index, strides_of(call.out), beside);
}

// The indices of one line: where the line begins in out and in src, and how to go on.
struct Line {
  const Indices& indices;
  IndexCheck& check;
  int64_t length;
  int64_t index;
  int64_t index_step;
  int64_t out;
  int64_t out_step;
  int64_t src;
  int64_t src_step;

  // f(offset in out, offset in src) for each index, in order.
  template <class F>
  void for_each(const F& f) const {
    for (int64_t i = 0; i < length; ++i) {
      const int64_t place = check.checked(indices.at(index + i * index_step));
      if (check.found_wrong()) {
        return;
      }
      f(out + place * out_step, src + i * src_step);
    }
  }
};

// f(line) for every line of the index. False with the call rejected, where an index is out of range.
bool for_each_line(KernelRuntimeContext& context, const Scattered& call, FunctionRef<void(const Line&)> f) {
  const Lines lines = lines_of(call);
  const int64_t d = call.dim;
  const Indices indices(call.index);
  IndexCheck check(call.out.dim() == 0 ? 1 : call.out.sizes()[d]);
  for_each_line(lines, [&](const Dims& at) {
    f({indices, check, lines.length, offset_of(at, lines.index), lines.index[d],
       offset_of(at, lines.of_whole), lines.of_whole[d], offset_of(at, lines.beside), lines.beside[d]});
  });
  return check.passed(context, d, Error::InvalidArgument);
}

void assign(KernelRuntimeContext& context, const Scattered& call) {
  with_width(call.out.element_size(), [&](auto element) {
    using U = decltype(element);
    const U* const from =
        static_cast<const U*>(call.src != nullptr ? call.src->const_data_ptr() : call.value);
    U* const to = static_cast<U*>(call.out.mutable_data_ptr());
    for_each_line(context, call,
                  [=](const Line& line) { line.for_each([=](int64_t o, int64_t s) { to[o] = from[s]; }); });
  });
}

template <class C>
C reduced(Reduction reduction, C a, C b) {
  if constexpr (std::is_same_v<C, bool>) {
    const bool meets = reduction == Reduction::kProduct || reduction == Reduction::kMin;
    return meets ? a && b : a || b;
  } else {
    switch (reduction) {
      case Reduction::kProduct:
        return static_cast<C>(a * b);
      case Reduction::kMax:
        return b > a || b != b ? b : a;
      case Reduction::kMin:
        return b < a || b != b ? b : a;
      default:
        return static_cast<C>(a + b);
    }
  }
}

template <class C>
C identity_of(Reduction reduction) {
  using Limits = std::numeric_limits<C>;
  switch (reduction) {
    case Reduction::kProduct:
      return C(1);
    case Reduction::kMax:
      return Limits::has_infinity ? static_cast<C>(-Limits::infinity()) : Limits::lowest();
    case Reduction::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    default:
      return C(0);
  }
}

// The quotient that a mean rounds integers with: towards minus infinity.
template <class C>
C mean_of(C sum, int64_t count) {
  if constexpr (std::is_same_v<C, bool>) {
    return sum;
  } else if constexpr (std::is_integral_v<C>) {
    const int64_t quotient = static_cast<int64_t>(sum) / count;
    const bool down = static_cast<int64_t>(sum) % count != 0 && sum < C(0);
    return static_cast<C>(quotient - (down ? 1 : 0));
  } else {
    return sum / static_cast<C>(count);
  }
}

// Reduces into `to`, which has an element of type A for each one of out.
template <class T, class A>
[[gnu::noinline]] void reduce_into(KernelRuntimeContext& context, const Scattered& call, Reduction reduction,
                                   bool include_self, A* to) {
  using C = compute_t<T>;
  const T* const from = static_cast<const T*>(call.src != nullptr ? call.src->const_data_ptr() : call.value);
  if (!include_self) {
    const C identity = identity_of<C>(reduction);
    const bool passed = for_each_line(context, call, [=](const Line& line) {
      line.for_each([=](int64_t o, int64_t) { store_element(to + o, identity); });
    });
    if (!passed) {
      return;
    }
  }
  Temporary<int32_t> memory;
  if (reduction == Reduction::kMean) {
    memory = temporary<int32_t>(context, call.out.numel());
    if (memory == nullptr) {
      return;
    }
    std::fill_n(memory.get(), call.out.numel(), include_self ? 1 : 0);
  }
  int32_t* const counts = memory;
  for_each_line(context, call, [=](const Line& line) {
    line.for_each([=](int64_t o, int64_t s) {
      store_element(to + o, reduced<C>(reduction, load_element(to + o), load_element(from + s)));
      if (counts != nullptr) {
        ++counts[o];
      }
    });
  });
  for (int64_t i = 0; counts != nullptr && i < call.out.numel(); ++i) {  // out is dense
    if (counts[i] > 1) {
      store_element(to + i, mean_of<C>(load_element(to + i), counts[i]));
    }
  }
}

// As ATen does: scatter_reduce (`rounded_once`) adds Half and BFloat16 up in float, scatter and scatter_add
// round every sum.
template <class T>
void reduce(KernelRuntimeContext& context, const Scattered& call, Reduction reduction, bool include_self,
            bool rounded_once) {
  using C = compute_t<T>;
  T* const out = static_cast<T*>(call.out.mutable_data_ptr());
  if (std::is_same_v<T, C> || !rounded_once) {
    reduce_into<T, T>(context, call, reduction, include_self, out);
    return;
  }
  const int64_t count = call.out.numel();
  const auto totals = temporary<C>(context, count);
  if (totals == nullptr) {
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    totals[i] = load_element(out + i);
  }
  reduce_into<T, C>(context, call, reduction, include_self, totals);
  for (int64_t i = 0; i < count; ++i) {
    store_element(out + i, totals[i]);
  }
}

template <const char* Name>
void reduce_by_dtype(KernelRuntimeContext& context, const Scattered& call, Reduction reduction,
                     bool include_self, bool rounded_once = false) {
  with_dtype<Name>(context, RealB{}, call.out.scalar_type(), [&](auto type) {
    reduce<typename decltype(type)::type>(context, call, reduction, include_self, rounded_once);
  });
}

constexpr char kScatterReduce[] = "scatter.reduce_out";
constexpr char kScatterValueReduce[] = "scatter.value_reduce_out";
constexpr char kScatterAdd[] = "scatter_add.out";
constexpr char kScatterReduceTwo[] = "scatter_reduce.two_out";

// The reduction that scatter's `reduce` names.
bool reduction_of(KernelRuntimeContext& context, std::string_view reduce, Reduction& reduction) {
  OPSMITH_CHECK(context, reduce == "add" || reduce == "multiply", InvalidArgument, false,
                "reduce argument must be either add or multiply.");
  reduction = reduce == "add" ? Reduction::kSum : Reduction::kProduct;
  return true;
}

}  // namespace

namespace native {

Tensor& gather_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, const Tensor& index, bool,
                   Tensor& out) {
  const int64_t d = wrap_dim(context, dim, self.dim());
  if (d < 0) {
    return out;
  }
  OPSMITH_CHECK(context, out.scalar_type() == self.scalar_type(), InvalidArgument, out,
                "gather(): Expected self.dtype to be equal to out.dtype");
  if (!indexable(context, "gather", self, d, index, nullptr) || !resize(context, out, sizes_of(index)) ||
      out.numel() == 0) {
    return out;
  }
  IndexCheck check(self.dim() == 0 ? 1 : self.sizes()[d]);
  with_width(self.element_size(), [&](auto element) {
    using U = decltype(element);
    if (index.scalar_type() == ScalarType::Int) {
      gather<U, int32_t>(self, d, index, check, out);
    } else {
      gather<U, int64_t>(self, d, index, check, out);
    }
  });
  check.passed(context, d, Error::InvalidArgument);
  return out;
}

Tensor& scatter_src_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, const Tensor& index,
                        const Tensor& src, Tensor& out) {
  const int64_t d = begin_scatter(context, "scatter", self, dim, index, &src, out);
  if (d >= 0) {
    assign(context, {self, d, index, &src, nullptr, out});
  }
  return out;
}

Tensor& scatter_value_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, const Tensor& index,
                          const Scalar& value, Tensor& out) {
  Bytes16 element{};  // which ATen does not look at where no index is given
  const int64_t d = begin_scatter(context, "scatter", self, dim, index, nullptr, out);
  if (d >= 0 && (index.numel() == 0 || element_of(context, value, out.scalar_type(), element))) {
    assign(context, {self, d, index, nullptr, &element, out});
  }
  return out;
}

Tensor& scatter_reduce_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                           const Tensor& index, const Tensor& src, std::string_view reduce, Tensor& out) {
  Reduction reduction;
  const int64_t d = begin_scatter(context, "scatter", self, dim, index, &src, out);
  if (d >= 0 && reduction_of(context, reduce, reduction)) {
    reduce_by_dtype<kScatterReduce>(context, {self, d, index, &src, nullptr, out}, reduction, true);
  }
  return out;
}

Tensor& scatter_value_reduce_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                                 const Tensor& index, const Scalar& value, std::string_view reduce,
                                 Tensor& out) {
  Reduction reduction;
  Bytes16 element;
  const int64_t d = begin_scatter(context, "scatter", self, dim, index, nullptr, out);
  if (d >= 0 && reduction_of(context, reduce, reduction) &&
      element_of(context, value, out.scalar_type(), element)) {
    reduce_by_dtype<kScatterValueReduce>(context, {self, d, index, nullptr, &element, out}, reduction, true);
  }
  return out;
}

Tensor& scatter_add_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim, const Tensor& index,
                        const Tensor& src, Tensor& out) {
  const int64_t d = begin_scatter(context, "scatter_add", self, dim, index, &src, out);
  if (d >= 0) {
    reduce_by_dtype<kScatterAdd>(context, {self, d, index, &src, nullptr, out}, Reduction::kSum, true);
  }
  return out;
}

Tensor& scatter_reduce_two_out(KernelRuntimeContext& context, const Tensor& self, int64_t dim,
                               const Tensor& index, const Tensor& src, std::string_view reduce,
                               bool include_self, Tensor& out) {
  constexpr struct {
    std::string_view name;
    Reduction reduction;
  } kReductions[] = {{"sum", Reduction::kSum},
                     {"prod", Reduction::kProduct},
                     {"mean", Reduction::kMean},
                     {"amax", Reduction::kMax},
                     {"amin", Reduction::kMin}};
  for (const auto& each : kReductions) {
    if (each.name == reduce) {
      const int64_t d = begin_scatter(context, "scatter_reduce", self, dim, index, &src, out);
      if (d >= 0) {
        reduce_by_dtype<kScatterReduceTwo>(context, {self, d, index, &src, nullptr, out}, each.reduction,
                                           include_self, true);
      }
      return out;
    }
  }
  reject(context, Error::InvalidArgument,
         "reduce argument must be either sum, prod, mean, amax or amin, got %.*s",
         static_cast<int>(reduce.size()), reduce.data());
  return out;
}

}  // namespace native
}  // namespace opsmith::portable

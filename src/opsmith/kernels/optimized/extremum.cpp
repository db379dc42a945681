// The largest and smallest elements over any dimensions of a dense tensor, and where they stand. NaN counts
// as larger and as smaller than any number; of several that are equal, the first is taken.
#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "../common/extremum.h"
#include "by_dtype.h"
#include "dense_reduction.h"
#include "elements.h"
#include "extremum_operands.h"
#include "statistics_functions.h"

namespace opsmith::optimized {
namespace {

// Of one order, for each dtype.
struct Functions {
  bool is_largest;
  ByDtype<ExtremumEach> each;
  ByDtype<ExtremumOfColumns> of_columns;
  ByDtype<PlacesOfColumns> places;
  ByDtype<FirstPlace> first_place;

  float start() const {
    return is_largest ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  }
};

template <const char* Operator, bool kIsLargest>
Functions functions_of() {
  Functions functions{kIsLargest, {}, {}, {}, {}};
  if constexpr (kIsLargest) {
    OPSMITH_SET_FUNCTIONS(functions.each, Operator, largest_each)
    OPSMITH_SET_FUNCTIONS(functions.of_columns, Operator, largest_of_columns)
    OPSMITH_SET_FUNCTIONS(functions.places, Operator, largest_places)
  } else {
    OPSMITH_SET_FUNCTIONS(functions.each, Operator, smallest_each)
    OPSMITH_SET_FUNCTIONS(functions.of_columns, Operator, smallest_of_columns)
    OPSMITH_SET_FUNCTIONS(functions.places, Operator, smallest_places)
  }
  OPSMITH_SET_FUNCTIONS(functions.first_place, Operator, first_place)
  return functions;
}

// Whether a value takes the place of one that was met before it.
bool beats(bool is_largest, float challenger, float held) {
  return (is_largest ? challenger > held : challenger < held) ||
         (challenger != challenger && held == held);  // NOLINT: NaN
}

template <class T>
struct Extremum {
  using State = float;

  State start() const { return functions.start(); }
  void add_runs(const T* x, int64_t rows, int64_t stride, int64_t n, int64_t, State* states) const {
    functions.each.of(T{})(x, rows, stride, n, states);
  }
  void add_columns(const T* x, int64_t rows, int64_t stride, int64_t columns, int64_t, State* states) const {
    functions.of_columns.of(T{})(x, rows, stride, columns, states);
  }
  void merge(State& state, const State& later) const {
    state = beats(functions.is_largest, later, state) ? later : state;
  }
  void put(int64_t offset, int64_t stride, const State* states, int64_t n) const {
    T* const to = static_cast<T*>(out->mutable_data_ptr()) + offset;
    if (stride == 1) {
      narrow(states, to, n);
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      narrow(states + i, to + i * stride, 1);
    }
  }

  const Functions& functions;
  Tensor* out;
};

struct Found {
  float value;
  int64_t place;  // -1: no element was met
};

// Along one dimension, or of all elements in order.
template <class T>
struct Place {
  using State = Found;

  State start() const { return {0.0f, -1}; }
  void add_runs(const T* x, int64_t rows, int64_t stride, int64_t n, int64_t first, State* states) const {
    // A run's best part is in the caches when its element is looked for.
    constexpr int64_t kPart = 4096;
    for (int64_t row = 0; row < rows; ++row) {
      const T* const run = x + row * stride;
      float best = 0.0f;
      int64_t at = -1;
      for (int64_t i = 0; i < n; i += kPart) {
        float own = functions.start();
        functions.each.of(T{})(run + i, 1, 0, std::min(kPart, n - i), &own);
        if (at < 0 || beats(functions.is_largest, own, best)) {
          best = own;
          at = i;
        }
      }
      const int64_t place = at + functions.first_place.of(T{})(run + at, std::min(kPart, n - at), best);
      merge(states[row], {best, first + place});
    }
  }
  void add_columns(const T* x, int64_t rows, int64_t stride, int64_t columns, int64_t first,
                   State* states) const {
    constexpr int64_t kColumns = 256, kRows = 1 << 20;
    float best[kColumns];
    int32_t places[kColumns];
    for (int64_t column = 0; column < columns; column += kColumns) {
      const int64_t together = std::min(kColumns, columns - column);
      for (int64_t row = 0; row < rows; row += kRows) {
        functions.places.of(T{})(x + row * stride + column, std::min(kRows, rows - row), stride, together,
                                 best, places);
        for (int64_t k = 0; k < together; ++k) {
          merge(states[column + k], {best[k], first + row + places[k]});
        }
      }
    }
  }
  void merge(State& state, const State& later) const {
    if (state.place < 0 || (later.place >= 0 && beats(functions.is_largest, later.value, state.value))) {
      state = later;
    }
  }
  void put(int64_t offset, int64_t stride, const State* states, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) {
      places->template mutable_data_ptr<int64_t>()[offset + i * stride] = states[i].place;
      if (values != nullptr) {
        narrow(&states[i].value, static_cast<T*>(values->mutable_data_ptr()) + offset + i * stride, 1);
      }
    }
  }

  const Functions& functions;
  Tensor* values;  // null where nobody asks for them; they lie as `places` do
  Tensor* places;
};

bool is_float(KernelRuntimeContext& context, const char* name, const Functions& functions,
              const Tensor& self) {
  return functions.each.has(self.scalar_type()) ||
         reject(context, Error::NotSupported, "%s takes " OPSMITH_TAKEN " only", name);
}

void reduce(KernelRuntimeContext& context, const Functions& functions, const Tensor& self, DimSet dims,
            bool keepdim, Tensor& out) {
  if (self.numel() == 0) {
    return;
  }
  const ReductionParts parts = parts_of(reduction_layout(self, out, dims, keepdim));
  with_element(self.scalar_type(), [&](auto element) {
    using T = decltype(element);
    reduce_dense(context, Extremum<T>{functions, &out}, static_cast<const T*>(self.const_data_ptr()), parts);
  });
}

template <const char* Operator, bool kIsLargest>
Tensor& extremum(KernelRuntimeContext& context, const char* name, const Tensor& self, IntList dim,
                 bool keepdim, Tensor& out) {
  const Functions functions = functions_of<Operator, kIsLargest>();
  DimSet dims = 0;
  if (is_float(context, name, functions, self) && same_dtype(context, self, out) &&
      reduced_dims(context, self, dim, dims) && resize_to_reduced(context, out, self, dims, keepdim) &&
      has_extremum(context, name, self, dims, out)) {
    reduce(context, functions, self, dims, keepdim, out);
  }
  return out;
}

// In ExecuTorch the largest of no element is what is smaller than any, and not an error.
template <const char* Operator, bool kIsLargest>
Tensor& extremum_of_all(KernelRuntimeContext& context, const char* name, const Tensor& self, Tensor& out) {
  const Functions functions = functions_of<Operator, kIsLargest>();
  if (!is_float(context, name, functions, self) || !same_dtype(context, self, out) ||
      !resize(context, out, {}) ||
      (!in_executorch() && !has_extremum(context, name, self, every_dim(self), out))) {
    return out;
  }
  if (self.numel() == 0) {
    put_element(functions.start(), out, 0);
  }
  reduce(context, functions, self, every_dim(self), false, out);
  return out;
}

// The places of all elements in the order of their dimensions.
template <class T>
void place_of_all(KernelRuntimeContext& context, const Functions& functions, const Tensor& self,
                  Tensor& out) {
  const T* x = static_cast<const T*>(self.const_data_ptr());
  const Dims sizes = sizes_of(self);
  const bool in_order = is_contiguous(self);
  const auto copy = temporary<T>(context, in_order ? 1 : self.numel());
  if (copy.get() == nullptr) {
    return;
  }
  if (!in_order) {
    T* const to = copy.get();
    const auto all = strided(1, sizes, strides_of(self), contiguous_strides(sizes));
    for_each_row_in_threads<2>(all, kGrain, [&](const auto& at, int64_t rows, int64_t n) {
      const auto line = all.innermost(), next = all.innermost(1);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < n; ++i) {
          to[at[1] + row * next.stride[1] + i * line.stride[1]] =
              x[at[0] + row * next.stride[0] + i * line.stride[0]];
        }
      }
    });
    x = to;
  }
  ReductionParts parts;
  parts.inner = {self.numel(), {1, 0}};
  reduce_dense(context, Place<T>{functions, nullptr, &out}, x, parts);
}

template <const char* Operator, bool kIsLargest>
Tensor& place(KernelRuntimeContext& context, const char* name, const Tensor& self, std::optional<int64_t> dim,
              bool keepdim, Tensor& out) {
  const Functions functions = functions_of<Operator, kIsLargest>();
  const OptionalArrayRef<int64_t> given =
      dim.has_value() ? OptionalArrayRef<int64_t>(IntList(*dim)) : std::nullopt;
  DimSet dims = 0;
  if (!is_float(context, name, functions, self) ||
      !(out.scalar_type() == ScalarType::Long ||
        reject(context, Error::InvalidArgument, "%s: out must have the dtype Long", name)) ||
      !reduced_dims(context, self, given, dims) || !resize_to_reduced(context, out, self, dims, keepdim) ||
      !has_extremum(context, name, self, dims, out) || self.numel() == 0) {
    return out;
  }
  with_element(self.scalar_type(), [&](auto element) {
    using T = decltype(element);
    if (!dim.has_value()) {
      place_of_all<T>(context, functions, self, out);
      return;
    }
    reduce_dense(context, Place<T>{functions, nullptr, &out}, static_cast<const T*>(self.const_data_ptr()),
                 parts_of(reduction_layout(self, out, dims, keepdim)));
  });
  return out;
}

template <const char* Operator, bool kIsLargest>
std::tuple<Tensor&, Tensor&> value_and_place(KernelRuntimeContext& context, const char* name,
                                             const Tensor& self, int64_t dim, bool keepdim, Tensor& value,
                                             Tensor& index) {
  std::tuple<Tensor&, Tensor&> results(value, index);
  const Functions functions = functions_of<Operator, kIsLargest>();
  DimSet dims = 0;
  if (!is_float(context, name, functions, self) || !same_dtype(context, self, value) ||
      !(index.scalar_type() == ScalarType::Long ||
        reject(context, Error::InvalidArgument, "%s: indices must have the dtype Long", name)) ||
      !reduced_dim(context, self, dim, dims) || !have_one_shape(context, value, index) ||
      !resize_to_reduced(context, value, self, dims, keepdim) ||
      !resize_to_reduced(context, index, self, dims, keepdim) ||
      !has_extremum(context, name, self, dims, value) || self.numel() == 0) {
    return results;
  }
  OPSMITH_CHECK(context, same_layout(value, index), InvalidArgument, results,
                "%s: both results have to lie alike", name);
  with_element(self.scalar_type(), [&](auto element) {
    using T = decltype(element);
    reduce_dense(context, Place<T>{functions, &value, &index}, static_cast<const T*>(self.const_data_ptr()),
                 parts_of(reduction_layout(self, index, dims, keepdim)));
  });
  return results;
}

}  // namespace

namespace native {

OPSMITH_EXTREMUM_OPERATORS(max, Max, true)
OPSMITH_EXTREMUM_OPERATORS(min, Min, false)

}  // namespace native
}  // namespace opsmith::optimized

// Reductions. Each is a rule in C for what is kept of the elements; reduction.cl applies it.
#include <opsmith/reduction.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include <ATen/ops/empty.h>

#include "../meta/warnings.h"
#include "dense.h"
#include "launch.h"
#include "numbers.h"

namespace opsmith::compute {
namespace {

constexpr const char* kReduction =
#include "reduction.cl"
    ;
constexpr const char* kScan =
#include "scan.cl"
    ;
constexpr int64_t kStateBytes = 32;  // of the largest State, in doubles

// A reduction by the state that it keeps; see reduction.cl. In STEP the element is `e`, its position `i`.
struct Rule {
  const char* state;
  const char* start;
  const char* step;
  const char* merge;
  const char* result;
  const char* second_result = nullptr;
  bool ordered = false;  // positions have a meaning
};

constexpr Rule kSum{"C v;", "(s).v = 0", "(s).v += (e)", "(s).v += (o).v", "(s).v"};
constexpr Rule kMean{"C v;", "(s).v = 0", "(s).v += (e)", "(s).v += (o).v", "(s).v / (C)length"};
constexpr Rule kProduct{"C v;", "(s).v = 1", "(s).v *= (e)", "(s).v *= (o).v", "(s).v"};
constexpr Rule kAny{"int v;", "(s).v = 0", "(s).v |= (e) != 0", "(s).v |= (o).v", "(s).v"};
constexpr Rule kAll{"int v;", "(s).v = 1", "(s).v &= (e) != 0", "(s).v &= (o).v", "(s).v"};
// Welford's, and Chan's for two sets.
constexpr Rule kVariance{
    "C mean; C m2; C n;",
    "(s).mean = 0; (s).m2 = 0; (s).n = 0",
    "{ (s).n += 1; const C d = (e) - (s).mean; (s).mean += d / (s).n; (s).m2 += d * ((e) - (s).mean); }",
    "if ((o).n > 0) { const C d = (o).mean - (s).mean; const C n = (s).n + (o).n; (s).mean += d * (o).n / n; "
    "(s).m2 += (o).m2 + d * d * (s).n * (o).n / n; (s).n = n; }",
    "(s).m2 / fmax((C)0, (s).n - x) / ((s).n > 0)",
    "(s).mean / ((s).n > 0)"};
constexpr Rule kNorm2{"C v;", "(s).v = 0", "(s).v += (e) * (e)", "(s).v += (o).v", "sqrt((s).v)"};
constexpr Rule kNorm1{"C v;", "(s).v = 0", "(s).v += fabs(e)", "(s).v += (o).v", "(s).v"};
constexpr Rule kNorm0{"C v;", "(s).v = 0", "(s).v += (e) != 0", "(s).v += (o).v", "(s).v"};
constexpr Rule kNormP{"C v;", "(s).v = 0", "(s).v += pow(fabs(e), x)", "(s).v += (o).v", "pow((s).v, 1 / x)"};
// NaN wins.
constexpr Rule kNormMax{"C v;", "(s).v = 0", "if (fabs(e) > (s).v || (e) != (e)) (s).v = fabs(e)",
                        "if ((o).v > (s).v || (o).v != (o).v) (s).v = (o).v", "(s).v"};
constexpr Rule kNormMin{"C v;", "(s).v = INFINITY", "if (fabs(e) < (s).v || (e) != (e)) (s).v = fabs(e)",
                        "if ((o).v < (s).v || (o).v != (o).v) (s).v = (o).v", "(s).v"};

#define OPSMITH_EXTREMUM(better)                                                            \
  Rule{"C v; int has;", "(s).v = 0; (s).has = 0",                                           \
       "if (!(s).has || (e) " better " (s).v || (e) != (e)) { (s).v = (e); (s).has = 1; }", \
       "if ((o).has && (!(s).has || (o).v " better " (s).v || (o).v != (o).v)) (s) = (o)", "(s).v"}
// The first of several that are equal, the first NaN where there is one.
#define OPSMITH_POSITION(better, first_result, second_result)                                               \
  Rule {                                                                                                    \
    "C v; long i; int has;", "(s).v = 0; (s).i = 0; (s).has = 0",                                           \
        "if (!(s).has || ((s).v == (s).v && ((e) " better                                                   \
        " (s).v || (e) != (e)))) "                                                                          \
        "{ (s).v = (e); (s).i = (i_); (s).has = 1; }",                                                      \
        "if ((o).has && (!(s).has || ((o).v != (o).v ? ((s).v == (s).v || (o).i < (s).i) "                  \
        ": ((s).v == (s).v && ((o).v " better " (s).v || ((o).v == (s).v && (o).i < (s).i)))))) (s) = (o)", \
        first_result, second_result, true                                                                   \
  }
constexpr Rule kMax = OPSMITH_EXTREMUM(">");
constexpr Rule kMin = OPSMITH_EXTREMUM("<");
constexpr Rule kMaxWithPosition = OPSMITH_POSITION(">", "(s).v", "(s).i");
constexpr Rule kMinWithPosition = OPSMITH_POSITION("<", "(s).v", "(s).i");
constexpr Rule kArgmax = OPSMITH_POSITION(">", "(s).i", nullptr);
constexpr Rule kArgmin = OPSMITH_POSITION("<", "(s).i", nullptr);
#undef OPSMITH_EXTREMUM
#undef OPSMITH_POSITION

size_t rank_of(const ReductionDims& dims) {
  return std::max<size_t>(dims.rank(), 1);
}

// The layout as the kernel's struct has it; a second result lies as the first.
Words layout_of(const Reduction& reduction, int64_t parts) {
  Words layout;
  layout.add(reduction.outputs).add(reduction.length).add(parts);
  const auto add_sizes = [&](const ReductionDims& dims) {
    layout.add_each(dims.rank(), [&](size_t d) { return dims[d].size; }, 1);
  };
  const auto add_strides = [&](const ReductionDims& dims, size_t operand) {
    layout.add_each(dims.rank(), [&](size_t d) { return dims[d].stride[operand]; }, 0);
  };
  add_sizes(reduction.kept);
  add_strides(reduction.kept, kIn);
  add_strides(reduction.kept, kOut);
  add_strides(reduction.kept, kOut);
  add_sizes(reduction.reduced);
  add_strides(reduction.reduced, kIn);
  return layout;
}

std::string reduction_definitions(const Rule& rule, const Reduction& reduction, at::ScalarType in,
                                  at::ScalarType computed, const at::Tensor& out, const at::Tensor& second) {
  std::string text = definition("STATE", rule.state) + definition("START(s)", rule.start) +
                     definition("STEP(s, e, i_)", rule.step) + definition("MERGE(s, o)", rule.merge) +
                     definition("RESULT(s)", rule.result) + definition("IN", in) +
                     definition("COMPUTE", computed) + definition("OUT", out.scalar_type()) +
                     definition("KEPT", rank_of(reduction.kept)) +
                     definition("GONE", rank_of(reduction.reduced));
  if (second.defined()) {
    text += definition("OUT1", second.scalar_type()) + definition("RESULT1(s)", rule.second_result);
  }
  return text;
}

// The items of a group: `lanes` share a result, of which it has `columns`. One lane: each item has its own
// result.
struct Group {
  int64_t lanes = 1, columns = 1;
};

Group group_of(const Reduction& reduction) {
  const bool columns = reduction.kept.rank() > 0 && reduction.reduced.rank() > 0 &&
                       reduction.kept.innermost().stride[kIn] < reduction.reduced.innermost().stride[kIn];
  if (limits().is_cpu != 0) {
    return {.lanes = reduction.length >= (columns && reduction.outputs >= 256 ? 2048 : 64) ? 16 : 1};
  }
  // Items that are neighbours read what lies side by side.
  if (reduction.length < 64) {
    return {};
  }
  return columns && reduction.outputs >= 32 ? Group{.lanes = 8, .columns = 32} : Group{.lanes = 128};
}

// How many groups share the elements of a result, where there are few results and many elements.
int64_t parts_of(const Reduction& reduction, const Group& group) {
  const int64_t wanted = 4 * static_cast<int64_t>(limits().units);
  const int64_t elements_of_part = group.columns > 1 ? 16 * group.lanes : 16384;
  const int64_t groups = ceil_div(reduction.outputs, group.columns);
  return std::clamp<int64_t>(std::min(wanted / groups, reduction.length / elements_of_part), 1, 1024);
}

// How many of the elements that are reduced one load brings.
int64_t width_of(const at::Tensor& self, const Reduction& reduction) {
  if (reduction.reduced.rank() != 1 || reduction.reduced.innermost().stride[kIn] != 1) {
    return 1;
  }
  // Lines begin at multiples of what divides all distances.
  int64_t step = reduction.length;
  for (size_t d = 0; d < reduction.kept.rank(); ++d) {
    step = std::gcd(step, reduction.kept[d].stride[kIn]);
  }
  return vector_width(step, {self});
}

void reduce(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, const at::Tensor& out,
            const at::Tensor& second, const Rule& rule, at::ScalarType computed, const at::Scalar& x = 0) {
  computed = c10::toRealValueType(computed);  // of a complex out=
  Reduction reduction(self, dims, keepdim, out);
  if (reduction.outputs == 0) {
    return;
  }
  if (rule.ordered) {
    reduction.kept.coalesce();
    reduction.reduced.coalesce();
  } else {
    reduction.order_by_stride();
  }
  const Group group = group_of(reduction);
  const bool grouped = group.lanes > 1;
  const int64_t parts = grouped ? parts_of(reduction, group) : 1;
  const int64_t width = grouped ? width_of(self, reduction) : 1;
  const std::string definitions =
      reduction_definitions(rule, reduction, self.scalar_type(), computed, out, second) +
      definition("COLUMNS", group.columns) + definition("WIDTH", width) +
      definition("VECTOR_BYTES", width * static_cast<int64_t>(self.element_size()));
  const Words layout = layout_of(reduction, parts);
  at::Tensor states;
  if (parts > 1) {
    states = at::empty({reduction.outputs * parts * kStateBytes}, self.options().dtype(at::kByte));
  }
  const auto run = [&](const std::string& more, const Grid& grid) {
    Arguments arguments;
    arguments.words(layout).tensor(self).tensor(states).tensor(out);
    if (second.defined()) {
      arguments.tensor(second);
    }
    add_number(arguments, x, computed);
    add_number(arguments, 0, computed);
    launch("reduce elements", kernel(kReduction, definitions + more), arguments, grid);
  };
  if (!grouped) {
    run("", linear(reduction.outputs));
    return;
  }
  Grid grid;
  grid.groups = {static_cast<size_t>(ceil_div(reduction.outputs, group.columns)), static_cast<size_t>(parts),
                 1};
  grid.items = {static_cast<size_t>(group.columns > 1 ? group.columns : group.lanes),
                static_cast<size_t>(group.columns > 1 ? group.lanes : 1), 1};
  run(definition("GROUPED", group.lanes) + definition_if(parts > 1, "PARTS"), grid);
  if (parts > 1) {
    run(definition("FINISH"), linear(reduction.outputs));
  }
}

// The results of a reduction that allocates them itself.
at::Tensor empty_result(const at::Tensor& self, at::OptionalIntArrayRef dims, bool keepdim) {
  const bool all = !dims.has_value() || dims->empty();
  c10::SmallVector<bool, 8> goes(static_cast<size_t>(self.dim()), all);
  if (!all) {
    for (const int64_t dim : *dims) {
      const auto d = static_cast<size_t>(c10::maybe_wrap_dim(dim, self.dim()));
      TORCH_CHECK(self.dim() == 0 || !goes[d], "dim ", d, " appears multiple times in the list of dims");
      if (self.dim() > 0) {
        goes[d] = true;
      }
    }
  }
  at::DimVector sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (!goes[static_cast<size_t>(d)]) {
      sizes.push_back(self.size(d));
    } else if (keepdim) {
      sizes.push_back(1);
    }
  }
  return at::empty(sizes, self.options());
}

at::OptionalIntArrayRef one_dim(const std::optional<int64_t>& dim) {
  return dim.has_value() ? at::OptionalIntArrayRef(at::IntArrayRef(&*dim, 1)) : at::OptionalIntArrayRef();
}

at::Tensor extremum_of_all(const at::Tensor& self, const char* name, const Rule& which) {
  TORCH_CHECK(self.numel() > 0, name,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim "
              "with the 'dim' argument.");
  at::Tensor out = at::empty({}, self.options());
  reduce(self, at::OptionalIntArrayRef(), false, out, {}, which, self.scalar_type());
  return out;
}

}  // namespace

void sum(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
         std::optional<at::ScalarType> /*dtype*/, const at::Tensor& out) {
  reduce(self, dim, keepdim, out, {}, kSum, out.scalar_type());
}

void mean(const at::Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
          std::optional<at::ScalarType> /*dtype*/, const at::Tensor& out) {
  TORCH_CHECK(at::canCast(self.scalar_type(), out.scalar_type()), "result type ", self.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  reduce(self, dim, keepdim, out, {}, kMean, out.scalar_type());
}

void prod(const at::Tensor& self, int64_t dim, bool keepdim, std::optional<at::ScalarType> /*dtype*/,
          const at::Tensor& out) {
  reduce(self, at::IntArrayRef(&dim, 1), keepdim, out, {}, kProduct, out.scalar_type());
}

void amax(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  reduce(self, dim, keepdim, out, {}, kMax, self.scalar_type());
}

void amin(const at::Tensor& self, at::IntArrayRef dim, bool keepdim, const at::Tensor& out) {
  reduce(self, dim, keepdim, out, {}, kMin, self.scalar_type());
}

at::Tensor max(const at::Tensor& self) {
  return extremum_of_all(self, "max", kMax);
}

at::Tensor min(const at::Tensor& self) {
  return extremum_of_all(self, "min", kMin);
}

void argmax(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& out) {
  reduce(self, one_dim(dim), keepdim, out, {}, kArgmax, self.scalar_type());
}

void argmin(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& out) {
  reduce(self, one_dim(dim), keepdim, out, {}, kArgmin, self.scalar_type());
}

void max_dim(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& max,
             const at::Tensor& max_values) {
  reduce(self, at::IntArrayRef(&dim, 1), keepdim, max, max_values, kMaxWithPosition, self.scalar_type());
}

void min_dim(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& min,
             const at::Tensor& min_indices) {
  reduce(self, at::IntArrayRef(&dim, 1), keepdim, min, min_indices, kMinWithPosition, self.scalar_type());
}

void any(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& out) {
  reduce(self, at::IntArrayRef(&dim, 1), keepdim, out, {}, kAny, self.scalar_type());
}

void any_all(const at::Tensor& self, const at::Tensor& out) {
  reduce(self, at::OptionalIntArrayRef(), false, out, {}, kAny, self.scalar_type());
}

void all(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& out) {
  reduce(self, at::IntArrayRef(&dim, 1), keepdim, out, {}, kAll, self.scalar_type());
}

void all_all(const at::Tensor& self, const at::Tensor& out) {
  reduce(self, at::OptionalIntArrayRef(), false, out, {}, kAll, self.scalar_type());
}

at::Tensor var(const at::Tensor& self, at::OptionalIntArrayRef dim,
               const std::optional<at::Scalar>& correction, bool keepdim) {
  at::Tensor out = empty_result(self, dim, keepdim);
  meta_functions::warn_of_correction("var", self, out, correction.value_or(1).toDouble());
  reduce(self, dim, keepdim, out, {}, kVariance, self.scalar_type(), correction.value_or(1));
  return out;
}

std::tuple<at::Tensor, at::Tensor> var_mean(const at::Tensor& self, at::OptionalIntArrayRef dim,
                                            const std::optional<at::Scalar>& correction, bool keepdim) {
  at::Tensor variance = empty_result(self, dim, keepdim);
  at::Tensor mean = empty_result(self, dim, keepdim);
  meta_functions::warn_of_correction("var_mean", self, mean, correction.value_or(1).toDouble());
  reduce(self, dim, keepdim, variance, mean, kVariance, self.scalar_type(), correction.value_or(1));
  return {std::move(variance), std::move(mean)};
}

void linalg_vector_norm(const at::Tensor& self, const at::Scalar& ord, at::OptionalIntArrayRef dim,
                        bool keepdim, std::optional<at::ScalarType> /*dtype*/, const at::Tensor& out) {
  const double order = ord.toDouble();
  const Rule& rule = order == 2                                          ? kNorm2
                     : order == 1                                        ? kNorm1
                     : order == 0                                        ? kNorm0
                     : order == std::numeric_limits<double>::infinity()  ? kNormMax
                     : order == -std::numeric_limits<double>::infinity() ? kNormMin
                                                                         : kNormP;
  reduce(self, dim, keepdim, out, {}, rule, out.scalar_type(), ord);
}

void cumsum(const at::Tensor& self, int64_t dim, std::optional<at::ScalarType> /*dtype*/,
            const at::Tensor& out) {
  if (self.numel() == 0) {
    return;
  }
  const at::Tensor in = self.contiguous();
  const DenseResult written(out);
  const Lines lines = lines_of(self, dim);
  const int64_t count = lines.outer * lines.inner;
  Arguments arguments;
  arguments.tensor(in).tensor(written.tensor()).value(count).value(lines.length).value(lines.inner);
  // In double, as on the CPU: a sum takes as many roundings as it has elements.
  const at::ScalarType dtype = out.scalar_type();
  const bool is_wide = limits().has_double != 0 && at::isFloatingType(dtype);
  launch("sum up",
         kernel(kScan, definition("IN", in.scalar_type()) + definition("OUT", dtype) +
                           definition("SUMMED", is_wide ? at::kDouble : dtype)),
         arguments, linear(count));
}

}  // namespace opsmith::compute

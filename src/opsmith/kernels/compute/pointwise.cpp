// See pointwise.h. One kernel for each expression, set of dtypes and form of the strides; the innermost
// dimension is the first of the grid, all others together are the second. Where operands lie in order, a
// GPU's work-item takes as many elements as one load brings.
#include "pointwise.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include <ATen/OpMathType.h>

#include "definitions.h"
#include "launch.h"
#include "numbers.h"

namespace opsmith::compute {
namespace {

constexpr int kMostOperands = 6;
constexpr const char* kNames = "abcde";
constexpr const char* kNumberNames = "xyz";

// How an operand's innermost elements lie.
enum class Step : uint8_t { kDense, kRepeated, kStrided, kNumber };

// The form that a kernel is compiled for.
struct Form {
  const char* expression;
  std::array<at::ScalarType, kMostOperands> dtypes;
  std::array<Step, kMostOperands> steps;
  at::ScalarType computed;
  uint8_t operands;
  uint8_t rank;
  uint8_t numbers;
  uint8_t width;  // elements of a work-item
  bool wide;      // offsets need 64 bits
  c10::DeviceIndex device;

  bool operator==(const Form& other) const {
    return expression == other.expression && dtypes == other.dtypes && steps == other.steps &&
           computed == other.computed && operands == other.operands && rank == other.rank &&
           numbers == other.numbers && width == other.width && wide == other.wide && device == other.device;
  }
};

struct FormHash {
  size_t operator()(const Form& form) const {
    size_t hash = reinterpret_cast<size_t>(form.expression);
    const auto add = [&](size_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15; };
    for (int i = 0; i < form.operands; ++i) {
      add(static_cast<size_t>(form.dtypes[i]) * 8 + static_cast<size_t>(form.steps[i]));
    }
    add(static_cast<size_t>(form.computed) * 64 + form.rank * 4 + (form.wide ? 1 : 0));
    add(static_cast<size_t>(form.numbers) * 16 + form.width);
    add(static_cast<size_t>(form.device));
    return hash;
  }
};

std::string parameter(const char* dtype, const std::string& name) {
  return std::string("BUFFER(STORED(") + dtype + "), " + name + ")";
}

std::string name_of(int operand) {
  return operand == 0 ? "out" : std::string("in_") + kNames[operand - 1];
}

// The place of an operand's element `i` in the kernel.
std::string place(const Form& form, int operand, std::string i = "i") {
  std::string index;
  switch (form.steps[operand]) {
    case Step::kDense:
      index = std::move(i);
      break;
    case Step::kStrided:
      index = i + " * (INDEX)layout.stride[" + std::to_string(operand) + "][0]";
      break;
    default:
      index = "0";
  }
  return form.rank > 1 ? name_of(operand) + "_row + " + index : index;
}

std::string rows_begin(const Form& form) {
  std::string text =
      "  for (INDEX row = GLOBAL_ITEM(1); row < (INDEX)layout.rows; row += GLOBAL_ITEMS(1)) {\n  INDEX rest "
      "= row;\n";
  for (int k = 0; k < form.operands; ++k) {
    if (form.steps[k] != Step::kNumber) {
      text += "  INDEX " + name_of(k) + "_row = 0;\n";
    }
  }
  for (int d = 1; d < form.rank; ++d) {
    const std::string at = std::to_string(d);
    text += "  { const INDEX at = rest % (INDEX)layout.size[" + at + "]; rest /= (INDEX)layout.size[" + at +
            "];\n";
    for (int k = 0; k < form.operands; ++k) {
      if (form.steps[k] != Step::kNumber) {
        text +=
            "  " + name_of(k) + "_row += at * (INDEX)layout.stride[" + std::to_string(k) + "][" + at + "];\n";
      }
    }
    text += "  }\n";
  }
  return text;
}

bool is_vector(const Form& form, int operand) {
  return form.width > 1 && form.steps[operand] == Step::kDense;
}

std::string vector_bytes(const Form& form, int operand) {
  return std::to_string(form.width * c10::elementSize(form.dtypes[operand]));
}

std::string stored_pointer(const Form& form, int operand) {
  return std::string("POINTER(STORED(") + c10::toString(form.dtypes[operand]) + "), " + name_of(operand) +
         ")";
}

// The arguments of what moves an operand's elements of one work-item: LOAD_VECTOR and STORE_VECTOR.
std::string vector_arguments(const Form& form, int operand) {
  return "(" + stored_pointer(form, operand) + " + " + place(form, operand, "first") + ", " +
         name_of(operand) + "_vector, " + vector_bytes(form, operand) + ");\n";
}

// The statements that calculate the element `i`, which is `j` of vectors that were loaded.
std::string element(const Form& form, bool of_vectors) {
  const auto elements = [&](int k) {
    return of_vectors && is_vector(form, k) ? name_of(k) + "_vector.at, j"
                                            : stored_pointer(form, k) + ", " + place(form, k);
  };
  std::string text;
  for (int k = 1; k < form.operands; ++k) {
    if (form.steps[k] != Step::kNumber) {
      text += std::string("    const C ") + kNames[k - 1] + " = (C)LOAD(" + c10::toString(form.dtypes[k]) +
              ", " + elements(k) + ");\n";
    }
  }
  // A result of another dtype has the values that one of the computed dtype would have had.
  const std::string value =
      form.dtypes[0] == form.computed
          ? "(" + std::string(form.expression) + ")"
          : std::string("ROUNDED(") + c10::toString(form.computed) + ", (" + form.expression + "))";
  return text + "    STORE(" + c10::toString(form.dtypes[0]) + ", " + elements(0) + ", " + value + ");\n";
}

// The statements that calculate a work-item's elements from `first` on. One line of elements may end within
// them.
std::string elements(const Form& form) {
  if (form.width == 1) {
    return "  const INDEX i = first;\n" + element(form, false);
  }
  std::string text = "  Vector_out out_vector;\n";
  for (int k = 1; k < form.operands; ++k) {
    if (is_vector(form, k)) {
      text +=
          "  Vector_" + name_of(k) + " " + name_of(k) + "_vector;\n  LOAD_VECTOR" + vector_arguments(form, k);
    }
  }
  text += "  UNROLLED for (int j = 0; j < WIDTH; ++j) {\n  const INDEX i = first + j;\n" +
          element(form, true) + "  }\n  STORE_VECTOR" + vector_arguments(form, 0);
  return form.rank > 1 ? text
                       : "  if ((INDEX)layout.count - first < WIDTH) {\n  for (INDEX i = first; i < "
                         "(INDEX)layout.count; "
                         "++i) {\n" +
                             element(form, false) + "  }\n  return;\n  }\n" + text;
}

// The kernel's source.
std::string source_of(const Form& form) {
  const std::string rank = std::to_string(form.rank);
  std::string text = definition("INDEX", form.wide ? "long" : "int") + definition("WIDTH", form.width);
  text += std::string("typedef COMPUTED(") + c10::toString(form.computed) + ") C;\n";
  text += definition_if(at::isFloatingType(form.computed), "FLOATING");
  text += kFunctions;
  text += "typedef struct { long count; long rows; long size[" + rank + "]; long stride[" +
          std::to_string(form.operands) + "][" + rank + "]; } Layout;\n";
  std::string parameters = "const Layout layout";
  for (int k = 0; k < form.operands; ++k) {
    if (form.steps[k] == Step::kNumber) {
      parameters += std::string(", const C ") + kNames[k - 1];
      continue;
    }
    parameters += ", " + parameter(c10::toString(form.dtypes[k]), name_of(k));
    if (is_vector(form, k)) {
      text += std::string("typedef VECTOR(") + c10::toString(form.dtypes[k]) + ", WIDTH, " +
              vector_bytes(form, k) + ") Vector_" + name_of(k) + ";\n";
    }
  }
  for (int n = 0; n < form.numbers; ++n) {
    parameters += std::string(", const C ") + kNumberNames[n];
  }
  text +=
      "KERNEL void run(" + parameters +
      ") {\n  if (GLOBAL_ITEM(0) * WIDTH >= layout.count) return;\n  const INDEX first = GLOBAL_ITEM(0) * "
      "WIDTH;\n";
  if (form.rank > 1) {
    return text + rows_begin(form) + elements(form) + "  }\n}\n";
  }
  return text + elements(form) + "}\n";
}

// How many elements a work-item of `form` takes: as many as the widest load brings of the largest dtype,
// where all that are not repeated lie in order, from an address on that is a multiple of the load.
int width_of(const at::TensorIteratorBase& iter, const Form& form, int64_t count) {
  constexpr int64_t kBytes = 16, kMost = 8;
  if (limits().is_cpu != 0) {
    return 1;  // its compiler makes vectors of neighbouring work-items
  }
  const bool is_line = form.rank == 1;
  int64_t width = kMost;
  for (int k = 0; k < form.operands; ++k) {
    if (form.steps[k] == Step::kDense) {
      width = std::min(width, kBytes / static_cast<int64_t>(iter.element_size(k)));
    }
  }
  const auto fits = [&](int k) {
    if (form.steps[k] != Step::kDense) {
      return k > 0 && form.steps[k] != Step::kStrided;
    }
    const int64_t bytes = width * static_cast<int64_t>(iter.element_size(k));
    const auto is_multiple = [&](int64_t stride) { return stride % bytes == 0; };
    return is_multiple(reinterpret_cast<int64_t>(iter.data_ptr(k))) &&
           (is_line || std::all_of(iter.strides(k).begin() + 1, iter.strides(k).end(), is_multiple));
  };
  bool all_fit = width > 1 && (is_line || count % width == 0);
  for (int k = 0; k < form.operands && all_fit; ++k) {
    all_fit = fits(k);
  }
  return all_fit ? static_cast<int>(width) : 1;
}

opsmith_compute_kernel kernel_of(const Form& form) {
  static std::shared_mutex mutex;
  static auto* const kernels = new std::unordered_map<Form, opsmith_compute_kernel, FormHash>;
  {
    const std::shared_lock lock(mutex);
    if (const auto found = kernels->find(form); found != kernels->end()) {
      return found->second;
    }
  }
  const opsmith_compute_kernel made = kernel("", source_of(form));
  const std::unique_lock lock(mutex);
  return kernels->emplace(form, made).first->second;
}

}  // namespace

void pointwise(at::TensorIteratorBase& iter, const char* expression, at::ScalarType computed,
               std::initializer_list<at::Scalar> numbers, CpuOperands cpu_operands) {
  if (iter.numel() == 0) {
    return;
  }
  const int operands = iter.ntensors();
  const bool contiguous = iter.is_contiguous();
  TORCH_INTERNAL_ASSERT(operands <= kMostOperands);
  // Of the strides; where there are none, the elements are one line.
  const size_t rank = contiguous ? 0 : static_cast<size_t>(iter.ndim());
  Form form{.expression = expression,
            .dtypes = {},
            .steps = {},
            .computed = computed,
            .operands = static_cast<uint8_t>(operands),
            .rank = static_cast<uint8_t>(std::max<size_t>(rank, 1)),
            .numbers = static_cast<uint8_t>(numbers.size()),
            .width = 1,
            .wide = !iter.can_use_32bit_indexing(),
            .device = iter.device(0).index()};
  const int64_t count = rank == 0 ? iter.numel() : iter.shape()[0];
  Words layout;
  layout.add(count).add(iter.numel() / count);
  layout.add_each(rank, [&](size_t d) { return iter.shape()[d]; }, count);
  for (int k = 0; k < operands; ++k) {
    form.dtypes[k] = iter.dtype(k);
    const auto size = static_cast<int64_t>(iter.element_size(k));
    layout.add_each(rank, [&](size_t d) { return iter.strides(k)[d] / size; }, 1);
    const int64_t inner = rank > 0 ? iter.strides(k)[0] / size : 1;
    form.steps[k] = k > 0 && iter.is_cpu_scalar(k) ? Step::kNumber
                    : inner == 1                   ? Step::kDense
                    : inner == 0                   ? Step::kRepeated
                                                   : Step::kStrided;
  }
  Arguments arguments;
  form.width = static_cast<uint8_t>(width_of(iter, form, count));
  arguments.words(layout);
  for (int k = 0; k < operands; ++k) {
    if (form.steps[k] == Step::kNumber) {
      const at::Scalar number = host_scalar(iter.tensor(k));
      const bool exact = cpu_operands == CpuOperands::kExact && at::isFloatingType(computed);
      add_number(arguments, exact ? number : stored(number, computed), computed);
    } else {
      arguments.address(iter.data_ptr(k));
    }
  }
  for (const at::Scalar& number : numbers) {
    add_number(arguments, checked(number, at::toOpMathType(computed)), computed);
  }
  launch("calculate elements", kernel_of(form), arguments,
         plane(ceil_div(count, int64_t{form.width}), iter.numel() / count));
}

void pointwise(at::TensorIteratorBase& iter, const char* expression,
               std::initializer_list<at::Scalar> numbers, CpuOperands cpu_operands) {
  pointwise(iter, expression, iter.common_dtype(), numbers, cpu_operands);
}

}  // namespace opsmith::compute

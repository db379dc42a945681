// cuDNN's entries that the library `cudnn` calls, on the stand-in of libcuda: a convolution is work of the
// stream, by loops in double.
//
// Each operation has two algorithms: 0 is ranked first and not deterministic. Convolutions of float64 with
// groups are not supported. OPSMITH_STAND_IN_CUDNN_STATUS is the status of calls that compute, where it is
// set.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "../../../src/opsmith/kernels/cudnn/api.h"
#include "elements.h"
#include "of_libcuda.h"

using namespace opsmith::cudnn;
using namespace stand_in;

struct opsmith::cudnn::cudnnContext {
  void* stream = nullptr;
};

namespace {

constexpr int kBadParameter = 2000;
constexpr size_t kWorkspace = 96;
constexpr size_t kMostDims = 5;

using Numbers = std::array<int64_t, kMostDims>;

// A tensor or a filter; missing dimensions of pixels have one element.
struct Layout {
  int type = -1, dims = 0;
  Numbers sizes, strides;

  int set(int of_type, int count, const int* given, const int* steps) {
    if (count < 4 || count > 5) {
      return kBadParameter;
    }
    type = of_type;
    dims = count;
    sizes.fill(1);
    strides.fill(0);
    for (size_t from = 0; from < static_cast<size_t>(count); ++from) {
      const size_t d = from < 2 ? from : from + kMostDims - static_cast<size_t>(count);
      sizes[d] = given[from];
      strides[d] = steps[from];
    }
    return kSuccess;
  }
  int64_t at(const Numbers& place) const {
    int64_t offset = 0;
    for (size_t d = 0; d < kMostDims; ++d) {
      offset += place[d] * strides[d];
    }
    return offset;
  }
  size_t elements() const {
    return static_cast<size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]);
  }
};

struct Settings {
  int dims = 0, groups = 1, math = kDefaultMath, type = -1;
  std::array<int64_t, 3> padding{}, stride{1, 1, 1}, dilation{1, 1, 1};
};

struct Convolution {
  Role written;
  std::array<Layout, 3> layouts;  // by Role
  std::array<void*, 3> data;      // as the host sees it
  void* workspace;
  Settings settings;
};

// f(image, weight, result) of the offsets of all elements that meet.
template <class F>
void each_product(const Convolution& c, const F& f) {
  const auto& [image, weight, result] = c.layouts;
  const Settings& s = c.settings;
  const int64_t filters = weight.sizes[0] / s.groups;
  Numbers r, w, i;
  const auto pixels = [&](size_t d, const auto& self) -> void {
    if (d == kMostDims) {
      f(image.at(i), weight.at(w), result.at(r));
      return;
    }
    for (r[d] = 0; r[d] < result.sizes[d]; ++r[d]) {
      for (w[d] = 0; w[d] < weight.sizes[d]; ++w[d]) {
        i[d] = r[d] * s.stride[d - 2] - s.padding[d - 2] + w[d] * s.dilation[d - 2];
        if (i[d] >= 0 && i[d] < image.sizes[d]) {
          self(d + 1, self);
        }
      }
    }
  };
  for (r[0] = i[0] = 0; r[0] < result.sizes[0]; i[0] = ++r[0]) {
    for (r[1] = w[0] = 0; r[1] < result.sizes[1]; w[0] = ++r[1]) {
      for (w[1] = 0; w[1] < weight.sizes[1]; ++w[1]) {
        i[1] = r[1] / filters * weight.sizes[1] + w[1];
        pixels(2, pixels);
      }
    }
  }
}

template <class T>
void run(const Convolution& c) {
  const auto at = [&](Role role, int64_t offset) {
    return number(static_cast<const T*>(c.data[role])[offset]);
  };
  std::vector<double> sums(c.layouts[c.written].elements());
  each_product(c, [&](int64_t image, int64_t weight, int64_t result) {
    switch (c.written) {
      case kImage:
        sums[static_cast<size_t>(image)] += at(kWeight, weight) * at(kResult, result);
        break;
      case kWeight:
        sums[static_cast<size_t>(weight)] += at(kImage, image) * at(kResult, result);
        break;
      default:
        sums[static_cast<size_t>(result)] += at(kImage, image) * at(kWeight, weight);
    }
  });
  for (size_t i = 0; i < sums.size(); ++i) {
    put(sums[i], static_cast<T*>(c.data[c.written])[i]);
  }
  std::memset(c.workspace, 0xff, kWorkspace);
}

void run_convolution(void* given) {
  const auto& c = *static_cast<const Convolution*>(given);  // kept: a captured stream runs it again
  const int type = c.layouts[kImage].type;
  type == kFloat32   ? run<float>(c)
  : type == kFloat64 ? run<double>(c)
  : type == kFloat16 ? run<Half>(c)
                     : run<Bfloat16>(c);
}

thread_local std::string failure;
std::string calls;

int failed(const char* what) {
  failure = what;
  return kBadParameter;
}

// The tensors of an operation, by Role.
std::array<Layout, 3> by_role(Role written, Descriptor a, Descriptor b, Descriptor out) {
  const auto of = [](Descriptor each) -> const Layout& { return *static_cast<const Layout*>(each); };
  return written == kImage    ? std::array{of(out), of(a), of(b)}
         : written == kWeight ? std::array{of(a), of(out), of(b)}
                              : std::array{of(a), of(b), of(out)};
}

int check(const std::array<Layout, 3>& layouts, const Settings& s) {
  const auto& [image, weight, result] = layouts;
  if (image.type != weight.type || image.type != result.type || image.dims != s.dims + 2 ||
      s.type != (image.type == kFloat64 ? kFloat64 : kFloat32)) {
    return failed("types or dimensions differ");
  }
  if (image.sizes[0] != result.sizes[0] || image.sizes[1] != weight.sizes[1] * s.groups ||
      result.sizes[1] != weight.sizes[0] || weight.sizes[0] % s.groups != 0) {
    return failed("images or channels differ");
  }
  for (size_t d = 2; d < kMostDims; ++d) {
    const int64_t reach = s.dilation[d - 2] * (weight.sizes[d] - 1) + 1;
    if ((image.sizes[d] + 2 * s.padding[d - 2] - reach) / s.stride[d - 2] + 1 != result.sizes[d]) {
      return failed("the result has another size");
    }
  }
  return kSuccess;
}

template <Role written>
int rank(Handle, Descriptor a, Descriptor b, Descriptor convolution, Descriptor out, int most, int* count,
         Algorithm* ranked) {
  const auto& settings = *static_cast<const Settings*>(convolution);
  if (const int status = check(by_role(written, a, b, out), settings); status != kSuccess) {
    return status;
  }
  const bool is_supported = settings.type != kFloat64 || settings.groups == 1;
  const int status = is_supported ? kSuccess : kNotSupported;
  *count = std::min(most, 2);
  for (int i = 0; i < *count; ++i) {
    ranked[i] = {i, status, 1.0f, kWorkspace, i == 0 ? 0 : kDeterministic, settings.math, {}};
  }
  return kSuccess;
}

int workspace_size(Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, size_t* bytes) {
  *bytes = kWorkspace;
  return kSuccess;
}

template <Role written>
int compute(Handle handle, const void* alpha, Descriptor a, const void* a_data, Descriptor b,
            const void* b_data, Descriptor convolution, int algorithm, void* workspace, size_t bytes,
            const void* beta, Descriptor out, void* out_data) {
  if (const char* const status = std::getenv("OPSMITH_STAND_IN_CUDNN_STATUS")) {
    failure = "as it was asked to";
    return std::atoi(status);
  }
  const auto& settings = *static_cast<const Settings*>(convolution);
  const auto layouts = by_role(written, a, b, out);
  if (const int status = check(layouts, settings); status != kSuccess) {
    return status;
  }
  const auto value = [&](const void* from) {
    return settings.type == kFloat64 ? *static_cast<const double*>(from) : *static_cast<const float*>(from);
  };
  if (value(alpha) != 1 || value(beta) != 0 || bytes < kWorkspace) {
    return failed("the factors, or the workspace, are others");
  }
  for (const void* const data : {a_data, b_data, static_cast<const void*>(out_data)}) {
    if (reinterpret_cast<uintptr_t>(data) % 16 != 0) {
      return failed("a tensor is not aligned");
    }
  }
  void* const x = view(a_data);
  void* const y = view(b_data);
  void* const z = view(out_data);
  const auto data = written == kImage    ? std::array{z, x, y}
                    : written == kWeight ? std::array{x, z, y}
                                         : std::array{x, y, z};
  constexpr const char* kNames[] = {"image", "weight", "result"};
  const bool is_channels_last =
      std::all_of(layouts.begin(), layouts.end(), [](const Layout& each) { return each.strides[1] == 1; });
  calls += std::string(kNames[written]) + " algorithm " + std::to_string(algorithm) + " math " +
           std::to_string(settings.math) + (is_channels_last ? " channels-last\n" : "\n");
  return queue(handle->stream, run_convolution,
               new Convolution{written, layouts, data, view(workspace), settings});
}

template <class T>
int create(Descriptor* descriptor) {
  *descriptor = new T;
  return kSuccess;
}

template <class T>
int destroy(Descriptor descriptor) {
  delete static_cast<T*>(descriptor);
  return kSuccess;
}

}  // namespace

extern "C" {

// The computations since the last call: a line for each.
const char* opsmith_stand_in_convolutions() {
  static std::string last;
  last = std::exchange(calls, "");
  return last.c_str();
}

int cudnnCreate(Handle* handle) {
  *handle = new cudnnContext;
  return kSuccess;
}

int cudnnSetStream(Handle handle, void* stream) {
  handle->stream = stream;
  return kSuccess;
}

const char* cudnnGetErrorString(int status) {
  return status == kNotSupported   ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == kBadParameter ? "CUDNN_STATUS_BAD_PARAM"
                                   : "CUDNN_STATUS_EXECUTION_FAILED";
}

void cudnnGetLastErrorString(char* text, size_t size) {
  std::snprintf(text, size, "%s", failure.c_str());
}

int cudnnCreateTensorDescriptor(Descriptor* descriptor) {
  return create<Layout>(descriptor);
}
int cudnnDestroyTensorDescriptor(Descriptor descriptor) {
  return destroy<Layout>(descriptor);
}
int cudnnCreateFilterDescriptor(Descriptor* descriptor) {
  return create<Layout>(descriptor);
}
int cudnnDestroyFilterDescriptor(Descriptor descriptor) {
  return destroy<Layout>(descriptor);
}
int cudnnCreateConvolutionDescriptor(Descriptor* descriptor) {
  return create<Settings>(descriptor);
}
int cudnnDestroyConvolutionDescriptor(Descriptor descriptor) {
  return destroy<Settings>(descriptor);
}

int cudnnSetTensorNdDescriptor(Descriptor descriptor, int type, int dims, const int* sizes,
                               const int* strides) {
  return static_cast<Layout*>(descriptor)->set(type, dims, sizes, strides);
}

int cudnnSetFilterNdDescriptor(Descriptor descriptor, int type, int format, int dims, const int* sizes) {
  std::array<int, kMostDims> strides{};
  int stride = 1;
  if (format == kChannelsLast) {
    strides[1] = 1;
    stride = sizes[1];
  }
  for (int d = dims - 1; d >= 0; --d) {
    if (d != 1 || format != kChannelsLast) {
      strides[static_cast<size_t>(d)] = stride;
      stride *= sizes[d];
    }
  }
  return static_cast<Layout*>(descriptor)->set(type, dims, sizes, strides.data());
}

int cudnnSetConvolutionNdDescriptor(Descriptor descriptor, int dims, const int* padding, const int* stride,
                                    const int* dilation, int mode, int type) {
  auto& settings = *static_cast<Settings*>(descriptor);
  if (mode != kCrossCorrelation || dims < 2 || dims > 3) {
    return failed("the mode, or the number of dimensions, is another");
  }
  settings.dims = dims;
  settings.type = type;
  for (int d = 0; d < dims; ++d) {
    const auto to = static_cast<size_t>(d + 3 - dims);
    settings.padding[to] = padding[d];
    settings.stride[to] = stride[d];
    settings.dilation[to] = dilation[d];
  }
  return kSuccess;
}

int cudnnSetConvolutionGroupCount(Descriptor descriptor, int groups) {
  static_cast<Settings*>(descriptor)->groups = groups;
  return kSuccess;
}

int cudnnSetConvolutionMathType(Descriptor descriptor, int math) {
  static_cast<Settings*>(descriptor)->math = math;
  return kSuccess;
}

#define OPERATION(name, written)                                                                            \
  int cudnnGetConvolution##name##Algorithm_v7(Handle handle, Descriptor a, Descriptor b,                    \
                                              Descriptor convolution, Descriptor out, int most, int* count, \
                                              Algorithm* ranked) {                                          \
    return rank<written>(handle, a, b, convolution, out, most, count, ranked);                              \
  }                                                                                                         \
  int cudnnGetConvolution##name##WorkspaceSize(Handle handle, Descriptor a, Descriptor b,                   \
                                               Descriptor convolution, Descriptor out, int algorithm,       \
                                               size_t* bytes) {                                             \
    return workspace_size(handle, a, b, convolution, out, algorithm, bytes);                                \
  }                                                                                                         \
  int cudnnConvolution##name(Handle handle, const void* alpha, Descriptor a, const void* a_data,            \
                             Descriptor b, const void* b_data, Descriptor convolution, int algorithm,       \
                             void* workspace, size_t bytes, const void* beta, Descriptor out,               \
                             void* out_data) {                                                              \
    return compute<written>(handle, alpha, a, a_data, b, b_data, convolution, algorithm, workspace, bytes,  \
                            beta, out, out_data);                                                           \
  }
OPERATION(Forward, kResult)
OPERATION(BackwardData, kImage)
OPERATION(BackwardFilter, kWeight)

}  // extern "C"

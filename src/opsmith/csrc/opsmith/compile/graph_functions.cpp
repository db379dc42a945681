// The functions that graphs in C++ call, and models of AOTInductor's packages on the device.
#include <opsmith/compile/graph_functions.h>

#include <opsmith/device/allocator.h>
#include <opsmith/device/device.h>
#include <opsmith/device/waiting.h>
#include <opsmith/host_access.h>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <unordered_map>

namespace opsmith {

namespace cpp_graphs {

namespace {

using torch::aot_inductor::new_tensor_handle;
using torch::aot_inductor::tensor_handle_to_tensor_pointer;

thread_local std::string last_error;

const char* error() {
  return last_error.c_str();
}

template <class Function>
bool done(const Function& function) {
  try {
    function();
    return true;
  } catch (const c10::Error& thrown) {
    last_error = thrown.what_without_backtrace();
  } catch (const std::exception& thrown) {
    last_error = thrown.what();
  }
  return false;
}

at::Tensor& tensor(AtenTensorHandle handle) {
  return *tensor_handle_to_tensor_pointer(handle);
}

c10::Device on(int32_t device) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)};
}

bool host_pointer_after(void* data, void** pointer) {
  return done([&] {
    TORCH_CHECK_NOT_IMPLEMENTED(
        has_host_window(), "this graph was compiled for a device whose memory the host sees, and ",
        c10::get_privateuse1_backend(), " has no host window now: compile it again, for this device");
    wait_for_device(current_device());
    *pointer = host_pointer(data);
  });
}

// ---- memory of constants

std::mutex constants_mutex;
std::unordered_map<void*, c10::DataPtr>& constants() {
  static auto* const kept = new std::unordered_map<void*, c10::DataPtr>;  // models may outlive statics
  return *kept;
}

bool allocate(size_t bytes, int32_t device, void** data) {
  return done([&] {
    const c10::DeviceGuard scope(on(device));
    c10::DataPtr found = device_allocator().allocate(bytes);
    *data = found.get();
    const std::scoped_lock lock(constants_mutex);
    constants().emplace(*data, std::move(found));
  });
}

bool release(void* data) {
  return done([&] {
    c10::DataPtr freed;
    {
      const std::scoped_lock lock(constants_mutex);
      if (const auto found = constants().find(data); found != constants().end()) {
        freed = std::move(found->second);
        constants().erase(found);
      }
    }
    // Whatever stream reads the constants is done then.
    if (freed) {
      finish_device(freed.device().index());
    }
  });
}

at::Tensor bytes_at(const void* data, c10::Device device, size_t bytes) {
  return at::for_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)})
      .options(at::TensorOptions(at::kByte).device(device))
      .target_device(device)
      .make_tensor();
}

bool copy_from_host(void* to, int32_t device, const void* from, size_t bytes) {
  return done([&] { bytes_at(to, on(device), bytes).copy_(bytes_at(from, at::kCPU, bytes)); });
}

bool copy(void* to, const void* from, int32_t device, size_t bytes) {
  return done([&] { bytes_at(to, on(device), bytes).copy_(bytes_at(from, on(device), bytes)); });
}

bool stream_of(int32_t device, void** stream) {
  return done([&] { *stream = current_stream(checked_device(static_cast<c10::DeviceIndex>(device))); });
}

// ---- fused kernels

c10::OperatorHandle operator_of(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

bool make_kernel(const char* make, const char* source, const char* name, bool is_reduction, int64_t* kernel) {
  return done([&] {
    torch::jit::Stack stack{std::string(source), std::string(name), is_reduction};
    operator_of(make).callBoxed(stack);
    *kernel = stack.at(0).toInt();
  });
}

bool run_kernel(const char* run, int64_t kernel, const AtenTensorHandle* tensors, size_t tensor_count,
                const int64_t* numbers, size_t number_count) {
  return done([&] {
    c10::List<at::Tensor> given;
    given.reserve(tensor_count);
    for (size_t at = 0; at < tensor_count; ++at) {
      given.push_back(tensor(tensors[at]));
    }
    torch::jit::Stack stack{kernel, std::move(given), c10::IntArrayRef(numbers, number_count)};
    operator_of(run).callBoxed(stack);
  });
}

// ---- operators

bool mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
  return done([&] { at::mm_out(tensor(out), tensor(self), tensor(mat2)); });
}

bool bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
  return done([&] { at::bmm_out(tensor(out), tensor(self), tensor(mat2)); });
}

bool addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1, AtenTensorHandle mat2,
               double beta, double alpha) {
  return done([&] { at::addmm_out(tensor(out), tensor(self), tensor(mat1), tensor(mat2), beta, alpha); });
}

bool baddbmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle batch1,
                 AtenTensorHandle batch2, double beta, double alpha) {
  return done(
      [&] { at::baddbmm_out(tensor(out), tensor(self), tensor(batch1), tensor(batch2), beta, alpha); });
}

bool convolution(AtenTensorHandle input, AtenTensorHandle weight, const AtenTensorHandle* bias,
                 const int64_t* stride, int64_t stride_size, const int64_t* padding, int64_t padding_size,
                 const int64_t* dilation, int64_t dilation_size, bool transposed,
                 const int64_t* output_padding, int64_t output_padding_size, int64_t groups,
                 AtenTensorHandle* result) {
  const auto list = [](const int64_t* values, int64_t size) {
    return c10::IntArrayRef(values, static_cast<size_t>(size));
  };
  return done([&] {
    std::optional<at::Tensor> added;
    if (bias != nullptr) {
      added = tensor(*bias);
    }
    *result = new_tensor_handle(at::convolution(
        tensor(input), tensor(weight), added, list(stride, stride_size), list(padding, padding_size),
        list(dilation, dilation_size), transposed, list(output_padding, output_padding_size), groups));
  });
}

bool randint_low_out(AtenTensorHandle out, int64_t low, int64_t high, const int64_t* size,
                     int64_t size_size) {
  return done([&] {
    at::randint_out(tensor(out), low, high, c10::IntArrayRef(size, static_cast<size_t>(size_size)));
  });
}

bool scatter_src_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                     AtenTensorHandle source) {
  return done([&] { at::scatter_out(tensor(out), tensor(self), dim, tensor(index), tensor(source)); });
}

bool scatter_value_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                       double value) {
  return done([&] { at::scatter_out(tensor(out), tensor(self), dim, tensor(index), value); });
}

bool scatter_reduce_two_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                            AtenTensorHandle source, const char* reduce, bool include_self) {
  return done([&] {
    at::scatter_reduce_out(tensor(out), tensor(self), dim, tensor(index), tensor(source), reduce,
                           include_self);
  });
}

bool view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle* result) {
  return done([&] { *result = new_tensor_handle(tensor(self).view(static_cast<at::ScalarType>(dtype))); });
}

constexpr GraphFunctions kTable{
    .error = error,
    .host_pointer = host_pointer_after,
    .allocate = allocate,
    .release = release,
    .copy_from_host = copy_from_host,
    .copy = copy,
    .current_stream = stream_of,
    .make_kernel = make_kernel,
    .run_kernel = run_kernel,
    .mm_out = mm_out,
    .bmm_out = bmm_out,
    .addmm_out = addmm_out,
    .baddbmm_out = baddbmm_out,
    .convolution = convolution,
    .randint_low_out = randint_low_out,
    .scatter_src_out = scatter_src_out,
    .scatter_value_out = scatter_value_out,
    .scatter_reduce_two_out = scatter_reduce_two_out,
    .view_dtype = view_dtype,
};

int64_t graph_functions(int64_t version) {
  TORCH_CHECK(version == kGraphFunctions,
              "this graph was compiled with another version of opsmith (its functions ", "have version ",
              version, ", the backend's ", kGraphFunctions, "): compile it again");
  return reinterpret_cast<int64_t>(&kTable);
}

// ---- packages

// A model whose library says "mps" for the device, since PyTorch's headers know few names: its constants lie
// where the functions of graph_functions_called.h put them.
class PackagedModel final : public torch::inductor::AOTIModelContainerRunner {
 public:
  PackagedModel(const std::string& library, size_t models, c10::Device device, const std::string& folder,
                bool single_threaded, const c10::DeviceGuard& /*scope*/)
      : AOTIModelContainerRunner(library, models, "mps:" + std::to_string(device.index()), folder,
                                 single_threaded) {}
};

std::unique_ptr<torch::inductor::AOTIModelContainerRunner> packaged_model(const std::string& library,
                                                                          size_t models,
                                                                          const std::string& device,
                                                                          const std::string& folder,
                                                                          bool single_threaded) {
  const auto index = checked_device(c10::Device(device).index());
  const c10::Device where = on(index);
  return std::make_unique<PackagedModel>(library, models, where, folder, single_threaded,
                                         c10::DeviceGuard(where));
}

// Has AOTInductor's packages for this device run on it.
void run_packages() {
  torch::inductor::getAOTIModelRunnerRegistry()[c10::get_privateuse1_backend()] = &packaged_model;
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("graph_functions(int version) -> int", &graph_functions);
  m.def("run_packages() -> ()", &run_packages);
}

}  // namespace

}  // namespace cpp_graphs

}  // namespace opsmith

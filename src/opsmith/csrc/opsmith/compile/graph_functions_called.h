// The calls of a backend's functions in graphs that Inductor writes in C++, behind graph_functions.h in
// their text.

namespace opsmith {

namespace {  // each library has its own

inline const GraphFunctions& graph_functions() {
  static const GraphFunctions* const found = [] {
    std::array<StableIValue, 1> stack{static_cast<StableIValue>(kGraphFunctions)};
    if (aoti_torch_call_dispatcher("opsmith::graph_functions", "", stack.data()) != AOTI_TORCH_SUCCESS) {
      throw std::runtime_error(
          "this graph was compiled for a device that no loaded backend serves as it was then: load the "
          "backend, or compile the graph again");
    }
    return reinterpret_cast<const GraphFunctions*>(stack[0]);
  }();
  return *found;
}

template <class... Parameters, class... Arguments>
inline void call(bool (*function)(Parameters...), const Arguments&... arguments) {
  if (!function(arguments...)) {
    throw std::runtime_error(graph_functions().error());
  }
}

// The elements of a Tensor, for a kernel that runs on the host.
template <class T, class Tensor>
inline T* host_data(const Tensor& tensor) {
  void* found = nullptr;
  call(graph_functions().host_pointer, const_cast<void*>(static_cast<const void*>(tensor.data_ptr())),
       &found);
  return static_cast<T*>(found);
}

// Makes a device current, in the scope of a graph.
class GraphDevice {
 public:
  explicit GraphDevice(int32_t device) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_create_device_guard(device, &guard_));
  }
  ~GraphDevice() { aoti_torch_delete_device_guard(guard_); }
  GraphDevice(const GraphDevice&) = delete;
  GraphDevice& operator=(const GraphDevice&) = delete;
  void set_index(int32_t device) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_device_guard_set_index(guard_, device));
  }

 private:
  DeviceGuardHandle guard_ = nullptr;
};

// The same for a graph that is given a stream: it runs on the current one.
class GraphStream : public GraphDevice {
 public:
  GraphStream(void* stream, int32_t device) : GraphDevice(device) {
    void* current = nullptr;
    call(graph_functions().current_stream, device, &current);
    if (stream != nullptr && stream != current) {
      throw std::runtime_error(
          "graphs on the device run on the current stream: make the stream current instead of giving it");
    }
  }
};

// A fused kernel, made when it runs first.
class GraphKernel {
 public:
  GraphKernel(const char* make, const char* run, const char* name, bool is_reduction, const char* source)
      : make_(make), run_(run), name_(name), is_reduction_(is_reduction), source_(source) {}

  void operator()(std::initializer_list<AtenTensorHandle> tensors, std::initializer_list<int64_t> numbers) {
    if (kernel_ < 0) {
      call(graph_functions().make_kernel, make_, source_, name_, is_reduction_, &kernel_);
    }
    call(graph_functions().run_kernel, run_, kernel_, tensors.begin(), tensors.size(), numbers.begin(),
         numbers.size());
  }

 private:
  const char* make_;
  const char* run_;
  const char* name_;
  bool is_reduction_;
  const char* source_;
  int64_t kernel_ = -1;
};

}  // namespace

}  // namespace opsmith

#define OPSMITH_CALLED(NAME)                                                   \
  template <class... Arguments>                                                \
  static inline AOTITorchError opsmith_##NAME(const Arguments&... arguments) { \
    opsmith::call(opsmith::graph_functions().NAME, arguments...);              \
    return AOTI_TORCH_SUCCESS;                                                 \
  }
OPSMITH_CALLED(mm_out)
OPSMITH_CALLED(bmm_out)
OPSMITH_CALLED(addmm_out)
OPSMITH_CALLED(baddbmm_out)
OPSMITH_CALLED(convolution)
OPSMITH_CALLED(randint_low_out)
OPSMITH_CALLED(scatter_src_out)
OPSMITH_CALLED(scatter_value_out)
OPSMITH_CALLED(scatter_reduce_two_out)
OPSMITH_CALLED(view_dtype)
#undef OPSMITH_CALLED

#ifdef USE_MPS
// Functions by which PyTorch's model keeps constants on a device that is not CUDA's: model_base.h.
namespace opsmith {

namespace {

// The device of the model's constants; a library has one.
inline int32_t& constants_device() {
  static int32_t device = -1;
  return device;
}

inline void keep_constants_on(int32_t device) {
  if (constants_device() >= 0 && constants_device() != device) {
    throw std::runtime_error("a model's library keeps its constants on one device: load the package again");
  }
  constants_device() = device;
}

}  // namespace

}  // namespace opsmith

extern "C" {
AOTITorchError aoti_torch_mps_malloc(void** buffer, size_t num_bytes) {
  opsmith::call(opsmith::graph_functions().allocate, num_bytes, opsmith::constants_device(), buffer);
  return AOTI_TORCH_SUCCESS;
}

AOTITorchError aoti_torch_mps_free(void* ptr) {
  return opsmith::graph_functions().release(ptr) ? AOTI_TORCH_SUCCESS : AOTI_TORCH_FAILURE;
}

AOTITorchError aoti_torch_mps_memcpy(void* buffer, size_t constant_offset, size_t bytes_read,
                                     size_t data_size, uint8_t* constants_start) {
  opsmith::call(opsmith::graph_functions().copy_from_host, static_cast<char*>(buffer) + constant_offset,
                opsmith::constants_device(), constants_start + bytes_read, data_size);
  return AOTI_TORCH_SUCCESS;
}

AOTITorchError aoti_torch_mps_copy_buffer(void* src_buffer, void* dst_buffer, size_t data_size,
                                          size_t src_offset, size_t dst_offset) {
  if (src_offset != 0) {
    throw std::runtime_error("a constant has to begin where its storage does: give a contiguous copy");
  }
  opsmith::call(opsmith::graph_functions().copy, static_cast<char*>(dst_buffer) + dst_offset, src_buffer,
                opsmith::constants_device(), data_size);
  return AOTI_TORCH_SUCCESS;
}
}
#endif

// torch.accelerator.Graph for the device: at::GraphImplInterface over captures (recorded.h).
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include <c10/util/Exception.h>
#include <torch/library.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/memory_pool.h>
#include <opsmith/device/recorded.h>
#include <opsmith/torch_version.h>

#if OPSMITH_HAS_ACCELERATOR_GRAPHS
#include <ATen/core/GraphImplInterface.h>
#endif

namespace opsmith {

namespace {

#if OPSMITH_HAS_ACCELERATOR_GRAPHS
class DeviceGraph final : public at::GraphImplInterface {
 public:
  explicit DeviceGraph(const at::GraphImplArgs&) {
    TORCH_CHECK_NOT_IMPLEMENTED(driver().capture_begin != nullptr, "the driver \"", driver().name,
                                "\" of the ", device_type_name(),
                                " device cannot record work to run it again: it has no entry "
                                "`capture_begin`. Run the work itself.");
  }
  ~DeviceGraph() override { DeviceGraph::reset(); }

  // The pool's number is the one of the pair that is not 0, as PyTorch's own backends have it. The capture
  // modes make no difference: whatever waits for the device is refused.
  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override {
    TORCH_CHECK(recorded_ == nullptr,
                "this graph has been captured; call reset() before it is captured again");
    if (pool.first == 0 && pool.second == 0) {
      pool.first = new_pool();
    }
    recorded_ = Recorded::begin(pool.first + pool.second);
    pool_ = pool;
    is_capturing_ = true;
  }

  void capture_end() override {
    TORCH_CHECK(is_capturing_, "capture_end() of a graph whose capture has not begun");
    is_capturing_ = false;
    try {
      recorded_->end();
    } catch (...) {
      reset();
      throw;
    }
  }

  // The driver's graphs can run as they are.
  void instantiate() override { check_is_captured("instantiate"); }

  void replay() override {
    check_is_captured("replay");
    recorded_->replay();
  }

  void reset() override {
    if (is_capturing_) {
      recorded_->refuse("the graph was reset");
    }
    recorded_ = nullptr;
    is_capturing_ = false;
  }

  at::MempoolId_t pool() const override {
    TORCH_CHECK(recorded_ != nullptr, "pool() of a graph whose capture has not begun");
    return pool_;
  }

  void enable_debug_mode() override { is_debugged_ = true; }

  void debug_dump(const std::string& path) override {
    check_is_captured("debug_dump");
    TORCH_CHECK(is_debugged_, "debug_dump() needs enable_debug_mode() before");
    recorded_->dump(path);
  }

 private:
  void check_is_captured(const char* call) const {
    TORCH_CHECK(recorded_ != nullptr && !is_capturing_, call, "() of a graph that has not been captured");
  }

  std::shared_ptr<Recorded> recorded_;
  at::MempoolId_t pool_{0, 0};
  bool is_capturing_ = false;
  bool is_debugged_ = false;
};

// Under the device's own name, by which PyTorch looks for it.
void register_graphs() {
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(c10::kPrivateUse1, /*lower_case=*/false),
      [](at::GraphImplArgs arguments) -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<DeviceGraph>(arguments);
      });
}
#else
void register_graphs() {}
#endif

std::tuple<int64_t, int64_t> graph_pool_handle() {
  return {0, static_cast<int64_t>(new_pool())};
}

bool is_current_stream_capturing() {
  return current_stream_is_captured(current_device());
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("register_graphs() -> ()", &register_graphs);
  m.def("graph_pool_handle() -> (int, int)", &graph_pool_handle);
  m.def("is_current_stream_capturing() -> bool", &is_current_stream_capturing);
}

}  // namespace

}  // namespace opsmith

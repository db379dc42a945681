// See host_kernel.h.
#include <opsmith/generated/host_kernel.h>

#include <opsmith/device/capture.h>
#include <opsmith/device/device.h>
#include <opsmith/device/host_view.h>
#include <opsmith/fallback/boxed_tensors.h>
#include <opsmith/fallback/written_argument.h>

#include <c10/util/SmallVector.h>

#include <array>

namespace opsmith {
namespace {

class HostKernel final : public RuntimeKernel {
 public:
  HostKernel(const c10::OperatorHandle& op, std::shared_ptr<const RuntimeKernel> kernel)
      : name_(c10::toString(op.operator_name())), kernel_(std::move(kernel)) {
    for (const c10::Argument& argument : op.schema().arguments()) {
      accesses_.push_back(argument.is_out()      ? Access::kOverwrite
                          : is_written(argument) ? Access::kWrite
                                                 : Access::kRead);
    }
  }

  void operator()(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) const override {
    refuse_graphs();
    HostViews views;
    torch::jit::Stack hosts;
    hosts.reserve(arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      hosts.push_back(with_views(arguments[i],
                                 [&](const at::Tensor& tensor) { return views.view(tensor, accesses_[i]); }));
    }
    (*kernel_)(hosts, results);
    views.commit();
  }

  at::Tensor run(c10::ArrayRef<UnboxedArgument> arguments) const override {
    refuse_graphs();
    HostViews views;
    std::array<at::Tensor, kMostUnboxedArguments> hosts;
    c10::SmallVector<UnboxedArgument, kMostUnboxedArguments> given(arguments.begin(), arguments.end());
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i].tensor != nullptr) {
        hosts[i] = views.view(*given[i].tensor, accesses_[i]);
        given[i].tensor = &hosts[i];
      }
    }
    kernel_->run(given);
    views.commit();
    return at::Tensor();
  }

  std::string description() const override { return kernel_->description(); }

 private:
  void refuse_graphs() const {
    refuse_if_captured(name_.c_str(), "its kernel runs on the host at once", current_device());
  }

  std::string name_;
  std::shared_ptr<const RuntimeKernel> kernel_;
  c10::SmallVector<Access, kMostUnboxedArguments> accesses_;  // by argument
};

}  // namespace

std::shared_ptr<const RuntimeKernel> on_host_views(const c10::OperatorHandle& op,
                                                   std::shared_ptr<const RuntimeKernel> kernel) {
  return std::make_shared<HostKernel>(op, std::move(kernel));
}

}  // namespace opsmith

// Autocast on the device: which operators run in the lower precision, which in float32 and which in the
// widest dtype of their arguments, as on PyTorch's own accelerators. All others run as they are called.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

// PyTorch's macros are made for this namespace.
namespace at::autocast {
namespace {

at::Tensor binary_cross_entropy_banned(const at::Tensor& /*self*/, const at::Tensor& /*target*/,
                                       const std::optional<at::Tensor>& /*weight*/, int64_t /*reduction*/) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: the "
              "logarithm of a probability that was rounded to the lower precision is not what was meant. Use "
              "binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, which may be autocast.");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define OPSMITH_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define OPSMITH_FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define OPSMITH_FLOAT32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define OPSMITH_WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(OPSMITH_LOWER_PRECISION)
  AT_FORALL_FP32(OPSMITH_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(OPSMITH_FLOAT32_RESULT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(OPSMITH_WIDEST)
  m.impl("binary_cross_entropy", &binary_cross_entropy_banned);
}

}  // namespace
}  // namespace at::autocast

// See on_copies.h.
#include <opsmith/generated/on_copies.h>

#include <opsmith/generated/structured.h>

#include <opsmith/on_host.h>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>

namespace opsmith {

namespace {

// TensorIterator as on every device but the CPU: a common dtype, and operands that are not cast.
struct NotCast final : at::TensorIteratorBase {
  NotCast(const at::TensorIteratorBase& iter, at::ScalarType common) : TensorIteratorBase(iter) {
    common_dtype_ = common;
  }
  const at::Tensor& maybe_get_output(int64_t index) override { return output(index); }
};

at::Tensor cast_in_order(const at::Tensor& tensor, at::ScalarType dtype) {
  const at::Tensor cast = at::empty_like(tensor, tensor.options().dtype(dtype));
  copy_in_order(cast, tensor);
  return cast;
}

}  // namespace

// A second iterator over the copies: the first has settled the shape and the common dtype, so nothing is
// resized or checked again.
void run_on_copies(at::TensorIteratorBase& iter, Access access, Casts casts,
                   c10::function_ref<void(at::TensorIterator&)> kernel) {
  const auto common = casts == Casts::kBeforeTheKernel ? common_dtype_of(iter) : std::nullopt;
  HostViews views(detail::kOfGraphs);
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .resize_outputs(false)
      .is_reduction(iter.num_reduce_dims() > 0)
      .promote_inputs_to_common_dtype(common.has_value());
  std::vector<at::Tensor> inputs;
  for (int index = iter.noutputs(); index < iter.ntensors(); ++index) {
    const at::Tensor input = views.view(iter.tensor(index));
    inputs.push_back(
        input.scalar_type() == common.value_or(input.scalar_type()) ? input : cast_in_order(input, *common));
  }
  std::vector<at::Tensor> outputs;
  for (int index = 0; index < iter.noutputs(); ++index) {
    const at::Tensor& out = outputs.emplace_back(views.view(iter.tensor(index), access));
    config.add_owned_output(
        !common.has_value() || detail::has_promised_dtype(out.scalar_type(), *common)
            ? out
            : at::empty_strided(out.sizes(), out.strides(), out.options().dtype(*common)));
  }
  for (const at::Tensor& input : inputs) {
    config.add_owned_const_input(input);
  }
  at::TensorIterator copies = config.build();
  if (casts == Casts::kInTheKernel && common_dtype_of(iter).has_value()) {
    copies = at::TensorIterator(NotCast(copies, iter.common_dtype()));
  }
  kernel(copies);
  for (int index = 0; index < iter.noutputs(); ++index) {
    if (!copies.tensor(index).is_same(outputs[index])) {
      copy_in_order(outputs[index], copies.tensor(index));
    }
  }
  views.commit();
}

}  // namespace opsmith

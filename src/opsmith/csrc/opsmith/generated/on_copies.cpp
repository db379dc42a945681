// See on_copies.h.
#include <opsmith/generated/on_copies.h>

namespace opsmith {

// A second iterator over the copies: the first has settled shapes and dtypes, so nothing is resized, cast or
// checked again.
void run_on_copies(at::TensorIteratorBase& iter, Access access,
                   c10::function_ref<void(at::TensorIterator&)> kernel) {
  HostViews views;
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false).check_all_same_dtype(false).resize_outputs(false).is_reduction(
      iter.num_reduce_dims() > 0);
  std::vector<at::Tensor> inputs;
  for (int index = iter.noutputs(); index < iter.ntensors(); ++index) {
    inputs.push_back(views.view(iter.tensor(index)));
  }
  for (int index = 0; index < iter.noutputs(); ++index) {
    config.add_owned_output(views.view(iter.tensor(index), access));
  }
  for (const at::Tensor& input : inputs) {
    config.add_owned_const_input(input);
  }
  at::TensorIterator copies = config.build();
  kernel(copies);
  views.commit();
}

}  // namespace opsmith

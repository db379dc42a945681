// Softmax, its logarithm, and the loss that is made of it.
#include <algorithm>
#include <string>

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>
#include <ATen/core/IListRef.h>
#include <ATen/TensorMeta.h>

#include "dense.h"
#include "faults.h"
#include "launch.h"

namespace opsmith::compute {
namespace {

constexpr const char* kSoftmax =
#include "softmax.cl"
    ;
constexpr const char* kLoss =
#include "nll_loss.cl"
    ;

void along_lines(const std::string& definitions, const at::Tensor& self, const at::Tensor& result,
                 int64_t dim, const at::Tensor& out) {
  if (self.numel() == 0) {
    return;
  }
  require_dtype(self.scalar_type(), result);
  const at::Tensor in = self.contiguous();
  const at::Tensor known = result.defined() ? result.contiguous() : result;
  const DenseResult written(out);
  const Lines lines = lines_of(self, dim);
  Arguments arguments;
  arguments.tensor(in).tensor(known).tensor(written.tensor()).value(lines.length).value(lines.inner);
  Grid grid;
  grid.groups[0] = static_cast<size_t>(lines.outer * lines.inner);
  const Runs runs = line_runs(lines.length, lines.length, lines.inner == 1, {in, known, written.tensor()});
  const std::string text = definitions + definition("OUT", out.scalar_type()) +
                           definition("OUT_BYTES", runs.width * static_cast<int64_t>(out.element_size()));
  launch("calculate a softmax", group_kernel(kSoftmax, text, runs, in.scalar_type(), out.scalar_type(), grid),
         arguments, grid);
}

// Dense weights of the classes, which share the dtype of `self` as on the CPU; undefined where there are
// none.
at::Tensor class_weights(const at::Tensor& self, at::OptionalTensorRef weight) {
  if (!weight.has_value()) {
    return {};
  }
  require_dtype(self.scalar_type(), *weight);
  return weight->contiguous();
}

}  // namespace

void _softmax(const at::Tensor& self, int64_t dim, bool /*half_to_float*/, const at::Tensor& out) {
  along_lines("", self, {}, dim, out);
}

void _log_softmax(const at::Tensor& self, int64_t dim, bool /*half_to_float*/, const at::Tensor& out) {
  along_lines(definition("LOG"), self, {}, dim, out);
}

void _softmax_backward_data(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim,
                            at::ScalarType /*input_dtype*/, const at::Tensor& grad_input) {
  along_lines(definition("GRADIENT"), grad_output, output, dim, grad_input);
}

void _log_softmax_backward_data(const at::Tensor& grad_output, const at::Tensor& output, int64_t dim,
                                at::ScalarType /*input_dtype*/, const at::Tensor& out) {
  along_lines(definition("GRADIENT") + definition("LOG"), grad_output, output, dim, out);
}

void nll_loss_forward(const at::Tensor& self, const at::Tensor& target, at::OptionalTensorRef weight,
                      int64_t reduction, int64_t ignore_index, const at::Tensor& output,
                      const at::Tensor& total_weight) {
  const int64_t classes = self.size(-1);
  const int64_t rows = self.dim() == 1 ? 1 : self.size(0);
  const at::Tensor in = self.contiguous();
  const at::Tensor targets = target.contiguous();
  const at::Tensor weights = class_weights(self, weight);
  at::Tensor losses = at::empty({rows}, self.options());
  at::Tensor counted = at::empty({rows}, self.options());
  if (rows > 0) {
    Arguments arguments;
    arguments.tensor(in).tensor(targets).tensor(weights).tensor(losses).tensor(counted).address(faults());
    arguments.value(rows).value(classes).value(ignore_index);
    launch("calculate a loss",
           kernel(kLoss, fault_definitions() + definition("DTYPE", self.scalar_type()) +
                             definition_if(weights.defined(), "WEIGHTED")),
           arguments, linear(rows));
  }
  if (reduction == at::Reduction::None && self.dim() == 2) {
    output.copy_(losses);
    total_weight.zero_();
    return;
  }
  total_weight.copy_(counted.sum());
  at::Tensor sum = losses.sum();
  output.copy_(reduction == at::Reduction::Mean ? sum.div_(total_weight) : sum);
}

void nll_loss_backward(const at::Tensor& grad_output, const at::Tensor& self, const at::Tensor& target,
                       at::OptionalTensorRef weight, int64_t reduction, int64_t ignore_index,
                       const at::Tensor& total_weight, const at::Tensor& grad_input) {
  const int64_t classes = self.size(-1);
  const int64_t rows = self.dim() == 1 ? 1 : self.size(0);
  require_dtype(self.scalar_type(), grad_output, total_weight);
  const DenseResult written(grad_input);
  written.tensor().zero_();
  if (rows == 0) {
    return;
  }
  const at::Tensor grad = grad_output.contiguous();
  const at::Tensor targets = target.contiguous();
  const at::Tensor weights = class_weights(self, weight);
  const bool by_row = reduction == at::Reduction::None && self.dim() == 2;
  const int32_t kind = by_row ? 0 : reduction == at::Reduction::Mean ? 1 : 2;
  Arguments arguments;
  arguments.tensor(grad).tensor(targets).tensor(weights).tensor(total_weight).tensor(written.tensor());
  arguments.address(faults()).value(rows).value(classes).value(ignore_index).value(kind);
  launch("calculate a loss's gradient",
         kernel(kLoss, fault_definitions() + definition("DTYPE", self.scalar_type()) +
                           definition("BACKWARD") + definition_if(weights.defined(), "WEIGHTED")),
         arguments, linear(rows));
}

}  // namespace opsmith::compute

// Kernels that calculate each element of one result from the elements at the same place in the operands, in
// C: `a`, `b`, `c`, `d` are the operands, `x`, `y`, `z` numbers of the call.
#pragma once

#include <initializer_list>

#include <ATen/TensorIterator.h>
#include <c10/core/Scalar.h>

namespace opsmith::compute {

// The value of an operand on the CPU: rounded to `computed`, as in most of the CPU's kernels, or, for Half
// and BFloat16, exact, as in those of * and /.
enum class CpuOperands : bool { kStored, kExact };

// result = expression. Operands are read in their own dtypes and computed in that of `computed` (float for
// Half and BFloat16, int for the small integers and Bool), `C` in the expression; numbers are given in it
// too. An operand of one element on the CPU is passed as a number, see CpuOperands. `expression` is a
// literal, and the key under which the kernel is found again.
void pointwise(at::TensorIteratorBase& iter, const char* expression, at::ScalarType computed,
               std::initializer_list<at::Scalar> numbers = {},
               CpuOperands cpu_operands = CpuOperands::kStored);

// The same in the operands' common dtype.
void pointwise(at::TensorIteratorBase& iter, const char* expression,
               std::initializer_list<at::Scalar> numbers = {},
               CpuOperands cpu_operands = CpuOperands::kStored);

}  // namespace opsmith::compute

// The kernel of a structured operator without arguments beside its operands.
#define OPSMITH_POINTWISE(name, expression) \
  void name(at::TensorIteratorBase& iter) { \
    pointwise(iter, expression);            \
  }

// A Python function as a kernel of one operator.
//
// Note [How a Python kernel is called]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// All arguments of the schema are passed, defaults too: the positional ones positionally, so that the
// function may name them as it likes, the keyword-only ones (`out` is one) as keywords. A dtype is a
// torch.dtype, a device a torch.device, a SymInt an int, an absent Tensor is None.
// description/python_kernel.py checks at registration that the function can be called so.
#pragma once

#include <opsmith/generated/boxed_derivation.h>

#include <Python.h>

#include <string>
#include <vector>

#include <c10/core/SafePyObject.h>

namespace opsmith {

class PythonKernel final : public RuntimeKernel {
 public:
  // The GIL is held. `description` is for error messages; `refusal`, if not null, is the type of the
  // exception that refuses a call, which then leaves as opsmith::Unsupported.
  PythonKernel(PyObject* function, const c10::OperatorName& operator_name, std::string description,
               PyObject* refusal);
  ~PythonKernel() override;

  // Acquires the GIL. Throws python_error, with the exception that the function raised; TypeError when it
  // returns something else than the schema says; RecursionError when it calls itself without end.
  void operator()(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) const override;

  // As above.
  at::Tensor run(c10::ArrayRef<UnboxedArgument> arguments) const override;

  std::string description() const override { return description_; }

 private:
  // The kind of an argument, where the boxed value does not tell.
  enum class Form { kValue, kDtype, kLayout, kMemoryFormat };

  static Form form_of(const c10::Argument& argument);
  static PyObject* python_value(const c10::IValue& value, Form form);
  // Throws RecursionError when the kernel runs within itself `depth` times, which is too deep.
  void check_depth(int depth) const;
  PyObject* called(PyObject* const* arguments) const;
  [[noreturn]] void throw_raised() const;
  c10::IValue boxed_value(PyObject* object, const c10::Argument& returned) const;
  void push_results(PyObject* returned, torch::jit::Stack& results) const;

  c10::SafePyObject function_;
  c10::OperatorHandle op_;
  std::string description_;
  std::vector<Form> forms_;                    // by argument
  size_t positional_;                          // arguments
  std::optional<c10::SafePyObject> keywords_;  // the tuple of the others' names
  std::optional<c10::SafePyObject> refusal_;
  std::vector<const c10::Argument*> returns_;  // less those that are arguments
};

}  // namespace opsmith

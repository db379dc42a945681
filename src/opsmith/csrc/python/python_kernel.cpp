// Calling a Python function with boxed values. See python_kernel.h.
#include "python_kernel.h"

#include <opsmith/unsupported.h>
#include <opsmith/fallback/written_argument.h>

#include <ATen/core/jit_type.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_layouts.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

namespace opsmith {
namespace {

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// The exception that Python has raised, which travels through C++ with its type and traceback.
[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();
  throw std::move(error);
}

// References that a call owns: slot 0 is the callee's to use, as vectorcall allows.
class Arguments {
 public:
  explicit Arguments(size_t count) { objects_.reserve(count + 1), objects_.push_back(nullptr); }
  ~Arguments() {
    for (size_t i = 1; i < objects_.size(); ++i) {
      Py_DECREF(objects_[i]);
    }
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void push(PyObject* owned) {
    if (C10_UNLIKELY(owned == nullptr)) {
      throw_python_error();
    }
    objects_.push_back(owned);
  }
  PyObject** data() { return objects_.data() + 1; }

 private:
  c10::SmallVector<PyObject*, 8> objects_;
};

// Python's own limit on recursion does not know how much of the C++ stack each turn through the dispatcher
// takes.
constexpr int kDeepest = 50;

// The Python kernels that run in this thread, innermost first.
class Frame {
 public:
  explicit Frame(const PythonKernel* kernel) : kernel_(kernel), outer_(innermost) {
    for (const Frame* frame = outer_; frame != nullptr; frame = frame->outer_) {
      if (frame->kernel_ == kernel) {
        depth_ = frame->depth_ + 1;
        break;
      }
    }
    innermost = this;
  }
  ~Frame() { innermost = outer_; }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  int depth() const { return depth_; }

 private:
  static thread_local const Frame* innermost;
  const PythonKernel* kernel_;
  const Frame* outer_;
  int depth_ = 1;
};

thread_local const Frame* Frame::innermost = nullptr;

PyObject* new_reference(PyObject* object) {
  Py_INCREF(object);
  return object;
}

PyObject* python_tensor(const at::Tensor& tensor) {
  return tensor.defined() ? THPVariable_Wrap(tensor) : new_reference(Py_None);
}

PyObject* python_number(const at::Scalar& number) {
  if (number.isFloatingPoint()) {
    return PyFloat_FromDouble(number.toDouble());
  }
  if (number.isBoolean()) {
    return PyBool_FromLong(number.toBool() ? 1 : 0);
  }
  if (number.isIntegral(/*includeBool=*/false)) {
    return PyLong_FromLongLong(number.toLong());
  }
  return torch::jit::toPyObject(number).release().ptr();
}

c10::SafePyObject safe(PyObject* owned) {
  return c10::SafePyObject(owned, getPyInterpreter());
}

std::string type_name(PyObject* object) {
  return object == Py_None ? std::string("None") : c10::str("a ", Py_TYPE(object)->tp_name);
}

}  // namespace

PythonKernel::PythonKernel(PyObject* function, const c10::OperatorName& operator_name,
                           std::string description, PyObject* refusal)
    : function_(safe(new_reference(function))),
      op_(c10::Dispatcher::singleton().findSchemaOrThrow(operator_name.name.c_str(),
                                                         operator_name.overload_name.c_str())),
      description_(std::move(description)) {
  const c10::FunctionSchema& schema = op_.schema();
  std::vector<std::string> keywords;
  for (const c10::Argument& argument : schema.arguments()) {
    forms_.push_back(form_of(argument));
    if (argument.kwarg_only()) {
      keywords.push_back(argument.name());
    }
  }
  positional_ = schema.arguments().size() - keywords.size();
  if (!keywords.empty()) {
    PyObject* names = PyTuple_New(static_cast<Py_ssize_t>(keywords.size()));
    for (size_t i = 0; i < keywords.size(); ++i) {
      PyTuple_SET_ITEM(names, i, PyUnicode_InternFromString(keywords[i].c_str()));
    }
    keywords_.emplace(safe(names));
  }
  if (refusal != nullptr) {
    refusal_.emplace(safe(new_reference(refusal)));
  }
  for (const c10::Argument& returned : schema.returns()) {
    if (!is_written(returned)) {
      returns_.push_back(&returned);
    }
  }
}

PythonKernel::~PythonKernel() = default;

void PythonKernel::operator()(c10::ArrayRef<c10::IValue> arguments, torch::jit::Stack& results) const {
  const Gil gil;
  const Frame frame(this);
  check_depth(frame.depth());
  Arguments objects(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    objects.push(python_value(arguments[i], forms_[i]));
  }
  push_results(py::reinterpret_steal<py::object>(called(objects.data())).ptr(), results);
}

at::Tensor PythonKernel::run(c10::ArrayRef<UnboxedArgument> arguments) const {
  const Gil gil;
  const Frame frame(this);
  check_depth(frame.depth());
  Arguments objects(arguments.size());
  for (const UnboxedArgument& argument : arguments) {
    objects.push(argument.tensor != nullptr ? python_tensor(*argument.tensor)
                                            : python_number(*argument.number));
  }
  const auto returned = py::reinterpret_steal<py::object>(called(objects.data()));
  return returns_.empty() ? at::Tensor() : boxed_value(returned.ptr(), *returns_.front()).toTensor();
}

void PythonKernel::check_depth(int depth) const {
  if (C10_LIKELY(depth <= kDeepest)) {
    return;
  }
  PyErr_SetString(
      PyExc_RecursionError,
      c10::str(description_, ", the kernel of ", op_.operator_name(), ", has called itself ", kDeepest,
               " times: an operator that it calls is served by it\n"
               "  remedy: let it call only operators of other kernels; `backend.plan.entry(name).why` "
               "tells which kernel serves an operator")
          .c_str());
  throw_python_error();
}

// A new reference to what the function returned.
PyObject* PythonKernel::called(PyObject* const* arguments) const {
  PyObject* returned = PyObject_Vectorcall(
      function_.ptr(getPyInterpreter()), arguments, positional_ | PY_VECTORCALL_ARGUMENTS_OFFSET,
      keywords_.has_value() ? keywords_->ptr(getPyInterpreter()) : nullptr);
  if (C10_UNLIKELY(returned == nullptr)) {
    throw_raised();
  }
  return returned;
}

// Throws the exception that the function raised.
void PythonKernel::throw_raised() const {
  if (refusal_.has_value() && PyErr_ExceptionMatches(refusal_->ptr(getPyInterpreter())) != 0) {
    const py::error_already_set raised;
    throw Unsupported(py::str(raised.value()));
  }
  throw_python_error();
}

PythonKernel::Form PythonKernel::form_of(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    type = type->castRaw<c10::OptionalType>()->getElementType();
  }
  switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType:
      return Form::kDtype;
    case c10::TypeKind::LayoutType:
      return Form::kLayout;
    case c10::TypeKind::MemoryFormatType:
      return Form::kMemoryFormat;
    default:
      return Form::kValue;
  }
}

PyObject* PythonKernel::python_value(const c10::IValue& value, Form form) {
  if (C10_LIKELY(value.isTensor())) {
    return python_tensor(value.toTensor());
  }
  if (value.isNone()) {
    return new_reference(Py_None);
  }
  if (value.isInt()) {
    switch (form) {
      case Form::kValue:
        return PyLong_FromLongLong(value.toInt());
      case Form::kDtype:
        return new_reference(reinterpret_cast<PyObject*>(torch::getTHPDtype(value.toScalarType())));
      case Form::kLayout:
        return new_reference(reinterpret_cast<PyObject*>(torch::getTHPLayout(value.toLayout())));
      case Form::kMemoryFormat:
        return new_reference(torch::utils::getTHPMemoryFormat(value.toMemoryFormat()));
    }
  }
  if (value.isDouble()) {
    return PyFloat_FromDouble(value.toDouble());
  }
  if (value.isBool()) {
    return PyBool_FromLong(value.toBool() ? 1 : 0);
  }
  return torch::jit::toPyObject(value).release().ptr();
}

c10::IValue PythonKernel::boxed_value(PyObject* object, const c10::Argument& returned) const {
  if (returned.type()->kind() == c10::TypeKind::TensorType) {
    if (C10_LIKELY(THPVariable_Check(object))) {
      return THPVariable_Unpack(object);
    }
  } else {
    try {
      return torch::jit::toIValue(object, returned.real_type());
    } catch (const std::exception&) {  // py::cast_error and others: said below, with the kernel's name
      PyErr_Clear();
    }
  }
  C10_THROW_ERROR(TypeError, c10::str(description_, ", the kernel of ", op_.operator_name(), ", returned ",
                                      type_name(object), " where the schema has ",
                                      returned.real_type()->annotation_str(), ": ", op_.schema()));
}

void PythonKernel::push_results(PyObject* returned, torch::jit::Stack& results) const {
  if (returns_.empty()) {
    return;
  }
  if (returns_.size() == 1) {
    results.push_back(boxed_value(returned, *returns_.front()));
    return;
  }
  const bool sequence = PyTuple_Check(returned) || PyList_Check(returned);
  const size_t count = sequence ? PySequence_Fast_GET_SIZE(returned) : 0;
  if (count != returns_.size()) {
    C10_THROW_ERROR(TypeError, c10::str(description_, ", the kernel of ", op_.operator_name(), ", returned ",
                                        sequence ? c10::str(count, " values") : type_name(returned),
                                        " where the schema has ", returns_.size(), ": ", op_.schema()));
  }
  for (size_t i = 0; i < count; ++i) {
    results.push_back(boxed_value(PySequence_Fast_GET_ITEM(returned, i), *returns_[i]));
  }
}

}  // namespace opsmith

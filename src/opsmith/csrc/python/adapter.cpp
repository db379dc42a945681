// The extension module through which runtime/python/python_kernels.py registers Python functions with the
// dispatcher. It offers what boxed_derivation.h has, in Python's words, and decides nothing.
#include <opsmith/generated/boxed_derivation.h>
#include <opsmith/generated/structured_metas.h>

#include "python_kernel.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <unordered_map>

namespace py = pybind11;

namespace opsmith {
namespace {

const std::unordered_map<std::string, AlikeResult>& alike_results() {
  static const std::unordered_map<std::string, AlikeResult> all{
      {"", AlikeResult::kUnknown}, {"SAME", AlikeResult::kSame}, {"BOOL", AlikeResult::kBool}};
  return all;
}

const std::unordered_map<std::string, Operands>& operand_rules() {
  static const std::unordered_map<std::string, Operands> all{{"ONE_DEVICE", Operands::kOneDevice},
                                                             {"SCALARS_FROM_CPU", Operands::kScalarsFromCpu},
                                                             {"ANY", Operands::kAny}};
  return all;
}

template <class Value>
Value named(const std::unordered_map<std::string, Value>& all, const std::string& name) {
  const auto found = all.find(name);
  TORCH_CHECK_VALUE(found != all.end(), "the adapter knows no `", name, "`: rebuild it");
  return found->second;
}

// "aten::add.out" as the dispatcher has it.
c10::OperatorName operator_name(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? c10::OperatorName(name, "")
                                  : c10::OperatorName(name.substr(0, dot), name.substr(dot + 1));
}

c10::ScalarType scalar_type(const std::string& name) {
  for (int8_t i = 0; i < static_cast<int8_t>(c10::ScalarType::NumOptions); ++i) {
    if (name == c10::toString(static_cast<c10::ScalarType>(i))) {
      return static_cast<c10::ScalarType>(i);
    }
  }
  TORCH_CHECK_VALUE(false, "no dtype is called ", name);
}

using Dtypes = std::vector<std::pair<std::string, std::vector<std::string>>>;

std::unique_ptr<VariantRegistration> register_variant(
    const std::string& name, const std::string& kernel_operator, const std::optional<std::string>& shaped_by,
    bool like_self, bool own_kernel, bool writes_back, const std::string& alike_result, bool promotes,
    const std::string& operands, const Dtypes& dtypes, bool has_next, const std::string& other_dtypes,
    bool fails_over, bool resolves_operands, bool on_host_views, bool on_copies,
    std::shared_ptr<PythonKernel> kernel) {
  Variant variant{.name = operator_name(name), .kernel = operator_name(kernel_operator), .shaped_by = {}};
  if (shaped_by.has_value()) {
    variant.shaped_by = operator_name(*shaped_by);
    if (const c10::KernelFunction* meta = structured_meta(*shaped_by)) {
      variant.meta_function = *meta;
    }
  }
  variant.like_self = like_self;
  variant.own_kernel = own_kernel;
  variant.writes_back = writes_back;
  variant.alike_result = named(alike_results(), alike_result);
  variant.promotes = promotes;
  variant.operands = named(operand_rules(), operands);
  for (const auto& [argument, names] : dtypes) {
    std::vector<c10::ScalarType> types;
    for (const std::string& dtype : names) {
      types.push_back(scalar_type(dtype));
    }
    variant.dtypes.emplace_back(argument, std::move(types));
  }
  if (!other_dtypes.empty()) {
    variant.other_dtypes = last_resort(other_dtypes);
  }
  variant.has_next = has_next;
  variant.fails_over = fails_over;
  variant.resolves_operands = resolves_operands;
  variant.on_host_views = on_host_views;
  variant.on_copies = on_copies;
  return std::make_unique<VariantRegistration>(std::move(variant), std::move(kernel));
}

}  // namespace

PYBIND11_MODULE(opsmith_adapter, m) {
  py::class_<PythonKernel, std::shared_ptr<PythonKernel>>(m, "PythonKernel")
      .def(py::init([](const py::object& function, const std::string& name, std::string description,
                       const py::object& refusal) {
             return std::make_shared<PythonKernel>(function.ptr(), operator_name(name),
                                                   std::move(description),
                                                   refusal.is_none() ? nullptr : refusal.ptr());
           }),
           py::arg("function"), py::arg("operator"), py::arg("description"), py::arg("refusal"));
  py::class_<VariantRegistration>(m, "VariantRegistration")
      .def(py::init(&register_variant), py::kw_only(), py::arg("name"), py::arg("kernel_operator"),
           py::arg("shaped_by"), py::arg("like_self"), py::arg("own_kernel"), py::arg("writes_back"),
           py::arg("alike_result"), py::arg("promotes"), py::arg("operands"), py::arg("dtypes"),
           py::arg("has_next"), py::arg("other_dtypes"), py::arg("fails_over"), py::arg("resolves_operands"),
           py::arg("on_host_views"), py::arg("on_copies"), py::arg("kernel"));
  m.def("set_reason", &set_reason, py::arg("operator"), py::arg("reason"));
}

}  // namespace opsmith

// One boxed kernel for every schema, route and derivation. See boxed_derivation.h.
#include <opsmith/generated/boxed_derivation.h>

#include <opsmith/generated/derived.h>
#include <opsmith/device/driver.h>
#include <opsmith/device/empty.h>
#include <opsmith/fallback/boxed_tensors.h>
#include <opsmith/fallback/fallback.h>
#include <opsmith/fallback/fallback_cause.h>
#include <opsmith/fallback/fallback_counts.h>
#include <opsmith/fallback/policy_reasons.h>
#include <opsmith/fallback/refusal.h>
#include <opsmith/generated/host_kernel.h>
#include <opsmith/generated/lazy_operands.h>
#include <opsmith/generated/structured.h>
#include <opsmith/device/device_work.h>
#include <opsmith/fallback/written_argument.h>
#include <opsmith/unsupported.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <type_traits>

namespace opsmith {
namespace {

using Values = c10::ArrayRef<c10::IValue>;
using torch::jit::Stack;

// ---- the Tensors of boxed values ----

// Whether `tensor` is like `first` as it is: numbers of Python's are cast.
bool is_like_uncast(const at::Tensor& tensor, const at::Tensor& first) {
  return tensor.scalar_type() == first.scalar_type() && detail::is_like(tensor, first);
}

// Those that the values consist of, undefined ones included: the results of a kernel or its destinations.
std::vector<at::Tensor> flattened(Values values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      tensors.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const c10::IValue& element : value.toListRef()) {
        tensors.push_back(element.toTensor());
      }
    }
  }
  return tensors;
}

// The opposite: `tensors` as the values that `types` ask for, a list taking all of them.
template <class Declared>
void push_as(c10::ArrayRef<Declared> declared, const std::vector<at::Tensor>& tensors, Stack& stack) {
  size_t next = 0;
  for (const Declared& one : declared) {
    if (one.type()->kind() == c10::TypeKind::ListType) {
      stack.emplace_back(c10::List<at::Tensor>(at::TensorList(tensors).slice(next)));
      next = tensors.size();
    } else {
      stack.emplace_back(next < tensors.size() ? tensors[next] : at::Tensor());
      ++next;
    }
  }
}

// ---- what a meta kernel is asked with ----

c10::IValue on_meta(const c10::IValue& value) {
  if (value.isTensor()) {
    return meta(value.toTensor());
  }
  if (value.isTensorList()) {
    const std::vector<at::Tensor> tensors = value.toTensorVector();
    return meta(at::ITensorListRef(tensors));
  }
  if (is_optional_tensor_list(value)) {
    return meta(c10::impl::toTypedList<std::optional<at::Tensor>>(value.toList()));
  }
  if (value.isDevice() && value.toDevice().is_privateuseone()) {
    return c10::Device(c10::kMeta);
  }
  return value.isGenerator() ? c10::IValue() : value;
}

// A copy of `name` that lives as long as the process, as counts need it; one for each name.
const char* lasting(const std::string& name) {
  static std::mutex mutex;
  static auto& names = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(name).first->c_str();
}

// ---- schemas ----

// Where each argument of one variant comes from in another one: by name.
std::vector<std::optional<size_t>> sources(const c10::FunctionSchema& of, const c10::FunctionSchema& in,
                                           bool with_outputs) {
  std::vector<std::optional<size_t>> result;
  for (const c10::Argument& argument : of.arguments()) {
    if (with_outputs || !argument.is_out()) {
      result.push_back(in.argumentIndexWithName(argument.name()));
    }
  }
  return result;
}

size_t outputs_of(const c10::FunctionSchema& schema) {
  return std::count_if(schema.arguments().begin(), schema.arguments().end(),
                       [](const c10::Argument& argument) { return argument.is_out(); });
}

// For each return the argument that it is, where the operator writes to an argument and returns it.
std::vector<std::optional<size_t>> returned_arguments(const c10::FunctionSchema& schema) {
  std::vector<std::optional<size_t>> result;
  for (const c10::Argument& returned : schema.returns()) {
    std::optional<size_t> same;
    if (is_written(returned)) {
      for (size_t i = 0; i < schema.arguments().size() && !same.has_value(); ++i) {
        const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
        if (alias != nullptr && alias->beforeSets() == returned.alias_info()->beforeSets()) {
          same = i;
        }
      }
    }
    result.push_back(same);
  }
  return result;
}

enum class Kind { kFunctional, kInplace, kOut };

Kind kind_of(const c10::FunctionSchema& schema) {
  if (outputs_of(schema) > 0) {
    return Kind::kOut;
  }
  const bool inplace = !schema.arguments().empty() && is_written(schema.arguments().front());
  return inplace ? Kind::kInplace : Kind::kFunctional;
}

// ---- dtypes ----

// The dtype in which TensorIterator would compute a result of dtype `result`. Only a predicate's result,
// Bool, does not say it: that compares its operands, Tensors and Numbers, in their own common dtype.
at::ScalarType common_dtype(at::ScalarType result, const c10::FunctionSchema& schema, Values given) {
  if (result != at::kBool) {
    return result;
  }
  at::native::ResultTypeState state;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].isTensor() && given[i].toTensor().defined()) {
      state = at::native::update_result_type_state(given[i].toTensor(), state);
    } else if (given[i].isScalar() && schema.arguments()[i].type()->kind() == c10::TypeKind::NumberType) {
      state = at::native::update_result_type_state(given[i].toScalar(), state);
    }
  }
  return at::native::result_type(state);
}

uint64_t mask_of(const std::vector<c10::ScalarType>& dtypes) {
  uint64_t mask = 0;
  for (const c10::ScalarType dtype : dtypes) {
    mask |= uint64_t{1} << static_cast<int>(dtype);
  }
  return mask;
}

bool has(uint64_t mask, c10::ScalarType dtype) {
  return (mask >> static_cast<int>(dtype) & 1) != 0;
}

// ---- a call's results, as the meta kernel or the operands tell them ----

struct Expected {
  bool known = false;
  const at::Tensor* like = nullptr;  // the operands are alike, and so is the only result
  at::ScalarType like_dtype = at::ScalarType::Undefined;
  std::vector<at::Tensor> metas;

  at::IntArrayRef sizes(size_t index) const { return like != nullptr ? like->sizes() : metas[index].sizes(); }
  at::ScalarType dtype(size_t index) const {
    return like != nullptr ? like_dtype : metas[index].scalar_type();
  }
  size_t count() const { return like != nullptr ? 1 : metas.size(); }
  at::Tensor allocate(size_t index) const {
    if (like != nullptr) {
      return empty_fast(like->sizes(), like_dtype, like->device());
    }
    return metas[index].defined() ? allocate_as(metas[index]) : at::Tensor();
  }
};

// Where a kernel writes one result, and where it belongs afterwards when that is another Tensor.
struct Destination {
  at::Tensor written;
  at::Tensor belongs;
};

using Destinations = c10::SmallVector<Destination, 2>;

// The combinations of dtypes and numbers of dimensions for which a functional kernel's result was compared
// with the meta kernel's. Asking the meta kernel costs more than a small kernel takes, so it is asked once
// for each, at the first call: what a kernel gets wrong for other sizes or numbers only goes unnoticed.
class SeenOperands {
 public:
  static constexpr uint64_t kNoOperands = 1;
  static uint64_t key_with(uint64_t key, const at::Tensor& tensor) {
    return key * 1099511628211u + static_cast<uint64_t>(tensor.scalar_type()) * 64 +
           static_cast<uint64_t>(tensor.dim());
  }
  static uint64_t key_of(Values given) {
    uint64_t key = kNoOperands;
    for (const c10::IValue& value : given) {
      for_each_tensor(value, [&](const at::Tensor& tensor) { key = key_with(key, tensor); });
    }
    return key;
  }

  bool has(uint64_t key) const {
    const std::lock_guard lock(mutex_);
    return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
  }
  void add(uint64_t key) {
    const std::lock_guard lock(mutex_);
    if (keys_.size() < kMost) {
      keys_.push_back(key);
    }
  }

 private:
  static constexpr size_t kMost = 64;
  mutable std::mutex mutex_;
  c10::SmallVector<uint64_t, 4> keys_;
};

class BoxedDerivation final : public UnboxedServer {
 public:
  BoxedDerivation(Variant variant, std::shared_ptr<const RuntimeKernel> kernel)
      : variant_(std::move(variant)),
        full_name_(full_name(variant_.name)),
        counted_name_(variant_.on_copies ? lasting(full_name_) : nullptr),
        op_(c10::Dispatcher::singleton().findSchemaOrThrow(variant_.name.name.c_str(),
                                                           variant_.name.overload_name.c_str())),
        kernel_op_(c10::Dispatcher::singleton().findSchemaOrThrow(variant_.kernel.name.c_str(),
                                                                  variant_.kernel.overload_name.c_str())),
        kernel_(variant_.on_host_views ? on_host_views(kernel_op_, std::move(kernel)) : std::move(kernel)),
        schema_(op_.schema()),
        kernel_schema_(kernel_op_.schema()),
        outputs_(outputs_of(schema_)),
        kind_(kind_of(schema_)),
        kernel_kind_(kind_of(kernel_schema_)),
        kernel_sources_(sources(kernel_schema_, schema_, /*with_outputs=*/false)),
        returned_(returned_arguments(schema_)) {
    if (variant_.has_next) {
      next_ = op_.getComputedKernelForDispatchKey(c10::DispatchKey::PrivateUse1);
    }
    if (variant_.shaped_by.has_value()) {
      shaped_by_ = c10::Dispatcher::singleton().findSchemaOrThrow(variant_.shaped_by->name.c_str(),
                                                                  variant_.shaped_by->overload_name.c_str());
      shape_sources_ = sources(shaped_by_->schema(), schema_, *variant_.shaped_by == variant_.name);
    }
    for (const auto& [argument, dtypes] : variant_.dtypes) {
      if (argument.empty()) {
        computed_dtypes_ = mask_of(dtypes);
      } else if (const auto index = schema_.argumentIndexWithName(argument)) {
        argument_dtypes_.emplace_back(*index, mask_of(dtypes));
      }
    }
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      const c10::Argument& argument = schema_.arguments()[i];
      if (!argument.is_out() && argument.type()->isSubtypeOf(c10::OptionalType::ofTensor())) {
        operands_.push_back(i);
      }
    }
  }

  const c10::OperatorHandle& op() const { return op_; }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const Values given = torch::jit::last(*stack, schema_.arguments().size());
    if (variant_.resolves_operands && has_lazy_operands(given)) {
      with_resolved_operands(op, keys, stack);
      return;
    }
    const Serving serving(schema_.name().c_str(), schema_.overload_name().c_str());
    const DeviceScope scope(device_of(given));
    Stack results;
    try {
      if (C10_UNLIKELY(!serve(given, results))) {
        next_.has_value() ? next_->callBoxed(op, keys, stack) : variant_.other_dtypes(op, keys, stack);
        return;
      }
    } catch (const Unsupported& refusal) {
      if (!variant_.fails_over) {
        throw;
      }
      const FallbackCause cause(refusal.reason());
      next_.has_value() ? next_->callBoxed(op, keys, stack) : fallback(op, keys, stack);
      return;
    }
    if (!std::all_of(returned_.begin(), returned_.end(),
                     [](const auto& same) { return !same.has_value(); })) {
      results = with_arguments(given, std::move(results));
    }
    torch::jit::drop(*stack, schema_.arguments().size());
    std::move(results.begin(), results.end(), std::back_inserter(*stack));
  }

  bool serve_unboxed(UnboxedArgument* arguments, size_t count, at::Tensor& result) override {
    const Serving serving(schema_.name().c_str(), schema_.overload_name().c_str());
    const size_t inputs = count - outputs_;
    const at::Tensor* first = arguments[0].tensor;
    const auto is_given_lazy = [](const UnboxedArgument& argument) {
      return argument.tensor != nullptr && argument.tensor->defined() && is_lazy(*argument.tensor);
    };
    if (C10_UNLIKELY(
            first->device() != c10::Device(c10::kPrivateUse1, current_device()) ||
            (variant_.resolves_operands && std::any_of(arguments, arguments + count, is_given_lazy)) ||
            (computed_dtypes_ != 0 && !has(computed_dtypes_, first->scalar_type())))) {
      return false;
    }
    for (const auto& [index, mask] : argument_dtypes_) {
      const at::Tensor* given = arguments[index].tensor;
      if (given == nullptr || !given->defined() || !has(mask, given->scalar_type())) {
        return false;
      }
    }
    if (variant_.alike_result == AlikeResult::kUnknown) {
      return serve_seen(arguments, count, result);
    }
    if (!elementwise_alike(*first)) {
      return false;
    }
    for (size_t i = 1; i < inputs; ++i) {
      const at::Tensor* other = arguments[i].tensor;
      if (other != nullptr ? !other->defined() || !is_like_uncast(*other, *first)
                           : !detail::is_like(*arguments[i].number, *first)) {
        return false;
      }
    }
    const at::ScalarType dtype =
        variant_.alike_result == AlikeResult::kBool ? at::kBool : first->scalar_type();
    if (kernel_kind_ == Kind::kFunctional) {
      if (!variant_.own_kernel) {
        return false;
      }
      result = run({arguments, count});
      if (C10_UNLIKELY(!(result.scalar_type() == dtype && result.device() == first->device() &&
                         result.sizes() == first->sizes()))) {
        throw_wrong_result(result, dtype, first->sizes(), first->device(), "");
      }
      return true;
    }
    if (kernel_kind_ == Kind::kInplace) {
      if (!variant_.own_kernel || dtype != first->scalar_type() ||
          !is_clear(*first, arguments + 1, inputs - 1)) {
        return false;
      }
      run({arguments, count});
      return true;
    }
    return run_unboxed_into(arguments, inputs, dtype, result);
  }

 private:
  // An out kernel, of a variant that may lack `out`; the operands are alike, and the result of `dtype`.
  bool run_unboxed_into(UnboxedArgument* arguments, size_t inputs, at::ScalarType dtype,
                        at::Tensor& result) const {
    const at::Tensor* first = arguments[0].tensor;
    switch (kind_) {
      case Kind::kFunctional:
        result = empty_fast(first->sizes(), dtype, first->device());
        arguments[inputs] = {&result, nullptr};
        break;
      case Kind::kInplace:
        if (variant_.writes_back || dtype != first->scalar_type() ||
            !is_clear(*first, arguments + 1, inputs - 1)) {
          return false;
        }
        arguments[inputs] = {first, nullptr};
        break;
      case Kind::kOut: {
        const at::Tensor& out = *arguments[inputs].tensor;
        if (out.scalar_type() != dtype || out.device() != first->device() || out.sizes() != first->sizes() ||
            !out.is_contiguous() || !is_clear(out, arguments, inputs)) {
          return false;
        }
        break;
      }
    }
    run({arguments, inputs + 1});
    return true;
  }

  // A functional kernel that has been called with such operands before, and has returned what it must.
  bool serve_seen(UnboxedArgument* arguments, size_t count, at::Tensor& result) const {
    if (!variant_.own_kernel || variant_.promotes || kernel_kind_ != Kind::kFunctional ||
        !shaped_by_.has_value()) {
      return false;
    }
    uint64_t key = SeenOperands::kNoOperands;
    for (size_t i = 0; i < count; ++i) {
      if (const at::Tensor* tensor = arguments[i].tensor) {
        if (!tensor->defined() || tensor->device() != arguments[0].tensor->device()) {
          return false;
        }
        key = SeenOperands::key_with(key, *tensor);
      }
    }
    if (!seen_.has(key)) {
      return false;
    }
    result = run({arguments, count});
    return true;
  }

  // Whether writing to `written` cannot disturb an operand that is yet to be read. All are contiguous.
  static bool is_clear(const at::Tensor& written, const UnboxedArgument* arguments, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const at::Tensor* read = arguments[i].tensor;
      if (read == nullptr || read == &written) {
        continue;
      }
      const bool same_size = read->scalar_type() == written.scalar_type();
      if (same_size ? !detail::is_clear_of(*read, written) : read->is_alias_of(written)) {
        return false;
      }
    }
    return true;
  }

  // ---- before the kernel

  c10::DeviceIndex device_of(Values given) const {
    c10::Device device(c10::kCPU);
    for (const c10::IValue& value : given) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (device.is_cpu()) {
          device = tensor.device();
        }
      });
      if (C10_UNLIKELY(value.isDevice() && device.is_cpu() && value.toDevice().is_privateuseone())) {
        device = c10::Device(c10::kPrivateUse1, checked_device(value.toDevice().index()));
      }
    }
    if (variant_.operands != Operands::kAny) {
      for (size_t i = 0; i < given.size(); ++i) {
        for_each_tensor(given[i], [&](const at::Tensor& tensor) {
          const bool scalar = variant_.operands == Operands::kScalarsFromCpu && tensor.device().is_cpu() &&
                              tensor.dim() == 0 && !is_written(schema_.arguments()[i]);
          if (C10_UNLIKELY(tensor.device() != device && !scalar)) {
            detail::throw_mixed_devices(full_name_.c_str(), device, tensor);
          }
        });
      }
    }
    return device.is_cpu() ? current_device() : device.index();
  }

  const at::Tensor* operand(Values given, size_t index) const {
    const c10::IValue& value = given[operands_[index]];
    return value.isTensor() && value.toTensor().defined() ? &value.toTensor() : nullptr;
  }

  bool alike(Values given) const {
    const at::Tensor* first = operands_.empty() ? nullptr : operand(given, 0);
    if (first == nullptr || !elementwise_alike(*first)) {
      return false;
    }
    for (size_t i = 1; i < operands_.size(); ++i) {
      const at::Tensor* other = operand(given, i);
      if (other != nullptr && !is_like_uncast(*other, *first)) {
        return false;
      }
    }
    // A complex number makes the result complex.
    return std::none_of(given.begin(), given.end(),
                        [](const c10::IValue& value) { return value.isComplexDouble(); });
  }

  Expected expect(Values given) const {
    Expected expected;
    if (variant_.alike_result != AlikeResult::kUnknown && alike(given)) {
      expected.known = true;
      expected.like = operand(given, 0);
      expected.like_dtype =
          variant_.alike_result == AlikeResult::kBool ? at::kBool : expected.like->scalar_type();
    } else if (shaped_by_.has_value()) {
      expected.known = true;
      Stack arguments = taken(shaped_by_->schema(), shape_sources_, given);
      std::transform(arguments.begin(), arguments.end(), arguments.begin(), on_meta);
      if (variant_.meta_function.has_value()) {
        variant_.meta_function->callBoxed(*shaped_by_, kMeta, &arguments);
      } else {
        shaped_by_->redispatchBoxed(kMeta, &arguments);
      }
      expected.metas = flattened(arguments);
    } else if (variant_.like_self) {
      expected.known = true;
      expected.metas = flattened(given.slice(0, 1));
    }
    return expected;
  }

  // The arguments of another variant, less its outputs.
  static Stack taken(const c10::FunctionSchema& schema, const std::vector<std::optional<size_t>>& sources,
                     Values given) {
    Stack arguments;
    arguments.reserve(schema.arguments().size());
    for (size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].has_value()) {
        arguments.push_back(given[*sources[i]]);
      } else {
        arguments.push_back(schema.arguments()[i].default_value().value_or(c10::IValue()));
      }
    }
    return arguments;
  }

  bool takes_arguments(Values given) const {
    for (const auto& [index, mask] : argument_dtypes_) {
      bool taken = true;
      for_each_tensor(given[index], [&, mask = mask](const at::Tensor& tensor) {
        taken &= has(mask, tensor.scalar_type());
      });
      if (!taken) {
        return false;
      }
    }
    return true;
  }

  // ---- the kernel and what is around it; false: other dtypes must serve this call

  bool serve(Values given, Stack& results) const {
    if (!takes_arguments(given)) {
      return false;
    }
    const bool as_given = variant_.own_kernel && !variant_.promotes;
    if (as_given && kernel_kind_ != Kind::kFunctional) {
      run(given, results);
      return true;
    }
    if (kernel_kind_ == Kind::kFunctional && !variant_.promotes) {
      if (variant_.own_kernel) {
        run(given, results);
      } else {
        run(taken(kernel_schema_, kernel_sources_, given), results);
      }
      const uint64_t key = shaped_by_.has_value() ? SeenOperands::key_of(inputs(given)) : 0;
      if (shaped_by_.has_value() && !seen_.has(key)) {
        check(results, expect(given));
        seen_.add(key);
      }
      deliver(given, results);
      return true;
    }

    const Expected expected = expect(given);
    at::ScalarType common = at::ScalarType::Undefined;
    if (variant_.promotes) {
      common = expected.like != nullptr ? expected.like->scalar_type()
                                        : common_dtype(expected.dtype(0), schema_, inputs(given));
      if (computed_dtypes_ != 0 && !has(computed_dtypes_, common)) {
        return false;
      }
    }
    if (variant_.own_kernel && kernel_kind_ == Kind::kFunctional && expected.like != nullptr) {
      run(given, results);
      check(results, expected);
      return true;
    }
    Stack arguments = taken(kernel_schema_, kernel_sources_, given);
    if (variant_.promotes && expected.like == nullptr) {
      cast(arguments, common);
    }
    switch (kernel_kind_) {
      case Kind::kFunctional:
        run(arguments, results);
        check(results, expected);
        deliver(given, results);
        break;
      case Kind::kOut:
        run_into(given, expected, std::move(arguments), results);
        break;
      case Kind::kInplace:
        run_inplace(given, expected, std::move(arguments), results);
        break;
    }
    return true;
  }

  Values inputs(Values given) const { return given.slice(0, given.size() - outputs_); }
  Values outputs(Values given) const { return given.slice(given.size() - outputs_); }

  static void cast(Stack& arguments, at::ScalarType common) {
    for (c10::IValue& value : arguments) {
      if (value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() != common) {
        value = value.toTensor().to(common);
      }
    }
  }

  // Checks the results of a functional kernel.
  void check(const Stack& results, const Expected& expected) const {
    if (!expected.known) {
      return;
    }
    const std::vector<at::Tensor> tensors = flattened(results);
    for (size_t i = 0; i < tensors.size() && i < expected.count(); ++i) {
      if (!tensors[i].defined() || (expected.like == nullptr && !expected.metas[i].defined())) {
        continue;
      }
      const bool on_device = expected.like != nullptr || expected.metas[i].is_meta();
      const c10::Device device =
          on_device ? c10::Device(c10::kPrivateUse1, current_device()) : expected.metas[i].device();
      if (C10_LIKELY(tensors[i].scalar_type() == expected.dtype(i) &&
                     tensors[i].sizes() == expected.sizes(i) && tensors[i].device() == device)) {
        continue;
      }
      throw_wrong_result(tensors[i], expected.dtype(i), expected.sizes(i), device,
                         tensors.size() > 1 ? c10::str(" as result ", i) : "");
    }
  }

  [[noreturn]] void throw_wrong_result(const at::Tensor& result, at::ScalarType dtype, at::IntArrayRef sizes,
                                       c10::Device device, const std::string& which) const {
    TORCH_CHECK(false, kernel_->description(), " returned ",
                described(result.scalar_type(), result.sizes(), result.device()), which, ", but ", full_name_,
                " must return ", described(dtype, sizes, device), " here");
  }

  static std::string described(at::ScalarType dtype, at::IntArrayRef sizes, c10::Device device) {
    return c10::str(c10::getDtypeNames(dtype).first, sizes, " on ", device);
  }

  // ---- a functional kernel's results, for another variant

  void deliver(Values given, Stack& results) const {
    if (kind_ == Kind::kFunctional) {
      return;
    }
    const std::vector<at::Tensor> from = flattened(results);
    const std::vector<at::Tensor> to =
        kind_ == Kind::kOut ? flattened(outputs(given)) : flattened(given.slice(0, 1));
    for (size_t i = 0; i < from.size() && i < to.size(); ++i) {
      if (kind_ == Kind::kOut) {
        write_out(full_name_.c_str(), from[i], to[i]);
      } else {
        write_inplace(full_name_.c_str(), from[i], to[i]);
      }
    }
    results.clear();
  }

  // `out` or `self`; nothing for a functional variant.
  std::vector<at::Tensor> written_by_variant(Values given) const {
    return kind_ == Kind::kOut       ? flattened(outputs(given))
           : kind_ == Kind::kInplace ? flattened(given.slice(0, 1))
                                     : std::vector<at::Tensor>();
  }

  // ---- an out kernel

  void run_into(Values given, const Expected& expected, Stack arguments, Stack& results) const {
    Destinations destinations;
    const std::vector<at::Tensor> wanted = written_by_variant(given);
    std::vector<at::Tensor> written;
    for (size_t i = 0; i < expected.count(); ++i) {
      switch (kind_) {
        case Kind::kFunctional:
          destinations.push_back({expected.allocate(i), at::Tensor()});
          break;
        case Kind::kOut:
          destinations.push_back(into_out(given, expected, i, wanted[i]));
          break;
        case Kind::kInplace:
          destinations.push_back(into_self(given, expected, i, wanted[i]));
          break;
      }
      written.push_back(destinations.back().written);
    }
    const auto declared = c10::ArrayRef<c10::Argument>(kernel_schema_.arguments()).slice(arguments.size());
    push_as(declared, written, arguments);
    run(arguments, results);
    results.clear();
    for (const Destination& destination : destinations) {
      if (destination.belongs.defined()) {
        destination.belongs.copy_(destination.written);
      }
    }
    if (kind_ == Kind::kFunctional) {
      push_as(c10::ArrayRef<c10::Argument>(schema_.returns()), written, results);
    }
  }

  // `out`, shaped for the result, or a stand-in: of the result's dtype, or for a kernel that may yet read
  // what it writes.
  Destination into_out(Values given, const Expected& expected, size_t index, const at::Tensor& out) const {
    if (variant_.shaped_by == variant_.name) {
      // The meta kernel has resized the meta Tensor that stands for `out`, and has warned.
      if (out.sizes() != expected.sizes(index)) {
        out.resize_(expected.sizes(index));
        out.unsafeGetTensorImpl()->set_sizes_and_strides(expected.sizes(index),
                                                         expected.metas[index].strides());
      }
      return {out, at::Tensor()};
    }
    check_castable(expected.dtype(index), out.scalar_type());
    at::native::resize_output(out, expected.sizes(index));
    at::assert_no_internal_overlap(out);
    if (!variant_.promotes && shares_memory(given, out)) {
      return {expected.allocate(index), out};
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (const at::Tensor* other = operand(given, i)) {
        check_overlap(out, *other);
      }
    }
    return out.scalar_type() == expected.dtype(index) ? Destination{out, at::Tensor()}
                                                      : Destination{expected.allocate(index), out};
  }

  // `self`, if the result may be computed in it, or a stand-in.
  Destination into_self(Values given, const Expected& expected, size_t index, const at::Tensor& self) const {
    if (variant_.shaped_by == variant_.name) {
      return {self, at::Tensor()};  // its own meta kernel has checked it
    }
    check_inplace(given, expected, index, self);
    return !variant_.writes_back && self.scalar_type() == expected.dtype(index)
               ? Destination{self, at::Tensor()}
               : Destination{expected.allocate(index), self};
  }

  // ---- an in-place kernel

  // Where it computes result `index`, of which `operand`, cast perhaps, holds self: filled with that.
  Destination filled(Values given, const Expected& expected, size_t index, const at::Tensor& operand,
                     const at::Tensor& wanted) const {
    if (kind_ == Kind::kInplace) {
      check_inplace(given, expected, index, wanted);
      return {operand, operand.is_same(wanted) ? at::Tensor() : wanted};
    }
    // A predicate computes in the dtype of its operands: as Bool, they would be lost.
    const bool holds_self = c10::canCast(operand.scalar_type(), expected.dtype(index));
    Destination destination;
    if (kind_ == Kind::kOut) {
      check_castable(expected.dtype(index), wanted.scalar_type());
      destination.belongs = wanted;
      if (wanted.scalar_type() == expected.dtype(index) && holds_self && !shares_memory(given, wanted)) {
        at::native::resize_output(wanted, expected.sizes(index));
        at::assert_no_internal_overlap(wanted);
        destination = {wanted, at::Tensor()};
      }
    } else if (!holds_self) {
      destination.belongs = expected.allocate(index);
    }
    if (!destination.written.defined()) {
      destination.written = holds_self
                                ? expected.allocate(index)
                                : empty_fast(expected.sizes(index), operand.scalar_type(), operand.device());
    }
    destination.written.copy_(operand);
    return destination;
  }

  void run_inplace(Values given, const Expected& expected, Stack arguments, Stack& results) const {
    const std::vector<at::Tensor> operands = flattened(Values(arguments).slice(0, 1));  // cast, perhaps
    const std::vector<at::Tensor> wanted = written_by_variant(given);
    Destinations destinations;
    std::vector<at::Tensor> written;
    std::vector<at::Tensor> returned;
    for (size_t i = 0; i < expected.count(); ++i) {
      destinations.push_back(
          filled(given, expected, i, operands[i], wanted.empty() ? at::Tensor() : wanted[i]));
      const Destination& destination = destinations.back();
      written.push_back(destination.written);
      returned.push_back(destination.belongs.defined() ? destination.belongs : destination.written);
    }
    Stack self_values;
    push_as(c10::ArrayRef<c10::Argument>(kernel_schema_.arguments()).slice(0, 1), written, self_values);
    arguments[0] = std::move(self_values[0]);
    run(arguments, results);
    results.clear();
    for (const Destination& destination : destinations) {
      if (destination.belongs.defined()) {
        if (kind_ == Kind::kOut) {
          at::native::resize_output(destination.belongs, destination.written.sizes());
        }
        destination.belongs.copy_(destination.written);
      }
    }
    if (kind_ == Kind::kFunctional) {
      push_as(c10::ArrayRef<c10::Argument>(schema_.returns()), returned, results);
    }
  }

  // ---- contracts

  void check_castable(at::ScalarType from, at::ScalarType to) const {
    TORCH_CHECK(c10::canCast(from, to), "result type ", from, " can't be cast to the desired output type ",
                to, " (", full_name_, ")");
  }

  void check_inplace(Values given, const Expected& expected, size_t index, const at::Tensor& self) const {
    if (expected.like == nullptr) {
      check_inplace_result(full_name_.c_str(), expected.metas[index], self);
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      const at::Tensor* other = operand(given, i);
      if (other != nullptr && operands_[i] != 0) {
        check_overlap(self, *other);
      }
    }
  }

  bool shares_memory(Values given, const at::Tensor& out) const {
    bool shares = false;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const at::Tensor* other = operand(given, i);
      shares |= other != nullptr && other->is_alias_of(out);
    }
    return shares;
  }

  at::Tensor run(c10::ArrayRef<UnboxedArgument> arguments) const {
    return measured([&] { return kernel_->run(arguments); });
  }

  void run(Values arguments, Stack& results) const {
    measured([&] { (*kernel_)(arguments, results); });
  }

  // What `call`, which runs the kernel, returns.
  template <class Call>
  std::invoke_result_t<const Call&> measured(const Call& call) const {
    if (counted_name_ == nullptr && variant_.on_host_views) {
      const profile::HostWork work(full_name_.c_str());
      return call();
    }
    if (counted_name_ == nullptr) {
      const profile::StreamWork work(full_name_.c_str());
      return call();
    }
    CountedHostKernel counted(counted_name_);
    try {
      return call();
    } catch (const Unsupported&) {
      counted.take_back();
      throw;
    }
  }

  Stack with_arguments(Values given, Stack own) const {
    Stack results;
    results.reserve(returned_.size());
    auto next = own.begin();
    for (const std::optional<size_t>& same : returned_) {
      results.push_back(same.has_value() ? given[*same] : std::move(*next++));
    }
    return results;
  }

  Variant variant_;
  std::string full_name_;
  const char* counted_name_;  // null: it is not counted
  c10::OperatorHandle op_;
  c10::OperatorHandle kernel_op_;
  std::shared_ptr<const RuntimeKernel> kernel_;
  const c10::FunctionSchema& schema_;
  const c10::FunctionSchema& kernel_schema_;
  size_t outputs_;
  Kind kind_;
  Kind kernel_kind_;
  std::vector<std::optional<size_t>> kernel_sources_;
  std::vector<std::optional<size_t>> returned_;
  std::optional<c10::SafeKernelFunction> next_;
  std::optional<c10::OperatorHandle> shaped_by_;
  std::vector<std::optional<size_t>> shape_sources_;
  uint64_t computed_dtypes_ = 0;  // 0: all
  std::vector<std::pair<size_t, uint64_t>> argument_dtypes_;
  mutable SeenOperands seen_;
  c10::SmallVector<size_t, 4> operands_;  // the arguments that are Tensors and no outputs
};

// A share of a BoxedDerivation, as the dispatcher's functor.
class BoxedCall final : public c10::OperatorKernel {
 public:
  explicit BoxedCall(c10::intrusive_ptr<BoxedDerivation> variant) : variant_(std::move(variant)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const auto alive = variant_;  // a kernel may remove its own registration
    (*alive)(op, keys, stack);
  }

 private:
  c10::intrusive_ptr<BoxedDerivation> variant_;
};

c10::KernelFunction function_of(Variant variant, std::shared_ptr<const RuntimeKernel> kernel) {
  const bool fails_over = variant.fails_over;
  auto served = c10::make_intrusive<BoxedDerivation>(std::move(variant), std::move(kernel));
  auto boxed = c10::BoxedKernel::makeFromFunctor(std::make_unique<BoxedCall>(served));
  // Failing over takes the boxed arguments that the kernel was called with.
  return fails_over ? c10::KernelFunction::makeFromBoxedKernel(std::move(boxed))
                    : with_unboxed_path(served->op(), served, std::move(boxed));
}

// The dispatcher warns of every kernel that stands over another one. Here that is what was asked for.
class SilentHandler final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

c10::RegistrationHandleRAII registered(Variant variant, std::shared_ptr<const RuntimeKernel> kernel) {
  SilentHandler silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  const c10::OperatorName name = variant.name;
  std::string debug = kernel->description();
  return c10::Dispatcher::singleton().registerImpl(name, c10::DispatchKey::PrivateUse1,
                                                   function_of(std::move(variant), std::move(kernel)),
                                                   std::nullopt, nullptr, std::move(debug));
}

}  // namespace

VariantRegistration::VariantRegistration(Variant variant, std::shared_ptr<const RuntimeKernel> kernel)
    : handle_(registered(std::move(variant), std::move(kernel))) {}

VariantRegistration::~VariantRegistration() = default;

c10::KernelFunction::BoxedKernelFunction_withDispatchKeys* last_resort(const std::string& name) {
  TORCH_CHECK(name == "fallback" || name == "denied" || name == "missing", "no last resort is called ", name);
  return name == "fallback" ? &fallback : name == "denied" ? &denied : &missing;
}

void set_reason(const std::string& operator_name, const std::string& reason) {
  set_policy_reason(operator_name.c_str(), reason.c_str());
}

}  // namespace opsmith

// See computation.h.
#include "computation.h"

#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../common/dtypes.h"
#include "../common/temporary.h"
#include "threads.h"

namespace opsmith::onednn {
namespace {

// An object of oneDNN, which this owns.
template <class T, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Owned() {
    if (value_ != nullptr) {
      (api().*kDestroy)(value_);
    }
  }
  operator T() const { return value_; }  // NOLINT: it stands for the object
  T* operator&() { return &value_; }     // NOLINT: where oneDNN writes it

 private:
  T value_ = nullptr;
};
using OwnedDesc = Owned<MemoryDesc, &Api::DescDestroy>;
using OwnedMemory = Owned<Memory, &Api::MemoryDestroy>;
using OwnedAttributes = Owned<Attributes, &Api::AttributesDestroy>;
using OwnedPostOps = Owned<PostOps, &Api::PostOpsDestroy>;
using OwnedPrimitiveDesc = Owned<PrimitiveDesc, &Api::PrimitiveDescDestroy>;
using OwnedPrimitive = Owned<Primitive, &Api::PrimitiveDestroy>;

constexpr bool is_result(Role role) {
  return role == kResult || role == kSourceGradient || role == kWeightsGradient;
}

constexpr Query query_of(Role role) {
  switch (role) {
    case kSource:
      return kQuerySource;
    case kWeights:
      return kQueryWeights;
    case kSourceGradient:
      return kQuerySourceGradient;
    case kWeightsGradient:
      return kQueryWeightsGradient;
    case kResultGradient:
      return kQueryResultGradient;
    default:
      return kQueryResult;
  }
}

// An operand as oneDNN knows it. Where `rearrangement` is not null, it brings elements from the given layout
// into the used one, or, of a result, back.
struct Known {
  OwnedDesc given;
  OwnedDesc used;
  OwnedPrimitive rearrangement;
};

// A computation as oneDNN has prepared it.
struct Made {
  OwnedPrimitive primitive;
  OwnedDesc scratchpad;
  OwnedDesc scale;
  Known operands[Computation::kMost];
};

Status make_desc(const Layout& layout, bool is_free, OwnedDesc& desc) {
  const int rank = static_cast<int>(layout.sizes.rank);
  return is_free ? api().DescWithTag(&desc, rank, layout.sizes.value, layout.dtype, kAnyLayout)
                 : api().DescWithStrides(&desc, rank, layout.sizes.value, layout.dtype, layout.strides.value);
}

Status make_attributes(const Computation& computation, OwnedAttributes& attributes) {
  OwnedPostOps after;
  Status status = api().AttributesCreate(&attributes);
  if (status == kSuccess) {
    status = api().SetScratchpadMode(attributes, kUserScratchpad);
  }
  if (status == kSuccess && computation.alpha != 1.0f) {
    status = api().SetScalesMask(attributes, kSource, 0);
  }
  if (status == kSuccess && computation.beta != 0.0f) {
    status = api().PostOpsCreate(&after);
    status = status == kSuccess ? api().AppendSum(after, computation.beta, 0, 0) : status;
    status = status == kSuccess ? api().SetPostOps(attributes, after) : status;
  }
  return status;
}

Status make_primitive_desc(const Computation& computation, const OwnedDesc* operands, Attributes attributes,
                           OwnedPrimitiveDesc& made) {
  const Engine engine = api().engine;
  const Desc source = operands[0], weights = operands[1], result = operands[2], bias = operands[3];
  const auto& [stride, dilation, before, behind] = computation.windows;
  switch (computation.kind) {
    case Kind::kMatmul:
      return api().MatmulDesc(&made, engine, source, weights, bias, result, attributes);
    case Kind::kReorder:
      return api().ReorderDesc(&made, source, engine, operands[1], engine, attributes);
    case Kind::kConvolution:
      return api().ConvolutionDesc(&made, engine, kForward, kDirect, source, weights, bias, result,
                                   stride.value, dilation.value, before.value, behind.value, attributes);
    case Kind::kDeconvolution:
      return api().DeconvolutionDesc(&made, engine, kForward, kDeconvolution, source, weights, bias, result,
                                     stride.value, dilation.value, before.value, behind.value, attributes);
    default:
      break;
  }
  // oneDNN wants the forward convolution beside a gradient's.
  OwnedPrimitiveDesc forward;
  const Status status =
      api().ConvolutionDesc(&forward, engine, kForward, kDirect, source, weights, nullptr, result,
                            stride.value, dilation.value, before.value, behind.value, attributes);
  if (status != kSuccess) {
    return status;
  }
  return computation.kind == Kind::kConvolutionData
             ? api().ConvolutionDataDesc(&made, engine, kDirect, source, weights, result, stride.value,
                                         dilation.value, before.value, behind.value, forward, attributes)
             : api().ConvolutionWeightsDesc(&made, engine, kDirect, source, weights, nullptr, result,
                                            stride.value, dilation.value, before.value, behind.value, forward,
                                            attributes);
}

Status make(const Computation& computation, Made& made) {
  OwnedAttributes attributes;
  OwnedPrimitiveDesc described;
  OwnedDesc wanted[Computation::kMost];
  Status status = make_attributes(computation, attributes);
  for (int i = 0; i < computation.count && status == kSuccess; ++i) {
    const Operand& operand = computation.operands[i];
    status = make_desc(operand.layout, operand.is_rearranged, wanted[i]);
    if (status == kSuccess) {
      status = make_desc(operand.layout, false, made.operands[i].given);
    }
  }
  if (status == kSuccess) {
    status = make_primitive_desc(computation, wanted, attributes, described);
  }
  if (status == kSuccess) {
    status = api().PrimitiveCreate(&made.primitive, described);
  }
  for (int i = 0; i < computation.count && status == kSuccess; ++i) {
    const Operand& operand = computation.operands[i];
    Known& known = made.operands[i];
    const Desc asked =
        operand.is_rearranged ? api().Asked(described, query_of(operand.role), 0) : known.given;
    status = api().DescClone(&known.used, asked);
    if (status != kSuccess || api().DescEqual(known.given, known.used) != 0) {
      continue;
    }
    const bool result = is_result(operand.role);
    OwnedPrimitiveDesc reorder;
    status = api().ReorderDesc(&reorder, result ? known.used : known.given, api().engine,
                               result ? known.given : known.used, api().engine, nullptr);
    if (status == kSuccess) {
      status = api().PrimitiveCreate(&known.rearrangement, reorder);
    }
  }
  if (status == kSuccess) {
    status = api().DescClone(&made.scratchpad, api().Asked(described, kQueryScratchpad, 0));
  }
  return status == kSuccess ? make_desc({kF32, {1}, {1}}, false, made.scale) : status;
}

// ---- kept

using Key = std::vector<int64_t>;

struct HashOfKey {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0xcbf29ce484222325;
    for (const int64_t number : key) {
      hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
  }
};

// All that oneDNN's making depends on; its code depends on the number of threads, too.
void put_key(const Computation& computation, int threads, Key& key) {
  const auto put = [&](const Dims& dims) {
    key.push_back(dims.rank);
    key.insert(key.end(), dims.value, dims.value + dims.rank);
  };
  key.assign({static_cast<int64_t>(computation.kind), threads, computation.alpha != 1.0f,
              same_bits<int32_t>(computation.beta)});
  for (int i = 0; i < computation.count; ++i) {
    const Operand& operand = computation.operands[i];
    key.insert(key.end(), {operand.role, operand.layout.dtype, operand.is_rearranged});
    put(operand.layout.sizes);
    put(operand.layout.strides);
  }
  for (const Dims& window : computation.windows) {
    put(window);
  }
}

// The ones that were used last; what falls out lives until the calls that use it return.
class Kept {
 public:
  std::shared_ptr<const Made> get(const Computation& computation, const Key& key, Status& status) {
    const std::lock_guard lock(mutex_);
    if (const auto found = places_.find(key); found != places_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return found->second->second;
    }
    auto made = std::make_shared<Made>();
    status = make(computation, *made);
    if (status != kSuccess) {
      return nullptr;
    }
    order_.emplace_front(key, made);
    places_.emplace(key, order_.begin());
    if (order_.size() > kMost) {
      places_.erase(order_.back().first);
      order_.pop_back();
    }
    return made;
  }

 private:
  static constexpr size_t kMost = 1024;

  using Order = std::list<std::pair<Key, std::shared_ptr<const Made>>>;
  std::mutex mutex_;
  Order order_;
  std::unordered_map<Key, Order::iterator, HashOfKey> places_;
};

Kept& kept() {
  static Kept* const all = new Kept;  // never destroyed: streams may have work while the process ends
  return *all;
}

// ---- run

// How many threads oneDNN uses here from now on: as many as kernels of the caller's.
int agreed_threads() {
  if (api().GetThreads == nullptr) {
    return 1;
  }
  const int wanted = caller::threads(), now = api().GetThreads();
  if (wanted <= 0 || wanted == now) {
    return now;
  }
  api().SetThreads(wanted);
  return wanted;
}

// This thread's: one of oneDNN on the host runs what it is given before it returns.
Stream stream() {
  thread_local Owned<Stream, &Api::StreamDestroy> own;
  if (own == nullptr) {
    api().StreamCreate(&own, api().engine, kInOrder);
  }
  return own;
}

Status execute(Primitive primitive, std::initializer_list<Argument> arguments) {
  return api().PrimitiveExecute(primitive, stream(), static_cast<int>(arguments.size()), arguments.begin());
}

// The memory of one call.
class Call {
 public:
  Call(KernelRuntimeContext& context, const Made& made) : context_(context), made_(made) {}

  Status run(const Computation& computation) {
    Status status = kSuccess;
    for (int i = 0; i < computation.count && status == kSuccess; ++i) {
      status = put_operand(computation.operands[i], i);
    }
    float alpha = computation.alpha;
    if (status == kSuccess && alpha != 1.0f) {
      status = put(kScalesOfSource, made_.scale, &alpha, further_[0]);
    }
    if (const size_t size = api().DescSize(made_.scratchpad); status == kSuccess && size != 0) {
      scratchpad_ = temporary<char>(context_, static_cast<int64_t>(size));
      status = put(kScratchpad, made_.scratchpad, scratchpad_, further_[1]);
    }
    if (status == kSuccess) {
      status = api().PrimitiveExecute(made_.primitive, stream(), count_, arguments_);
    }
    for (int i = 0; i < computation.count && status == kSuccess; ++i) {
      if (rearranged_[i] != nullptr && is_result(computation.operands[i].role)) {
        status = execute(made_.operands[i].rearrangement, {{kSource, used_[i]}, {kResult, given_[i]}});
      }
    }
    return status;
  }

 private:
  Status put(int role, Desc desc, void* data, OwnedMemory& memory) {
    if (context_.failure_state() != Error::Ok) {
      return kUnimplemented;  // there was no temporary memory, which the caller has been told
    }
    const Status status = api().MemoryCreate(&memory, desc, api().engine, data);
    arguments_[count_++] = {role, memory};
    return status;
  }

  Status put_operand(const Operand& operand, int i) {
    const Known& known = made_.operands[i];
    if (known.rearrangement == nullptr) {
      return put(operand.role, known.given, operand.data, given_[i]);
    }
    rearranged_[i] = temporary<char>(context_, static_cast<int64_t>(api().DescSize(known.used)));
    Status status = put(operand.role, known.used, rearranged_[i], used_[i]);
    if (status == kSuccess) {
      status = api().MemoryCreate(&given_[i], known.given, api().engine, operand.data);
    }
    if (status == kSuccess && !is_result(operand.role)) {
      status = execute(known.rearrangement, {{kSource, given_[i]}, {kResult, used_[i]}});
    }
    return status;
  }

  KernelRuntimeContext& context_;
  const Made& made_;
  Temporary<char> rearranged_[Computation::kMost];
  Temporary<char> scratchpad_;
  OwnedMemory given_[Computation::kMost];
  OwnedMemory used_[Computation::kMost];
  OwnedMemory further_[2];
  Argument arguments_[Computation::kMost + 2] = {};
  int count_ = 0;
};

}  // namespace

std::optional<DataType> data_type(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return kF32;
    case ScalarType::BFloat16:
      return kBf16;
    case ScalarType::Half:
      return kF16;
    default:
      return std::nullopt;
  }
}

bool run(KernelRuntimeContext& context, const Computation& computation) {
  OPSMITH_CHECK(context, api().failure == nullptr, NotSupported, false, "%s: %s", computation.name,
                api().failure);
  thread_local Key key;
  put_key(computation, agreed_threads(), key);
  Status status = kSuccess;
  const auto made = kept().get(computation, key, status);
  if (made != nullptr) {
    status = Call(context, *made).run(computation);
  }
  if (context.failure_state() != Error::Ok) {
    return false;
  }
  OPSMITH_CHECK(context, status != kUnimplemented, NotSupported, false,
                "%s: oneDNN %d.%d has no such computation of %s on this processor; name `onednn` behind a "
                "library that has, such as `optimized`",
                computation.name, api().GetVersion()->major, api().GetVersion()->minor,
                computation.operands[0].layout.dtype == kF32    ? "float32"
                : computation.operands[0].layout.dtype == kBf16 ? "bfloat16"
                                                                : "float16");
  OPSMITH_CHECK(context, status == kSuccess, Internal, false, "%s: oneDNN failed with status %d",
                computation.name, status);
  return true;
}

}  // namespace opsmith::onednn

#include <opsmith/distributed/vendor_collectives.h>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <opsmith/device/driver.h>
#include <opsmith/device/stream.h>

namespace opsmith {

namespace {

constexpr const char* kVariable = "OPSMITH_COLLECTIVES";

const opsmith_collectives* checked_table(void* function, const std::string& path, bool is_driver) {
  const opsmith_collectives* const table = reinterpret_cast<opsmith_get_collectives_fn>(function)();
  TORCH_CHECK(table != nullptr || !is_driver, "the collectives of ", path,
              " cannot be used: ", driver().last_error());
  TORCH_CHECK(table != nullptr, "`", OPSMITH_GET_COLLECTIVES_SYMBOL, "` of ", path,
              " returned NULL\n  remedy: let it return the table");
  TORCH_CHECK(table->abi_version == OPSMITH_COLLECTIVES_ABI_VERSION &&
                  table->struct_size == sizeof(opsmith_collectives),
              "the collectives of ", path, " were built with version ", table->abi_version,
              " of opsmith_collectives.h (a table of ", table->struct_size,
              " bytes), but this opsmith has version ", OPSMITH_COLLECTIVES_ABI_VERSION, " (",
              sizeof(opsmith_collectives), " bytes)\n  remedy: rebuild them with this opsmith's header");
  const std::pair<const char*, bool> required[] = {
      {"name", table->name != nullptr},       {"last_error", table->last_error != nullptr},
      {"make_id", table->make_id != nullptr}, {"join", table->join != nullptr},
      {"leave", table->leave != nullptr},
  };
  for (const auto& [name, is_present] : required) {
    TORCH_CHECK(is_present, "the collectives of ", path, " leave the required entry `", name, "` NULL",
                "\n  remedy: implement it as opsmith_collectives.h says");
  }
  return table;
}

const opsmith_collectives* find_collectives() {
  const char* const setting = std::getenv(kVariable);  // NOLINT(concurrency-mt-unsafe)
  const std::string_view named = setting == nullptr ? "" : setting;
  if (named == "off") {
    return nullptr;
  }
  if (named.empty()) {
    void* const function = driver_symbol(OPSMITH_GET_COLLECTIVES_SYMBOL);
    return function == nullptr ? nullptr : checked_table(function, "the driver", /*is_driver=*/true);
  }
  const std::string path(named);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = dlerror();  // NOLINT(concurrency-mt-unsafe)
    TORCH_CHECK(false, kVariable,
                " names a library that cannot be opened: ", reason != nullptr ? reason : path,
                "\n  remedy: name one that exports `", OPSMITH_GET_COLLECTIVES_SYMBOL, "`, or `off`");
  }
  void* const function = dlsym(library, OPSMITH_GET_COLLECTIVES_SYMBOL);
  TORCH_CHECK(function != nullptr, kVariable, " names ", path, ", which does not export `",
              OPSMITH_GET_COLLECTIVES_SYMBOL, "`",
              "\n  remedy: declare it extern \"C\" with default visibility");
  return checked_table(function, path, /*is_driver=*/false);
}

std::optional<opsmith_element> element_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
      return OPSMITH_FLOAT32;
    case c10::ScalarType::Double:
      return OPSMITH_FLOAT64;
    case c10::ScalarType::Half:
      return OPSMITH_FLOAT16;
    case c10::ScalarType::BFloat16:
      return OPSMITH_BFLOAT16;
    case c10::ScalarType::Long:
      return OPSMITH_INT64;
    case c10::ScalarType::Int:
      return OPSMITH_INT32;
    case c10::ScalarType::Char:
      return OPSMITH_INT8;
    case c10::ScalarType::Byte:
      return OPSMITH_UINT8;
    default:
      return std::nullopt;
  }
}

std::optional<opsmith_reduction> reduction_of(c10d::ReduceOp::RedOpType reduction) {
  switch (reduction) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::AVG:
      return OPSMITH_SUM;
    case c10d::ReduceOp::PRODUCT:
      return OPSMITH_PRODUCT;
    case c10d::ReduceOp::MIN:
      return OPSMITH_MIN;
    case c10d::ReduceOp::MAX:
      return OPSMITH_MAX;
    default:
      return std::nullopt;
  }
}

bool has_names(const std::vector<at::Tensor>& tensors, c10d::ReduceOp::RedOpType reduction) {
  return reduction_of(reduction).has_value() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& each) { return element_of(each.scalar_type()).has_value(); });
}

void expect(const at::Tensor& tensor, int64_t elements, c10::ScalarType dtype, const char* what) {
  TORCH_CHECK(tensor.numel() == elements && tensor.scalar_type() == dtype, what, " has ", tensor.numel(),
              " elements of ", tensor.scalar_type(), ", and ", elements, " of ", dtype, " are needed");
}

// What is queued on `stream` from now on begins when what `before` has pending is done.
void follow(const c10::Stream& stream, const c10::Stream& before) {
  c10::Event reached(c10::kPrivateUse1);
  reached.record(before);
  reached.block(stream);
}

// A tensor whose elements lie as the library takes them, which are written back where they lie otherwise.
class Written {
 public:
  explicit Written(const at::Tensor& tensor) : tensor_(tensor), dense_(tensor.contiguous()) {}
  ~Written() = default;
  Written(const Written&) = delete;
  Written& operator=(const Written&) = delete;

  const at::Tensor& dense() const { return dense_; }
  void* data() const { return dense_.mutable_data_ptr(); }
  void write_back() const {
    if (!dense_.is_same(tensor_)) {
      tensor_.copy_(dense_);
    }
  }

 private:
  const at::Tensor& tensor_;
  const at::Tensor dense_;
};

// As many elements as those of all `parts`, of which there is one for each rank, to lie one after the other.
at::Tensor room_for(const std::vector<at::Tensor>& parts, int ranks) {
  TORCH_CHECK(std::ssize(parts) == ranks, "a list of ", parts.size(),
              " tensors is given, and one for each of ", ranks, " ranks is needed");
  int64_t elements = 0;
  for (const at::Tensor& part : parts) {
    elements += part.numel();
  }
  return parts.front().new_empty({elements});
}

// Calls `move` with each of `parts` and where it lies in `whole`.
template <class Move>
void for_each_part(const at::Tensor& whole, const std::vector<at::Tensor>& parts, const Move& move) {
  int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    move(part, whole.narrow(0, begin, part.numel()).view(part.sizes()));
    begin += part.numel();
  }
}

}  // namespace

const opsmith_collectives* vendor_collectives() {
  static const opsmith_collectives* const found = find_collectives();
  return found;
}

std::unique_ptr<VendorGroup> vendor_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  const opsmith_collectives* const table = vendor_collectives();
  return table == nullptr ? nullptr : std::make_unique<VendorGroup>(*table, store, rank, size);
}

VendorGroup::VendorGroup(const opsmith_collectives& table, c10::intrusive_ptr<c10d::Store> store, int rank,
                         int size)
    : table_(table),
      store_(std::move(store)),
      rank_(rank),
      size_(size),
      stream_(c10::Stream::DEFAULT, c10::Device(c10::kPrivateUse1, 0)) {}

VendorGroup::~VendorGroup() {
  leave();
}

void VendorGroup::leave() noexcept {
  const std::lock_guard lock(mutex_);
  has_left_ = true;
  if (communicator_ != nullptr) {
    table_.leave(std::exchange(communicator_, nullptr));
  }
}

bool VendorGroup::has_all_reduce(const Tensors& tensors, Reduction reduction) const {
  return table_.all_reduce != nullptr && has_names(tensors, reduction);
}

bool VendorGroup::has_reduce_scatter(const Tensors& outputs, Reduction reduction) const {
  return table_.reduce_scatter != nullptr && has_names(outputs, reduction);
}

void VendorGroup::check(opsmith_status status) const {
  TORCH_CHECK(status == OPSMITH_OK, table_.name, ": ", table_.last_error());
}

void VendorGroup::join(c10::DeviceIndex device) {
  const std::string key = "opsmith/group_id";
  opsmith_group_id id{};
  if (rank_ == 0) {
    check(table_.make_id(&id));
    store_->set(key, std::vector<uint8_t>(std::begin(id.bytes), std::end(id.bytes)));
  } else {
    const std::vector<uint8_t> bytes = store_->get(key);
    std::copy_n(bytes.begin(), std::min(bytes.size(), sizeof id.bytes), id.bytes);
  }
  check(table_.join(&id, rank_, size_, device, &communicator_));
  stream_ = c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, device), new_stream(device, 0));
}

template <class Call>
void VendorGroup::queue(const at::Tensor& example, const Call& call) {
  if (example.numel() == 0) {
    return;
  }
  const c10::Device device = example.device();
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!has_left_, "the process group was shut down");
  if (communicator_ == nullptr) {
    join(device.index());
  }
  TORCH_CHECK(device == stream_.device(), "this rank's tensors in the group were on ", stream_.device(),
              " before, and a group of ", table_.name,
              " has one device for each rank\n  remedy: make another group for the other device");
  const c10::Stream current = c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getStream(device);
  follow(stream_, current);
  check(call(communicator_, native_stream(stream_)));
  follow(current, stream_);
}

void VendorGroup::broadcast(const Tensors& tensors, int64_t root) {
  for (const at::Tensor& tensor : tensors) {
    const Written written(tensor);
    queue(tensor, [&](opsmith_communicator communicator, opsmith_stream stream) {
      return table_.broadcast(communicator, written.data(), tensor.nbytes(), static_cast<int>(root), stream);
    });
    written.write_back();
  }
}

void VendorGroup::all_reduce(const Tensors& tensors, Reduction reduction) {
  for (const at::Tensor& tensor : tensors) {
    const Written written(tensor);
    queue(tensor, [&](opsmith_communicator communicator, opsmith_stream stream) {
      return table_.all_reduce(communicator, written.data(), written.data(),
                               static_cast<size_t>(tensor.numel()), *element_of(tensor.scalar_type()),
                               *reduction_of(reduction), stream);
    });
    written.write_back();
  }
}

void VendorGroup::all_gather(const Tensors& outputs, const Tensors& inputs) {
  for (size_t index = 0; index < inputs.size(); ++index) {
    const at::Tensor input = inputs[index].contiguous();
    const Written output(outputs[index]);
    expect(outputs[index], size_ * input.numel(), input.scalar_type(), "the output of an all_gather");
    queue(input, [&](opsmith_communicator communicator, opsmith_stream stream) {
      return table_.all_gather(communicator, input.const_data_ptr(), output.data(), input.nbytes(), stream);
    });
    output.write_back();
  }
}

void VendorGroup::all_gather(const std::vector<Tensors>& outputs, const Tensors& inputs) {
  for (size_t index = 0; index < inputs.size(); ++index) {
    const at::Tensor whole = room_for(outputs[index], size_);
    all_gather(Tensors{whole}, Tensors{inputs[index]});
    for_each_part(whole, outputs[index],
                  [](const at::Tensor& part, const at::Tensor& place) { part.copy_(place); });
  }
}

void VendorGroup::reduce_scatter(const Tensors& outputs, const Tensors& inputs, Reduction reduction) {
  for (size_t index = 0; index < outputs.size(); ++index) {
    const at::Tensor input = inputs[index].contiguous();
    const Written output(outputs[index]);
    expect(input, size_ * outputs[index].numel(), outputs[index].scalar_type(),
           "the input of a reduce_scatter");
    queue(input, [&](opsmith_communicator communicator, opsmith_stream stream) {
      return table_.reduce_scatter(communicator, input.const_data_ptr(), output.data(),
                                   static_cast<size_t>(outputs[index].numel()),
                                   *element_of(input.scalar_type()), *reduction_of(reduction), stream);
    });
    output.write_back();
  }
}

void VendorGroup::reduce_scatter(const Tensors& outputs, const std::vector<Tensors>& inputs,
                                 Reduction reduction) {
  Tensors wholes;
  for (const Tensors& parts : inputs) {
    wholes.push_back(room_for(parts, size_));
    for_each_part(wholes.back(), parts,
                  [](const at::Tensor& part, const at::Tensor& place) { place.copy_(part); });
  }
  reduce_scatter(outputs, wholes, reduction);
}

void VendorGroup::all_to_all(const at::Tensor& output, const at::Tensor& input) {
  expect(output, input.numel(), input.scalar_type(), "the output of an all_to_all");
  const at::Tensor from = input.contiguous();
  const Written to(output);
  queue(from, [&](opsmith_communicator communicator, opsmith_stream stream) {
    return table_.all_to_all(communicator, from.const_data_ptr(), to.data(),
                             from.nbytes() / static_cast<size_t>(size_), stream);
  });
  to.write_back();
}

}  // namespace opsmith

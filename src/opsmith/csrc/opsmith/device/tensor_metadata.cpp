// Metadata of a Tensor: names with a yes or no, which torch._utils.set_tensor_metadata keeps with it and
// torch.save saves. PyTorch's slot for what a device of its own has to say of a Tensor.
#include <string>
#include <unordered_map>

#include <c10/core/TensorImpl.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>

namespace opsmith {
namespace {

using Metadata = std::unordered_map<std::string, bool>;

struct TensorMetadata final : c10::BackendMeta {
  explicit TensorMetadata(Metadata metadata) : metadata(std::move(metadata)) {}

  Metadata metadata;
};

void add_metadata(const at::Tensor& tensor, Metadata& found) {
  if (const auto* kept = dynamic_cast<TensorMetadata*>(tensor.unsafeGetTensorImpl()->get_backend_meta())) {
    found.insert(kept->metadata.begin(), kept->metadata.end());
  }
}

void set_metadata(const at::Tensor& tensor, Metadata& given) {
  tensor.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<TensorMetadata>(given));
}

[[maybe_unused]] const bool metadata_registered = [] {
  torch::jit::TensorBackendMetaRegistry(c10::kPrivateUse1, &add_metadata, &set_metadata);
  return true;
}();

}  // namespace
}  // namespace opsmith

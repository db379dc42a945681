// See api.h.
#include "api.h"

#include "../common/nvidia_library.h"

namespace opsmith::cudnn {
namespace {

constexpr const char* kRemedy =
    "; pip install nvidia-cudnn-cu13 (or -cu12), which a CUDA build of torch brings, name its libcudnn.so.9 "
    "in "
    "OPSMITH_CUDNN_LIBRARY, or leave the library `cudnn` out of the description";

}  // namespace

const Api& api() {
  static const Api opened = [] {  // again at the next call where it raises
    const nvidia::Library library("cuDNN", "computes convolutions", kRemedy, "OPSMITH_CUDNN_LIBRARY",
                                  {beside_torch("/../../nvidia/cudnn/lib/libcudnn.so.9"), "libcudnn.so.9"});
    Api found;
    library.find("cudnnCreate", found.Create);
    library.find("cudnnSetStream", found.SetStream);
    library.find("cudnnGetErrorString", found.ErrorString);
    library.find("cudnnGetLastErrorString", found.LastErrorString);
    library.find("cudnnCreateTensorDescriptor", found.tensor.Create);
    library.find("cudnnDestroyTensorDescriptor", found.tensor.Destroy);
    library.find("cudnnCreateFilterDescriptor", found.filter.Create);
    library.find("cudnnDestroyFilterDescriptor", found.filter.Destroy);
    library.find("cudnnCreateConvolutionDescriptor", found.convolution.Create);
    library.find("cudnnDestroyConvolutionDescriptor", found.convolution.Destroy);
    library.find("cudnnSetTensorNdDescriptor", found.SetTensor);
    library.find("cudnnSetFilterNdDescriptor", found.SetFilter);
    library.find("cudnnSetConvolutionNdDescriptor", found.SetConvolution);
    library.find("cudnnSetConvolutionGroupCount", found.SetGroups);
    library.find("cudnnSetConvolutionMathType", found.SetMath);
    const auto find_operation = [&](const std::string& name, Role written) {
      Operation& operation = found.writing[written];
      library.find(("cudnnGetConvolution" + name + "Algorithm_v7").c_str(), operation.Rank);
      library.find(("cudnnGetConvolution" + name + "WorkspaceSize").c_str(), operation.WorkspaceSize);
      library.find(("cudnnConvolution" + name).c_str(), operation.Run);
    };
    find_operation("Forward", kResult);
    find_operation("BackwardData", kImage);
    find_operation("BackwardFilter", kWeight);
    return found;
  }();
  return opened;
}

}  // namespace opsmith::cudnn

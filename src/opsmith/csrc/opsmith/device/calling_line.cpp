// See calling_line.h.
#include <opsmith/device/calling_line.h>

#include <dlfcn.h>

#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/profiler/combined_traceback.h>

namespace opsmith {

namespace {

// The folder of PyTorch's own Python code, with a slash at its end.
const std::string& torch_folder() {
  static const std::string folder = [] {
    Dl_info info{};
    const bool found = dladdr(reinterpret_cast<const void*>(&at::get_num_threads), &info) != 0;
    const std::string library = found ? info.dli_fname : "";
    const size_t end = library.rfind("/lib/");
    return end == std::string::npos ? std::string("/torch/") : library.substr(0, end + 1);
  }();
  return folder;
}

}  // namespace

CallingLine CallingLine::here() {
  CallingLine line;
  line.frames_ = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  return line;
}

std::string CallingLine::text() const {
  const torch::SymbolizedTracebacks found = torch::symbolize({frames_.get()});
  std::string text = "a thread without Python code";
  for (const uint64_t index : found.tracebacks.at(0)) {
    const torch::unwind::Frame& frame = found.all_frames[index];
    text = c10::str(frame.filename, ":", frame.lineno, " in ", frame.funcname);
    if (!frame.filename.starts_with(torch_folder())) {
      break;
    }
  }
  return text;
}

}  // namespace opsmith

// See program.h.
#include "program.h"

#include <optional>
#include <vector>

#include "../shared/binary_cache.h"
#include "errors.h"
#include "platform.h"

namespace opencl {
namespace {

size_t index_of(const DeviceFacts& facts) {
  const std::vector<DeviceFacts>& devices = platform().devices;
  return static_cast<size_t>(&facts - devices.data());
}

// The binary for one of the context's devices; empty where the implementation gives none.
std::string binary_of(cl_program program, const DeviceFacts& facts) {
  const size_t count = platform().devices.size();
  std::vector<size_t> sizes(count);
  if (api().GetProgramInfo(program, kProgramBinarySizes, count * sizeof(size_t), sizes.data(), nullptr) !=
      kSuccess) {
    return "";
  }
  std::vector<std::string> binaries;
  std::vector<unsigned char*> pointers;
  for (const size_t size : sizes) {
    binaries.emplace_back(size, '\0');
  }
  for (std::string& binary : binaries) {
    pointers.push_back(binary.empty() ? nullptr : reinterpret_cast<unsigned char*>(binary.data()));
  }
  const cl_int error = api().GetProgramInfo(program, kProgramBinaries, count * sizeof(unsigned char*),
                                            pointers.data(), nullptr);
  return error == kSuccess ? binaries[index_of(facts)] : "";
}

std::string log_of(cl_program program, const DeviceFacts& facts) {
  size_t size = 0;
  api().GetProgramBuildInfo(program, facts.id, kProgramBuildLog, 0, nullptr, &size);
  std::string log(size, '\0');
  api().GetProgramBuildInfo(program, facts.id, kProgramBuildLog, size, log.data(), nullptr);
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) {
    log.pop_back();
  }
  return log;
}

constexpr const char* kOptions = "-cl-std=CL1.2 -w";

cl_program from_binary(const DeviceFacts& facts, const std::string& binary) {
  const size_t size = binary.size();
  const auto* bytes = reinterpret_cast<const unsigned char*>(binary.data());
  cl_int error = kSuccess;
  const cl_program program =
      api().CreateProgramWithBinary(platform().context, 1, &facts.id, &size, &bytes, nullptr, &error);
  if (error != kSuccess) {
    return nullptr;
  }
  if (api().BuildProgram(program, 1, &facts.id, kOptions, nullptr, nullptr) != kSuccess) {
    api().ReleaseProgram(program);
    return nullptr;
  }
  return program;
}

cl_program from_source(const DeviceFacts& facts, const std::string& source) {
  const char* text = source.c_str();
  const size_t size = source.size();
  cl_int error = kSuccess;
  const cl_program program = api().CreateProgramWithSource(platform().context, 1, &text, &size, &error);
  check(error, "read a kernel's source");
  if (api().BuildProgram(program, 1, &facts.id, kOptions, nullptr, nullptr) != kSuccess) {
    const std::string log = log_of(program, facts);
    api().ReleaseProgram(program);
    throw Failure(OPSMITH_FAILED, "the compiler of " + platform().name + " refuses the kernel:\n" + log);
  }
  return program;
}

}  // namespace

cl_program build_program(int device, const std::string& source) {
  const DeviceFacts& facts = device_facts(device);
  const std::string key =
      platform().name + "\n" + facts.name + "\n" + facts.version + "\n" + kOptions + "\n" + source;
  if (const std::optional<std::string> binary = driver_parts::cached_binary("opencl", key)) {
    if (const cl_program program = from_binary(facts, *binary)) {
      return program;
    }
  }
  const cl_program program = from_source(facts, source);
  driver_parts::cache_binary("opencl", key, binary_of(program, facts));
  return program;
}

}  // namespace opencl

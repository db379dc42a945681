// See program.h. A file of the cache is named by a digest of the device, its driver's version and the source. It
// holds these texts too, so that another program of the same digest is not taken for this one, and ends with a
// digest of all before, so that one that was cut short is not loaded.
#include "program.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

#include "errors.h"
#include "platform.h"

namespace opencl {
namespace {

namespace fs = std::filesystem;

std::string setting(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

// Where opsmith keeps what can be made again; empty where there is no such folder.
fs::path cache_folder() {
  if (const std::string named = setting("OPSMITH_CACHE_DIR"); !named.empty()) {
    return fs::path(named) / "opencl";
  }
  if (const std::string caches = setting("XDG_CACHE_HOME"); !caches.empty()) {
    return fs::path(caches) / "opsmith" / "opencl";
  }
  const std::string home = setting("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "opsmith" / "opencl";
}

// FNV-1a, 64 bits.
std::string digest(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016lx", hash);
  return digits;
}

constexpr size_t kDigestLength = 16;

// The binary of the program with this key; empty where the cache has none that is whole.
std::string read_binary(const fs::path& file, const std::string& key) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (text.size() < key.size() + kDigestLength || text.compare(0, key.size(), key) != 0) {
    return "";
  }
  const std::string end = text.substr(text.size() - kDigestLength);
  text.resize(text.size() - kDigestLength);
  return end == digest(text) ? text.substr(key.size()) : "";
}

// A cache that cannot be written is no failure: the next process compiles again.
void write_binary(const fs::path& file, const std::string& key, const std::string& binary) {
  static std::atomic<int> number = 0;
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  fs::path partial = file;
  partial += "." + std::to_string(getpid()) + "." + std::to_string(number++);
  {
    std::ofstream out(partial, std::ios::binary);
    const std::string text = key + binary;
    out << text << digest(text);
    if (!out.flush()) {
      fs::remove(partial, ignored);
      return;
    }
  }
  fs::rename(partial, file, ignored);
}

size_t index_of(const DeviceFacts& facts) {
  const std::vector<DeviceFacts>& devices = platform().devices;
  return static_cast<size_t>(&facts - devices.data());
}

// The binary for one of the context's devices; empty where the implementation gives none.
std::string binary_of(cl_program program, const DeviceFacts& facts) {
  const size_t count = platform().devices.size();
  std::vector<size_t> sizes(count);
  if (api().GetProgramInfo(program, kProgramBinarySizes, count * sizeof(size_t), sizes.data(), nullptr) != kSuccess) {
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
  const cl_int error =
      api().GetProgramInfo(program, kProgramBinaries, count * sizeof(unsigned char*), pointers.data(), nullptr);
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
  const std::string key = platform().name + "\n" + facts.name + "\n" + facts.version + "\n" + kOptions + "\n" + source;
  const fs::path folder = cache_folder();
  const fs::path file = folder / (digest(key) + ".bin");
  if (!folder.empty()) {
    if (const std::string binary = read_binary(file, key); !binary.empty()) {
      if (const cl_program program = from_binary(facts, binary)) {
        return program;
      }
    }
  }
  const cl_program program = from_source(facts, source);
  if (!folder.empty()) {
    if (const std::string binary = binary_of(program, facts); !binary.empty()) {
      write_binary(file, key, binary);
    }
  }
  return program;
}

}  // namespace opencl

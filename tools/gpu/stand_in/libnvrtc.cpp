// NVRTC's entries that cuda_driver calls, by the host's compiler (kernel.h). Its "PTX" and its "machine code"
// name what they are for, its version and a library that it made. OPSMITH_STAND_IN_NVRTC: the version, as
// 13000. OPSMITH_STAND_IN_COMPILED: a file that has a line more after each program that was compiled.
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include <unistd.h>

namespace fs = std::filesystem;

struct _nvrtcProgram {
  std::string source, made, log;
};

namespace {

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return std::move(text).str();
}

int version() {
  const char* const named = std::getenv("OPSMITH_STAND_IN_NVRTC");
  return named == nullptr ? 13000 : std::atoi(named);
}

constexpr int kArchitectures[] = {75, 80, 86, 90};

// The folder of kernel.h and of what is made of it.
fs::path folder() {
  const char* const named = std::getenv("OPSMITH_STAND_IN");
  return named == nullptr ? fs::current_path() : fs::path(named);
}

int failed(_nvrtcProgram* program, const std::string& log) {
  program->log = log;
  return 6;  // NVRTC_ERROR_COMPILATION
}

int give(const std::string& text, char* to) {
  std::copy(text.c_str(), text.c_str() + text.size() + 1, to);
  return 0;
}

size_t occurrences(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) {
    ++count;
  }
  return count;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = version() / 1000;
  *minor = version() % 1000 / 10;
  return 0;
}
int nvrtcGetNumSupportedArchs(int* count) {
  *count = std::size(kArchitectures);
  return 0;
}
int nvrtcGetSupportedArchs(int* architectures) {
  std::copy(std::begin(kArchitectures), std::end(kArchitectures), architectures);
  return 0;
}

int nvrtcCreateProgram(_nvrtcProgram** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  *program = new _nvrtcProgram{source, {}, {}};
  return 0;
}

int nvrtcCompileProgram(_nvrtcProgram* program, int, const char* const* options) {
  const std::string& source = program->source;
  std::string all = "#include \"kernel.h\"\n" + source;
  static const std::regex kernel(R"((?:KERNEL|extern "C" __global__) void (\w+)\()");
  std::set<std::string> names;  // a kernel can be written several times, of which the preprocessor takes one
  for (std::sregex_iterator found(source.begin(), source.end(), kernel), end; found != end; ++found) {
    names.insert((*found)[1]);
  }
  // The dialect has each of them once, where it defines one as the other.
  const bool barriers = occurrences(source, "BARRIER()") > 1 || occurrences(source, "__syncthreads()") > 1;
  for (const std::string& name : names) {
    all += "\nextern \"C\" void launch_" + name +
           "(const dim3* grid, const dim3* items, void** arguments, stand_in::ToHost to_host,"
           " std::function<void()>* job) { *job = stand_in::launch(" +
           name + ", *grid, *items, arguments, to_host, " + (barriers ? "true" : "false") + "); }\n";
  }
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const fs::path kernels = folder() / "kernels";
  const size_t digest = std::hash<std::string>{}(all + read(folder() / "kernel.h"));
  const fs::path made = kernels / (std::to_string(digest) + ".so");
  if (!fs::exists(made)) {
    fs::create_directories(kernels);
    const std::string mine = made.string() + "." + std::to_string(getpid());
    std::ofstream(mine + ".cpp") << all;
    const std::string command = "g++ -std=c++20 -O1 -w -fPIC -shared -fvisibility=default -I'" +
                                folder().string() + "' -o '" + mine + ".so' '" + mine + ".cpp' 2>'" + mine +
                                ".log'";
    if (std::system(command.c_str()) != 0) {
      return failed(program, read(mine + ".log"));
    }
    fs::rename(mine + ".so", made);
    fs::remove(mine + ".cpp");
    fs::remove(mine + ".log");
  }
  const std::string architecture = options[0];  // --gpu-architecture=sm_90
  program->made =
      architecture.substr(architecture.find('=') + 1) + " " + std::to_string(version()) + " " + made.string();
  if (const char* const told = std::getenv("OPSMITH_STAND_IN_COMPILED")) {
    std::ofstream(told, std::ios::app) << program->made << "\n";
  }
  return 0;
}

int nvrtcGetCUBINSize(_nvrtcProgram* program, size_t* size) {
  *size = program->made.size() + 1;
  return 0;
}
int nvrtcGetCUBIN(_nvrtcProgram* program, char* binary) {
  return give(program->made, binary);
}
int nvrtcGetPTXSize(_nvrtcProgram* program, size_t* size) {
  return nvrtcGetCUBINSize(program, size);
}
int nvrtcGetPTX(_nvrtcProgram* program, char* ptx) {
  return nvrtcGetCUBIN(program, ptx);
}
int nvrtcGetProgramLogSize(_nvrtcProgram* program, size_t* size) {
  *size = program->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(_nvrtcProgram* program, char* log) {
  return give(program->log, log);
}
int nvrtcDestroyProgram(_nvrtcProgram** program) {
  delete *program;
  *program = nullptr;
  return 0;
}
}

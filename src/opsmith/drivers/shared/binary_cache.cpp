// See binary_cache.h.
#include "binary_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace driver_parts {
namespace {

namespace fs = std::filesystem;

std::string setting(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

// Where opsmith keeps what can be made again; empty where there is no such folder.
fs::path cache_folder() {
  if (const std::string named = setting("OPSMITH_CACHE_DIR"); !named.empty()) {
    return fs::path(named);
  }
  if (const std::string caches = setting("XDG_CACHE_HOME"); !caches.empty()) {
    return fs::path(caches) / "opsmith";
  }
  const std::string home = setting("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "opsmith";
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
constexpr off_t kMostBytes = 1 << 30;  // one read() takes so many

// Whether nobody but this user and root has written it. Python has seen to the folders above.
bool is_own(const struct stat& status) {
  return (status.st_uid == geteuid() || status.st_uid == 0) && (status.st_mode & S_IWOTH) == 0;
}

// The content of a file of this user's; empty where it is none, a pipe or a device for instance.
std::string content_of(const fs::path& file) {
  struct stat status{};
  if (stat(file.parent_path().c_str(), &status) != 0 || !is_own(status)) {
    return "";
  }
  const int number = open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  std::string text;
  if (number >= 0 && fstat(number, &status) == 0 && S_ISREG(status.st_mode) && is_own(status) &&
      status.st_size <= kMostBytes) {
    text.resize(static_cast<size_t>(status.st_size));
    const ssize_t got = read(number, text.data(), text.size());
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  }
  if (number >= 0) {
    close(number);
  }
  return text;
}

// For this user alone.
void make_folders(const fs::path& folder) {
  fs::path made;
  for (const fs::path& name : folder) {
    made /= name;
    mkdir(made.c_str(), S_IRWXU);
  }
}

fs::path file_of(const char* kind, const std::string& key) {
  const fs::path folder = cache_folder();
  return folder.empty() ? folder : folder / "kernels" / kind / (digest(key) + ".bin");
}

}  // namespace

std::optional<std::string> cached_binary(const char* kind, const std::string& key) {
  const fs::path file = file_of(kind, key);
  if (file.empty()) {
    return std::nullopt;
  }
  std::string text = content_of(file);
  if (text.size() < key.size() + kDigestLength || text.compare(0, key.size(), key) != 0) {
    return std::nullopt;
  }
  const std::string end = text.substr(text.size() - kDigestLength);
  text.resize(text.size() - kDigestLength);
  return end == digest(text) ? std::optional(text.substr(key.size())) : std::nullopt;
}

void cache_binary(const char* kind, const std::string& key, const std::string& binary) {
  static std::atomic<int> number = 0;
  const fs::path file = file_of(kind, key);
  if (file.empty() || binary.empty()) {
    return;
  }
  std::error_code ignored;
  make_folders(file.parent_path());
  fs::path partial = file;
  partial += "." + std::to_string(getpid()) + "." + std::to_string(number++);
  std::ofstream out(partial, std::ios::binary);
  const std::string text = key + binary;
  out << text << digest(text);
  out.close();
  if (out.fail()) {
    fs::remove(partial, ignored);
  } else {
    fs::rename(partial, file, ignored);
  }
}

}  // namespace driver_parts

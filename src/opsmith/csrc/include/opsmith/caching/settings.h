// The settings of an allocator, as text: "max_split_size_mb:64,garbage_collection_threshold:0.8".
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

namespace opsmith::caching {

constexpr size_t kMiB = size_t{1} << 20;

constexpr size_t kSmallest = 512;            // sizes are multiples of this, or of the device's alignment
constexpr size_t kMostSmall = kMiB;          // larger blocks are the large pool's
constexpr size_t kSmallSegment = 2 * kMiB;   // what small blocks are cut from
constexpr size_t kLargeSegment = 20 * kMiB;  // what blocks below kLeastAlone are cut from
constexpr size_t kLeastAlone = 10 * kMiB;    // from here on a segment is for one request, in whole 2 MiB

struct Settings {
  bool cache = true;
  bool debug = false;
  size_t max_split_size = std::numeric_limits<size_t>::max();
  double garbage_collection_threshold = 0;  // 0: never
  double memory_fraction = 1;               // of the device's memory, for this process
};

namespace detail {

constexpr const char* kKnownOptions =
    "backend (native or none), max_split_size_mb (a number above 20), garbage_collection_threshold (between "
    "0 and 1), per_process_memory_fraction (from 0 to 1) and debug (True or False)";

[[noreturn]] inline void refuse_value(std::string_view option, std::string_view value, const char* wanted) {
  throw std::invalid_argument("its option `" + std::string(option) + "` must be " + wanted + ", not `" +
                              std::string(value) + "`");
}

inline double number(std::string_view option, std::string_view value, const char* wanted) {
  const std::string text(value);
  char* end = nullptr;
  const double parsed = std::strtod(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size() || !std::isfinite(parsed)) {
    refuse_value(option, value, wanted);
  }
  return parsed;
}

inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == text.npos ? std::string_view{}
                            : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

inline void set_option(Settings& settings, std::string_view option, std::string_view value) {
  if (option == "backend") {
    if (value != "native" && value != "none") {
      refuse_value(option, value, "native or none");
    }
    settings.cache = value == "native";
  } else if (option == "max_split_size_mb") {
    constexpr const char* kWanted = "a whole number above 20";
    const double megabytes = number(option, value, kWanted);
    if (megabytes <= 20 || megabytes > 1e9 || megabytes != std::floor(megabytes)) {
      refuse_value(option, value, kWanted);
    }
    settings.max_split_size = static_cast<size_t>(megabytes) * kMiB;
  } else if (option == "garbage_collection_threshold") {
    constexpr const char* kWanted = "a number between 0 and 1";
    const double threshold = number(option, value, kWanted);
    if (threshold <= 0 || threshold >= 1) {
      refuse_value(option, value, kWanted);
    }
    settings.garbage_collection_threshold = threshold;
  } else if (option == "per_process_memory_fraction") {
    constexpr const char* kWanted = "a number from 0 to 1";
    const double fraction = number(option, value, kWanted);
    if (fraction < 0 || fraction > 1) {
      refuse_value(option, value, kWanted);
    }
    settings.memory_fraction = fraction;
  } else if (option == "debug") {
    const bool is_true = value == "True" || value == "true" || value == "1";
    if (!is_true && value != "False" && value != "false" && value != "0") {
      refuse_value(option, value, "True or False");
    }
    settings.debug = is_true;
  } else {
    throw std::invalid_argument("it has no option `" + std::string(option) + "`; known are " + kKnownOptions);
  }
}

}  // namespace detail

// Options as `option:value`, with commas between them. Throws std::invalid_argument, whose text goes on where
// a sentence has named what was parsed.
inline Settings parse_settings(std::string_view text) {
  Settings settings;
  while (!detail::trimmed(text).empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view entry = detail::trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t colon = entry.find(':');
    if (colon == entry.npos) {
      throw std::invalid_argument("`" + std::string(entry) + "` is no `option:value`; known are " +
                                  detail::kKnownOptions);
    }
    detail::set_option(settings, detail::trimmed(entry.substr(0, colon)),
                       detail::trimmed(entry.substr(colon + 1)));
  }
  return settings;
}

}  // namespace opsmith::caching

// Tiles of a few pixels by a few panels of channels, whose sums stay in registers.
#include <utility>

#include "vector.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

constexpr int kVectors = kPanel / kLanes;  // of a panel
constexpr int kDepthwisePixels = 4;        // of a tile

// Pixels of a tile of so many panels: more of few panels, since the sums must not wait for one another.
constexpr int most_pixels(int panels) {
  constexpr int kMost = 8;
  const int pixels = kTileRows * kTilePanels / panels;
  return pixels < kMost ? pixels : kMost;
}

OPSMITH_INLINE F get(const float* p, int64_t lanes) {
  return lanes >= kLanes ? load(p) : lanes > 0 ? load_some(p, lanes) : zero();
}

// NaN stays.
OPSMITH_INLINE F bounded(F x, F low, F high) {
  return max(low, min(high, x));
}

// Some of the places in the kernel, of which the first finds a bias and the last leaves a result. In between
// there are sums in the result's place.
struct Part {
  int64_t begin;
  int64_t end;
  bool is_first;
  bool is_last;
  const float* ahead;  // of a panel that is needed next: a tile fetches it meanwhile
};

// Writes the initial sums of a tile for each vector of its channels. Not inlined, as what follows: there are
// many tiles.
__attribute__((noinline)) void put_bias(const PackedPixels& p, const Part& part, int64_t channel,
                                        int64_t vectors, float* to) {
  const bool is_there = part.is_first && p.bias != nullptr;
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t at = channel + v * kLanes;
    store(to + v * kLanes, is_there ? get(p.bias + at, p.channels - at) : zero());
  }
}

// A tile's sums on their way to the result, through the first-level cache.
__attribute__((noinline)) void put_sums(const PackedPixels& p, const Part& part, const float* sums,
                                        int64_t pixel, int64_t pixels, int64_t channel, int64_t vectors) {
  const F low = splat(p.low), high = splat(p.high);
  for (int64_t r = 0; r < pixels; ++r) {
    for (int64_t v = 0; v < vectors; ++v) {
      const int64_t lanes = p.channels - channel - v * kLanes;
      if (lanes <= 0) {
        break;
      }
      const int64_t at = (pixel + r) * p.pixel_step + channel + v * kLanes;
      F value = load(sums + (r * vectors + v) * kLanes);
      if (!part.is_first) {
        value = value + get(p.result + at, lanes);
      }
      if (part.is_last && p.other != nullptr) {
        value = value + get(p.other + at, lanes);
      }
      if (part.is_last) {
        value = bounded(value, low, high);
      }
      if (lanes >= kLanes) {
        store(p.result + at, value);
      } else {
        store_some(p.result + at, value, lanes);
      }
    }
  }
}

template <int R, int V>
OPSMITH_INLINE void begin_sums(const PackedPixels& p, const Part& part, int64_t channel, F (&sums)[R][V]) {
  alignas(64) float bias[V * kLanes];
  put_bias(p, part, channel, V, bias);
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    const F one = load(bias + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sums[r][v] = one;
    }
  }
}

// The common case, a whole result of whole vectors, leaves the registers at once.
template <int R, int V>
OPSMITH_INLINE void end_sums(const PackedPixels& p, const Part& part, F (&sums)[R][V], int64_t pixel,
                             int64_t channel) {
  if (part.is_first && part.is_last && p.other == nullptr && p.channels - channel >= V * kLanes) {
    const F low = splat(p.low), high = splat(p.high);
    float* to = p.result + pixel * p.pixel_step + channel;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        store(to + v * kLanes, bounded(sums[r][v], low, high));
      }
      to += p.pixel_step;
    }
    return;
  }
  alignas(64) float block[R * V * kLanes];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      store(block + (r * V + v) * kLanes, sums[r][v]);
    }
  }
  put_sums(p, part, block, pixel, R, channel, V);
}

// Pixels from `pixel` on, panels from `panel` on. Not inlined: gcc 12 would keep the sums in memory.
template <int R, int P>
__attribute__((noinline)) void tile(const PackedPixels& p, const Part& part, int64_t pixel, int64_t panel) {
  constexpr int V = P * kVectors;
  const int64_t depth = p.depth, panel_step = p.places * depth * kPanel;
  F sums[R][V];
  begin_sums(p, part, panel * kPanel, sums);
  const float* weight = p.weights + panel * panel_step + part.begin * depth * kPanel;
  const float* ahead = part.ahead;
  for (int64_t place = part.begin; place < part.end; ++place) {
    const float* from[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      from[r] = p.sources[place * p.place_step + pixel + r];
    }
    for (int64_t k = 0; k < depth; ++k) {
      F row[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        row[v] = load(weight + v / kVectors * panel_step + v % kVectors * kLanes);
      }
      __builtin_prefetch(ahead, 0, 2);
      ahead += kPanel;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F one = splat(from[r][k]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
          sums[r][v] = fma(one, row[v], sums[r][v]);
        }
      }
      weight += kPanel;
    }
  }
  end_sums(p, part, sums, pixel, panel * kPanel);
}

using Tile = void(const PackedPixels& p, const Part& part, int64_t pixel, int64_t panel);

// The tiles of P panels, by their pixels less 1.
template <int P, class Sequence = std::make_integer_sequence<int, most_pixels(P)>>
struct Tiles;
template <int P, int... R>
struct Tiles<P, std::integer_sequence<int, R...>> {
  static constexpr Tile* kOf[] = {tile<R + 1, P>...};
};

// All pixels of some panels, in tiles as equal as can be.
template <int P>
void run_panels(const PackedPixels& p, int64_t panel) {
  const int64_t tiles = (p.pixels + most_pixels(P) - 1) / most_pixels(P);
  const int64_t of_tile = (p.pixels + tiles - 1) / tiles;
  const int64_t panel_step = p.places * p.depth * kPanel;
  for (int64_t place = 0; place < p.places; place += p.at_once) {
    const int64_t end = least(p.places, place + p.at_once);
    Part part{place, end, place == 0, end == p.places, nullptr};
    const int64_t next = part.is_last ? P * panel_step : end * p.depth * kPanel;
    for (int64_t pixel = 0; pixel < p.pixels; pixel += of_tile) {
      part.ahead = p.weights + (panel + least(pixel / of_tile, P - 1)) * panel_step + next;
      Tiles<P>::kOf[least(of_tile, p.pixels - pixel) - 1](p, part, pixel, panel);
    }
  }
}

// ---- depthwise kernels: each channel of the result from its own

constexpr Part kWhole{0, 0, true, true, nullptr};

template <int R, int P>
__attribute__((noinline)) void depthwise_tile(const PackedPixels& p, int64_t pixel, int64_t panel) {
  constexpr int V = P * kVectors;
  const int64_t panel_step = p.places * kPanel, channel = panel * kPanel;
  F sums[R][V];
  begin_sums(p, kWhole, channel, sums);
  const float* weight = p.weights + panel * panel_step;
  for (int64_t place = 0; place < p.places; ++place) {
    const float* const* const from = p.sources + place * p.place_step + pixel;
    F row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      row[v] = load(weight + v / kVectors * panel_step + v % kVectors * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float* const x = from[r] + channel;
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sums[r][v] = fma(load(x + v * kLanes), row[v], sums[r][v]);
      }
    }
    weight += kPanel;
  }
  end_sums(p, kWhole, sums, pixel, channel);
}

// Of a panel whose last channels there are not.
template <int R>
__attribute__((noinline)) void depthwise_rest(const PackedPixels& p, int64_t pixel, int64_t panel) {
  const int64_t channel = panel * kPanel, channels = p.channels - channel;
  F sums[R][kVectors];
  begin_sums(p, kWhole, channel, sums);
  const float* weight = p.weights + panel * p.places * kPanel;
  for (int64_t place = 0; place < p.places; ++place, weight += kPanel) {
    const float* const* const from = p.sources + place * p.place_step + pixel;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const F row = load(weight + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[r][v] = fma(get(from[r] + channel + v * kLanes, channels - v * kLanes), row, sums[r][v]);
      }
    }
  }
  end_sums(p, kWhole, sums, pixel, channel);
}

// tile(R, pixel) of all pixels, R at a time, R being a constant.
template <class Tile>
OPSMITH_INLINE void for_each_pixels(int64_t pixels, Tile tile) {
  int64_t pixel = 0;
  for (; pixel + kDepthwisePixels <= pixels; pixel += kDepthwisePixels) {
    tile(std::integral_constant<int, kDepthwisePixels>(), pixel);
  }
  for (; pixel < pixels; ++pixel) {
    tile(std::integral_constant<int, 1>(), pixel);
  }
}

// A group of panels after the other: their weights stay in the caches meanwhile. run(P, panel) of each, P
// being a constant.
template <class Run>
OPSMITH_INLINE void for_each_group(int64_t panels, Run run) {
  const int64_t groups = (panels + kTilePanels - 1) / kTilePanels;
  const int64_t of_group = groups == 0 ? 0 : (panels + groups - 1) / groups;
  for (int64_t panel = 0; panel < panels; panel += of_group) {
    const int64_t count = least(of_group, panels - panel);
    if constexpr (kTilePanels == 4) {
      if (count == 4) {
        run(std::integral_constant<int, 4>(), panel);
        continue;
      }
      if (count == 3) {
        run(std::integral_constant<int, 3>(), panel);
        continue;
      }
      if (count == 2) {
        run(std::integral_constant<int, 2>(), panel);
        continue;
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      run(std::integral_constant<int, 1>(), panel + i);
    }
  }
}

}  // namespace

void packed_convolution(const PackedPixels& p) {
  for_each_group((p.channels + kPanel - 1) / kPanel, [&](auto panels, int64_t panel) OPSMITH_ALWAYS_INLINE {
    run_panels<decltype(panels)::value>(p, panel);
  });
}

void packed_depthwise(const PackedPixels& p) {
  for_each_group(p.channels / kPanel, [&](auto panels, int64_t panel) OPSMITH_ALWAYS_INLINE {
    for_each_pixels(p.pixels, [&](auto pixels, int64_t pixel) OPSMITH_ALWAYS_INLINE {
      depthwise_tile<decltype(pixels)::value, decltype(panels)::value>(p, pixel, panel);
    });
  });
  if (p.channels % kPanel != 0) {
    for_each_pixels(p.pixels, [&](auto pixels, int64_t pixel) OPSMITH_ALWAYS_INLINE {
      depthwise_rest<decltype(pixels)::value>(p, pixel, p.channels / kPanel);
    });
  }
}

}  // namespace opsmith::optimized::OPSMITH_ISA

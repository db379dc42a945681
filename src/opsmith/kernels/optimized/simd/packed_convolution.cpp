// Tiles of a few pixels by a few panels of channels, whose sums stay in registers.
#include <utility>

#include "vector.h"
#include "float_functions.h"

namespace opsmith::optimized::OPSMITH_ISA {
namespace {

constexpr int kVectors = kPanel / kLanes;  // of a panel

// Pixels of a tile of so many panels: more of few panels, since the sums must not wait for one another.
constexpr int most_pixels(int panels) {
  constexpr int kMost = 8;
  const int pixels = kTileRows * kTilePanels / panels;
  return pixels < kMost ? pixels : kMost;
}

OPSMITH_INLINE F get(const float* p, int64_t lanes) {
  return lanes >= kLanes ? load(p) : lanes > 0 ? load_some(p, lanes) : zero();
}

// The sums of a tile before any product.
template <int R, int V>
OPSMITH_INLINE void begin_sums(F (&sums)[R][V], const float* bias, int64_t channels) {
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    const F one = bias == nullptr ? zero() : get(bias + v * kLanes, channels - v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sums[r][v] = one;
    }
  }
}

// NaN stays.
OPSMITH_INLINE F bounded(F x, F low, F high) {
  return max(low, min(high, x));
}

template <int R, int V>
OPSMITH_INLINE void end_sums(const PackedPixels& p, F (&sums)[R][V], int64_t at, int64_t channels) {
  const F low = splat(p.low), high = splat(p.high);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    float* const to = p.result + at + r * p.pixel_step;
    const float* const other = p.other == nullptr ? nullptr : p.other + at + r * p.pixel_step;
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const int64_t lanes = channels - v * kLanes;
      F value = sums[r][v];
      if (other != nullptr) {
        value = value + get(other + v * kLanes, lanes);
      }
      value = bounded(value, low, high);
      if (lanes >= kLanes) {
        store(to + v * kLanes, value);
      } else if (lanes > 0) {
        store_some(to + v * kLanes, value, lanes);
      }
    }
  }
}

// Pixels from `pixel` on, panels from `panel` on. Not inlined: gcc 12 would keep the sums in memory.
template <int R, int P>
__attribute__((noinline)) void full_tile(const PackedPixels& p, int64_t pixel, int64_t panel) {
  constexpr int V = P * kVectors;
  const int64_t depth = p.depth, panel_step = p.places * depth * kPanel, channel = panel * kPanel;
  F sums[R][V];
  begin_sums(sums, p.bias == nullptr ? nullptr : p.bias + channel, p.channels - channel);
  const float* weight = p.weights + panel * panel_step;
  for (int64_t place = 0; place < p.places; ++place) {
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
  end_sums(p, sums, pixel * p.pixel_step + channel, p.channels - channel);
}

// The same of a depthwise kernel: each channel of the result from its own.
template <int R, int P>
__attribute__((noinline)) void depthwise_tile(const PackedPixels& p, int64_t pixel, int64_t panel) {
  constexpr int V = P * kVectors;
  const int64_t panel_step = p.places * kPanel, channel = panel * kPanel, channels = p.channels - channel;
  F sums[R][V];
  begin_sums(sums, p.bias == nullptr ? nullptr : p.bias + channel, channels);
  const float* weight = p.weights + panel * panel_step;
  const bool is_whole = channels >= P * kPanel;
  for (int64_t place = 0; place < p.places; ++place) {
    const float* const* const from = p.sources + place * p.place_step + pixel;
    F row[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      row[v] = load(weight + v / kVectors * panel_step + v % kVectors * kLanes);
    }
    if (is_whole) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const float* const x = from[r] + channel;
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
          sums[r][v] = fma(load(x + v * kLanes), row[v], sums[r][v]);
        }
      }
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const float* const x = from[r] + channel;
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
          sums[r][v] = fma(get(x + v * kLanes, channels - v * kLanes), row[v], sums[r][v]);
        }
      }
    }
    weight += kPanel;
  }
  end_sums(p, sums, pixel * p.pixel_step + channel, channels);
}

using Tile = void(const PackedPixels& p, int64_t pixel, int64_t panel);

struct FullTiles {
  template <int R, int P>
  static constexpr Tile* of = full_tile<R, P>;
};

struct DepthwiseTiles {
  template <int R, int P>
  static constexpr Tile* of = depthwise_tile<R, P>;
};

// The tiles of P panels, by their pixels less 1.
template <class Tiles, int P, class Sequence = std::make_integer_sequence<int, most_pixels(P)>>
struct Row;
template <class Tiles, int P, int... R>
struct Row<Tiles, P, std::integer_sequence<int, R...>> {
  static constexpr Tile* kTiles[] = {Tiles::template of<R + 1, P>...};
};

// All pixels of some panels, in tiles as equal as can be.
template <class Tiles, int P>
OPSMITH_INLINE void run_panels(const PackedPixels& p, int64_t panel) {
  const int64_t tiles = (p.pixels + most_pixels(P) - 1) / most_pixels(P);
  const int64_t of_tile = (p.pixels + tiles - 1) / tiles;
  for (int64_t pixel = 0; pixel < p.pixels; pixel += of_tile) {
    Row<Tiles, P>::kTiles[least(of_tile, p.pixels - pixel) - 1](p, pixel, panel);
  }
}

// A group of panels after the other: their weights stay in the caches meanwhile.
template <class Tiles>
OPSMITH_INLINE void run_all(const PackedPixels& p) {
  const int64_t panels = (p.channels + kPanel - 1) / kPanel;
  const int64_t groups = (panels + kTilePanels - 1) / kTilePanels;
  if (panels == 0 || p.pixels == 0) {
    return;
  }
  const int64_t of_group = (panels + groups - 1) / groups;
  for (int64_t panel = 0; panel < panels; panel += of_group) {
    const int64_t count = least(of_group, panels - panel);
    if constexpr (kTilePanels == 4) {
      if (count == 4) {
        run_panels<Tiles, 4>(p, panel);
        continue;
      }
      if (count == 3) {
        run_panels<Tiles, 3>(p, panel);
        continue;
      }
      if (count == 2) {
        run_panels<Tiles, 2>(p, panel);
        continue;
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      run_panels<Tiles, 1>(p, panel + i);
    }
  }
}

}  // namespace

void packed_convolution(const PackedPixels& pixels) {
  run_all<FullTiles>(pixels);
}

void packed_depthwise(const PackedPixels& pixels) {
  run_all<DepthwiseTiles>(pixels);
}

}  // namespace opsmith::optimized::OPSMITH_ISA

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

// Some of the places in the kernel, of which the first finds a bias and the last leaves a result. In between
// there are sums in the result's place.
struct Part {
  int64_t begin;
  int64_t end;
  bool is_first;
  bool is_last;
  const float* ahead;  // of a panel that is needed next: a tile fetches it meanwhile
};

template <int R, int V>
OPSMITH_INLINE void begin_sums(const PackedPixels& p, const Part& part, F (&sums)[R][V], int64_t pixel,
                               int64_t channel) {
  const int64_t channels = p.channels - channel;
  if (!part.is_first) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float* const from = p.result + (pixel + r) * p.pixel_step + channel;
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sums[r][v] = get(from + v * kLanes, channels - v * kLanes);
      }
    }
    return;
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    const F one = p.bias == nullptr ? zero() : get(p.bias + channel + v * kLanes, channels - v * kLanes);
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
OPSMITH_INLINE void end_sums(const PackedPixels& p, const Part& part, F (&sums)[R][V], int64_t pixel,
                             int64_t channel) {
  const F low = splat(p.low), high = splat(p.high);
  const bool adds = part.is_last && p.other != nullptr;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int64_t at = (pixel + r) * p.pixel_step + channel;
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const int64_t lanes = p.channels - channel - v * kLanes;
      F value = sums[r][v];
      if (adds) {
        value = value + get(p.other + at + v * kLanes, lanes);
      }
      if (part.is_last) {
        value = bounded(value, low, high);
      }
      if (lanes >= kLanes) {
        store(p.result + at + v * kLanes, value);
      } else if (lanes > 0) {
        store_some(p.result + at + v * kLanes, value, lanes);
      }
    }
  }
}

// Pixels from `pixel` on, panels from `panel` on. Not inlined: gcc 12 would keep the sums in memory.
template <int R, int P>
__attribute__((noinline)) void full_tile(const PackedPixels& p, const Part& part, int64_t pixel,
                                         int64_t panel) {
  constexpr int V = P * kVectors;
  const int64_t depth = p.depth, panel_step = p.places * depth * kPanel;
  F sums[R][V];
  begin_sums(p, part, sums, pixel, panel * kPanel);
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

// The same of a depthwise kernel: each channel of the result from its own.
template <int R, int P>
__attribute__((noinline)) void depthwise_tile(const PackedPixels& p, const Part& part, int64_t pixel,
                                              int64_t panel) {
  constexpr int V = P * kVectors;
  const int64_t panel_step = p.places * kPanel, channel = panel * kPanel, channels = p.channels - channel;
  F sums[R][V];
  begin_sums(p, part, sums, pixel, channel);
  const float* weight = p.weights + panel * panel_step + part.begin * kPanel;
  const bool is_whole = channels >= P * kPanel;
  for (int64_t place = part.begin; place < part.end; ++place) {
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
  end_sums(p, part, sums, pixel, channel);
}

using Tile = void(const PackedPixels& p, const Part& part, int64_t pixel, int64_t panel);

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
  for (int64_t place = 0; place < p.places; place += p.at_once) {
    const int64_t end = least(p.places, place + p.at_once);
    Part part{place, end, place == 0, end == p.places, nullptr};
    const int64_t panel_step = p.places * p.depth * kPanel;
    const int64_t next = part.is_last ? P * panel_step : end * p.depth * kPanel;
    for (int64_t pixel = 0; pixel < p.pixels; pixel += of_tile) {
      part.ahead = p.weights + (panel + least(pixel / of_tile, P - 1)) * panel_step + next;
      Row<Tiles, P>::kTiles[least(of_tile, p.pixels - pixel) - 1](p, part, pixel, panel);
    }
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

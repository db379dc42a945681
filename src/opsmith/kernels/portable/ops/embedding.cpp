// embedding, its gradient and _embedding_bag: rows of a table, looked up and added up.
#include <algorithm>

#include <optional>
#include <tuple>

#include "../../common/temporary.h"
#include "../index_values.h"
#include "../movement.h"

namespace opsmith::portable {
namespace {

constexpr char kBackward[] = "embedding_dense_backward.out";
constexpr char kBag[] = "_embedding_bag.out";

using Bagged = std::tuple<Tensor&, Tensor&, Tensor&, Tensor&>;
enum BagMode : int64_t { kSum, kMean, kMax };

// Checks that all of a contiguous tensor of indices are rows of a table of `rows`.
bool within(KernelRuntimeContext& context, const Tensor& indices, int64_t rows) {
  OPSMITH_CHECK(context, rows > 0 || indices.numel() == 0, InvalidArgument, false,
                "index_select(): self indexing axis dim should be positive");
  const Indices values(indices);
  IndexCheck check(rows);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    check.checked(values.at(i));
  }
  OPSMITH_CHECK(context, !check.found_wrong(), NotFound, false, "index out of range in self");
  return true;
}

// Writes integers, of which the widest type among the operands' is the results'.
void put_index(Tensor& t, int64_t offset, int64_t value) {
  if (t.scalar_type() == ScalarType::Int) {
    t.mutable_data_ptr<int32_t>()[offset] = static_cast<int32_t>(value);
  } else {
    t.mutable_data_ptr<int64_t>()[offset] = value;
  }
}

// Whether the offsets begin at 0, ascend and name places among `count` indices.
bool are_offsets(KernelRuntimeContext& context, const Indices& offsets, int64_t n, int64_t count) {
  int64_t last = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t offset = offsets.at(i);
    OPSMITH_CHECK(context, i > 0 || offset == 0, InvalidArgument, false,
                  "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
                  "position 0. However, got %" PRId64,
                  offset);
    OPSMITH_CHECK(context, offset >= last, InvalidArgument, false,
                  "embedding_bag: offsets have to ascend, and %" PRId64 " stands behind %" PRId64, offset,
                  last);
    last = offset;
  }
  OPSMITH_CHECK(context, last <= count, InvalidArgument, false,
                "offsets[-1] can not be greater than input's length %" PRId64
                " but got offsets[-1] of %" PRId64,
                count, last);
  return true;
}

struct Bags {
  const Indices& indices;
  const Indices& offsets;
  int64_t count;        // of the bags
  int64_t end;          // of the last one
  int64_t padding_idx;  // rows of this index are left out
  int64_t mode;

  int64_t first(int64_t bag) const { return offsets.at(bag); }
  int64_t last(int64_t bag) const { return bag + 1 < count ? offsets.at(bag + 1) : end; }
};

// The reduction of one bag's rows, to `sums`; of the largest, `rows` get the index. Gives back their number.
template <class T, class C>
int64_t reduce_bag(const Bags& bags, int64_t bag, const T* table, const T* factors, int64_t width, C* sums,
                   int64_t* rows) {
  int64_t found = 0;
  std::fill_n(sums, width, C(0));
  std::fill_n(rows, width, 0);
  for (int64_t i = bags.first(bag); i < bags.last(bag); ++i) {
    const int64_t index = bags.indices.at(i);
    if (index == bags.padding_idx) {
      continue;
    }
    const T* const row = table + index * width;
    const C factor = factors != nullptr ? static_cast<C>(load_element(factors + i)) : C(1);
    for (int64_t x = 0; x < width; ++x) {
      const C value = load_element(row + x);
      if (bags.mode != kMax) {
        sums[x] += value * factor;
      } else if (found == 0 || value > sums[x]) {
        sums[x] = value;
        rows[x] = index;
      }
    }
    ++found;
  }
  for (int64_t x = 0; bags.mode == kMean && found > 0 && x < width; ++x) {
    sums[x] /= static_cast<C>(found);
  }
  return found;
}

// out1 is the bag of each index, which the CPU leaves out where its sums need none; out2 the number of each
// bag's rows, and out3 those of the largest elements, which stay 0 where nothing divides by them or asks.
// `summed` is how many zeros out2 and out3 have where rows are added up, which nothing divides by.
Bagged embed_bags(KernelRuntimeContext& context, const Tensor& weight, const Tensor& indices,
                  const Tensor& offsets, int64_t mode, const std::optional<Tensor>& per_sample_weights,
                  bool include_last_offset, int64_t padding_idx, int64_t summed, Tensor& out0, Tensor& out1,
                  Tensor& out2, Tensor& out3) {
  Bagged results(out0, out1, out2, out3);
  OPSMITH_CHECK(context, weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1, InvalidArgument,
                results, "embedding_bag: weight has to be 2-D, indices and offsets 1-D");
  OPSMITH_CHECK(context, mode >= kSum && mode <= kMax, InvalidArgument, results,
                "`mode` must be sum, mean, or max.");
  OPSMITH_CHECK(context, !include_last_offset || offsets.numel() >= 1, InvalidArgument, results,
                "include_last_offset: number of offset should be at least 1");
  OPSMITH_CHECK(context, mode == kSum || !per_sample_weights.has_value(), InvalidArgument, results,
                "embedding_bag: per_sample_weights only supported with mode='sum'");
  OPSMITH_CHECK(
      context,
      !per_sample_weights.has_value() || (per_sample_weights->scalar_type() == weight.scalar_type() &&
                                          per_sample_weights->numel() == indices.numel()),
      InvalidArgument, results,
      "embedding_bag: per_sample_weights has to have weight's dtype and a number for each index");
  if (!same_dtype(context, weight, out0) || !Indices::accepts(context, "embedding_bag", indices) ||
      !Indices::accepts(context, "embedding_bag", offsets)) {
    return results;
  }
  for (const Tensor* each : {&out1, &out2, &out3}) {
    if (!Indices::accepts(context, "embedding_bag", *each)) {
      return results;
    }
  }
  const Indices rows(indices), starts(offsets);
  const int64_t n = indices.numel(), width = weight.sizes()[1];
  const int64_t count = offsets.numel() - (include_last_offset ? 1 : 0);
  const bool adds_at_once = weight.scalar_type() != ScalarType::Double && padding_idx < 0;
  const bool maps = mode != kSum || !adds_at_once || out1.numel() == n;
  if (!are_offsets(context, starts, offsets.numel(), n) || !resize(context, out0, {count, width}) ||
      !resize(context, out1, {maps ? n : 0}) || !resize(context, out2, {mode == kSum ? summed : count}) ||
      !resize(context, out3, mode == kMax ? Dims{count, width} : Dims{mode == kSum ? summed : count}) ||
      !are_contiguous(context, {&weight, &indices, &offsets, &out0, &out1, &out2, &out3})) {
    return results;
  }
  IndexCheck check(weight.sizes()[0]);
  for (int64_t i = 0; i < n; ++i) {
    check.checked(rows.at(i));
  }
  OPSMITH_CHECK(context, !check.found_wrong(), InvalidArgument, results,
                "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be %" PRId64,
                check.wrong());
  // Where the CPU adds up at once, what lies behind the last offset is left out.
  const bool ends_early = include_last_offset && mode != kMax && adds_at_once && count > 0;
  const Bags bags{rows, starts, count, ends_early ? starts.at(count) : n, padding_idx, mode};
  for (int64_t bag = 0; maps && bag < count; ++bag) {
    const int64_t last = bag + 1 < count ? starts.at(bag + 1) : n;
    for (int64_t i = starts.at(bag); i < last; ++i) {
      put_index(out1, i, bag);
    }
  }
  for (int64_t i = 0; mode == kSum && i < summed; ++i) {
    put_index(out2, i, 0);
    put_index(out3, i, 0);
  }
  with_dtype<kBag>(context, Floating{}, weight.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    using C = compute_t<T>;
    const T* const table = weight.const_data_ptr<T>();
    const T* const factors =
        per_sample_weights.has_value() ? per_sample_weights->const_data_ptr<T>() : nullptr;
    T* const to = out0.mutable_data_ptr<T>();
    const auto sums = temporary<C>(context, width);
    const auto largest = temporary<int64_t>(context, width);
    for (int64_t bag = 0; sums != nullptr && largest != nullptr && bag < count; ++bag) {
      const int64_t found = reduce_bag<T, C>(bags, bag, table, factors, width, sums.get(), largest.get());
      for (int64_t x = 0; x < width; ++x) {
        store_element(to + bag * width + x, sums[x]);
        if (mode == kMax) {
          put_index(out3, bag * width + x, largest[x]);
        }
      }
      if (mode != kSum) {
        put_index(out2, bag, found);
      }
      if (mode == kMean) {
        put_index(out3, bag, found);
      }
    }
  });
  return results;
}

}  // namespace

namespace native {

// Contiguous tensors, as the manifest says: out has the sizes of indices, and the table's row size.
Tensor& embedding_out(KernelRuntimeContext& context, const Tensor& weight, const Tensor& indices, int64_t,
                      bool, bool, Tensor& out) {
  OPSMITH_CHECK(context, weight.dim() == 2, InvalidArgument, out, "'weight' must be 2-D");
  if (!same_dtype(context, weight, out)) {
    return out;
  }
  OPSMITH_CHECK(context, indices.dim() < kMaxDims, NotSupported, out, "embedding: too many dimensions");
  if (!Indices::accepts(context, "embedding", indices)) {
    return out;
  }
  Dims sizes = sizes_of(indices);
  const int64_t row = weight.sizes()[1];
  sizes.push_back(row);
  if (!resize(context, out, sizes) || !are_contiguous(context, {&weight, &indices, &out}) ||
      !within(context, indices, weight.sizes()[0]) || out.numel() == 0) {
    return out;
  }
  const Indices values(indices);
  const int64_t bytes = row * weight.element_size();
  const char* const from = static_cast<const char*>(weight.const_data_ptr());
  char* const to = static_cast<char*>(out.mutable_data_ptr());
  parallel(indices.numel(), grain_size(row),
           [&](int64_t begin, int64_t end) { copy_rows(values, begin, end, bytes, from, bytes, to, bytes); });
  return out;
}

Bagged embedding_bag_out(KernelRuntimeContext& context, const Tensor& weight, const Tensor& indices,
                         const Tensor& offsets, bool, int64_t mode, bool,
                         const std::optional<Tensor>& per_sample_weights, bool include_last_offset,
                         int64_t padding_idx, Tensor& out0, Tensor& out1, Tensor& out2, Tensor& out3) {
  const int64_t bags = offsets.numel() - (include_last_offset ? 1 : 0);
  return embed_bags(context, weight, indices, offsets, mode, per_sample_weights, include_last_offset,
                    padding_idx, bags, out0, out1, out2, out3);
}

Bagged embedding_bag_forward_only_out(KernelRuntimeContext& context, const Tensor& weight,
                                      const Tensor& indices, const Tensor& offsets, bool, int64_t mode, bool,
                                      const std::optional<Tensor>& per_sample_weights,
                                      bool include_last_offset, int64_t padding_idx, Tensor& out0,
                                      Tensor& out1, Tensor& out2, Tensor& out3) {
  return embed_bags(context, weight, indices, offsets, mode, per_sample_weights, include_last_offset,
                    padding_idx, offsets.numel(), out0, out1, out2, out3);
}

// Whether all indices but padding_idx name a weight; `frequency`, if not null, gets how often each is named.
bool count_weights(const Indices& values, int64_t count, int64_t num_weights, int64_t padding_idx,
                   int32_t* frequency) {
  IndexCheck check(num_weights);
  if (frequency != nullptr) {
    std::fill_n(frequency, num_weights, 0);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (values.at(i) != padding_idx) {
      const int64_t w = check.checked(values.at(i));
      if (frequency != nullptr) {
        ++frequency[w];
      }
    }
  }
  return !check.found_wrong();
}

// grad_weight[w] is the sum of grad_output's rows whose index is w, over the number of them where it is asked
// for; rows of padding_idx do not count. Threads share the columns, so that each adds up in order.
Tensor& embedding_dense_backward_out(KernelRuntimeContext& context, const Tensor& grad_output,
                                     const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                                     bool scale_grad_by_freq, Tensor& out) {
  OPSMITH_CHECK(
      context, grad_output.dim() == indices.dim() + 1 && grad_output.scalar_type() == out.scalar_type(),
      InvalidArgument, out, "embedding_dense_backward: grad_output and indices do not belong together");
  if (!Indices::accepts(context, "embedding_dense_backward", indices)) {
    return out;
  }
  const int64_t row = grad_output.sizes()[grad_output.dim() - 1];
  const int64_t count = indices.numel();
  OPSMITH_CHECK(context, grad_output.numel() == count * row, InvalidArgument, out,
                "embedding_dense_backward: grad_output has %d elements, and there are %" PRId64 " indices",
                static_cast<int>(grad_output.numel()), count);
  if (!resize(context, out, {num_weights, row})) {
    return out;
  }
  const Indices values(indices);
  const auto frequency = scale_grad_by_freq ? temporary<int32_t>(context, num_weights) : Temporary<int32_t>();
  if (scale_grad_by_freq && frequency == nullptr) {
    return out;
  }
  OPSMITH_CHECK(context, count_weights(values, count, num_weights, padding_idx, frequency), InvalidArgument,
                out, "index out of range in self");
  with_dtype<kBackward>(context, Floating{}, out.scalar_type(), [&](auto type) {
    using T = typename decltype(type)::type;
    using C = compute_t<T>;
    const T* const from = grad_output.const_data_ptr<T>();
    T* const to = out.mutable_data_ptr<T>();
    parallel(row, std::max<int64_t>(16, kGrain / std::max<int64_t>(1, count)),
             [&](int64_t begin, int64_t end) {
               for (int64_t w = 0; w < num_weights; ++w) {
                 std::fill(to + w * row + begin, to + w * row + end, T(0));
               }
               for (int64_t i = 0; i < count; ++i) {
                 const int64_t w = values.at(i);
                 if (w == padding_idx) {
                   continue;
                 }
                 const C scale = frequency != nullptr ? C(1) / static_cast<C>(frequency[w]) : C(1);
                 const T* const source = from + i * row;
                 T* const destination = to + w * row;
                 for (int64_t x = begin; x < end; ++x) {
                   store_element(destination + x,
                                 load_element(destination + x) + scale * load_element(source + x));
                 }
               }
             });
  });
  return out;
}

}  // namespace native
}  // namespace opsmith::portable

#include <opsmith/distributed/all_reduce.h>

#include <opsmith/distributed/reductions.h>

#include <algorithm>
#include <memory>

namespace opsmith {

namespace {

constexpr size_t kSmall = size_t{4} << 10;    // bytes that go to every rank at once
constexpr int kFew = 8;                       // ranks
constexpr size_t kPiece = size_t{512} << 10;  // bytes that are received before they are reduced

struct Part {
  size_t begin;
  size_t end;

  size_t elements() const { return end - begin; }
  Part half(bool upper) const {
    const size_t middle = begin + elements() / 2;
    return upper ? Part{middle, end} : Part{begin, middle};
  }
};

void reduce_small(Agreement& agreement, const CollectiveCall& call, int size, char* data, size_t elements,
                  size_t item_bytes, Reduce reduce) {
  const size_t bytes = elements * item_bytes;
  std::vector<char> all(bytes * static_cast<size_t>(size));
  agreement.reach(call, data, bytes, all.data());
  std::copy_n(all.data(), bytes, data);
  for (int rank = 1; rank < size; ++rank) {
    reduce(data, all.data() + static_cast<size_t>(rank) * bytes, elements);
  }
}

// Sends `given` to the rank `to`, and reduces `kept` with what the rank `from` sends.
void pass_on(Agreement& agreement, const CollectiveCall& call, int to, int from, char* data, Part kept,
             Part given, size_t item_bytes, Reduce reduce, char* scratch) {
  const size_t piece = kPiece / item_bytes;
  const size_t longest = std::max(kept.elements(), given.elements());
  for (size_t at = 0; at < longest; at += piece) {
    const size_t out = std::min(piece, given.elements() - std::min(at, given.elements()));
    const size_t in = std::min(piece, kept.elements() - std::min(at, kept.elements()));
    agreement.run(call, {{to, data + (given.begin + at) * item_bytes, out * item_bytes, nullptr, 0},
                         {from, nullptr, 0, scratch, in * item_bytes}});
    reduce(data + (kept.begin + at) * item_bytes, scratch, in);
  }
}

void reduce_by_halves(Agreement& agreement, const CollectiveCall& call, int rank, int size, char* data,
                      size_t elements, size_t item_bytes, Reduce reduce, char* scratch) {
  std::vector<Part> parts = {{0, elements}};  // this rank's, from all to its own
  for (int distance = size / 2; distance > 0; distance /= 2) {
    const bool is_upper = (rank & distance) != 0;
    const Part part = parts.back();
    parts.push_back(part.half(is_upper));
    pass_on(agreement, call, rank ^ distance, rank ^ distance, data, part.half(is_upper),
            part.half(!is_upper), item_bytes, reduce, scratch);
  }
  for (int distance = 1; distance < size; distance *= 2) {
    const Part own = parts.back();
    parts.pop_back();
    const Part other = parts.back().half((rank & distance) == 0);
    agreement.run(call, {{rank ^ distance, data + own.begin * item_bytes, own.elements() * item_bytes,
                          data + other.begin * item_bytes, other.elements() * item_bytes}});
  }
}

void reduce_in_a_ring(Agreement& agreement, const CollectiveCall& call, int rank, int size, char* data,
                      size_t elements, size_t item_bytes, Reduce reduce, char* scratch) {
  const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  const auto part = [&](int at) {
    const auto number = static_cast<size_t>((at % size + size) % size), count = static_cast<size_t>(size);
    return Part{elements * number / count, elements * (number + 1) / count};
  };
  for (int step = 0; step < size - 1; ++step) {
    pass_on(agreement, call, next, previous, data, part(rank - step - 1), part(rank - step), item_bytes,
            reduce, scratch);
  }
  for (int step = 0; step < size - 1; ++step) {
    const Part out = part(rank + 1 - step), in = part(rank - step);
    agreement.run(call, {{next, data + out.begin * item_bytes, out.elements() * item_bytes, nullptr, 0},
                         {previous, nullptr, 0, data + in.begin * item_bytes, in.elements() * item_bytes}});
  }
}

}  // namespace

bool can_all_reduce(const std::vector<at::Tensor>& host, c10d::ReduceOp::RedOpType reduction) {
  return host.size() == 1 && host.front().layout() == at::kStrided && host.front().is_contiguous() &&
         reduce_function(host.front().scalar_type(), reduction) != nullptr;
}

void all_reduce(Agreement& agreement, const CollectiveCall& call, int rank, int size, const at::Tensor& host,
                c10d::ReduceOp::RedOpType reduction) {
  const Reduce reduce = reduce_function(host.scalar_type(), reduction);
  char* const data = static_cast<char*>(host.mutable_data_ptr());
  const size_t item_bytes = host.element_size();
  const auto elements = static_cast<size_t>(host.numel());
  if (elements * item_bytes <= kSmall && size <= kFew) {
    reduce_small(agreement, call, size, data, elements, item_bytes, reduce);
    return;
  }
  agreement.reach(call);
  const std::unique_ptr<char[]> scratch(new char[kPiece]);
  const bool is_power_of_two = (size & (size - 1)) == 0;
  (is_power_of_two ? reduce_by_halves : reduce_in_a_ring)(agreement, call, rank, size, data, elements,
                                                          item_bytes, reduce, scratch.get());
}

}  // namespace opsmith

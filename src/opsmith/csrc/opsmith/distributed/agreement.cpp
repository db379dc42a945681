#include <opsmith/distributed/agreement.h>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace opsmith {

namespace {

// What goes over the wire; ranks of one group run the same build.
struct Record {
  uint64_t number;
  int64_t elements;
  uint64_t payload;  // bytes behind it
  int32_t root;
  int8_t dtype;  // negative without a tensor
  char name[35];
  char reduction[8];
  char shown[64];
};

void copy_text(char* to, size_t bytes, const std::string& text) {
  std::strncpy(to, text.c_str(), bytes - 1);
  to[bytes - 1] = '\0';
}

Record record_of(const CollectiveCall& call, uint64_t number, size_t payload) {
  Record record{};
  record.number = number;
  record.elements = call.elements;
  record.payload = payload;
  record.root = call.root;
  record.dtype = call.example.defined() ? static_cast<int8_t>(call.example.scalar_type()) : int8_t{-1};
  copy_text(record.name, sizeof record.name, call.name);
  copy_text(record.reduction, sizeof record.reduction, call.reduction);
  copy_text(record.shown, sizeof record.shown, described(call).substr(std::strlen(call.name)));
  return record;
}

bool fit(const Record& a, const Record& b) {
  return a.number == b.number && a.elements == b.elements && a.root == b.root && a.dtype == b.dtype &&
         std::strcmp(a.name, b.name) == 0 && std::strcmp(a.reduction, b.reduction) == 0;
}

std::string names_of(const std::vector<int>& ranks) {
  return c10::str(ranks.size() == 1 ? "rank " : "ranks ", c10::Join(", ", ranks));
}

}  // namespace

std::string described(const CollectiveCall& call) {
  std::string text = call.name;
  if (call.example.defined()) {
    text += c10::str(" of ", c10::getDtypeNames(call.example.scalar_type()).first, call.example.sizes(),
                     " on ", call.example.device());
  }
  if (*call.reduction != '\0') {
    text += c10::str(", ", call.reduction);
  }
  return call.root < 0 ? text : c10::str(text, ", root ", call.root);
}

void Agreement::reach(const CollectiveCall& call, const char* payload, size_t bytes, char* payloads) {
  const auto size = static_cast<size_t>(mesh_->size());
  const Record own = record_of(call, ++calls_, bytes);
  std::vector<char> out(sizeof own + bytes);
  std::memcpy(out.data(), &own, sizeof own);
  std::copy_n(payload, bytes, out.data() + sizeof own);
  std::vector<Record> records(size, own);
  std::vector<Transfer> transfers;
  for (size_t peer = 0; peer < size; ++peer) {
    if (static_cast<int>(peer) != mesh_->rank()) {
      transfers.push_back({static_cast<int>(peer), out.data(), out.size(),
                           reinterpret_cast<char*>(&records[peer]), sizeof(Record)});
    }
  }
  run(call, transfers);
  // Behind a record that does not fit comes what nobody wants, but it has to be taken.
  std::vector<std::vector<char>> others(size);
  transfers.clear();
  for (size_t peer = 0; peer < size; ++peer) {
    if (records[peer].payload > 0 && static_cast<int>(peer) != mesh_->rank()) {
      others[peer].resize(records[peer].payload);
      transfers.push_back({static_cast<int>(peer), nullptr, 0, others[peer].data(), others[peer].size()});
    }
  }
  run(call, transfers);
  const bool all_fit =
      std::all_of(records.begin(), records.end(), [&](const Record& each) { return fit(each, own); });
  if (!all_fit) {
    std::string calls;
    for (size_t rank = 0; rank < size; ++rank) {
      calls += c10::str("\n  rank ", rank, ": ", records[rank].name, records[rank].shown);
    }
    TORCH_CHECK_WITH(
        DistBackendError, false, described(call), " failed on rank ", mesh_->rank(), " of ", size,
        ": the ranks' calls differ", calls,
        "\n  remedy: all ranks have to call the same collectives in the same order, with the same "
        "dtypes and numbers of elements");
  }
  last_ = described(call);
  if (payloads != nullptr) {
    for (size_t rank = 0; rank < size; ++rank) {
      const char* const from = static_cast<int>(rank) == mesh_->rank() ? payload : others[rank].data();
      std::copy_n(from, bytes, payloads + rank * bytes);
    }
  }
}

void Agreement::run(const CollectiveCall& call, const std::vector<Transfer>& transfers) {
  TORCH_CHECK_WITH(DistBackendError, failure_.empty(), described(call), " failed on rank ", mesh_->rank(),
                   " of ", mesh_->size(), ": the group has failed before: ", failure_);
  try {
    mesh_->run(transfers, Mesh::Clock::now() + call.timeout);
  } catch (const Silence& silence) {
    fail(call, silence);
  }
}

void Agreement::fail(const CollectiveCall& call, const Silence& silence) {
  if (silence.reason == Silence::Reason::kLate) {
    failure_ = c10::str(names_of(silence.ranks), " did not answer within ", call.timeout.count(),
                        " ms; what all ranks called before was ", last_);
  } else if (silence.ranks.front() == mesh_->rank()) {
    failure_ = "the group was shut down";
  } else {
    failure_ = c10::str(names_of(silence.ranks), " has ended, or has given the group up after an error");
  }
  mesh_->close();  // so that the others need not wait
  TORCH_CHECK_WITH(DistBackendError, false, described(call), " failed on rank ", mesh_->rank(), " of ",
                   mesh_->size(), ": ", failure_);
}

}  // namespace opsmith

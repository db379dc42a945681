#include <opsmith/distributed/agreement.h>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace opsmith {

// What goes over the wire; ranks of one group run the same build.
struct CallRecord {
  uint64_t number;
  int64_t elements;
  uint64_t payload;  // bytes behind it
  int32_t root;
  int8_t dtype;  // negative without a tensor
  char name[35];
  char reduction[8];
  char shown[64];
};

namespace {

// That tell each other everything at once; more hear from one another first.
constexpr int kFewRanks = 8;

// What a rank says of itself, and of all that it has heard from.
struct Heard {
  CallRecord record;
  bool fits;
};

void copy_text(char* to, size_t bytes, const std::string& text) {
  std::strncpy(to, text.c_str(), bytes - 1);
  to[bytes - 1] = '\0';
}

CallRecord record_of(const CollectiveCall& call, uint64_t number, size_t payload) {
  CallRecord record{};
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

bool fit(const CallRecord& a, const CallRecord& b) {
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
  const CallRecord own = record_of(call, ++calls_, bytes);
  if (mesh_->size() <= kFewRanks || !all_fit(call, own) || bytes > 0) {
    tell_all(call, own, payload, payloads);
  }
  last_ = described(call);
}

bool Agreement::all_fit(const CollectiveCall& call, const CallRecord& own) {
  const int size = mesh_->size(), rank = mesh_->rank();
  Heard heard{own, true};
  for (int distance = 1; distance < size; distance *= 2) {
    Heard given{};
    run(call, {{(rank + distance) % size, reinterpret_cast<const char*>(&heard), sizeof heard, nullptr, 0},
               {(rank + size - distance) % size, nullptr, 0, reinterpret_cast<char*>(&given), sizeof given}});
    heard.fits = heard.fits && given.fits && fit(given.record, own);
  }
  return heard.fits;
}

void Agreement::tell_all(const CollectiveCall& call, const CallRecord& own, const char* payload,
                         char* payloads) {
  const auto size = static_cast<size_t>(mesh_->size());
  const size_t bytes = own.payload;
  std::vector<char> out(sizeof own + bytes);
  std::memcpy(out.data(), &own, sizeof own);
  std::copy_n(payload, bytes, out.data() + sizeof own);
  std::vector<CallRecord> records(size, own);
  std::vector<Transfer> transfers;
  for (size_t peer = 0; peer < size; ++peer) {
    if (static_cast<int>(peer) != mesh_->rank()) {
      transfers.push_back({static_cast<int>(peer), out.data(), out.size(),
                           reinterpret_cast<char*>(&records[peer]), sizeof(CallRecord)});
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
  const bool is_one_call =
      std::all_of(records.begin(), records.end(), [&](const CallRecord& each) { return fit(each, own); });
  if (!is_one_call) {
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

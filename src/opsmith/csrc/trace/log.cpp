// See log.h.
#include "log.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/StringUtil.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace opsmith::trace {
namespace {

constexpr uint64_t kFirstStep = 1 << 16;
constexpr uint64_t kLargestStep = 1 << 22;

// Two words that say whether the calling thread's log is that of the trace that runs.
thread_local uint64_t log_of = 0;
thread_local Log* log_here = nullptr;

// Lets go of the calling thread's log. One that is pinned is inside of something that a trace before
// recorded; few are ever, and those are never freed.
void let_go() {
  Log* const log = std::exchange(log_here, nullptr);
  if (log != nullptr && !log->is_pinned()) {
    log->session().release(log);
  }
}

struct AtThreadEnd {
  ~AtThreadEnd() {
    log_of = 0;
    let_go();
  }
};

}  // namespace

Log* current_log() {
  const uint64_t id = active.load(std::memory_order_acquire);
  if (C10_LIKELY(log_of == id)) {
    return log_here;
  }
  let_go();
  Session* const session = running_session();
  log_here = id != 0 && session != nullptr ? session->open_log() : nullptr;
  log_of = id;
  if (log_here != nullptr) {
    static thread_local AtThreadEnd at_end;
    (void)at_end;
  }
  return log_here;
}

void forget_log() {
  log_of = 0;
  log_here = nullptr;
}

Log* opened_log() {
  return log_of == active.load(std::memory_order_acquire) ? log_here : nullptr;
}

// ---- operators seen

void Seen::add(const char* name) {
  if (2 * (count_ + 1) > names_.size()) {
    const std::vector<const char*> old = std::exchange(names_, std::vector<const char*>(2 * names_.size()));
    count_ = 0;
    for (const char* const each : old) {
      if (each != nullptr) {
        add(each);
      }
    }
  }
  size_t i = slot(name);
  while (names_[i] != nullptr) {
    i = (i + 1) & (names_.size() - 1);
  }
  names_[i] = name;
  ++count_;
}

void Seen::clear() {
  std::fill(names_.begin(), names_.end(), nullptr);
  count_ = 0;
}

// ---- the file

std::unique_ptr<Log> Log::create(Session& session) {
  const auto thread = static_cast<uint32_t>(::syscall(SYS_gettid));
  int file = -1;
  for (int again = 0; file < 0 && again < 1000; ++again) {  // a number may serve many threads in turn
    const std::string path =
        c10::str(session.options().folder, "/", ::getpid(), "-", thread, "-", again, ".calls");
    file = ::open(path.c_str(), O_CREAT | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  }
  const uint64_t each = sizeof(Record) + (session.options().shapes ? kMostDetails : 2 * sizeof(uint64_t));
  const uint64_t range = kFirstRecord + kLargestStep + each * static_cast<uint64_t>(session.options().limit);
  if (file < 0 || ::posix_fallocate(file, 0, kFirstStep) != 0) {
    return nullptr;
  }
  void* const base = ::mmap(nullptr, range, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (base == MAP_FAILED) {
    ::close(file);
    return nullptr;
  }
  auto* const header = static_cast<Header*>(base);
  header->process = static_cast<uint32_t>(::getpid());
  header->thread = thread;
  header->forward_thread = at::RecordFunction::currentThreadId();
  ::pthread_getname_np(::pthread_self(), header->name, sizeof(header->name));
  // Last: what it stands in is whole, however the process ends.
  std::memcpy(header->magic, kMagic, sizeof(kMagic));
  return std::unique_ptr<Log>(new Log(session, file, static_cast<char*>(base), range));
}

Log::Log(Session& session, int file, char* base, uint64_t range)
    : session_(session),
      process_(::getpid()),
      file_(file),
      base_(base + kFirstRecord),
      range_(range),
      header_(reinterpret_cast<Header*>(base)),
      capacity_(kFirstStep - kFirstRecord),
      inside_(session.options().only_modules ? 0 : 1) {}

Log::~Log() {
  finish();
}

void Log::finish() {
  if (finished_.exchange(true)) {
    return;
  }
  ::munmap(header_, range_);
  if (process_ == ::getpid()) {  // a fork's parent goes on writing
    ::ftruncate(file_, static_cast<off_t>(kFirstRecord + used_));
  }
  ::close(file_);
}

void Log::end_of_trace() {
  abandoned_.store(true, std::memory_order_seq_cst);
  if (!is_pinned()) {
    finish();
  }
}

bool Log::more_room() {
  room_ = session_.take_room();
  if (room_ == 0) {
    ++header_->dropped;
  }
  return room_ > 0;
}

bool Log::grow() {
  const uint64_t now = kFirstRecord + capacity_;
  const uint64_t more = std::min(std::min(now, kLargestStep), range_ - now);
  // Allocated, not only made longer: a full disk is told here and does not end the process.
  if (more < sizeof(Record) + kMostDetails || ::posix_fallocate(file_, now, more) != 0) {
    return false;
  }
  capacity_ += more;
  return true;
}

// ---- tensors

bool Log::describe(Record& record, const at::Tensor& tensor) {
  if (record.words == kMostWords) {
    return false;
  }
  if (!tensor.defined()) {
    detail(record, ~uint64_t{0});
    return true;
  }
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  // Those whose sizes are a matter of Python, or of several tensors, are not asked.
  const bool has_sizes = !impl.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::Python) |
                                                 c10::DispatchKeySet(c10::DispatchKey::NestedTensor)) &&
                         !impl.has_symbolic_sizes_strides();
  const uint64_t dims = has_sizes ? static_cast<uint64_t>(impl.dim()) : 0;
  if (record.words + 1 + dims > kMostWords) {
    return false;
  }
  const c10::Device device = impl.device();
  detail(record, static_cast<uint64_t>(c10::typeMetaToScalarType(impl.dtype())) |
                     uint64_t{static_cast<uint8_t>(device.type())} << 8 |
                     uint64_t{static_cast<uint8_t>(device.index())} << 16 |
                     (has_sizes ? dims : kNoSizes) << 24);
  if (has_sizes) {
    for (const int64_t size : impl.sizes()) {
      detail(record, static_cast<uint64_t>(size));
    }
  }
  return true;
}

void Log::describe(Record& record, const torch::jit::Stack& stack, size_t count) {
  for (const c10::IValue& value : torch::jit::last(stack, count)) {
    bool fits = true;
    if (value.isTensor()) {
      fits = describe(record, value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        fits = fits && (!element.isTensor() || describe(record, element.toTensor()));
      }
    }
    if (!fits) {
      record.flags |= kTruncated;
      return;
    }
  }
}

// ---- what this thread is inside of

void Log::enter_node(uint32_t name, uint64_t sequence, uint64_t forward_thread) {
  const bool enters = session_.options().only_modules && session_.made_in_module(forward_thread, sequence);
  inside_ += enters ? 1 : 0;
  Record* record = nullptr;
  if (records()) {
    record = begin(How::kNode, name);
    if (record != nullptr) {
      detail(*record, sequence);
      detail(*record, forward_thread);
    }
    descend();
  }
  nodes_.push_back({record, enters});
}

void Log::leave_node() {
  if (nodes_.empty()) {
    return;  // it was entered before the trace began
  }
  const Node node = nodes_.back();
  nodes_.pop_back();
  end(node.record, /*raised=*/false);
  if (records()) {
    ascend();
  }
  inside_ -= node.enters ? 1 : 0;
  unpin();
}

void Log::enter_module(uint32_t name) {
  inside_ += 1;
  modules_.push_back({begin(How::kModule, name), at::sequence_number::peek()});
  descend();
}

void Log::leave_module(bool raised) {
  if (modules_.empty()) {
    return;
  }
  const Module module = modules_.back();
  modules_.pop_back();
  ascend();
  inside_ -= 1;
  end(module.record, raised);
  session_.add_range(at::RecordFunction::currentThreadId(), module.first, at::sequence_number::peek());
  unpin();
}

uint32_t Log::number_of(std::string_view name) {
  const auto [found, is_new] = numbers_.try_emplace(std::string(name));
  if (is_new) {
    found->second = session_.name(name);
  }
  return found->second;
}

}  // namespace opsmith::trace

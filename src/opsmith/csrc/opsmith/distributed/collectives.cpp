// Collectives of the device's tensors, on the bytes behind the host window or, without one, on copies. What a
// collective gives is on the device when its work is done.
//
// Ranks agree on each call before they make it (agreement.h).  It goes by the vendor's library where there is
// one and it can (vendor_collectives.h).  Else reductions of all ranks go over connections of the group's own
// where they can, and the rest by a backend for the CPU's tensors, gloo.
//
// Python makes the backend (runtime/distributed.py), since gloo's constructor is PyTorch's to call.
#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <opsmith/device/device.h>
#include <opsmith/distributed/agreement.h>
#include <opsmith/distributed/all_reduce.h>
#include <opsmith/distributed/completions.h>
#include <opsmith/distributed/on_stream.h>
#include <opsmith/distributed/reductions.h>
#include <opsmith/distributed/turns.h>
#include <opsmith/distributed/vendor_collectives.h>
#include <opsmith/fallback/host_view.h>

namespace opsmith {

namespace {

using c10::ivalue::Future;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// One collective while it runs: the CPU's tensors that stand for the device's, and what errors tell of it.
class Collective {
 public:
  Collective(CollectiveCall call, int rank, int size) : call_(std::move(call)), rank_(rank), size_(size) {}

  const CollectiveCall& call() const { return call_; }

  at::Tensor host(const at::Tensor& tensor, Access access) { return views_.view(tensor, access); }
  Tensors host(const Tensors& tensors, Access access) {
    Tensors views;
    views.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) {
      views.push_back(host(tensor, access));
    }
    return views;
  }
  std::vector<Tensors> host(const std::vector<Tensors>& lists, Access access) {
    std::vector<Tensors> views;
    views.reserve(lists.size());
    for (const Tensors& tensors : lists) {
      views.push_back(host(tensors, access));
    }
    return views;
  }

  // The reduction that the CPU's backend knows, for `wanted`. A mean is a sum that is divided at the end:
  // `means`.
  c10d::ReduceOp reduction(const c10d::ReduceOp& wanted, const Tensors& means) {
    if (wanted.op_ != c10d::ReduceOp::AVG) {
      return wanted;
    }
    means_ = means;
    return c10d::ReduceOp::SUM;
  }

  // When the host's work is done.
  void finish() {
    for (const at::Tensor& each : means_) {
      at::isIntegralType(each.scalar_type(), /*includeBool=*/true) ? each.div_(size_, "trunc")
                                                                   : each.div_(size_);
    }
    views_.commit();
  }

  // Throws DistBackendError for what the CPU's backend threw; what the device or the agreement threw says all
  // itself.
  [[noreturn]] void fail(const std::exception_ptr& error) const {
    std::string reason = "for no reason that is known";
    try {
      std::rethrow_exception(error);
    } catch (const c10::AcceleratorError&) {
      throw;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::DistBackendError& known) {
      if (std::string_view(known.what_without_backtrace()).starts_with(described(call_))) {
        throw;
      }
      reason = known.what_without_backtrace();
    } catch (const c10::Error& known) {
      reason = known.what_without_backtrace();
    } catch (const std::exception& known) {
      reason = known.what();
    } catch (...) {
    }
    TORCH_CHECK_WITH(DistBackendError, false, described(call_), " failed on rank ", rank_, " of ", size_,
                     ": ", reason);
  }

 private:
  const CollectiveCall call_;
  const int rank_;
  const int size_;
  HostViews views_;
  Tensors means_;
};

c10::intrusive_ptr<Future> future_of(const Tensors& results) {
  std::vector<c10::Device> devices;
  if (!results.empty()) {
    devices.push_back(results.front().device());
  }
  return c10::make_intrusive<Future>(c10::ListType::ofTensors(), std::move(devices));
}

void wait_for(const c10::intrusive_ptr<Future>& future) {
  // Future::wait() is inline, and would make the library need a newer libstdc++ than PyTorch's.
  c10d::Work::create_from_future(future)->wait();
  if (future->hasError()) {
    std::rethrow_exception(future->exception_ptr());
  }
}

// A collective that has its turn on the group's thread, or has had it.
class CollectiveWork final : public c10d::Work {
 public:
  CollectiveWork(c10d::OpType type, int rank, Tensors results)
      : Work(rank, type), results_(std::move(results)), future_(future_of(results_)) {}

  // Runs `collective`, and keeps what it throws. Whoever has the future may have given it callbacks, which
  // run on a thread of `completions`.
  template <class Run>
  void complete_by(const Run& collective, Completions& completions) {
    std::exception_ptr error;
    try {
      collective();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (!is_future_known_) {
      complete(error);
      return;
    }
    const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getStream(device());
    completions.run(depth_, [self = c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this), stream, error] {
      const OnStream on_stream(stream);
      self->complete(error);
    });
  }

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  std::exception_ptr exception() const override {
    return future_->hasError() ? future_->exception_ptr() : nullptr;
  }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<Future> getFuture() override {
    const std::lock_guard lock(mutex_);
    is_future_known_ = true;
    return future_;
  }
  void synchronize() override { wait_for(future_); }
  bool wait(std::chrono::milliseconds) override {
    wait_for(future_);
    return true;
  }

 private:
  c10::Device device() const {
    return results_.empty() ? c10::Device(c10::kPrivateUse1, current_device()) : results_.front().device();
  }

  // The current stream is the one that the results are written on.
  void complete(const std::exception_ptr& error) {
    try {
      error != nullptr ? future_->setErrorIfNeeded(error) : future_->markCompleted(results_);
    } catch (...) {
      future_->setErrorIfNeeded(std::current_exception());
    }
  }

  const Tensors results_;
  const c10::intrusive_ptr<Future> future_;
  const int depth_ = Completions::depth();  // that it was called at
  std::mutex mutex_;
  bool is_future_known_ = false;
};

// A tensor on its way to a rank or from one: done when the CPU's work is and the device has what it gave.
class PointToPointWork final : public c10d::Work {
 public:
  PointToPointWork(c10d::OpType type, int rank, std::shared_ptr<Collective> collective, WorkPtr host,
                   Tensors results)
      : Work(rank, type),
        collective_(std::move(collective)),
        host_(std::move(host)),
        results_(std::move(results)),
        future_(future_of(results_)) {}

  // Completes by itself when the CPU's work does. Work without a future, as of sends, tells nobody: it is
  // completed when somebody asks.
  void follow() {
    c10::intrusive_ptr<Future> host;
    try {
      host = host_->getFuture();
    } catch (const c10::Error&) {
      return;
    }
    is_followed_ = true;
    host->addCallback([self = c10::intrusive_ptr<PointToPointWork>::reclaim_copy(this)](Future& done) {
      done.hasError() ? self->complete_with(done.exception_ptr()) : self->complete();
    });
  }

  bool isCompleted() override {
    if (!is_followed_ && !future_->completed() && host_->isCompleted()) {
      wait(kNoTimeout);
    }
    return future_->completed();
  }
  bool isSuccess() const override { return future_->completed() && !future_->hasError(); }
  std::exception_ptr exception() const override {
    return future_->hasError() ? future_->exception_ptr() : nullptr;
  }
  int sourceRank() const override { return host_->sourceRank(); }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return host_->getSequencenumber(); }
  void abort() override { host_->abort(); }
  void synchronize() override { wait(kNoTimeout); }

  bool wait(std::chrono::milliseconds timeout) override {
    if (!future_->completed()) {
      try {
        host_->wait(timeout);
      } catch (...) {
        collective_->fail(std::current_exception());
      }
      if (!is_followed_) {
        complete();
      }
    }
    wait_for(future_);
    return true;
  }

 private:
  void complete() {
    try {
      collective_->finish();
      future_->markCompleted(results_);
    } catch (...) {
      future_->setErrorIfNeeded(std::current_exception());
    }
  }

  void complete_with(const std::exception_ptr& error) {
    try {
      collective_->fail(error);
    } catch (...) {
      future_->setErrorIfNeeded(std::current_exception());
    }
  }

  const std::shared_ptr<Collective> collective_;
  const WorkPtr host_;
  const Tensors results_;
  const c10::intrusive_ptr<Future> future_;
  bool is_followed_ = false;
};

// Several, which endCoalescing() gives as one.
class CoalescedWork final : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<WorkPtr> parts)
      : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

  bool isCompleted() override {
    return std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr& part) { return part->isCompleted(); });
  }
  bool isSuccess() const override {
    return std::all_of(parts_.begin(), parts_.end(), [](const WorkPtr& part) { return part->isSuccess(); });
  }
  bool wait(std::chrono::milliseconds timeout) override {
    for (const WorkPtr& part : parts_) {
      part->wait(timeout);
    }
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  Tensors result() override {
    Tensors all;
    for (const WorkPtr& part : parts_) {
      const Tensors some = part->result();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  c10::intrusive_ptr<Future> getFuture() override {
    c10::List<c10::intrusive_ptr<Future>> futures(c10::FutureType::create(c10::ListType::ofTensors()));
    for (const WorkPtr& part : parts_) {
      futures.push_back(part->getFuture());
    }
    return c10::collectAll(futures);
  }

 private:
  const std::vector<WorkPtr> parts_;
};

Tensors flattened(const at::Tensor& tensor) {
  return {tensor};
}
Tensors flattened(const Tensors& tensors) {
  return tensors;
}
Tensors flattened(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& tensors : lists) {
    all.insert(all.end(), tensors.begin(), tensors.end());
  }
  return all;
}

// A tensor of all ranks is theirs one after the other, whatever its shape; gloo cuts its first dimension.
at::Tensor flat(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "a tensor of all ranks' elements has to be contiguous");
  return tensor.view({-1});
}
Tensors flat(Tensors tensors) {
  for (at::Tensor& tensor : tensors) {
    tensor = flat(tensor);
  }
  return tensors;
}

class DeviceCollectives final : public c10d::Backend {
 public:
  DeviceCollectives(c10::intrusive_ptr<Backend> host, std::string name, std::unique_ptr<Mesh> mesh,
                    std::unique_ptr<VendorGroup> vendor)
      : Backend(host->getRank(), host->getSize()),
        host_(std::move(host)),
        name_(std::move(name)),
        agreement_(std::move(mesh)),
        vendor_(std::move(vendor)) {}
  ~DeviceCollectives() override { shutdown(); }

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return host_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override {
    host_->getBackendOptions()->timeout = timeout;
  }
  void setSequenceNumberForGroup() override { host_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return host_->getSequenceNumberForGroup(); }
  void abort() override { shutdown(); }
  void shutdown() override {
    turns_.finish([this] {
      agreement_.close();
      if (vendor_ != nullptr) {
        vendor_->leave();
      }
    });
    host_->shutdown();
  }

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override {
    TORCH_CHECK(!is_coalescing_, name_, " is coalescing already");
    is_coalescing_ = true;
  }
  WorkPtr endCoalescing() override {
    TORCH_CHECK(is_coalescing_, name_, " is not coalescing");
    is_coalescing_ = false;
    return c10::make_intrusive<CoalescedWork>(rank_, std::exchange(coalesced_, {}));
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const CollectiveCall call = rooted("broadcast", tensors, options);
    if (vendor_ != nullptr && vendor_->has_broadcast()) {
      return by_vendor(
          c10d::OpType::BROADCAST, call, options, tensors,
          [tensors, options](VendorGroup& vendor) { vendor.broadcast(tensors, options.rootRank); });
    }
    const Access access = options.rootRank == rank_ ? Access::kRead : Access::kOverwrite;
    return start(c10d::OpType::BROADCAST, call, options, tensors,
                 [this, tensors, access, options](Collective& collective) {
                   Tensors views = collective.host(tensors, access);
                   host_->broadcast(views, options)->wait();
                 });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const CollectiveCall call = reducing("all_reduce", tensors, options);
    if (vendor_ != nullptr && vendor_->has_all_reduce(tensors, options.reduceOp.op_)) {
      return by_vendor(
          c10d::OpType::ALLREDUCE, call, options, tensors,
          [tensors, options](VendorGroup& vendor) { vendor.all_reduce(tensors, options.reduceOp.op_); });
    }
    return begin(
        c10d::OpType::ALLREDUCE, call, options, tensors, [this, tensors, options](Collective& collective) {
          Tensors views = collective.host(tensors, Access::kWrite);
          const auto reduced = with_reduction(options, collective, views);
          if (can_all_reduce(views, options.reduceOp.op_)) {
            all_reduce(agreement_, collective.call(), rank_, size_, views.front(), options.reduceOp.op_);
          } else {
            agreement_.reach(collective.call());
            host_->allreduce(views, reduced)->wait();
          }
        });
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    const CollectiveCall call = reducing("all_reduce_coalesced", tensors, options);
    if (vendor_ != nullptr && vendor_->has_all_reduce(tensors, options.reduceOp.op_)) {
      return by_vendor(
          c10d::OpType::ALLREDUCE_COALESCED, call, options, tensors,
          [tensors, options](VendorGroup& vendor) { vendor.all_reduce(tensors, options.reduceOp.op_); });
    }
    return start(c10d::OpType::ALLREDUCE_COALESCED, call, options, tensors,
                 [this, tensors, options](Collective& collective) {
                   Tensors views = collective.host(tensors, Access::kWrite);
                   host_->allreduce_coalesced(views, with_reduction(options, collective, views))->wait();
                 });
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    CollectiveCall call = reducing("reduce", tensors, options);
    call.root = static_cast<int>(options.rootRank);
    return start(
        c10d::OpType::REDUCE, call, options, tensors, [this, tensors, options](Collective& collective) {
          Tensors views = collective.host(tensors, Access::kWrite);
          const bool is_root = options.rootRank == rank_;
          host_->reduce(views, with_reduction(options, collective, is_root ? views : Tensors()))->wait();
        });
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    const CollectiveCall call = calling("all_gather", inputs);
    if (vendor_ != nullptr && vendor_->has_all_gather()) {
      return by_vendor(c10d::OpType::ALLGATHER, call, options, flattened(outputs),
                       [outputs, inputs](VendorGroup& vendor) { vendor.all_gather(outputs, inputs); });
    }
    return start(c10d::OpType::ALLGATHER, call, options, outputs, inputs,
                 [this, options](Collective&, auto& written, auto& read) {
                   host_->allgather(written, read, options)->wait();
                 });
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    const CollectiveCall call = calling("all_gather_into_tensor", {input});
    if (vendor_ != nullptr && vendor_->has_all_gather()) {
      return by_vendor(c10d::OpType::_ALLGATHER_BASE, call, options, {output},
                       [output, input](VendorGroup& vendor) { vendor.all_gather(Tensors{output}, {input}); });
    }
    return start(c10d::OpType::_ALLGATHER_BASE, call, options, output, input,
                 [this, options](Collective&, auto written, auto read) {
                   written = flat(written);
                   read = flat(read);
                   host_->_allgather_base(written, read, options)->wait();
                 });
  }

  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return start(c10d::OpType::ALLGATHER_COALESCED, calling("all_gather_coalesced", inputs), options, outputs,
                 inputs, [this, options](Collective&, auto& written, auto& read) {
                   host_->allgather_coalesced(written, read, options)->wait();
                 });
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    const CollectiveCall call = calling("all_gather_into_tensor_coalesced", inputs);
    if (vendor_ != nullptr && vendor_->has_all_gather()) {
      return by_vendor(c10d::OpType::ALLGATHER_COALESCED, call, options, outputs,
                       [outputs, inputs](VendorGroup& vendor) { vendor.all_gather(outputs, inputs); });
    }
    return start(c10d::OpType::ALLGATHER_COALESCED, call, options, outputs, inputs,
                 [this, options](Collective&, auto written, auto read) {
                   written = flat(written);
                   read = flat(read);
                   host_->allgather_into_tensor_coalesced(written, read, options)->wait();
                 });
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return start(c10d::OpType::GATHER, rooted("gather", inputs, options), options, outputs, inputs,
                 [this, options](Collective&, auto& written, auto& read) {
                   host_->gather(written, read, options)->wait();
                 });
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return start(c10d::OpType::SCATTER, rooted("scatter", outputs, options), options, outputs, inputs,
                 [this, options](Collective&, auto& written, auto& read) {
                   host_->scatter(written, read, options)->wait();
                 });
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    const CollectiveCall call = reducing("reduce_scatter", outputs, options);
    if (vendor_ != nullptr && vendor_->has_reduce_scatter(outputs, options.reduceOp.op_)) {
      return by_vendor(c10d::OpType::REDUCE_SCATTER, call, options, outputs,
                       [outputs, inputs, options](VendorGroup& vendor) {
                         vendor.reduce_scatter(outputs, inputs, options.reduceOp.op_);
                       });
    }
    return start(c10d::OpType::REDUCE_SCATTER, call, options, outputs, inputs,
                 [this, options](Collective& collective, auto& written, auto& read) {
                   host_->reduce_scatter(written, read, with_reduction(options, collective, written))->wait();
                 });
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    const CollectiveCall call = reducing("reduce_scatter_tensor", {output}, options);
    if (vendor_ != nullptr && vendor_->has_reduce_scatter({output}, options.reduceOp.op_)) {
      return by_vendor(c10d::OpType::_REDUCE_SCATTER_BASE, call, options, {output},
                       [output, input, options](VendorGroup& vendor) {
                         vendor.reduce_scatter({output}, Tensors{input}, options.reduceOp.op_);
                       });
    }
    return start(
        c10d::OpType::_REDUCE_SCATTER_BASE, call, options, output, input,
        [this, options](Collective& collective, auto written, auto read) {
          written = flat(written);
          read = flat(read);
          host_->_reduce_scatter_base(written, read, with_reduction(options, collective, {written}))->wait();
        });
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    const CollectiveCall call = reducing("reduce_scatter_tensor_coalesced", outputs, options);
    if (vendor_ != nullptr && vendor_->has_reduce_scatter(outputs, options.reduceOp.op_)) {
      return by_vendor(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, call, options, outputs,
                       [outputs, inputs, options](VendorGroup& vendor) {
                         vendor.reduce_scatter(outputs, inputs, options.reduceOp.op_);
                       });
    }
    return start(
        c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, call, options, outputs, inputs,
        [this, options](Collective& collective, auto written, auto read) {
          written = flat(written);
          read = flat(read);
          host_->reduce_scatter_tensor_coalesced(written, read, with_reduction(options, collective, written))
              ->wait();
        });
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return begin(c10d::OpType::ALLTOALL_BASE, calling_any("all_to_all_single", {input}), options, {output},
                 [this, output, input, output_splits, input_splits, options](Collective& collective) mutable {
                   const int64_t passed = passed_by_each(output, input, output_splits, input_splits);
                   std::vector<int64_t> passed_by_ranks(static_cast<size_t>(size_));
                   agreement_.reach(collective.call(), reinterpret_cast<const char*>(&passed), sizeof passed,
                                    reinterpret_cast<char*>(passed_by_ranks.data()));
                   const bool all_pass_as_many =
                       passed >= 0 && std::all_of(passed_by_ranks.begin(), passed_by_ranks.end(),
                                                  [&](int64_t each) { return each == passed; });
                   if (all_pass_as_many && vendor_ != nullptr && vendor_->has_all_to_all()) {
                     vendor_->all_to_all(output, input);
                     return;
                   }
                   at::Tensor read = collective.host(input, Access::kRead);
                   at::Tensor written = collective.host(output, Access::kOverwrite);
                   host_->alltoall_base(written, read, output_splits, input_splits, options)->wait();
                 });
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return start(c10d::OpType::ALLTOALL, calling_any("all_to_all", inputs), options, outputs, inputs,
                 [this, options](Collective&, auto& written, auto& read) {
                   host_->alltoall(written, read, options)->wait();
                 });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return pass(c10d::OpType::SEND, "send", tensors, Access::kRead,
                [&](Tensors& views) { return host_->send(views, to, tag); });
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return pass(c10d::OpType::RECV, "recv", tensors, Access::kOverwrite,
                [&](Tensors& views) { return host_->recv(views, from, tag); });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return pass(c10d::OpType::RECVANYSOURCE, "recv", tensors, Access::kOverwrite,
                [&](Tensors& views) { return host_->recvAnysource(views, tag); });
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return start(c10d::OpType::BARRIER, CollectiveCall{"barrier"}, options, Tensors(), [](Collective&) {});
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    host_->monitoredBarrier(options, wait_for_all);
  }

 private:
  // ---- calls, as ranks compare them

  static CollectiveCall calling_any(const char* name, const Tensors& tensors) {
    return {name, tensors.empty() ? at::Tensor() : tensors.front()};
  }
  static CollectiveCall calling(const char* name, const Tensors& tensors) {
    CollectiveCall call = calling_any(name, tensors);
    call.elements = 0;
    for (const at::Tensor& each : tensors) {
      call.elements += each.numel();
    }
    return call;
  }
  template <class Options>
  static CollectiveCall rooted(const char* name, const Tensors& tensors, const Options& options) {
    CollectiveCall call = calling(name, tensors);
    call.root = static_cast<int>(options.rootRank);
    return call;
  }
  template <class Options>
  static CollectiveCall reducing(const char* name, const Tensors& tensors, const Options& options) {
    CollectiveCall call = calling(name, tensors);
    call.reduction = name_of(options.reduceOp.op_);
    return call;
  }

  template <class Options>
  static Options with_reduction(Options options, Collective& collective, const Tensors& means) {
    options.reduceOp = collective.reduction(options.reduceOp, means);
    return options;
  }

  // The elements that go from this rank to each, and come from each, if they are as many; else negative.
  int64_t passed_by_each(const at::Tensor& output, const at::Tensor& input,
                         const std::vector<int64_t>& output_splits,
                         const std::vector<int64_t>& input_splits) const {
    const auto are_alike = [](const std::vector<int64_t>& splits) {
      return std::all_of(splits.begin(), splits.end(), [&](int64_t each) { return each == splits.front(); });
    };
    const bool is_even = are_alike(output_splits) && are_alike(input_splits) &&
                         output.numel() == input.numel() && input.numel() % size_ == 0;
    return is_even ? input.numel() / size_ : -1;
  }

  // ---- how they are made

  // A collective that ranks agree on, by the vendor's library.
  template <class Options, class Run>
  WorkPtr by_vendor(c10d::OpType type, const CollectiveCall& call, const Options& options,
                    const Tensors& results, Run run) {
    return start(type, call, options, results,
                 [this, options, results, run = std::move(run)](Collective& collective) {
                   run(*vendor_);
                   if constexpr (requires { options.reduceOp; }) {
                     with_reduction(options, collective, results);
                   }
                 });
  }

  // A collective that reads `inputs` and writes every element of `outputs`: Tensors, or lists of them.
  template <class Options, class Outputs, class Inputs, class Run>
  WorkPtr start(c10d::OpType type, const CollectiveCall& call, const Options& options, const Outputs& outputs,
                const Inputs& inputs, Run run) {
    return start(type, call, options, flattened(outputs),
                 [outputs, inputs, run = std::move(run)](Collective& collective) mutable {
                   auto read = collective.host(inputs, Access::kRead);
                   auto written = collective.host(outputs, Access::kOverwrite);
                   run(collective, written, read);
                 });
  }

  // One that ranks agree on first.
  template <class Options, class Run>
  WorkPtr start(c10d::OpType type, const CollectiveCall& call, const Options& options, const Tensors& results,
                Run run) {
    return begin(type, call, options, results, [this, run = std::move(run)](Collective& collective) mutable {
      agreement_.reach(collective.call());
      run(collective);
    });
  }

  template <class Options, class Run>
  WorkPtr begin(c10d::OpType type, CollectiveCall call, const Options& options, const Tensors& results,
                Run run) {
    call.timeout =
        options.timeout == c10d::kUnsetTimeout ? host_->getBackendOptions()->timeout : options.timeout;
    auto work = c10::make_intrusive<CollectiveWork>(type, rank_, results);
    auto task = [this, work, call, run = std::move(run)]() mutable {
      const auto run_it = [&] {
        RECORD_FUNCTION(name_ + ":" + call.name, std::vector<c10::IValue>());
        Collective collective(std::move(call), rank_, size_);
        try {
          run(collective);
        } catch (...) {
          collective.fail(std::current_exception());
        }
        collective.finish();
      };
      work->complete_by(run_it, completions_);
    };
    if (options.asyncOp || is_coalescing_) {
      turns_.queue(std::move(task));
    } else {
      turns_.run(std::move(task));
    }
    if (is_coalescing_) {
      coalesced_.push_back(work);
    }
    return work;
  }

  // What only two ranks take part in.
  template <class Run>
  WorkPtr pass(c10d::OpType type, const char* name, Tensors& tensors, Access access, const Run& run) {
    auto collective = std::make_shared<Collective>(calling(name, tensors), rank_, size_);
    WorkPtr host;
    try {
      Tensors views = collective->host(tensors, access);
      host = run(views);
    } catch (...) {
      collective->fail(std::current_exception());
    }
    auto work =
        c10::make_intrusive<PointToPointWork>(type, rank_, std::move(collective), std::move(host), tensors);
    work->follow();
    if (is_coalescing_) {
      coalesced_.push_back(work);
    }
    return work;
  }

  const c10::intrusive_ptr<Backend> host_;
  const std::string name_;
  Agreement agreement_;
  const std::unique_ptr<VendorGroup> vendor_;
  Completions completions_;
  Turns turns_;
  bool is_coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

// Gives `group`, which has a backend for the CPU, one for the device that goes by it.
void add_collectives(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::string& name) {
  const c10::intrusive_ptr<c10d::Backend> host = group->getBackend(c10::kCPU);
  auto mesh = std::make_unique<Mesh>(*group->getStore(), host->getRank(), host->getSize(),
                                     host->getBackendOptions()->timeout);
  group->setBackend(
      c10::kPrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::make_intrusive<DeviceCollectives>(
          host, name, std::move(mesh), vendor_group(group->getStore(), host->getRank(), host->getSize())));
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("add_collectives", &add_collectives);
}

}  // namespace

}  // namespace opsmith

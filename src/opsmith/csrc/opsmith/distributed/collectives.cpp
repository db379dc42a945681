// Collectives of the device's tensors, by a backend for the CPU's, gloo: on the bytes behind the host window
// or, without one, on copies. What a collective gives is on the device when its work is done.
//
// Python makes the backend (runtime/distributed.py), since gloo's constructor is PyTorch's to call.
#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <opsmith/device/driver.h>
#include <opsmith/fallback/host_view.h>

namespace opsmith {

namespace {

using c10::ivalue::Future;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

// One collective while it runs: the CPU's tensors that stand for the device's, and what errors tell of it.
class Collective {
 public:
  Collective(const char* name, int rank, int size) : name_(name), rank_(rank), size_(size) {}

  at::Tensor host(const at::Tensor& tensor, Access access) {
    if (example_.empty()) {
      example_ = c10::str(" of ", c10::getDtypeNames(tensor.scalar_type()).first, tensor.sizes(), " on ",
                          tensor.device());
    }
    return views_.view(tensor, access);
  }
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

  // When the CPU's backend is done.
  void finish() {
    for (const at::Tensor& each : means_) {
      at::isIntegralType(each.scalar_type(), /*includeBool=*/true) ? each.div_(size_, "trunc")
                                                                   : each.div_(size_);
    }
    views_.commit();
  }

  // Throws DistBackendError for what the CPU's backend threw; what the device threw says all itself.
  [[noreturn]] void fail(const std::exception_ptr& error) const {
    std::string reason = "for no reason that is known";
    try {
      std::rethrow_exception(error);
    } catch (const c10::AcceleratorError&) {
      throw;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& known) {
      reason = known.what_without_backtrace();
    } catch (const std::exception& known) {
      reason = known.what();
    } catch (...) {
    }
    TORCH_CHECK_WITH(
        DistBackendError, false, name_, example_, " failed on rank ", rank_, " of ", size_, ": ", reason,
        "\nAll ranks have to call the same collectives in the same order, with the same shapes and "
        "dtypes; a rank may have ended. TORCH_DISTRIBUTED_DEBUG=DETAIL tells where they differ.");
  }

 private:
  const char* name_;
  int rank_;
  int size_;
  std::string example_;
  HostViews views_;
  Tensors means_;
};

// Done when the CPU's work is and the device has what it gave.
class DeviceWork final : public c10d::Work {
 public:
  DeviceWork(c10d::OpType type, int rank, std::shared_ptr<Collective> collective, WorkPtr host,
             Tensors results)
      : Work(rank, type),
        collective_(std::move(collective)),
        host_(std::move(host)),
        results_(std::move(results)),
        future_(new_future()) {}

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
    host->addCallback([self = c10::intrusive_ptr<DeviceWork>::reclaim_copy(this)](Future& done) {
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
    // Future::wait() is inline, and would make the library need a newer libstdc++ than PyTorch's.
    Work::create_from_future(future_)->wait();
    if (future_->hasError()) {
      std::rethrow_exception(future_->exception_ptr());
    }
    return true;
  }

 private:
  c10::intrusive_ptr<Future> new_future() const {
    std::vector<c10::Device> devices;
    if (!results_.empty()) {
      devices.push_back(results_.front().device());
    }
    return c10::make_intrusive<Future>(c10::ListType::ofTensors(), std::move(devices));
  }

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

class HostCollectives final : public c10d::Backend {
 public:
  HostCollectives(c10::intrusive_ptr<Backend> host, std::string name)
      : Backend(host->getRank(), host->getSize()), host_(std::move(host)), name_(std::move(name)) {}

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return host_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override {
    host_->getBackendOptions()->timeout = timeout;
  }
  void setSequenceNumberForGroup() override { host_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return host_->getSequenceNumberForGroup(); }
  void abort() override { host_->abort(); }
  void shutdown() override { host_->shutdown(); }

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
    const Access access = options.rootRank == rank_ ? Access::kRead : Access::kOverwrite;
    return start(c10d::OpType::BROADCAST, "broadcast", tensors, [&](Collective& collective) {
      Tensors views = collective.host(tensors, access);
      return host_->broadcast(views, options);
    });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return start(c10d::OpType::ALLREDUCE, "all_reduce", tensors, [&](Collective& collective) {
      Tensors views = collective.host(tensors, Access::kWrite);
      return host_->allreduce(views, with_reduction(options, collective, views));
    });
  }

  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return start(c10d::OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", tensors,
                 [&](Collective& collective) {
                   Tensors views = collective.host(tensors, Access::kWrite);
                   return host_->allreduce_coalesced(views, with_reduction(options, collective, views));
                 });
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return start(c10d::OpType::REDUCE, "reduce", tensors, [&](Collective& collective) {
      Tensors views = collective.host(tensors, Access::kWrite);
      const bool is_root = options.rootRank == rank_;
      return host_->reduce(views, with_reduction(options, collective, is_root ? views : Tensors()));
    });
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override {
    return start(
        c10d::OpType::ALLGATHER, "all_gather", outputs, inputs,
        [&](Collective&, auto& written, auto& read) { return host_->allgather(written, read, options); });
  }

  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    return start(c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor", output, input,
                 [&](Collective&, auto written, auto read) {
                   written = flat(written);
                   read = flat(read);
                   return host_->_allgather_base(written, read, options);
                 });
  }

  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return start(c10d::OpType::ALLGATHER_COALESCED, "all_gather_coalesced", outputs, inputs,
                 [&](Collective&, auto& written, auto& read) {
                   return host_->allgather_coalesced(written, read, options);
                 });
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    return start(c10d::OpType::ALLGATHER_COALESCED, "all_gather_into_tensor_coalesced", outputs, inputs,
                 [&](Collective&, auto written, auto read) {
                   written = flat(written);
                   read = flat(read);
                   return host_->allgather_into_tensor_coalesced(written, read, options);
                 });
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override {
    return start(
        c10d::OpType::GATHER, "gather", outputs, inputs,
        [&](Collective&, auto& written, auto& read) { return host_->gather(written, read, options); });
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override {
    return start(
        c10d::OpType::SCATTER, "scatter", outputs, inputs,
        [&](Collective&, auto& written, auto& read) { return host_->scatter(written, read, options); });
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    return start(c10d::OpType::REDUCE_SCATTER, "reduce_scatter", outputs, inputs,
                 [&](Collective& collective, auto& written, auto& read) {
                   return host_->reduce_scatter(written, read, with_reduction(options, collective, written));
                 });
  }

  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    return start(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", output, input,
                 [&](Collective& collective, auto written, auto read) {
                   written = flat(written);
                   read = flat(read);
                   return host_->_reduce_scatter_base(written, read,
                                                      with_reduction(options, collective, {written}));
                 });
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return start(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter_tensor_coalesced", outputs,
                 inputs, [&](Collective& collective, auto written, auto read) {
                   written = flat(written);
                   read = flat(read);
                   return host_->reduce_scatter_tensor_coalesced(
                       written, read, with_reduction(options, collective, written));
                 });
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return start(c10d::OpType::ALLTOALL_BASE, "all_to_all_single", output, input,
                 [&](Collective&, auto& written, auto& read) {
                   return host_->alltoall_base(written, read, output_splits, input_splits, options);
                 });
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return start(
        c10d::OpType::ALLTOALL, "all_to_all", outputs, inputs,
        [&](Collective&, auto& written, auto& read) { return host_->alltoall(written, read, options); });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    return start(c10d::OpType::SEND, "send", tensors, [&](Collective& collective) {
      Tensors read = collective.host(tensors, Access::kRead);
      return host_->send(read, to, tag);
    });
  }

  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return start(c10d::OpType::RECV, "recv", tensors, [&](Collective& collective) {
      Tensors written = collective.host(tensors, Access::kOverwrite);
      return host_->recv(written, from, tag);
    });
  }

  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return start(c10d::OpType::RECVANYSOURCE, "recv", tensors, [&](Collective& collective) {
      Tensors written = collective.host(tensors, Access::kOverwrite);
      return host_->recvAnysource(written, tag);
    });
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return start(c10d::OpType::BARRIER, "barrier", {}, [&](Collective&) { return host_->barrier(options); });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    host_->monitoredBarrier(options, wait_for_all);
  }

 private:
  template <class Options>
  static Options with_reduction(Options options, Collective& collective, const Tensors& means) {
    options.reduceOp = collective.reduction(options.reduceOp, means);
    return options;
  }

  // A collective that reads `inputs` and writes every element of `outputs`: Tensors, or lists of them.
  template <class Outputs, class Inputs, class Run>
  WorkPtr start(c10d::OpType type, const char* name, const Outputs& outputs, const Inputs& inputs,
                const Run& run) {
    return start(type, name, flattened(outputs), [&](Collective& collective) {
      auto read = collective.host(inputs, Access::kRead);
      auto written = collective.host(outputs, Access::kOverwrite);
      return run(collective, written, read);
    });
  }

  // `run` hands a collective to the CPU's backend.
  template <class Run>
  WorkPtr start(c10d::OpType type, const char* name, Tensors results, const Run& run) {
    auto collective = std::make_shared<Collective>(name, rank_, size_);
    WorkPtr host;
    try {
      host = run(*collective);
    } catch (...) {
      collective->fail(std::current_exception());
    }
    auto work = c10::make_intrusive<DeviceWork>(type, rank_, std::move(collective), std::move(host),
                                                std::move(results));
    work->follow();
    if (is_coalescing_) {
      coalesced_.push_back(work);
    }
    return work;
  }

  const c10::intrusive_ptr<Backend> host_;
  const std::string name_;
  bool is_coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

// Gives `group`, which has a backend for the CPU, one for the device that goes by it.
void add_collectives(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::string& name) {
  group->setBackend(c10::kPrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<HostCollectives>(group->getBackend(c10::kCPU), name));
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("add_collectives", &add_collectives);
}

}  // namespace

}  // namespace opsmith

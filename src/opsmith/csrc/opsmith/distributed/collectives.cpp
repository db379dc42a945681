// Collectives of the device's tensors, on the bytes behind the host window or, without one, on copies.
//
// A call goes by the vendor's library where there is one and it can (vendor_collectives.h), else by a backend
// for the CPU's tensors, gloo.
//
// Python makes the backend (runtime/patches/distributed.py), since gloo's constructor is PyTorch's to call.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <opsmith/distributed/collective.h>
#include <opsmith/distributed/vendor_collectives.h>
#include <opsmith/distributed/work.h>
#include <opsmith/distributed/work_queue.h>
#include <opsmith/torch_version.h>

namespace opsmith {

namespace {

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
  DeviceCollectives(c10::intrusive_ptr<Backend> host, std::string name, std::unique_ptr<VendorGroup> vendor)
      : Backend(host->getRank(), host->getSize()),
        host_(std::move(host)),
        name_(std::move(name)),
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
    queue_.finish([this] {
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
    return start(c10d::OpType::ALLREDUCE, call, options, tensors,
                 [this, tensors, options](Collective& collective) {
                   Tensors views = collective.host(tensors, Access::kWrite);
                   host_->allreduce(views, with_reduction(options, collective, views))->wait();
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
      return by_vendor(c10d::OpType::OPSMITH_REDUCE_SCATTER_TENSOR_COALESCED, call, options, outputs,
                       [outputs, inputs, options](VendorGroup& vendor) {
                         vendor.reduce_scatter(outputs, inputs, options.reduceOp.op_);
                       });
    }
    return start(
        c10d::OpType::OPSMITH_REDUCE_SCATTER_TENSOR_COALESCED, call, options, outputs, inputs,
        [this, options](Collective& collective, auto written, auto read) {
          written = flat(written);
          read = flat(read);
          host_->reduce_scatter_tensor_coalesced(written, read, with_reduction(options, collective, written))
              ->wait();
        });
  }

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    return start(c10d::OpType::ALLTOALL_BASE, calling("all_to_all_single", {input}), options, {output},
                 [this, output, input, output_splits, input_splits, options](Collective& collective) mutable {
                   if (vendor_ != nullptr && vendor_->has_all_to_all() &&
                       all_pass_as_many(passed_by_each(output, input, output_splits, input_splits))) {
                     vendor_->all_to_all(output, input);
                     return;
                   }
                   at::Tensor read = collective.host(input, Access::kRead);
                   at::Tensor written = collective.host(output, Access::kOverwrite);
                   host_->alltoall_base(written, read, output_splits, input_splits, options)->wait();
                 });
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return start(c10d::OpType::ALLTOALL, calling("all_to_all", inputs), options, outputs, inputs,
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
    return start(c10d::OpType::BARRIER, calling("barrier", {}), options, Tensors(),
                 [this, options](Collective&) { host_->barrier(options)->wait(); });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    host_->monitoredBarrier(options, wait_for_all);
  }

 private:
  // ---- calls, as errors describe them

  static CollectiveCall calling(const char* name, const Tensors& tensors) {
    return {name, tensors.empty() ? at::Tensor() : tensors.front()};
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

  // Whether passed_by_each() is the same on all ranks, and not negative: a rank's own splits do not tell.
  bool all_pass_as_many(int64_t passed) const {
    at::Tensor own = at::full({1}, passed, at::kLong), all = at::empty({size_}, at::kLong);
    host_->_allgather_base(all, own)->wait();
    return passed >= 0 && all.eq(passed).all().item<bool>();
  }

  // ---- how they are made

  // A collective by the vendor's library.
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

  template <class Options, class Run>
  WorkPtr start(c10d::OpType type, const CollectiveCall& call, const Options& options, const Tensors& results,
                Run run) {
    auto work = c10::make_intrusive<CollectiveWork>(type, rank_, results);
    auto task = [this, work, call, run = std::move(run)](const std::exception_ptr& error) mutable {
      const auto run_it = [&] {
        if (error != nullptr) {
          std::rethrow_exception(error);
        }
        RECORD_FUNCTION(name_ + ":" + call.name, std::vector<c10::IValue>());
        Collective collective(call, rank_, size_);
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
      queue_.queue(std::move(task));
    } else {
      queue_.run(std::move(task));
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
  const std::unique_ptr<VendorGroup> vendor_;
  Completions completions_;
  WorkQueue queue_;
  bool is_coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

// Gives `group`, which has a backend for the CPU, one for the device that goes by it.
void add_collectives(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::string& name) {
  const c10::intrusive_ptr<c10d::Backend> host = group->getBackend(c10::kCPU);
  group->setBackend(c10::kPrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<DeviceCollectives>(
                        host, name, vendor_group(group->getStore(), host->getRank(), host->getSize())));
}

TORCH_LIBRARY_FRAGMENT(opsmith, m) {
  m.def("add_collectives", &add_collectives);
}

}  // namespace

}  // namespace opsmith

// The c10d::Work that callers are given of collectives. What a collective gives is on the device, or queued
// there, when its work is done.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <opsmith/device/device.h>
#include <opsmith/device/waiting.h>
#include <opsmith/distributed/collective.h>
#include <opsmith/distributed/completions.h>
#include <opsmith/distributed/on_stream.h>

namespace opsmith {

using c10::ivalue::Future;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

inline c10::intrusive_ptr<Future> future_of(const Tensors& results) {
  std::vector<c10::Device> devices;
  if (!results.empty()) {
    devices.push_back(results.front().device());
  }
  return c10::make_intrusive<Future>(c10::ListType::ofTensors(), std::move(devices));
}

inline void wait_for(const c10::intrusive_ptr<Future>& future) {
  // Future::wait() is inline, and would make the library need a newer libstdc++ than PyTorch's.
  c10d::Work::create_from_future(future)->wait();
  if (future->hasError()) {
    std::rethrow_exception(future->exception_ptr());
  }
}

// A collective in the group's queue, or out of it.
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
    const WaitsForWantOfEvents waits;
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
    const WaitsForWantOfEvents waits;
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

}  // namespace opsmith

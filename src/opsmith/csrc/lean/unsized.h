// A result whose shape its kernel decides, by resizing it: nonzero's. It has a rank and no memory before
// that.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opsmith {

// Gives memory to one TensorImpl of a call on this thread, for as long as it lives.
class Unsized {
 public:
  Unsized(const Unsized&) = delete;
  Unsized& operator=(const Unsized&) = delete;

  // The memory of a result of these sizes, as many as the Tensor has dimensions. May throw.
  virtual void* allocate(const int32_t* sizes) = 0;

  // The one for `impl`; null where there is none.
  static Unsized* of(const void* impl);

 protected:
  Unsized();
  ~Unsized();

  void stand_for(const void* impl) { stood_for_ = impl; }

 private:
  const void* stood_for_ = nullptr;
  Unsized* const outer_;
};

}  // namespace opsmith

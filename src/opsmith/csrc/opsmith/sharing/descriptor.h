// A file descriptor that does not go over to children.
#pragma once

#include <utility>

namespace opsmith {

// Closed at the end; in a child of fork() at once, where nobody answers on it and it would keep a connection
// open that its process has given up.
class Descriptor {
 public:
  Descriptor() = default;
  // Takes over `number`; none if it is negative.
  explicit Descriptor(int number);
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor();

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

}  // namespace opsmith

// See descriptor.h.
#include <opsmith/sharing/descriptor.h>

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace opsmith {

namespace {

struct OpenDescriptors {
  std::mutex mutex;
  std::set<int> numbers;
};

OpenDescriptors& open_ones() {
  static OpenDescriptors* const made = [] {
    // The lock is held across a fork, so that the child finds the set whole.
    pthread_atfork([] { open_ones().mutex.lock(); }, [] { open_ones().mutex.unlock(); },
                   [] {
                     for (const int number : open_ones().numbers) {
                       close(number);
                     }
                     open_ones().numbers.clear();
                     open_ones().mutex.unlock();
                   });
    return new OpenDescriptors;  // never destroyed: storages may be released while the process ends
  }();
  return *made;
}

}  // namespace

Descriptor::Descriptor(int number) : number_(number) {
  if (is_open()) {
    const std::lock_guard lock(open_ones().mutex);
    open_ones().numbers.insert(number_);
  }
}

Descriptor::~Descriptor() {
  if (!is_open()) {
    return;
  }
  const std::lock_guard lock(open_ones().mutex);
  // A child of fork() has closed it, and may have given its number to something else.
  if (open_ones().numbers.erase(number_) == 1) {
    close(number_);
  }
}

}  // namespace opsmith

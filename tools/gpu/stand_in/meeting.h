// Collectives on memory of the host between processes of one machine, which meet in shared memory: of
// stand-ins for vendors' libraries.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <thread>

namespace stand_in {

constexpr int kMostRanks = 8;
constexpr size_t kSlot = size_t{1} << 20;

// Begins as memory that is zero.
struct Room {
  std::atomic<unsigned> round;
  std::atomic<int> arrived;
  std::atomic<int> devices[kMostRanks];
  char slots[kMostRanks][kSlot];
};

// A rank's part. A collective that the ranks cannot finish, since one is gone for a minute or this one gave
// up, leaves its results as they are.
class Meeting {
 public:
  // Returns when all `size` ranks have come; null where they do not.
  static std::shared_ptr<Meeting> join(const char* name, int rank, int size, int device) {
    const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || size > kMostRanks || ftruncate(file, sizeof(Room)) != 0) {
      return nullptr;
    }
    void* const memory = mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    auto made = std::make_shared<Meeting>(rank, size, static_cast<Room*>(memory));
    made->room_->devices[rank] = device;
    const bool all_came = made->meet();
    if (rank == 0) {
      shm_unlink(name);
    }
    return all_came ? made : nullptr;
  }

  Meeting(int rank, int size, Room* room) : rank(rank), size(size), room_(room) {}
  ~Meeting() { munmap(room_, sizeof(Room)); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  int device_of(int other) const { return room_->devices[other]; }

  // Ends what is going on, from another thread.
  void give_up() { gave_up_ = true; }

  void broadcast(char* data, size_t bytes, int root) {
    exchange(data, bytes, [&](int other, const char* slot, size_t offset, size_t piece) {
      if (other == root) {
        std::memcpy(data + offset, slot, piece);
      }
    });
  }

  void all_gather(const char* in, char* out, size_t bytes) {
    exchange(in, bytes, [&](int other, const char* slot, size_t offset, size_t piece) {
      std::memcpy(out + static_cast<size_t>(other) * bytes + offset, slot, piece);
    });
  }

  // `from(rank)` has the bytes for a rank, `to(rank)` is where its bytes go.
  template <class From, class To>
  void all_to_all(size_t bytes, const From& from, const To& to) {
    for (int step = 0; step < size; ++step) {
      const int source = (rank - step + size) % size;
      exchange(from((rank + step) % size), bytes,
               [&](int other, const char* slot, size_t offset, size_t piece) {
                 if (other == source) {
                   std::memcpy(to(source) + offset, slot, piece);
                 }
               });
    }
  }

  // `fold(a, b)` is the reduction of two elements.
  template <class T, class Fold>
  void all_reduce(const T* in, T* out, size_t elements, const Fold& fold) {
    exchange(reinterpret_cast<const char*>(in), elements * sizeof(T), folding(out, fold));
  }

  // `in` has the `elements` of each rank one after the other.
  template <class T, class Fold>
  void reduce_scatter(const T* in, T* out, size_t elements, const Fold& fold) {
    const auto own = folding(out, fold);
    for (int target = 0; target < size; ++target) {
      exchange(reinterpret_cast<const char*>(in + static_cast<size_t>(target) * elements),
               elements * sizeof(T), [&](int other, const char* slot, size_t offset, size_t piece) {
                 if (target == rank) {
                   own(other, slot, offset, piece);
                 }
               });
    }
  }

  const int rank;
  const int size;

 private:
  static constexpr std::chrono::microseconds kPause{50};
  static constexpr std::chrono::minutes kPatience{1};

  template <class T, class Fold>
  static auto folding(T* out, const Fold& fold) {
    return [out, &fold](int other, const char* slot, size_t offset, size_t piece) {
      const auto* const theirs = reinterpret_cast<const T*>(slot);
      T* const into = out + offset / sizeof(T);
      for (size_t i = 0; i < piece / sizeof(T); ++i) {
        into[i] = other == 0 ? theirs[i] : fold(into[i], theirs[i]);
      }
    };
  }

  bool meet() {
    const unsigned round = room_->round;
    if (++room_->arrived == size) {
      room_->arrived = 0;
      ++room_->round;
      return true;
    }
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (room_->round == round) {
      if (gave_up_ || std::chrono::steady_clock::now() > end) {
        return false;
      }
      std::this_thread::sleep_for(kPause);
    }
    return true;
  }

  // Gives the other ranks `bytes` of `data`, a slot's at a time, and reads what all give: `read(rank, slot,
  // offset, bytes)`.
  template <class Read>
  void exchange(const char* data, size_t bytes, const Read& read) {
    for (size_t offset = 0; offset < bytes; offset += kSlot) {
      const size_t piece = std::min(kSlot, bytes - offset);
      std::memcpy(room_->slots[rank], data + offset, piece);
      if (!meet()) {
        return;
      }
      for (int other = 0; other < size; ++other) {
        read(other, room_->slots[other], offset, piece);
      }
      if (!meet()) {
        return;
      }
    }
  }

  Room* const room_;
  std::atomic<bool> gave_up_ = false;
};

}  // namespace stand_in

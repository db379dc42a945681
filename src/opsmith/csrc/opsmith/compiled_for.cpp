// The torch that this library was compiled against, as an ELF note: opsmith.load reads it before it opens the
// library, whose static initialisers run against whichever torch is there.
#include <cstdint>

#include <torch/version.h>

namespace opsmith {

namespace {

struct Note {
  uint32_t name_size;
  uint32_t description_size;
  uint32_t type;
  char name[8];
  char description[32];
};

// An owner's own types begin at 1. description/built/torch_note.py reads this one.
[[gnu::section(".note.opsmith"), gnu::used, gnu::retain]] alignas(4) constexpr Note kCompiledFor{
    sizeof "opsmith", sizeof Note::description, 1, "opsmith", TORCH_VERSION};

}  // namespace

}  // namespace opsmith

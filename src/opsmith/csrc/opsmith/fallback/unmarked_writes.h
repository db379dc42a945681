// Arguments that operators write to although their schemas do not mark them, as the plan knows them: without
// a host window, what is not known to be written is not copied back.
#pragma once

#include <initializer_list>

#include <ATen/core/function_schema.h>

namespace opsmith {

struct UnmarkedWrites {
  const char* operator_name;  // of ATen: "native_batch_norm.out"
  std::initializer_list<const char*> arguments;
};

// For generated code. Called when the library is loaded.
void set_unmarked_writes(std::initializer_list<UnmarkedWrites> operators);

// Whether `argument`, which lies in its operator's schema, is one.
bool is_written_unmarked(const c10::Argument& argument);

}  // namespace opsmith

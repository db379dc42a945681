// See external_schema.h.
#include "external_schema.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

namespace opsmith {

void define_unless_defined(torch::Library& library, const char* schema, const std::vector<at::Tag>& tags) {
  const c10::FunctionSchema wanted = torch::jit::parseSchema(schema);
  const auto defined = c10::Dispatcher::singleton().findSchema(wanted.operator_name());
  if (!defined.has_value()) {
    library.def(schema, tags);
    return;
  }
  const auto difference = c10::findSchemaDifferences(defined->schema(), wanted);
  TORCH_CHECK(!difference.has_value(), "`", wanted.operator_name(), "` is implemented as `", schema,
              "`, but is defined as `", toString(defined->schema()), "`",
              "\n  remedy: correct the schema in the kernel library's manifest");
}

}  // namespace opsmith

#include <opsmith/distributed/collective.h>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

namespace opsmith {

namespace {

std::string described(const CollectiveCall& call) {
  std::string text = call.name;
  if (call.example.defined()) {
    text += c10::str(" of ", c10::getDtypeNames(call.example.scalar_type()).first, call.example.sizes(),
                     " on ", call.example.device());
  }
  if (*call.reduction != '\0') {
    text += c10::str(", ", call.reduction);
  }
  return call.root < 0 ? text : c10::str(text, ", root ", call.root);
}

}  // namespace

const char* name_of(c10d::ReduceOp::RedOpType reduction) {
  switch (reduction) {
    case c10d::ReduceOp::SUM:
      return "sum";
    case c10d::ReduceOp::AVG:
      return "avg";
    case c10d::ReduceOp::PRODUCT:
      return "product";
    case c10d::ReduceOp::MIN:
      return "min";
    case c10d::ReduceOp::MAX:
      return "max";
    case c10d::ReduceOp::BAND:
      return "and";
    case c10d::ReduceOp::BOR:
      return "or";
    case c10d::ReduceOp::BXOR:
      return "xor";
    default:
      return "";
  }
}

c10d::ReduceOp Collective::reduction(const c10d::ReduceOp& wanted, const Tensors& means) {
  if (wanted.op_ != c10d::ReduceOp::AVG) {
    return wanted;
  }
  means_ = means;
  return c10d::ReduceOp::SUM;
}

void Collective::finish() {
  for (const at::Tensor& each : means_) {
    at::isIntegralType(each.scalar_type(), /*includeBool=*/true) ? each.div_(size_, "trunc")
                                                                 : each.div_(size_);
  }
  views_.commit();
}

void Collective::fail(const std::exception_ptr& error) const {
  std::string reason = "for no reason that is known";
  try {
    std::rethrow_exception(error);
  } catch (const c10::AcceleratorError&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& known) {
    reason = known.what_without_backtrace();
  } catch (const std::exception& known) {  // gloo's
    reason = c10::str(known.what(),
                      "\n  remedy: see that every rank is alive and makes the same calls in the same order; "
                      "with TORCH_DISTRIBUTED_DEBUG=DETAIL, PyTorch compares them");
  } catch (...) {
  }
  TORCH_CHECK_WITH(DistBackendError, false, described(call_), " failed on rank ", rank_, " of ", size_, ": ",
                   reason);
}

}  // namespace opsmith

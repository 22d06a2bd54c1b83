#include "llmc/infer/finish_reason.h"

namespace llmc {

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::stop:
      return "stop";
    case Finish::context:
      return "context";
    case Finish::cancelled:
      return "cancelled";
    case Finish::not_finite:
      return "not_finite";
    default:
      return "length";
  }
}

}  // namespace llmc

#include "llmc/train/measure/step_parts.h"

namespace llmc {

namespace {

// Whether operations have this one as the begin of their paths: "forward/".
bool has_parts(const std::vector<OperationTime>& operations, const OperationTime& operation) {
  return operation.path == "step" ||
         std::ranges::any_of(operations, [&](const OperationTime& other) {
           return other.path.starts_with(operation.path + "/");
         });
}

double& part_for(ProfiledStep& step, const OperationTime& operation) {
  const std::string& path = operation.path;
  if (path.starts_with("optimizer") || path == "zero gradients") return step.update;
  if (path.find("attention") != path.npos) return step.compute.attention;
  return operation.has_flops ? step.compute.products : step.compute.others;
}

}  // namespace

void add_operations(ProfiledStep& step, const std::vector<OperationTime>& operations) {
  for (const OperationTime& operation : operations) {
    if (!has_parts(operations, operation)) part_for(step, operation) += operation.seconds;
  }
}

}  // namespace llmc

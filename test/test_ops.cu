// Checks every case of every op in dev/ops against its oracle. The build includes a list of the ops
// first (LLMC_OPS, see the Makefile). Tests of single ops have only what cases cannot express.
#include <doctest/doctest.h>

#include <string>

#include "dev/harness/op_case.h"
#include "test/support.h"

namespace {

using namespace llmc_dev;

// Checks all cases of one dtype; under sanitizers only the tiny shapes.
class TestRunner final : public OpRunner {
 public:
  explicit TestRunner(llmc::Dtype dtype) : dtype_(dtype) {}

  bool includes(ShapeSet set) const override {
    return set == ShapeSet::tiny || (set == ShapeSet::small && !llmc_test::tiny_shapes());
  }
  bool includes(llmc::Dtype dtype) const override { return dtype == dtype_; }
  bool includes(const std::string&) override { return true; }
  int num_sets(double) const override { return 1; }
  void skipped(const std::string&, const std::string&) override {}

  void run(OpCase& op_case) override {
    for (const Variant& variant : op_case.variants()) {
      ++num_runs_;
      CAPTURE(op_case.info().name_of(variant.name));
      for (const std::string& fault : op_case.verify(variant, 1).faults) FAIL_CHECK(fault);
    }
    CAPTURE(op_case.info().op);
    CAPTURE(op_case.info().shape);
    for (const std::string& fault : op_case.verify_forms()) FAIL_CHECK(fault);
  }

  int num_runs() const { return num_runs_; }

 private:
  llmc::Dtype dtype_;
  int num_runs_ = 0;
};

void check(void (*cases)(OpRunner&), llmc::Dtype dtype) {
  if (llmc_test::checked_as_bf16(dtype)) return;
  TestRunner runner(dtype);
  cases(runner);
  // Some ops exist only in fp32.
  if (dtype == llmc::Dtype::fp32) CHECK(runner.num_runs() > 0);
}

// doctest registers tests by macros, so a list of tests is one too.
#define LLMC_OP_TESTS(op)                                           \
  TEST_SUITE(#op) {                                                 \
    TEST_CASE("every case of " #op " matches its oracle in fp32") { \
      check(llmc_dev::op::cases, llmc::Dtype::fp32);                \
    }                                                               \
    TEST_CASE("every case of " #op " matches its oracle in bf16") { \
      check(llmc_dev::op::cases, llmc::Dtype::bf16);                \
    }                                                               \
    TEST_CASE("every case of " #op " matches its oracle in fp16") { \
      check(llmc_dev::op::cases, llmc::Dtype::fp16);                \
    }                                                               \
  }
LLMC_OPS(LLMC_OP_TESTS)
#undef LLMC_OP_TESTS

}  // namespace

// A copy with planted faults, one per variant: every line except the first must be a FAIL.
// dev/run.sh runs this first, because a check that cannot fail proves nothing.
#include "dev/bench.h"

namespace {

using namespace llmc_dev;

enum class Fault {
  none,
  wrong_number,
  left_out,
  past_the_end,
  differs,
  error,
  differs_in_place,
  writes_frozen
};

// One number per thread. `run` counts the runs.
__global__ inline void faulty_copy_kernel(float* out, const float* inp, std::int64_t n, Fault fault,
                                          int run) {
  const std::int64_t i = llmc::global_thread();
  if (i >= n) return;
  if (fault == Fault::left_out && i == n - 1) return;
  float x = inp[i];
  if (fault == Fault::wrong_number && i == n / 2) x += 1.0f;
  if (fault == Fault::differs && i == n / 2) {
    x = llmc::float_from_bits(llmc::bits_of(x) + static_cast<std::uint32_t>(run % 2));
  }
  out[i] = x;
  if (fault == Fault::past_the_end && i == n - 1) out[n] = x;
}

void run(OpRunner& runner) {
  constexpr std::int64_t kCount = 1000;
  const std::vector<std::pair<std::string, Fault>> faults = {
      {"none", Fault::none},
      {"wrong_number", Fault::wrong_number},
      {"left_out", Fault::left_out},
      {"past_the_end", Fault::past_the_end},
      {"differs", Fault::differs},
      {"error", Fault::error},
      {"differs_in_place", Fault::differs_in_place},
      {"writes_frozen", Fault::writes_frozen}};
  for (const auto& [name, fault] : faults) {  // one case per fault, as if each were an op
    OpCase c(runner, {.op = "faulty_copy",
                      .shape = std::to_string(kCount),
                      .variants = {name},
                      .bytes = 8.0 * kCount});
    if (!c.is_selected()) continue;
    auto& inp = c.input<float>(kCount, normal(1));
    auto& out = c.output<float>(kCount);
    int runs = 0;
    const auto copy = [&](float* to, const float* from, Fault planted) {
      llmc::launch_elementwise<1>(faulty_copy_kernel, kCount, runner.stream(), to, from, kCount,
                                  planted, runs++);
    };
    c.variant(name, [&, fault = fault](int i) {
      if (fault == Fault::error) llmc::fail("a variant that cannot run");
      copy(out.at(i), inp.at(i), fault);
    });
    if (fault == Fault::differs_in_place) {
      c.in_place("inp", inp, out, [&] { copy(inp.at(0), inp.at(0), Fault::wrong_number); });
    }
    if (fault == Fault::writes_frozen) {
      c.without("out", {&out}, [&] { copy(out.at(0), inp.at(0), Fault::none); });
    }
    c.finish([&] {
      return std::vector{compare("out", out.values(), inp.values(), tolerance<float>())};
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  return llmc_dev::bench_main(argc, argv, "faults that must be detected: 1 OK, 7 FAIL, exit code 1",
                              run);
}

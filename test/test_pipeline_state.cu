// Pipeline ranks and long runs: a run that changes its mesh follows the one that does not. Ranks
// are threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <vector>

#include "test/state_rig.h"

using namespace llmc;
using namespace llmc_test;

TEST_SUITE("pipeline state") {
  TEST_CASE("a run continues under another mesh with the losses of an uninterrupted one") {
    if (tiny_shapes()) return;
    const Layout a = with_pipeline(layout_of(4, 2), 2), b = with_pipeline(layout_of(4, 1), 4);
    const TemporaryDirectory folder;
    run_under<float>(a, kVocabulary, 50, {}, folder.path());
    const Run whole = run_under<float>(a, kVocabulary, 100, {}, {});
    const Run other = run_under<float>(b, kVocabulary, 100, {}, {});
    const Run changed =
        run_under<float>(b, kVocabulary, 50, folder.path() / checkpoint_name(50), {});
    const auto difference = [](double x, double y) { return std::fabs(x / y - 1); };
    const double apart = difference(other.losses[99], whole.losses[99]);
    double largest = 0;
    for (std::size_t i = 0; i < 100; ++i) {
      largest = std::max(largest, difference(other.losses[i], whole.losses[i]));
    }
    std::cout << "differences of losses: step 51: "
              << difference(changed.losses[0], whole.losses[50])
              << ", step 100: " << difference(changed.losses[49], whole.losses[99])
              << "; of uninterrupted runs " << apart << ", in any step " << largest << std::endl;
    CHECK(difference(changed.losses[0], whole.losses[50]) <= 2e-6);
    CHECK(difference(changed.losses[49], whole.losses[99]) <= std::max(2e-6, 2 * apart));
    CHECK(largest > 0);  // the meshes add in other orders
    CHECK(largest <= 2e-6);
    CHECK(whole.tokens == other.tokens);
  }
}

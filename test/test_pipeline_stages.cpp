// The blocks of the stages of a pipeline.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <vector>

#include "llmc/pipeline/stages.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

using Numbers = std::vector<std::int64_t>;

// The number of blocks of each stage.
Numbers blocks_of(const Numbers& bounds) {
  Numbers blocks;
  for (std::size_t s = 1; s < bounds.size(); ++s) blocks.push_back(bounds[s] - bounds[s - 1]);
  return blocks;
}

}  // namespace

TEST_SUITE("pipeline stages") {
  TEST_CASE("the stages have all blocks, as evenly as possible, and fewer at the ends") {
    for (std::int64_t layers = 1; layers <= 48; ++layers) {
      for (std::int64_t stages = 1; stages <= layers; ++stages) {
        const Numbers bounds = even_stages(layers, stages), blocks = blocks_of(bounds);
        CHECK(bounds.front() == 0);
        CHECK(bounds.back() == layers);
        CHECK(std::ssize(blocks) == stages);
        const auto [least, most] = std::ranges::minmax(blocks);
        CHECK(least >= 1);
        CHECK(most - least <= 1);
        // No stage with fewer blocks is between two with more, and the last one has the fewest.
        const auto first = std::ranges::find(blocks, most);
        CHECK(std::is_sorted(first, blocks.end(), std::greater<>()));
        CHECK(blocks.back() == least);
        CHECK(std::is_sorted(blocks.begin(), first + 1));
      }
    }
    CHECK(blocks_of(even_stages(12, 5)) == Numbers{2, 3, 3, 2, 2});
    CHECK(blocks_of(even_stages(48, 7)) == Numbers{7, 7, 7, 7, 7, 7, 6});
  }

  TEST_CASE("requested numbers of blocks are used") {
    CHECK(requested_stages(12, 4, {1, 5, 4, 2}) == Numbers{0, 1, 6, 10, 12});
    CHECK(requested_stages(3, 1, {3}) == Numbers{0, 3});
  }

  TEST_CASE("stages without blocks and wrong requests are refused") {
    CHECK(contains(complaint([&] { even_stages(12, 16); }),
                   "12 layers and 16 stages; allowed: at least one layer per stage"));
    CHECK(contains(complaint([&] { even_stages(12, 0); }), "0 stages"));
    CHECK(contains(complaint([&] {
                     requested_stages(12, 4, {4, 4, 4});
                   }),
                   "3 numbers; allowed: one for each of the 4 stages"));
    CHECK(contains(complaint([&] {
                     requested_stages(12, 3, {6, 0, 6});
                   }),
                   "a stage with 0 layers"));
    CHECK(contains(complaint([&] { requested_stages(12, 3, {4, 4, 3}); }), "11 layers in all"));
    CHECK(contains(complaint([&] {
                     requested_stages(12, 2, {1, std::numeric_limits<std::int64_t>::max()});
                   }),
                   "more than the 12 layers"));
  }
}

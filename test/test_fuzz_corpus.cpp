// Runs the fuzzer's targets (test/fuzz) without the fuzzer, on their seeds and on simple mutations
// of the seeds, which are the same in every run. `make fuzz` searches further.
#include <doctest/doctest.h>

#include <random>

#include "test/fuzz/targets.h"
#include "test/support.h"

using namespace llmc_test;

namespace {

// One to four mutations: a byte is replaced or inserted, bytes are deleted, the text is truncated,
// or a part of it is repeated.
std::string mutate(std::string text, std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  for (std::size_t num_mutations = 1 + below(4); num_mutations > 0; --num_mutations) {
    const std::size_t at = below(text.size());
    const char byte = "\0\1\xff\x7f{}[]\",:\\09-. \n\xc3"[below(19)];
    switch (below(6)) {
      case 0:
        text.insert(at, 1, byte);
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        text.resize(at);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), below(32)));
        break;
      default:
        if (!text.empty()) text[at] = below(2) == 0 ? byte : static_cast<char>(random());
    }
  }
  return text;
}

// Runs a target. If it fails, saves the input and reports the file and the seed.
void run(const llmc_fuzz::Target& target, const std::string& seed, const std::string& input) {
  try {
    target.run(input);
  } catch (const std::exception& error) {
    const std::string name = (std::filesystem::temp_directory_path() / "fuzz-failure").string();
    llmc::write_file(name, input);
    FAIL_CHECK(target.name << ", input derived from " << seed << ": " << std::string(error.what())
                           << " (" << name << ")");
  }
}

}  // namespace

TEST_SUITE("fuzz_corpus") {
  TEST_CASE("every reader either accepts or rejects its seeds and mutations of them") {
    for (const llmc_fuzz::Target& target : llmc_fuzz::kTargets) {
      const auto folder =
          std::filesystem::path(root_dir()) / "test/fuzz/corpus" / std::string(target.name);
      std::vector<std::string> seeds;
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        seeds.push_back(entry.path().string());
      }
      REQUIRE_MESSAGE(!seeds.empty(), target.name);
      std::sort(seeds.begin(), seeds.end());
      std::mt19937_64 random(1);
      const std::size_t num_mutations = (tiny_shapes() ? 40 : 4000) / seeds.size() + 1;
      for (const std::string& seed : seeds) {
        const std::string text = llmc::read_file(seed);
        run(target, seed, text);
        for (std::size_t i = 0; i < num_mutations; ++i) run(target, seed, mutate(text, random));
      }
    }
  }

  TEST_CASE("a target reports a reader that breaks the rules") {
    CHECK_THROWS_AS(llmc_fuzz::expect(false, "anything"), std::logic_error);
    const auto unnamed = [] { llmc::fail("something is wrong"); };
    CHECK_THROWS_AS(llmc_fuzz::is_rejected("a.bin", unnamed), std::logic_error);
    const auto unprintable = [] { llmc::fail("a.bin: \x1b[2J"); };
    CHECK_THROWS_AS(llmc_fuzz::is_rejected("a.bin", unprintable), std::logic_error);
    CHECK(llmc_fuzz::is_rejected("a.bin", [] { llmc::fail("a.bin is empty"); }));
    CHECK(!llmc_fuzz::is_rejected("a.bin", [] {}));
  }
}

// The parameter table: axes, the part that each rank holds, slices in files, initial values, FLOP.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/config/model_name.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/parameter_slices.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/random_fill.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;
using Sizes = std::vector<std::int64_t>;

ModelConfig small_config(std::int64_t heads, std::int64_t head_size, std::int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .context = 5,
          .layers = 1,
          .heads = heads,
          .channels = heads * head_size};
}

// A token embedding padded to a multiple so small that several ranks have tokens.
ParameterSpec embedding(std::int64_t vocabulary, std::int64_t multiple, std::int64_t channels) {
  ParameterSpec spec;
  spec.name = "wte.weight";
  spec.axes = {{{AxisName::vocabulary, vocabulary, true, multiple}},
               {{AxisName::channels, channels}}};
  spec.shape = {vocabulary, channels};
  return spec;
}

// Every parameter of several model shapes, with a number of ranks that can share it.
struct Example {
  ParameterSpec spec;
  std::int64_t ranks;
};
std::vector<Example> examples() {
  std::vector<Example> all;
  const auto add = [&](const ModelConfig& config, std::vector<std::int64_t> ranks) {
    const ParameterTable table = gpt2_parameters(config);
    for (const ParameterSpec& spec : table.specs()) {
      for (const std::int64_t n : ranks) all.push_back({spec, n});
    }
  };
  add(small_config(4, 12, 300), {1, 2, 4});
  add(small_config(3, 8, 130), {1, 3});
  add(small_config(5, 4, 7), {1, 5});
  for (const std::int64_t ranks : {1, 2, 3, 8}) {
    for (const std::int64_t vocabulary : {1, 8, 17, 64}) {
      all.push_back({embedding(vocabulary, 8, 3), ranks});
    }
  }
  return all;
}

// The indices in the whole tensor of a rank's elements, in their order.
Sizes global_indices(const LocalParameter& local) {
  Sizes all;
  for (std::int64_t i = 0; i < local.size(); ++i) all.push_back(local.index(i));
  return all;
}

// The same of a slice, by the definition of slices in files.
Sizes global_indices(const Slice& slice) {
  std::vector<float> numbers(static_cast<std::size_t>(slice.count()));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i + 1);
  std::vector<float> whole(static_cast<std::size_t>(*checked_count(slice.shape)));
  copy_slice_into(slice, std::as_bytes(std::span(numbers)),
                  reinterpret_cast<std::byte*>(whole.data()));
  Sizes all(numbers.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] != 0)
      all.at(static_cast<std::size_t>(whole[i]) - 1) = static_cast<std::int64_t>(i);
  }
  return all;
}

// The elements of a weight (C; 3 parts, NH heads, HS) that a rank holds, by the definition: all
// elements of some heads, in the order of the whole tensor.
Sizes elements_of_heads(std::int64_t C, std::int64_t NH, std::int64_t HS, const MeshPlace& place) {
  const std::int64_t heads = NH / place.tensor_ranks;
  Sizes elements;
  for (std::int64_t c = 0; c < C; ++c) {
    for (std::int64_t part = 0; part < 3; ++part) {
      for (std::int64_t head = 0; head < NH; ++head) {
        for (std::int64_t d = 0; d < HS; ++d) {
          if (head / heads != place.tensor_rank) continue;
          elements.push_back(((c * 3 + part) * NH + head) * HS + d);
        }
      }
    }
  }
  return elements;
}

TEST_SUITE("parameters") {
  TEST_CASE("the axes of a parameter define its tensor in files") {
    const ParameterTable table = gpt2_parameters(config_from_name("d12"));
    const ParameterSpec& qkv = table.find("h.3.attn.c_attn.weight");
    CHECK(qkv.shape == Sizes{768, 2304});
    CHECK(qkv.axes.size_of(AxisName::channels) == 768);
    CHECK(qkv.axes.size_of(AxisName::parts) == 3);
    CHECK(qkv.axes.size_of(AxisName::heads) == 12);
    CHECK(qkv.axes.size_of(AxisName::head_size) == 64);
    CHECK_THROWS_WITH_AS(qkv.axes.size_of(AxisName::vocabulary),
                         "the parameter has no axis 'vocabulary'", Error);
    CHECK(table.find("h.3.attn.c_attn.bias").shape == Sizes{2304});
    CHECK(table.find("h.3.attn.c_proj.weight").axes.size_of(AxisName::heads) == 12);
    CHECK(table.find("h.3.mlp.c_proj.weight").shape == Sizes{3072, 768});
    CHECK(table.find("wte.weight").shape == Sizes{50257, 768});
    CHECK(table.find("wte.weight").part.stored_rows == 50304);
    CHECK(table.find("wpe.weight").shape == Sizes{1024, 768});
    // Checkpoints and random numbers depend on these values.
    CHECK(table.find("wpe.weight").offset == 50304 * 768);
    CHECK(table.find("ln_f.bias").id == 147);
    CHECK(table.find("ln_f.bias").offset == table.stored_size() - 1024);
    CHECK(table.stored_size() == 124504064);
  }

  TEST_CASE("a single rank holds every whole parameter") {
    for (const char* name : {"d12", "d48"}) {
      const ParameterTable table = gpt2_parameters(config_from_name(name));
      for (const ParameterSpec& spec : table.specs()) {
        CAPTURE(spec.name);
        const LocalParameter local = spec.local();
        CHECK(local.shape == spec.shape);
        CHECK(local.axes.shape() == spec.shape);
        CHECK(local.stored_rows == spec.part.stored_rows);
        CHECK(local.size() == spec.size());
        CHECK(local.stored_size() == spec.stored_size());
        CHECK(local.index == GlobalIndex{});
        CHECK(!local.split);
        const std::optional<Slice> slice = slice_of(spec, {}, "transformer." + spec.name);
        REQUIRE(slice);
        CHECK(slice->is_whole());
        CHECK(slice->name == "transformer." + spec.name);
      }
    }
  }

  TEST_CASE("each rank has the expected part of each parameter") {
    const ParameterTable table =
        gpt2_parameters(config_from_name("d48"));  // 25 heads, 1600 channels
    const std::map<std::string, std::map<std::int64_t, Sizes>> shapes = {
        {"wpe.weight", {{1, {1024, 1600}}, {5, {1024, 1600}}}},
        {"h.0.ln_1.weight", {{1, {1600}}, {5, {1600}}}},
        {"h.0.attn.c_attn.weight", {{1, {1600, 4800}}, {5, {1600, 960}}, {25, {1600, 192}}}},
        {"h.0.attn.c_attn.bias", {{1, {4800}}, {5, {960}}, {25, {192}}}},
        {"h.0.attn.c_proj.weight", {{1, {1600, 1600}}, {5, {320, 1600}}}},
        {"h.0.attn.c_proj.bias", {{1, {1600}}, {5, {1600}}}},
        {"h.0.mlp.c_fc.weight", {{2, {1600, 3200}}, {5, {1600, 1280}}}},
        {"h.0.mlp.c_fc.bias", {{2, {3200}}, {5, {1280}}}},
        {"h.0.mlp.c_proj.weight", {{2, {3200, 1600}}, {5, {1280, 1600}}}},
        {"h.0.mlp.c_proj.bias", {{2, {1600}}, {5, {1600}}}},
    };
    for (const auto& [name, by_ranks] : shapes) {
      for (const auto& [ranks, shape] : by_ranks) {
        for (const std::int64_t rank : {std::int64_t{0}, ranks - 1}) {
          CAPTURE(name);
          const LocalParameter local = table.find(name).local({rank, ranks});
          CHECK(local.shape == shape);
          CHECK(local.stored_rows == shape[0]);
        }
      }
    }
    const LocalParameter qkv = table.find("h.0.attn.c_attn.weight").local({2, 5});
    CHECK(qkv.axes.size_of(AxisName::parts) == 3);
    CHECK(qkv.axes.size_of(AxisName::heads) == 5);
    CHECK(qkv.axes.size_of(AxisName::head_size) == 64);
    CHECK(qkv.index == GlobalIndex{2 * 320, 960, 320, 4800, 1600});
    CHECK(table.find("h.0.attn.c_attn.bias").local({2, 5}).index == qkv.index);
    CHECK(table.find("h.0.attn.c_proj.weight").local({2, 5}).index ==
          GlobalIndex{.begin = 2 * 320 * 1600});
    CHECK(!table.find("h.0.attn.c_proj.bias").local({2, 5}).split);

    for (const char* name : {"attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight"}) {
      CHECK_THROWS_WITH_AS(table.find(std::string("h.0.") + name).local({0, 2}),
                           (std::string("h.0.") + name +
                            ": 25 heads cannot be split over 2 tensor-parallel ranks\n"
                            "  hint: the number of ranks must divide the heads")
                               .c_str(),
                           Error);
    }
    CHECK_THROWS_WITH_AS(table.find("h.0.mlp.c_fc.bias").local({0, 3}),
                         doctest::Contains("6400 hidden channels cannot be split over 3"), Error);
    for (const MeshPlace place : {MeshPlace{2, 2}, MeshPlace{-1, 2}, MeshPlace{0, 0}}) {
      CHECK_THROWS_WITH_AS(table.find("wpe.weight").local(place),
                           doctest::Contains("does not exist"), Error);
    }
  }

  TEST_CASE("the vocabulary is split into equal padded slices, and the last ones may be empty") {
    const auto rows = [](const ParameterSpec& spec, std::int64_t ranks, std::int64_t stored) {
      Sizes all;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const LocalParameter local = spec.local({rank, ranks});
        CHECK(local.stored_rows == stored);
        CHECK(local.stored_size() == stored * spec.shape[1]);
        CHECK(slice_of(spec, {rank, ranks}, spec.name).has_value() == (local.size() > 0));
        all.push_back(local.shape[0]);
      }
      return all;
    };
    CHECK(rows(embedding(17, 8, 4), 8, 8) == Sizes{8, 8, 1, 0, 0, 0, 0, 0});
    CHECK(rows(embedding(17, 8, 4), 2, 16) == Sizes{16, 1});
    CHECK(rows(embedding(17, 8, 4), 1, 24) == Sizes{17});
    CHECK(rows(embedding(64, 8, 4), 4, 16) == Sizes{16, 16, 16, 16});
    const ParameterTable table = gpt2_parameters(config_from_name("d12"));
    CHECK(rows(table.find("wte.weight"), 2, 25216) == Sizes{25216, 25041});
    CHECK(rows(table.find("wte.weight"), 4, 12672) == Sizes{12672, 12672, 12672, 12241});
    // If a multiple of 128 would leave ranks without tokens, it is a multiple of 8.
    const ParameterTable tiny = gpt2_parameters(small_config(8, 8, 17));
    const ParameterTable short_last = gpt2_parameters(small_config(2, 8, 127));
    CHECK(rows(tiny.find("wte.weight"), 8, 8) == Sizes{8, 8, 1, 0, 0, 0, 0, 0});
    CHECK(rows(tiny.find("wte.weight"), 1, 128) == Sizes{17});
    CHECK(rows(short_last.find("wte.weight"), 2, 64) == Sizes{64, 63});
    CHECK(rows(embedding(1025, 128, 8), 8, 136) == Sizes{136, 136, 136, 136, 136, 136, 136, 73});
    CHECK(rows(embedding(1025, 128, 8), 2, 640) == Sizes{640, 385});
  }

  TEST_CASE("tensor ranks have equal offsets, and equal copies come last in a block") {
    const ModelConfig config = small_config(4, 12, 300);
    for (const std::int64_t ranks : {2, 4}) {
      const ParameterTable first = gpt2_parameters(config, {0, ranks});
      const ParameterTable last = gpt2_parameters(config, {ranks - 1, ranks});
      std::map<int, std::int64_t> split_end, copies_begin;
      for (const ParameterSpec& spec : first.specs()) {
        CAPTURE(spec.name);
        CHECK(spec.offset == last.find(spec.name).offset);
        CHECK(spec.stored_size() == last.find(spec.name).stored_size());
        CHECK(spec.shape == last.find(spec.name).shape);
        auto& begin = copies_begin.try_emplace(spec.block, first.stored_size()).first->second;
        auto& end = split_end[spec.block];
        if (spec.part.split) end = std::max(end, spec.offset + spec.stored_size());
        if (!spec.part.split) begin = std::min(begin, spec.offset);
      }
      for (const auto& [block, begin] : copies_begin) CHECK(split_end[block] <= begin);
      CHECK(first.stored_size() == last.stored_size());
      CHECK(first.count() == gpt2_parameters(config).count());
    }
  }

  TEST_CASE("frozen parameters come after all trainable ones, each in the order of blocks") {
    const ModelConfig config = small_config(4, 12, 300);
    const std::vector<std::string> frozen = {"wpe.weight", "h.0.attn.c_attn.weight",
                                             "h.0.ln_2.bias"};
    for (const std::int64_t ranks : {1, 2}) {
      const ParameterTable whole = gpt2_parameters(config, {0, ranks});
      const ParameterTable table = gpt2_parameters(config, {0, ranks}, {.frozen = frozen});
      std::int64_t size = 0;
      std::map<std::int64_t, const ParameterSpec*> by_offset;
      for (const ParameterSpec& spec : table.specs()) {
        CAPTURE(spec.name);
        CHECK(spec.trainable == (std::ranges::find(frozen, spec.name) == frozen.end()));
        CHECK((spec.offset < table.trainable_size()) == spec.trainable);
        CHECK(spec.id == whole.find(spec.name).id);  // random numbers do not depend on it
        if (spec.trainable) size += round_up(spec.stored_size(), kParameterAlignment);
        by_offset[spec.offset] = &spec;
      }
      CHECK(by_offset.size() == table.specs().size());
      CHECK(table.trainable_size() == size);
      CHECK(table.stored_size() == whole.stored_size());
      CHECK(table.count() == whole.count());
      CHECK(whole.trainable_size() == whole.stored_size());
      std::pair<bool, int> last{false, 0};  // whether frozen, and block
      for (const auto& [offset, spec] : by_offset) {
        CHECK(last <= std::pair(!spec->trainable, spec->block));
        last = {!spec->trainable, spec->block};
      }
    }
  }

  TEST_CASE("a table refuses frozen parameters that do not exist, and to freeze all") {
    const ModelConfig config = small_config(4, 12, 300);
    CHECK(contains(complaint([&] { gpt2_parameters(config, {}, {.frozen = {"h.9.ln_1.bias"}}); }),
                   "there is no parameter 'h.9.ln_1.bias'"));
    std::vector<std::string> names;
    const ParameterTable table = gpt2_parameters(config);
    for (const ParameterSpec& spec : table.specs()) names.push_back(spec.name);
    CHECK(contains(complaint([&] { gpt2_parameters(config, {}, {.frozen = names}); }),
                   "all parameters are frozen"));
    names.pop_back();
    CHECK(gpt2_parameters(config, {}, {.frozen = names}).trainable_size() == kParameterAlignment);
  }

  TEST_CASE("the parts of all ranks contain each element once, and are slices of it in files") {
    for (const auto& [spec, ranks] : examples()) {
      CAPTURE(spec.name);
      CAPTURE(ranks);
      Sizes counts(static_cast<std::size_t>(spec.size()));
      std::vector<Slice> slices;
      const bool split = spec.local({0, ranks}).shape != spec.shape || ranks == 1;
      for (std::int64_t rank = 0; rank < (split ? ranks : 1); ++rank) {
        const MeshPlace place{rank, ranks};
        const LocalParameter local = spec.local(place);
        for (const std::int64_t index : global_indices(local)) {
          ++counts.at(static_cast<std::size_t>(index));
        }
        const std::optional<Slice> slice = slice_of(spec, place, "m." + spec.name);
        if (!slice) continue;
        CHECK(global_indices(*slice) == global_indices(local));
        slices.push_back(*slice);
      }
      CHECK(counts == Sizes(counts.size(), 1));
      CHECK_NOTHROW(check_slices_cover(slices));
    }
  }

  TEST_CASE("c_attn is split by the heads of q, k and v") {
    const std::int64_t NH = 6, HS = 4, C = 24;
    const ParameterTable table = gpt2_parameters(small_config(NH, HS, 20));
    for (const std::int64_t ranks : {1, 2, 3, 6}) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const MeshPlace place{rank, ranks};
        for (const char* name : {"h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"}) {
          const ParameterSpec& spec = table.find(name);
          const LocalParameter local = spec.local(place);
          CHECK(global_indices(local) ==
                elements_of_heads(spec.shape.size() > 1 ? C : 1, NH, HS, place));
        }
      }
    }
    // Rank 1 of 2 has heads 3 to 5.
    const TensorHeader tensor = {"t.h.0.attn.c_attn.weight", TensorDtype::f32, {24, 72}};
    CHECK(slice_of(table.find("h.0.attn.c_attn.weight"), {1, 2}, tensor.name) ==
          Slice::box(tensor, {24, 3, 6, 4}, {0, 0, 3, 0}, {24, 3, 3, 4}));
  }

  TEST_CASE("the initial values of each rank are bitwise those of a single rank") {
    Stream stream;
    for (const auto& [spec, ranks] : examples()) {
      CAPTURE(spec.name);
      CAPTURE(ranks);
      const std::int64_t n = spec.size();
      const DeviceArray<float> whole(std::vector<float>(n, NAN), stream);
      normal_fill(whole.data(), n, 0, 7, 3, 0.5f, 0.02f, stream);
      const std::vector<float> expected = whole.stored();
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const LocalParameter local = spec.local({rank, ranks});
        const DeviceArray<float> part(std::vector<float>(local.stored_size(), -1.0f), stream);
        normal_fill(part.data(), local.size(), 0, local.index, 7, 3, 0.5f, 0.02f, stream);
        CHECK(part.guards_intact());
        std::vector<float> by_index(local.stored_size(), -1.0f);  // the padding keeps its values
        for (std::int64_t i = 0; i < local.size(); ++i) by_index[i] = expected[local.index(i)];
        CHECK(part.stored() == by_index);
      }
    }
  }

  TEST_CASE("FLOP per token count all parameters except the positions") {
    const ParameterTable table = gpt2_parameters(config_from_name("d12"));
    CHECK(table.find("wte.weight").flops_per_token() == 2 * 50257 * 768);
    CHECK(table.find("wpe.weight").flops_per_token() == 0);
    CHECK(table.find("h.0.attn.c_attn.weight").flops_per_token() == 2 * 768 * 2304);
    CHECK(table.find("h.0.ln_1.bias").flops_per_token() == 2 * 768);
  }
}

}  // namespace

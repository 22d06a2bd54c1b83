// The parameter table: axes, the part that each rank holds, slices in files, initial values, FLOP.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/model/parameter_slices.h"
#include "llmc/model/parameters.h"
#include "llmc/ops/random_fill.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;
using Sizes = std::vector<std::int64_t>;

Gpt2Config small_config(std::int64_t heads, std::int64_t head_size, std::int64_t vocabulary) {
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
  const auto add = [&](const Gpt2Config& config, std::vector<std::int64_t> ranks) {
    const ParameterTable table(config);
    for (const ParameterSpec& spec : table.specs()) {
      for (const std::int64_t n : ranks) all.push_back({spec, n});
    }
  };
  add(small_config(4, 3, 300), {1, 2, 4});  // rows of 3 elements cross the groups of four
  add(small_config(3, 2, 130), {1, 3});
  add(small_config(5, 1, 7), {1, 5});
  for (const std::int64_t ranks : {1, 2, 3, 8}) {
    for (const std::int64_t vocabulary : {1, 8, 17, 64}) {
      all.push_back({embedding(vocabulary, 8, 3), ranks});
    }
  }
  return all;
}

// Calls use(local index, global index) for every element of a rank's boxes.
template <class Use>
void for_each_element(const LocalParameter& local, Use&& use) {
  for (const ElementBox& box : local.boxes) {
    for (std::int64_t row = 0; row < box.rows; ++row) {
      for (std::int64_t column = 0; column < box.columns; ++column) {
        use(box.local_index(row, column), box.global_index(row, column));
      }
    }
  }
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
    const ParameterTable table(config_from_name("d12"));
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
    CHECK(table.find("wte.weight").stored_rows == 50304);
    CHECK(table.find("wpe.weight").shape == Sizes{1024, 768});
    // Checkpoints and random numbers depend on these values.
    CHECK(table.find("wpe.weight").offset == 50304 * 768);
    CHECK(table.find("ln_f.bias").id == 147);
    CHECK(table.find("ln_f.bias").offset == table.stored_size() - 1024);
    CHECK(table.stored_size() == 124504064);
  }

  TEST_CASE("a single rank holds every whole parameter") {
    for (const char* name : {"d12", "d48"}) {
      const ParameterTable table(config_from_name(name));
      for (const ParameterSpec& spec : table.specs()) {
        CAPTURE(spec.name);
        const LocalParameter local = spec.local();
        CHECK(local.shape == spec.shape);
        CHECK(local.axes.shape() == spec.shape);
        CHECK(local.stored_rows == spec.part.stored_rows);
        CHECK(local.size() == spec.size());
        CHECK(local.stored_size() == spec.stored_size());
        const std::int64_t columns = spec.shape.size() > 1 ? spec.shape[1] : 1;
        CHECK(local.boxes ==
              std::vector<ElementBox>{{spec.shape[0], columns, 0, columns, 0, columns}});
        CHECK(local.boxes[0].is_contiguous());
        const std::vector<Slice> slices = slices_of(spec, {}, "transformer.");
        REQUIRE(slices.size() == 1);
        CHECK(slices[0] ==
              Slice::whole({"transformer." + spec.name, TensorDtype::f32, spec.shape}));
      }
    }
  }

  TEST_CASE("each rank has the expected part of each parameter") {
    const ParameterTable table(config_from_name("d48"));  // 25 heads, 1600 channels
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
    CHECK(qkv.boxes.size() == 3);
    CHECK(table.find("h.0.attn.c_attn.bias").local({2, 5}).boxes.size() == 3);
    CHECK(table.find("h.0.attn.c_proj.weight").local({2, 5}).boxes.size() == 1);

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
        CHECK(local.boxes.empty() == (local.size() == 0));
        CHECK(slices_of(spec, {rank, ranks}, "").size() == local.boxes.size());
        all.push_back(local.shape[0]);
      }
      return all;
    };
    CHECK(rows(embedding(17, 8, 4), 8, 8) == Sizes{8, 8, 1, 0, 0, 0, 0, 0});
    CHECK(rows(embedding(17, 8, 4), 2, 16) == Sizes{16, 1});
    CHECK(rows(embedding(17, 8, 4), 1, 24) == Sizes{17});
    CHECK(rows(embedding(64, 8, 4), 4, 16) == Sizes{16, 16, 16, 16});
    const ParameterTable table(config_from_name("d12"));
    CHECK(rows(table.find("wte.weight"), 2, 25216) == Sizes{25216, 25041});
    CHECK(rows(table.find("wte.weight"), 4, 12672) == Sizes{12672, 12672, 12672, 12241});
  }

  TEST_CASE("the parts of all ranks contain each element once, at distinct local indices") {
    for (const auto& [spec, ranks] : examples()) {
      CAPTURE(spec.name);
      CAPTURE(ranks);
      Sizes counts(static_cast<std::size_t>(spec.size()));
      std::vector<Slice> slices;
      const bool split = spec.local({0, ranks}).shape != spec.shape || ranks == 1;
      for (std::int64_t rank = 0; rank < (split ? ranks : 1); ++rank) {
        const MeshPlace place{rank, ranks};
        const LocalParameter local = spec.local(place);
        Sizes local_counts(static_cast<std::size_t>(local.size()));
        for_each_element(local, [&](std::int64_t local_index, std::int64_t global_index) {
          ++local_counts.at(static_cast<std::size_t>(local_index));
          ++counts.at(static_cast<std::size_t>(global_index));
        });
        CHECK(local_counts == Sizes(local_counts.size(), 1));
        for (const Slice& slice : slices_of(spec, place, "m.")) slices.push_back(slice);
      }
      CHECK(counts == Sizes(counts.size(), 1));
      CHECK_NOTHROW(check_slices_cover(slices));
    }
  }

  TEST_CASE("c_attn is split by the heads of q, k and v") {
    const std::int64_t NH = 6, HS = 2, C = 12;
    const ParameterTable table(small_config(NH, HS, 20));
    for (const std::int64_t ranks : {1, 2, 3, 6}) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const MeshPlace place{rank, ranks};
        for (const char* name : {"h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"}) {
          const ParameterSpec& spec = table.find(name);
          const LocalParameter local = spec.local(place);
          Sizes actual(static_cast<std::size_t>(local.size()), -1);
          for_each_element(local, [&](std::int64_t local_index, std::int64_t global_index) {
            actual.at(static_cast<std::size_t>(local_index)) = global_index;
          });
          CHECK(actual == elements_of_heads(spec.shape.size() > 1 ? C : 1, NH, HS, place));
        }
      }
    }
    // Rank 1 of 2 has heads 3 to 5: columns 6 to 11 of the 12 columns of each part.
    const TensorHeader tensor = {"t.h.0.attn.c_attn.weight", TensorDtype::f32, {12, 36}};
    std::vector<Slice> by_hand;
    for (const std::int64_t first : {6, 18, 30}) {
      Slice slice = Slice::box(tensor, {0, first}, {12, 6});
      slice.stored_name = tensor.name + "[" + std::to_string(first / 12) + "]";
      by_hand.push_back(slice);
    }
    CHECK(slices_of(table.find("h.0.attn.c_attn.weight"), {1, 2}, "t.") == by_hand);
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
        for (const ElementBox& box : local.boxes) {
          normal_fill(part.data(), box, 7, 3, 0.5f, 0.02f, stream);
        }
        CHECK(part.guards_intact());
        std::vector<float> by_index(local.stored_size(), -1.0f);  // the padding keeps its values
        for_each_element(local, [&](std::int64_t local_index, std::int64_t global_index) {
          by_index[local_index] = expected[global_index];
        });
        CHECK(part.stored() == by_index);
      }
    }
  }

  TEST_CASE("FLOP per token count all parameters except the positions") {
    const ParameterTable table(config_from_name("d12"));
    CHECK(table.find("wte.weight").flops_per_token() == 2 * 50257 * 768);
    CHECK(table.find("wpe.weight").flops_per_token() == 0);
    CHECK(table.find("h.0.attn.c_attn.weight").flops_per_token() == 2 * 768 * 2304);
    CHECK(table.find("h.0.ln_1.bias").flops_per_token() == 2 * 768);
  }
}

}  // namespace

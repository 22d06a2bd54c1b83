// Several slices of one tensor in a file, as tensor-parallel ranks write them.
#include <span>
#include <string>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "test/checkpoint_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("checkpoint");

using namespace llmc_test;
using llmc::Slice;

TEST_CASE("c_attn is assembled from the files of two ranks with half of the heads each") {
  // 2 channels and 2 heads of size 2: columns q0 q0 q1 q1 k0 k0 k1 k1 v0 v0 v1 v1. Rank r has head
  // r of q, k and v.
  const TensorHeader weight = {"w", TensorDtype::f32, {2, 12}};
  const TensorHeader bias = {"b", TensorDtype::f32, {12}};
  const std::vector<float> whole_weight = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                           12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
  const std::vector<float> whole_bias = {100, 101, 102, 103, 104, 105,
                                         106, 107, 108, 109, 110, 111};
  struct Part {
    std::string stored;
    Slice slice;
    std::vector<float> values;
  };
  const auto columns = [&](const std::string& stored, std::int64_t first,
                           std::vector<float> values) {
    Slice slice = Slice::box(weight, {0, first}, {2, 2});
    slice.stored_name = stored;
    return Part{stored, slice, std::move(values)};
  };
  const auto range = [&](const std::string& stored, std::int64_t first, std::vector<float> values) {
    Slice slice = Slice::box(bias, {first}, {2});
    slice.stored_name = stored;
    return Part{stored, slice, std::move(values)};
  };
  using Files = std::vector<std::vector<Part>>;
  const Files files = {{columns("w.q", 0, {0, 1, 12, 13}), columns("w.k", 4, {4, 5, 16, 17}),
                        columns("w.v", 8, {8, 9, 20, 21}), range("b.q", 0, {100, 101}),
                        range("b.k", 4, {104, 105}), range("b.v", 8, {108, 109})},
                       {columns("w.q", 2, {2, 3, 14, 15}), columns("w.k", 6, {6, 7, 18, 19}),
                        columns("w.v", 10, {10, 11, 22, 23}), range("b.q", 2, {102, 103}),
                        range("b.k", 6, {106, 107}), range("b.v", 10, {110, 111})}};
  const llmc_test::TemporaryDirectory root;
  const auto write = [&](const Files& all) {
    CheckpointWriter writer(root.path(), "step_1");
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      std::vector<Slice> slices;
      for (const Part& part : all[rank]) slices.push_back(part.slice);
      auto& file = writer.tensor_file("rank_" + std::to_string(rank) + ".safetensors", slices);
      for (const Part& part : all[rank]) {
        file.write(part.stored, std::as_bytes(std::span(part.values)));
      }
    }
    writer.commit(1, {});
    return writer.path();
  };
  const auto error_of = [&](const Files& all) {
    return complaint([&] {
      CheckpointReader reader(write(all));
      std::vector<float> actual(24);
      reader.load("w", {2, 12}, actual.data());
    });
  };
  CheckpointReader reader(write(files));
  CHECK_NOTHROW(reader.verify());
  CHECK(reader.tensors() == std::vector<std::string>{"b", "w"});
  std::vector<float> actual_weight(24), actual_bias(12);
  reader.load("w", {2, 12}, actual_weight.data());
  reader.load("b", {12}, actual_bias.data());
  CHECK(actual_weight == whole_weight);
  CHECK(actual_bias == whole_bias);
  CHECK(reader.open("rank_1.safetensors").names() ==
        std::vector<std::string>{"w.q", "w.k", "w.v", "b.q", "b.k", "b.v"});

  // Rank 1 has the keys of rank 0, has no keys, or stores two of its slices under the same name.
  Files duplicate = files, missing = files, same_name = files;
  duplicate[1][1] = columns("w.k", 4, {4, 5, 16, 17});
  CHECK(contains(error_of(duplicate), "tensor w: its slices overlap"));
  missing[1].erase(missing[1].begin() + 1);
  CHECK(contains(error_of(missing), "tensor w: its slices hold 20 of 24 elements"));
  same_name[1][1].slice.stored_name = "w.q";
  CHECK(contains(error_of(same_name), "tensor w.q is listed twice"));
}

TEST_CASE("slices in the manifest must match the tensors in the file") {
  const TensorHeader tensor = {"w", TensorDtype::f32, {4}};
  const std::vector<float> values = {0, 1, 2, 3};
  const llmc_test::TemporaryDirectory root;
  // Writes a file with the halves of w under the names `stored` and a manifest that describes them
  // as `slices`, then loads w.
  const auto load = [&](const std::vector<std::string>& stored, const std::vector<Slice>& slices) {
    const fs::path path = root.path() / "step_1";
    fs::remove_all(path);
    fs::create_directory(path);
    std::vector<TensorHeader> headers;
    for (const std::string& name : stored) headers.push_back({name, TensorDtype::f32, {2}});
    llmc::SafetensorsWriter file(path / "a.safetensors", headers);
    for (std::size_t i = 0; i < stored.size(); ++i) file.write(stored[i], &values[2 * i], 8);
    file.finish();
    llmc::Manifest manifest;
    manifest.files = {{"a.safetensors", file.size(), llmc::checksum_text(file.checksum()), slices}};
    llmc::write_file(path / "manifest.json", llmc::manifest_text(manifest));
    std::vector<float> actual(4);
    CheckpointReader(path).load("w", {4}, actual.data());
    CHECK(actual == values);
  };
  const auto half = [&](std::int64_t first, const std::string& stored) {
    Slice slice = Slice::box(tensor, {first}, {2});
    slice.stored_name = stored;
    return slice;
  };
  load({"w[0]", "w[1]"}, {half(0, "w[0]"), half(2, "w[1]")});
  load({"w", "w[1]"}, {half(0, ""), half(2, "w[1]")});
  load({"w[1]", "w[0]"}, {half(2, "w[0]"), half(0, "w[1]")});
  const std::string file = root.file("step_1/a.safetensors");
  const auto error_of = [&](const std::vector<std::string>& stored, std::vector<Slice> slices) {
    return complaint([&] { load(stored, slices); });
  };
  CHECK(error_of({"w[0]", "w[1]"}, {half(0, "w[0]"), half(2, "w[0]")}) ==
        file + ": the manifest has two slices that are stored as w[0]");
  CHECK(error_of({"w[0]", "w[1]"}, {half(0, "w[0]"), half(2, "w[1]"), half(2, "w[2]")}) ==
        file + " has no tensor w[2], which the manifest lists as a slice of w");
  CHECK(error_of({"w[0]", "w[1]"}, {half(0, "w[0]")}) ==
        "tensor w: its slices hold 2 of 4 elements");
  CHECK(error_of({"w[0]", "w[1]"}, {half(0, "w[0]"), half(1, "w[1]")}) ==
        "tensor w: its slices overlap");
}

TEST_SUITE_END();

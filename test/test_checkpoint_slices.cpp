// Slices of one tensor as tensor-parallel ranks write them: several in a file, and boxes of a view
// of the tensor.
#include <algorithm>
#include <numeric>
#include <random>
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
  Slice viewed = half(0, "w[0]");
  viewed.view = {2, 2};
  viewed.offset = {0, 0};
  viewed.extent = {1, 2};
  CHECK(error_of({"w[0]", "w[1]"}, {viewed, half(2, "w[1]")}) ==
        file + ": tensor w[0] has shape (2), but its slice in the manifest has another");
  viewed.view = {2, 3};
  CHECK(error_of({"w[0]", "w[1]"}, {viewed, half(2, "w[1]")}) ==
        "slice of tensor w: its view (2, 3) is not a shape of at most 8 axes with the elements of "
        "(4)");
}

namespace {

// The elements of a slice by the definition: those whose index in the view is inside the box, in
// ascending order, then the range of them.
std::vector<std::int64_t> elements_of(const Slice& slice) {
  const llmc::Shape& view = slice.view.empty() ? slice.shape : slice.view;
  const std::int64_t n = *llmc::checked_count(slice.shape);
  std::vector<std::int64_t> box;
  for (std::int64_t i = 0; i < n; ++i) {
    bool is_inside = true;
    std::int64_t rest = i;
    for (std::size_t axis = view.size(); axis-- > 0; rest /= view[axis]) {
      const std::int64_t at = rest % view[axis] - slice.offset[axis];
      is_inside = is_inside && at >= 0 && at < slice.extent[axis];
    }
    if (is_inside) box.push_back(i);
  }
  return {box.begin() + slice.begin, box.begin() + slice.end};
}

// Calls visit(slice) for every box of the view that is not empty.
template <class Visit>
void for_each_box(const TensorHeader& tensor, const llmc::Shape& view, Visit&& visit,
                  llmc::Shape offset = {}, llmc::Shape extent = {}) {
  if (offset.size() == view.size()) return visit(Slice::box(tensor, view, offset, extent));
  for (std::int64_t begin = 0; begin < view[offset.size()]; ++begin) {
    for (std::int64_t size = 1; size <= view[offset.size()] - begin; ++size) {
      llmc::Shape longer_offset = offset, longer_extent = extent;
      longer_offset.push_back(begin);
      longer_extent.push_back(size);
      for_each_box(tensor, view, visit, longer_offset, longer_extent);
    }
  }
}

// Reads every box and some ranges of the tensor, whose values are its indices, and only these.
void check_parts(CheckpointReader& reader, const TensorHeader& tensor) {
  int num_wrong = 0;
  const auto check = [&](const Slice& part) {
    const std::vector<std::int64_t> elements = elements_of(part);
    std::vector<float> values(elements.size(), -1.0f);
    const std::int64_t before = reader.bytes_read();
    reader.load_part(part, values.data());
    num_wrong += values != std::vector<float>(elements.begin(), elements.end()) ||
                 reader.bytes_read() - before != 4 * part.count();
  };
  const std::int64_t size = *llmc::checked_count(tensor.shape);
  for (const llmc::Shape& view : {tensor.shape, llmc::Shape{size / 4, 2, 2}, {size}}) {
    for_each_box(tensor, view, [&](const Slice& box) {
      check(box);
      check(box.range(box.count() / 3, box.count()));
    });
  }
  CHECK(num_wrong == 0);
}

// Writes each list of slices into a file, whose tensors have the values 0, 1, 2, ... of the whole
// tensor, and returns the tensor that the reader assembles.
std::vector<float> saved_and_loaded(const std::vector<std::vector<Slice>>& files,
                                    const fs::path& root) {
  CheckpointWriter writer(root, "step_1");
  for (std::size_t rank = 0; rank < files.size(); ++rank) {
    auto& file = writer.tensor_file("rank_" + std::to_string(rank) + ".safetensors", files[rank]);
    for (const Slice& slice : files[rank]) {
      const std::vector<std::int64_t> elements = elements_of(slice);
      const std::vector<float> values(elements.begin(), elements.end());
      file.write(slice.name_in_file(), std::as_bytes(std::span(values)));
    }
  }
  writer.commit(1, {});
  CheckpointReader reader(writer.path());
  reader.verify();
  const Slice& slice = files.at(0).at(0);
  std::vector<float> actual(static_cast<std::size_t>(*llmc::checked_count(slice.shape)), -1.0f);
  reader.load(slice.name, slice.shape, actual.data());
  check_parts(reader, {slice.name, slice.dtype, slice.shape});
  return actual;
}

// c_attn.weight with 2 channels and 2 heads of size 2.
const TensorHeader kAttention = {"w", TensorDtype::f32, {2, 12}};
const llmc::Shape kHeads = {2, 3, 2, 2};

Slice head(std::int64_t index) {
  return Slice::box(kAttention, kHeads, {0, 0, index, 0}, {2, 3, 1, 2});
}

Slice stored_as(Slice slice, const std::string& name) {
  slice.stored_name = name;
  return slice;
}

}  // namespace

TEST_CASE("c_attn split by heads is one slice per rank, also if ranges of it are") {
  const llmc_test::TemporaryDirectory root;
  std::vector<float> whole(24);
  std::iota(whole.begin(), whole.end(), 0.0f);
  const Slice first = head(0), second = head(1);
  CHECK(elements_of(first) == std::vector<std::int64_t>{0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21});
  CHECK(first.stored_header() == TensorHeader{"w", TensorDtype::f32, {2, 3, 1, 2}});
  // The elements of the second head without a view.
  std::vector<Slice> ranges;
  for (std::int64_t begin = 2; begin < 24; begin += 4) {
    ranges.push_back(stored_as(Slice::flat(kAttention, begin, begin + 2),
                               "w[" + std::to_string(ranges.size()) + "]"));
  }
  const auto columns = [](std::int64_t begin) {
    return stored_as(Slice::box(kAttention, {0, begin}, {2, 2}), "w" + std::to_string(begin));
  };
  const std::vector<std::vector<std::vector<Slice>>> layouts = {
      {{first}, {second}},
      {{second, stored_as(first, "w.first")}},
      {{first.range(0, 5)}, {first.range(5, 12)}, {second.range(0, 11)}, {second.range(11, 12)}},
      {{first.range(0, 5), stored_as(second.range(3, 12), "w[1]")},
       {stored_as(first.range(5, 12), "x"), stored_as(second.range(0, 3), "y")}},
      {{first}, ranges},
      {{columns(2), columns(6), columns(10)}, {first.range(0, 7)}, {first.range(7, 12)}},
      {{Slice::box(kAttention, kHeads, {0, 0, 0, 0}, {1, 3, 2, 2})},
       {Slice::flat(kAttention, 12, 24)}},
  };
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    CAPTURE(i);
    CHECK(saved_and_loaded(layouts[i], root.path()) == whole);
  }
  const auto error_of = [&](const std::vector<std::vector<Slice>>& files) {
    return complaint([&] { saved_and_loaded(files, root.path()); });
  };
  CHECK(error_of({{first}, {first}}) == "tensor w: its slices overlap");
  CHECK(error_of({{first}, {Slice::flat(kAttention, 0, 12)}}) == "tensor w: its slices overlap");
  CHECK(error_of({{first}, {second.range(0, 11)}}) ==
        "tensor w: its slices hold 23 of 24 elements");
  std::vector<Slice> wrong = ranges;
  wrong[2] = stored_as(Slice::flat(kAttention, 9, 11), "w[2]");
  CHECK(error_of({{first}, wrong}) == "tensor w: its slices overlap");
}

TEST_CASE("a box with all elements of a view is the whole tensor") {
  const Slice slice = Slice::box(kAttention, kHeads, {0, 0, 0, 0}, kHeads);
  CHECK(slice == Slice::whole(kAttention));
  CHECK(slice.stored_header() == kAttention);
  // Read from a manifest it may still have its view.
  Slice viewed = slice;
  viewed.view = viewed.extent = kHeads;
  viewed.offset = {0, 0, 0, 0};
  viewed.check();
  CHECK(viewed.is_whole());
  CHECK(viewed.stored_header() == kAttention);
  const llmc_test::TemporaryDirectory root;
  CHECK(saved_and_loaded({{stored_as(viewed, "all")}}, root.path()) ==
        saved_and_loaded({{slice}}, root.path()));
}

TEST_CASE("slices with any views cover a tensor if they hold each element once") {
  const TensorHeader tensor = {"w", TensorDtype::f32, {2, 6}};
  const std::uint32_t full = (1u << 12) - 1;
  std::vector<Slice> all;
  std::vector<std::uint32_t> masks;
  const auto add = [&](const Slice& slice) {
    std::uint32_t mask = 0;
    for (const std::int64_t i : elements_of(slice)) mask |= 1u << i;
    all.push_back(slice);
    masks.push_back(mask);
  };
  for (const llmc::Shape& view : {llmc::Shape{2, 6}, {2, 3, 2}, {2, 2, 3}, {12}, {3, 4}}) {
    for_each_box(tensor, view, [&](const Slice& box) {
      add(box);
      if (box.count() > 2) add(box.range(1, box.count()));
      if (box.count() > 3) add(box.range(1, 3));
    });
  }
  // Each slice is copied to its place by the definition.
  int num_misplaced = 0;
  for (const Slice& slice : all) {
    const std::vector<std::int64_t> elements = elements_of(slice);
    const std::vector<float> part(elements.begin(), elements.end());
    std::vector<float> whole(12, -1.0f), expected(12, -1.0f);
    for (const std::int64_t i : elements) expected[i] = static_cast<float>(i);
    copy_slice_into(slice, std::as_bytes(std::span(part)),
                    reinterpret_cast<std::byte*>(whole.data()));
    num_misplaced += whole != expected;
  }
  CHECK(num_misplaced == 0);

  int num_wrong = 0, num_covered = 0, num_overlaps = 0;
  const auto compare = [&](const std::vector<std::size_t>& chosen) {
    std::vector<Slice> slices;
    std::uint32_t together = 0, shared = 0;
    for (const std::size_t i : chosen) {
      slices.push_back(all[i]);
      shared |= together & masks[i];
      together |= masks[i];
    }
    const std::string message = complaint([&] { check_slices_cover(slices); });
    const bool covers = together == full && shared == 0;
    num_wrong += message.empty() != covers;
    num_covered += covers;
    num_overlaps += contains(message, "overlap");
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (all[i].count() + all[j].count() == 12) compare({i, j});
    }
  }
  std::mt19937_64 random(5);
  for (int round = 0; round < (llmc_test::tiny_shapes() ? 1000 : 50000); ++round) {
    const std::size_t i = random() % all.size(), j = random() % all.size();
    // Mostly the total is 12, which count alone cannot reject.
    const std::int64_t rest = 12 - all[i].count() - all[j].count();
    std::size_t k = random() % all.size();
    for (std::size_t tries = 0; all[k].count() != rest && tries < 50; ++tries) {
      k = random() % all.size();
    }
    compare({i, j, k});
  }
  MESSAGE(all.size() << " slices: " << num_covered << " sets cover the tensor, " << num_overlaps
                     << " overlap");
  CHECK(num_wrong == 0);
  CHECK(num_covered > 100);
  CHECK(num_overlaps > 1000);
}

TEST_CASE("the shape of a view has as many elements as the tensor") {
  const auto error_of = [](llmc::Shape view, llmc::Shape offset, llmc::Shape extent) {
    return complaint([&] { Slice::box(kAttention, view, offset, extent); });
  };
  const auto text = [](const std::string& view) {
    return "slice of tensor w: its view " + view +
           " is not a shape of at most 8 axes with the elements of (2, 12)";
  };
  CHECK(error_of(kHeads, {0, 0, 1, 0}, {2, 3, 1, 2}) == "");
  CHECK(error_of({1, 1, 2, 3, 1, 2, 2, 1}, {0, 0, 0, 0, 0, 1, 0, 0}, {1, 1, 2, 3, 1, 1, 2, 1}) ==
        "");
  CHECK(error_of({2, 3, 2, 3}, {0, 0, 0, 0}, {2, 3, 1, 2}) == text("(2, 3, 2, 3)"));
  CHECK(error_of({-2, -12}, {0, 0}, {1, 1}) == text("(-2, -12)"));
  CHECK(error_of({0, 24}, {0, 0}, {0, 1}) == text("(0, 24)"));
  const std::int64_t big = std::int64_t{1} << 32;
  CHECK(error_of({big, big, 24}, {0, 0, 0}, {1, 1, 1}) == text("(4294967296, 4294967296, 24)"));
  CHECK(error_of(llmc::Shape(9, 1), {}, {}) == text("of 9 axes"));
  CHECK(error_of(llmc::Shape(100000, 24), {}, {}) == text("of 100000 axes"));
  CHECK(contains(error_of(kHeads, {0, 0}, {2, 12}), "another number of axes than (2, 3, 2, 2)"));
  CHECK(error_of(kHeads, {0, 0, 1, 0}, {2, 3, 2, 2}) ==
        "slice of tensor w: box (2, 3, 2, 2) at (0, 0, 1, 0) is outside (2, 3, 2, 2)");
  CHECK(contains(complaint([] { head(1).range(3, 13); }), "elements 3 to 13 are outside its box"));
  // An empty tensor has views too.
  const TensorHeader empty = {"e", TensorDtype::f32, {0, std::int64_t{1} << 40}};
  CHECK(Slice::box(empty, {1 << 20, 0, 1 << 20}, {5, 0, 0}, {1, 0, 1 << 20}).count() == 0);
  CHECK_NOTHROW(llmc::check_slices_cover({Slice::box(empty, {4, 0}, {1, 0}, {2, 0})}));
}

TEST_SUITE_END();

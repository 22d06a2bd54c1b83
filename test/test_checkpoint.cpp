// Checkpoints: saved data is restored unchanged, and the newest valid checkpoint is found.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/checkpoint_search.h"
#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "test/checkpoint_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("checkpoint");

using namespace llmc_test;
using llmc::Slice;

TEST_CASE("a part of a tensor is converted and checked, and an error names the element") {
  const TensorHeader tensor = {"w", TensorDtype::bf16, {4, 3}};
  std::vector<std::uint16_t> bits(12, 0x3f80);  // 1
  bits[7] = 0x7f80;                             // infinite: [2, 1]
  const llmc_test::TemporaryDirectory root;
  CheckpointWriter writer(root.path(), "step_1");
  writer.tensor_file("a.safetensors", {tensor}).write("w", std::as_bytes(std::span(bits)));
  writer.commit(1, {});
  CheckpointReader reader(writer.path());
  std::vector<float> values(6);
  reader.load_part(llmc::Slice::flat(tensor, 0, 6), values.data());
  CHECK(values == std::vector<float>(6, 1.0f));
  CHECK(reader.bytes_read() == 12);
  const auto error_of = [&](const llmc::Slice& part) {
    return complaint([&] { reader.load_part(part, values.data()); });
  };
  CHECK(contains(error_of(llmc::Slice::box(tensor, {1, 1}, {3, 1})),
                 "a.safetensors: tensor w: element [2, 1] is inf, not finite"));
  CHECK(contains(error_of(llmc::Slice::flat({"w", TensorDtype::f32, {12}}, 0, 2)),
                 "tensor w has shape (4, 3), expected (12)"));
  CHECK(contains(error_of(llmc::Slice::flat({"v", TensorDtype::f32, {12}}, 0, 2)),
                 " has no tensor v"));
}

TEST_CASE("a saved checkpoint is read back unchanged") {
  const llmc_test::TemporaryDirectory root;
  CHECK(llmc::checkpoint_name(0) == "step_000000");
  CHECK(llmc::checkpoint_name(1234567) == "step_1234567");
  const fs::path path = save(root.path() / "runs" / "a", 100);
  CHECK(path == root.path() / "runs" / "a" / "step_000100");
  CHECK(names_in(path.parent_path()) == std::vector<std::string>{"step_000100"});
  CHECK(names_in(path) == std::vector<std::string>{"config.json", "manifest.json",
                                                   "model.safetensors", "optimizer.safetensors"});
  CHECK(fault(path) == "");

  CheckpointReader reader(path);
  CHECK(reader.step() == 100);
  CHECK(reader.state() == state_of(100));
  CHECK(reader.state("position").integer("position") == 102400);
  CHECK(complaint([&] { (void)reader.state("none"); }) ==
        (path / "manifest.json").string() + ": its state has no none");
  CHECK(reader.text("config.json") == "{\"model_type\": \"gpt2\"}\n");
  CHECK(reader.files() ==
        std::vector<std::string>{"config.json", "model.safetensors", "optimizer.safetensors"});
  CHECK(reader.open("model.safetensors").names() ==
        std::vector<std::string>{"transformer.wte.weight", "transformer.ln_f.bias"});
  CHECK(reader.tensors() == std::vector<std::string>{"master.wte.weight", "moment1.wte.weight",
                                                     "transformer.ln_f.bias",
                                                     "transformer.wte.weight"});
  for (const TensorHeader& tensor : kOptimizer) {
    std::vector<float> actual(15);
    reader.load_bytes(tensor, actual.data());
    CHECK(std::memcmp(actual.data(), content(tensor, 100).data(), 60) == 0);
  }
  float values[15];
  CHECK(complaint([&] {
          reader.load("wte", {5, 3}, values);
        }) == path.string() + " has no tensor wte");
  CHECK(complaint([&] {
          reader.load("master.wte.weight", {3, 5}, values);
        }) == path.string() + ": tensor master.wte.weight has shape (5, 3), expected (3, 5)");
  CHECK(complaint([&] {
          reader.load_bytes({"master.wte.weight", TensorDtype::bf16, {5, 3}}, values);
        }) == path.string() + ": tensor master.wte.weight has dtype F32, expected BF16");
  CHECK(complaint([&] { (void)reader.open("x"); }) ==
        path.string() + ": the checkpoint has no file x");
}

TEST_CASE("the same checkpoint has the same bytes") {
  const llmc_test::TemporaryDirectory root;
  const fs::path a = save(root.path() / "a", 7);
  const fs::path b = save(root.path() / "b", 7);
  for (const std::string& name : names_in(a)) {
    CAPTURE(name);
    CHECK(llmc::read_file(a / name) == llmc::read_file(b / name));
  }
}

TEST_CASE("every kind of value of the state is read back unchanged") {
  CheckpointState state = {{"zero", 0},
                           {"low", std::numeric_limits<std::int64_t>::min()},
                           {"high", std::numeric_limits<std::int64_t>::max()},
                           {"seed", std::numeric_limits<std::uint64_t>::max()},
                           {"third", 1.0 / 3.0},
                           {"tenth", 0.1f},
                           {"whole", 3.0},
                           {"negative zero", -0.0},
                           {"least", std::numeric_limits<double>::denorm_min()},
                           {"best", std::numeric_limits<double>::infinity()},
                           {"worst", -std::numeric_limits<double>::infinity()},
                           {"yes", true},
                           {"text", "a \"b\"\n\xc3\xa9"},
                           {"empty", ""},
                           {"nothing", {}}};
  const llmc_test::TemporaryDirectory root;
  {
    CheckpointWriter writer(root.path(), "step_1");
    state["nan"] = std::nan("");
    writer.commit(1, state);
  }
  const CheckpointReader reader(root.path() / "step_1");
  CheckpointState actual = reader.state();
  CHECK(std::isnan(actual["nan"].number("nan")));
  CHECK(std::signbit(actual["negative zero"].number("zero")));
  actual.erase("nan");
  state.erase("nan");
  CHECK(actual == state);
  CHECK(static_cast<float>(actual["tenth"].number("tenth")) == 0.1f);
  CHECK(actual["seed"].unsigned_integer("seed") == ~0ull);
  CHECK(complaint([&] { (void)actual["seed"].integer("seed"); }) ==
        "seed is not a signed 64-bit integer");
  CHECK(complaint([&] { (void)actual["low"].unsigned_integer("low"); }) ==
        "low is not an unsigned 64-bit integer");
  CHECK(complaint([&] { (void)actual["text"].number("text"); }) == "text is not a number");
  CHECK(complaint([&] { (void)actual["third"].integer("third"); }) ==
        "third is not a signed 64-bit integer");
}

TEST_CASE("the newest valid checkpoint is found, and skipped ones are reported with a reason") {
  const llmc_test::TemporaryDirectory root;
  CHECK(!llmc::find_newest_checkpoint(root.path()).path);
  const auto missing = llmc::find_newest_checkpoint(root.path() / "none");
  CHECK(!missing.path);
  CHECK(missing.warnings.empty());
  llmc::write_file(root.file("file"), "");
  CHECK(contains(complaint([&] { llmc::find_newest_checkpoint(root.file("file")); }),
                 "cannot read the directory " + root.file("file")));

  // The order is by number, not by name: 1000000 comes after 999999.
  for (const std::int64_t step : {999'999, 5, 1'000'000, 20}) save(root.path(), step);
  fs::create_directory(root.path() / "samples");
  auto result = llmc::find_newest_checkpoint(root.path());
  CHECK(result.path == root.path() / "step_1000000");
  CHECK(result.step == 1'000'000);
  CHECK(result.warnings.empty());

  const fs::path model = root.path() / "step_1000000" / "model.safetensors";
  std::string bytes = llmc::read_file(model);
  bytes[bytes.size() / 2] ^= 1;
  overwrite(model, bytes);
  result = llmc::find_newest_checkpoint(root.path());
  CHECK(result.path == root.path() / "step_999999");
  REQUIRE(result.warnings.size() == 1);
  CHECK(result.warnings[0].starts_with("skipped " + root.file("step_1000000") + ": " +
                                       model.string() + " is damaged: its checksum is "));

  fs::resize_file(root.path() / "step_999999" / "optimizer.safetensors", 10);
  fs::remove(root.path() / "step_000020" / "manifest.json");
  fs::create_directory(root.path() / "step_000030.tmp-0123abcd");
  result = llmc::find_newest_checkpoint(root.path());
  CHECK(result.path == root.path() / "step_000005");
  CHECK(result.step == 5);
  std::string all;
  for (const std::string& warning : result.warnings) all += warning + "\n";
  CAPTURE(all);
  CHECK(result.warnings.size() == 4);
  CHECK(contains(all, "step_000020 is not a complete checkpoint: it has no manifest.json"));
  CHECK(contains(all, "step_000030.tmp-0123abcd: an unfinished save or removal"));
  CHECK(contains(all, "optimizer.safetensors has 10 bytes, but the manifest lists "));

  fs::remove_all(root.path() / "step_000005");
  result = llmc::find_newest_checkpoint(root.path());
  CHECK(!result.path);
  CHECK(result.warnings.size() == 4);
}

TEST_CASE("the next save removes unfinished saves, unless they are still running") {
  const llmc_test::TemporaryDirectory root;
  save(root.path(), 1);
  const fs::path abandoned_path = root.path() / "step_000002.tmp-00000000";
  const fs::path locked_path = root.path() / "step_000003.tmp-00000000";
  for (const fs::path& path : {abandoned_path, locked_path}) {
    fs::create_directory(path);
    llmc::write_file(path / "model.safetensors", "part");
  }
  fs::create_directory(root.path() / "mine.tmp-xyz");
  const llmc::FileDescriptor lock(::open(locked_path.c_str(), O_RDONLY | O_DIRECTORY));
  REQUIRE(::flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  {
    CheckpointWriter first(root.path(), "step_000004");
    CHECK(!fs::exists(abandoned_path));
    CHECK(fs::exists(locked_path));
    CheckpointWriter second(root.path(), "step_000005");  // must not remove the save of `first`
    write_tensors(first.tensor_file("model.safetensors", kModel), 4);
    first.commit(4, {});
  }
  CHECK(names_in(root.path()) == std::vector<std::string>{"mine.tmp-xyz", "step_000001",
                                                          "step_000003.tmp-00000000",
                                                          "step_000004"});
}

TEST_CASE("a checkpoint of the same name stays until the new one is complete") {
  const llmc_test::TemporaryDirectory root;
  const fs::path path = save(root.path(), 1);
  const std::string old = llmc::read_file(path / "model.safetensors");
  {
    CheckpointWriter writer(root.path(), "step_000001");
    write_tensors(writer.tensor_file("model.safetensors", kModel), 2);
    CHECK(llmc::read_file(path / "model.safetensors") == old);
  }
  CHECK(fault(path) == "");
  CHECK(llmc::read_file(path / "model.safetensors") == old);
  {
    CheckpointWriter writer(root.path(), "step_000001");
    write_tensors(writer.tensor_file("model.safetensors", kModel), 2);
    writer.commit(2, {});
  }
  CHECK(fault(path) == "");
  CHECK(CheckpointReader(path).step() == 2);
  CHECK(names_in(path) == std::vector<std::string>{"manifest.json", "model.safetensors"});
  CHECK(names_in(root.path()) == std::vector<std::string>{"step_000001"});
}

namespace {

// The elements of a slice, by the definition, of a tensor (4, 6, 5) with elements 0, 1, 2, ...
std::vector<float> elements_of(const Slice& slice) {
  std::vector<float> box;
  for (std::int64_t i = 0; i < slice.extent[0]; ++i) {
    for (std::int64_t j = 0; j < slice.extent[1]; ++j) {
      for (std::int64_t k = 0; k < slice.extent[2]; ++k) {
        box.push_back(static_cast<float>(((slice.offset[0] + i) * 6 + slice.offset[1] + j) * 5 +
                                         slice.offset[2] + k));
      }
    }
  }
  return std::vector<float>(box.begin() + slice.begin, box.begin() + slice.end);
}

}  // namespace

TEST_CASE("boxes, flat ranges and ranges of boxes are assembled into a tensor") {
  const TensorHeader tensor = {"w", TensorDtype::f32, {4, 6, 5}};
  std::vector<float> whole(120);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  const auto columns = [&](std::int64_t from, std::int64_t to) {
    return Slice::box(tensor, {0, from, 0}, {4, to - from, 5});
  };
  const auto left = columns(0, 2);
  const auto right = columns(2, 6);
  const std::vector<std::vector<Slice>> layouts = {
      {Slice::whole(tensor)},
      {columns(0, 3), columns(3, 6)},
      {Slice::box(tensor, {0, 0, 0}, {4, 6, 2}), Slice::box(tensor, {0, 0, 2}, {3, 6, 3}),
       Slice::box(tensor, {3, 0, 2}, {1, 6, 3})},
      {Slice::flat(tensor, 0, 7), Slice::flat(tensor, 7, 7), Slice::flat(tensor, 7, 101),
       Slice::flat(tensor, 101, 120)},
      {left.range(0, 13), left.range(13, 40), right.range(0, 79), right.range(79, 80)},
  };
  const llmc_test::TemporaryDirectory root;
  const auto write = [&](const std::vector<Slice>& slices) {
    CheckpointWriter writer(root.path(), "step_1");
    int rank = 0;
    for (const Slice& slice : slices) {
      auto& file = writer.tensor_file("rank_" + std::to_string(rank++) + ".safetensors",
                                      std::vector<Slice>{slice});
      const std::vector<float> values = elements_of(slice);
      file.write("w", std::as_bytes(std::span(values)));
    }
    writer.commit(1, {});
    CheckpointReader reader(writer.path());
    std::vector<float> actual(120, -1.0f);
    reader.load("w", {4, 6, 5}, actual.data());
    std::vector<float> bytes(120, -1.0f);
    reader.load_bytes(tensor, bytes.data());
    CHECK(bytes == actual);
    return actual;
  };
  for (const auto& layout : layouts) {
    CAPTURE(layout.size());
    CHECK(write(layout) == whole);
  }
  CHECK(contains(complaint([&] {
                   write({columns(0, 3), columns(2, 6)});
                 }),
                 "tensor w: its slices overlap"));
  CHECK(contains(complaint([&] {
                   write({columns(0, 3), columns(4, 6)});
                 }),
                 "tensor w: its slices hold 100 of 120 elements"));
  CHECK(contains(complaint([&] {
                   write({Slice::flat(tensor, 0, 8), Slice::flat(tensor, 7, 120)});
                 }),
                 "overlap"));
  CHECK(contains(complaint([&] { write({left.range(1, 40), right}); }), "hold 119 of 120"));

  CHECK(contains(complaint([&] { columns(3, 7); }), "box (4, 4, 5) at (0, 3, 0) is outside (4, 6"));
  CHECK(contains(complaint([&] { Slice::box(tensor, {0, 0}, {4, 6}); }), "another number of axes"));
  CHECK(contains(complaint([&] { Slice::box(tensor, {0, -1, 0}, {4, 6, 5}); }), "is outside"));
  CHECK(contains(complaint([&] {
                   Slice::box(tensor, {0, 1LL << 62, 0}, {4, 1LL << 62, 5});
                 }),
                 "is outside"));
  CHECK(contains(complaint([&] { Slice::flat(tensor, 3, 121); }), "elements 3 to 121 are outside"));
  CHECK(contains(complaint([&] { Slice::flat(tensor, 3, 2); }), "elements 3 to 2 are outside"));
  const TensorHeader number = {"n", TensorDtype::f32, {}};
  CHECK(Slice::whole(number).count() == 1);
  CHECK(Slice::whole(number).is_whole());
}

TEST_SUITE_END();

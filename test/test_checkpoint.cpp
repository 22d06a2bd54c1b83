// Checkpoints: what is saved comes back, whatever is damaged is found and named, and a save that is
// cut off anywhere leaves the older ones as they were.
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "llmc/io/checkpoint.h"
#include "test/support.h"

TEST_SUITE_BEGIN("checkpoint");

namespace {

using llmc_test::complaint;
using llmc_test::contains;
namespace fs = std::filesystem;
using llmc::CheckpointReader;
using llmc::CheckpointState;
using llmc::CheckpointWriter;
using llmc::Slice;
using llmc::TensorDtype;
using llmc::TensorHeader;

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

const std::vector<TensorHeader> kModel = {{"transformer.wte.weight", TensorDtype::bf16, {5, 3}},
                                          {"transformer.ln_f.bias", TensorDtype::bf16, {3}}};
const std::vector<TensorHeader> kOptimizer = {{"master.wte.weight", TensorDtype::f32, {5, 3}},
                                              {"moment1.wte.weight", TensorDtype::f32, {5, 3}}};

// The bytes of a tensor in the checkpoint of this step.
std::string content(const TensorHeader& tensor, std::int64_t step) {
  std::string bytes(static_cast<std::size_t>(llmc::tensor_bytes(tensor)), '\0');
  std::mt19937_64 random(llmc::checksum_of(tensor.name + std::to_string(step)));
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

void write_tensors(llmc::SafetensorsWriter& writer, std::int64_t step) {
  for (const TensorHeader& tensor : writer.tensors()) {
    const std::string bytes = content(tensor, step);
    writer.write(tensor.name, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }
}

CheckpointState state_of(std::int64_t step) {
  return {{"seed", 42}, {"position", step * 1024}, {"loss", 2.5f}};
}

fs::path save(const fs::path& root, std::int64_t step) {
  CheckpointWriter writer(root, llmc::checkpoint_name(step));
  write_tensors(writer.tensor_file("model.safetensors", kModel), step);
  write_tensors(writer.tensor_file("optimizer.safetensors", kOptimizer), step);
  writer.text_file("config.json", "{\"model_type\": \"gpt2\"}\n");
  writer.commit(step, state_of(step));
  return writer.path();
}

// What is wrong with the checkpoint, if anything is.
std::string fault(const fs::path& path) {
  return complaint([&] {
    CheckpointReader reader(path);
    reader.verify();
    for (const TensorHeader& tensor : kModel) {
      std::string bytes(static_cast<std::size_t>(llmc::tensor_bytes(tensor)), '\0');
      reader.load_bytes(tensor, bytes.data());
      REQUIRE(bytes == content(tensor, reader.step()));
    }
  });
}

// As a new file: ext4 waits for the disk when one that was truncated is written again.
void overwrite(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("what is saved comes back") {
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
    std::vector<float> got(15);
    reader.load(tensor.name, {5, 3}, got.data());
    CHECK(std::memcmp(got.data(), content(tensor, 100).data(), 60) == 0);
  }
  float few[15];
  CHECK(complaint([&] {
          reader.load("wte", {5, 3}, few);
        }) == path.string() + " has no tensor wte");
  CHECK(complaint([&] {
          reader.load("master.wte.weight", {3, 5}, few);
        }) == path.string() + ": tensor master.wte.weight has shape (5, 3), wanted is (3, 5)");
  CHECK(complaint([&] {
          reader.load_bytes({"master.wte.weight", TensorDtype::bf16, {5, 3}}, few);
        }) == path.string() + ": tensor master.wte.weight has dtype F32, wanted is BF16");
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

TEST_CASE("every kind of value of the state comes back as it was") {
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
  CheckpointState got = reader.state();
  CHECK(std::isnan(got["nan"].number("nan")));
  CHECK(std::signbit(got["negative zero"].number("zero")));
  got.erase("nan");
  state.erase("nan");
  CHECK(got == state);
  CHECK(static_cast<float>(got["tenth"].number("tenth")) == 0.1f);
  CHECK(got["seed"].unsigned_integer("seed") == ~0ull);
  CHECK(complaint([&] { (void)got["seed"].integer("seed"); }) ==
        "seed is not a signed 64-bit integer");
  CHECK(complaint([&] { (void)got["low"].unsigned_integer("low"); }) ==
        "low is not an unsigned 64-bit integer");
  CHECK(complaint([&] { (void)got["text"].number("text"); }) == "text is not a number");
  CHECK(complaint([&] { (void)got["third"].integer("third"); }) ==
        "third is not a signed 64-bit integer");
}

TEST_CASE("every damaged byte of every file is found and the file is named") {
  const llmc_test::TemporaryDirectory root;
  const fs::path path = save(root.path(), 100);
  for (const std::string& name : names_in(path)) {
    CAPTURE(name);
    const fs::path file = path / name;
    const std::string good = llmc::read_file(file);
    int missed = 0;
    const auto try_bytes = [&](const std::string& bytes) {
      overwrite(file, bytes);
      missed += !contains(fault(path), file.string());
    };
    const std::size_t stride = llmc_test::tiny() ? 7 : 1;
    for (std::size_t at = 0; at < good.size(); at += stride) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
      try_bytes(bytes);
      try_bytes(good.substr(0, at));
    }
    try_bytes(good + "x");
    try_bytes(good + std::string(1, '\0'));
    try_bytes("");
    fs::remove(file);
    const std::string said = fault(path);
    CHECK((contains(said, file.string() + " is missing") ||
           said == path.string() + " is not a whole checkpoint: it has no manifest.json"));
    fs::create_directory(file);
    missed += fault(path).empty();
    fs::remove(file);
    CHECK(missed == 0);
    overwrite(file, good);
    CHECK(fault(path) == "");
  }
}

TEST_CASE("the newest good checkpoint is found, and each that is not says why") {
  const llmc_test::TemporaryDirectory root;
  CHECK(!llmc::find_newest_checkpoint(root.path()).path);
  const auto nowhere = llmc::find_newest_checkpoint(root.path() / "none");
  CHECK(!nowhere.path);
  CHECK(nowhere.warnings.empty());
  llmc::write_file(root.file("file"), "");
  CHECK(contains(complaint([&] { llmc::find_newest_checkpoint(root.file("file")); }),
                 "cannot read the directory " + root.file("file")));

  // By number, not by name: 1000000 is after 999999.
  for (const std::int64_t step : {999'999, 5, 1'000'000, 20}) save(root.path(), step);
  fs::create_directory(root.path() / "samples");
  auto found = llmc::find_newest_checkpoint(root.path());
  CHECK(found.path == root.path() / "step_1000000");
  CHECK(found.step == 1'000'000);
  CHECK(found.warnings.empty());

  const fs::path model = root.path() / "step_1000000" / "model.safetensors";
  std::string bytes = llmc::read_file(model);
  bytes[bytes.size() / 2] ^= 1;
  overwrite(model, bytes);
  found = llmc::find_newest_checkpoint(root.path());
  CHECK(found.path == root.path() / "step_999999");
  REQUIRE(found.warnings.size() == 1);
  CHECK(found.warnings[0].starts_with("passed over " + root.file("step_1000000") + ": " +
                                      model.string() + " is damaged: its checksum is "));

  fs::resize_file(root.path() / "step_999999" / "optimizer.safetensors", 10);
  fs::remove(root.path() / "step_000020" / "manifest.json");
  fs::create_directory(root.path() / "step_000030.tmp-0123abcd");
  found = llmc::find_newest_checkpoint(root.path());
  CHECK(found.path == root.path() / "step_000005");
  CHECK(found.step == 5);
  std::string all;
  for (const std::string& warning : found.warnings) all += warning + "\n";
  CAPTURE(all);
  CHECK(found.warnings.size() == 4);
  CHECK(contains(all, "step_000020 is not a whole checkpoint: it has no manifest.json"));
  CHECK(contains(all, "step_000030.tmp-0123abcd: a save that was not finished"));
  CHECK(contains(all, "optimizer.safetensors has 10 bytes, the manifest says "));

  fs::remove_all(root.path() / "step_000005");
  found = llmc::find_newest_checkpoint(root.path());
  CHECK(!found.path);
  CHECK(found.warnings.size() == 4);
}

TEST_CASE("unfinished saves go at the next save, unless they still run") {
  const llmc_test::TemporaryDirectory root;
  save(root.path(), 1);
  const fs::path left = root.path() / "step_000002.tmp-00000000";
  const fs::path held = root.path() / "step_000003.tmp-00000000";
  for (const fs::path& path : {left, held}) {
    fs::create_directory(path);
    llmc::write_file(path / "model.safetensors", "part");
  }
  fs::create_directory(root.path() / "mine.tmp-xyz");
  const llmc::FileDescriptor lock(::open(held.c_str(), O_RDONLY | O_DIRECTORY));
  REQUIRE(::flock(lock.get(), LOCK_EX | LOCK_NB) == 0);
  {
    CheckpointWriter first(root.path(), "step_000004");
    CHECK(!fs::exists(left));
    CHECK(fs::exists(held));
    CheckpointWriter second(root.path(), "step_000005");  // leaves the first one alone
    write_tensors(first.tensor_file("model.safetensors", kModel), 4);
    first.commit(4, {});
  }
  CHECK(names_in(root.path()) == std::vector<std::string>{"mine.tmp-xyz", "step_000001",
                                                          "step_000003.tmp-00000000",
                                                          "step_000004"});
}

TEST_CASE("a name that is taken: the old checkpoint stays until the new one is whole") {
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

TEST_CASE("errors of the writer leave the older checkpoint as it was") {
  const llmc_test::TemporaryDirectory root;
  const fs::path path = save(root.path(), 1);
  const auto attempt = [&](auto&& action) {
    const std::string said = complaint([&] {
      CheckpointWriter writer(root.path(), "step_000002");
      action(writer);
    });
    CHECK(names_in(root.path()) == std::vector<std::string>{"step_000001"});
    CHECK(fault(path) == "");
    return said;
  };
  CHECK(contains(attempt([](CheckpointWriter& writer) {
                   writer.tensor_file("model.safetensors", kModel);
                   writer.commit(2, {});
                 }),
                 "model.safetensors: tensor transformer.wte.weight is not complete"));
  CHECK(contains(attempt([](CheckpointWriter& writer) {
                   writer.text_file("a", "");
                   writer.text_file("a", "");
                 }),
                 "step_000002: a is made twice"));
  for (const char* name : {"", ".", "..", "a/b", "manifest.json"}) {
    CHECK(attempt([&](CheckpointWriter& writer) { writer.text_file(name, ""); }) ==
          "'" + std::string(name) + "' cannot name a file of a checkpoint");
  }
  CHECK(complaint([&] { CheckpointWriter(root.path(), "../x"); }) ==
        "'../x' cannot name a checkpoint");

  // A limit on file sizes fails writes as a full disk does.
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limited = before;
  limited.rlim_cur = 300;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limited) == 0);
  const std::string tensors = complaint([&] { save(root.path(), 2); });
  const std::string manifest = complaint([&] {
    CheckpointWriter writer(root.path(), "step_000002");
    writer.commit(2, {{"text", std::string(400, 'x')}});
  });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(contains(tensors, "optimizer.safetensors: File too large\n  hint: "));
  CHECK(contains(manifest, "manifest.json: File too large"));
  CHECK(names_in(root.path()) == std::vector<std::string>{"step_000001"});
  CHECK(fault(path) == "");

  // No directory can be made below a file.
  llmc::write_file(root.file("file"), "text");
  CHECK(contains(complaint([&] { save(root.path() / "file", 2); }),
                 "cannot make the directory " + root.file("file") + ": "));
  CHECK(contains(complaint([&] { save(root.path() / "file" / "deeper", 2); }), "Not a directory"));
  CHECK(llmc::read_file(root.file("file")) == "text");
}

TEST_CASE("a save killed at any moment leaves a good checkpoint to resume from") {
  const llmc_test::TemporaryDirectory root;
  // How long a save takes depends on the disk; the kills are spread over the first two of each run.
  const auto start = std::chrono::steady_clock::now();
  save(root.path(), 1);
  const auto one = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  std::mt19937_64 random(3);
  std::int64_t last = 1;
  const int rounds = llmc_test::tiny() ? 10 : 30;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      try {
        // Odd rounds write one name again and again, even ones new names.
        for (std::int64_t step = last + 1;; ++step) {
          if (round % 2 == 0) {
            save(root.path(), step);
            continue;
          }
          CheckpointWriter writer(root.path(), llmc::checkpoint_name(last));
          write_tensors(writer.tensor_file("model.safetensors", kModel), step);
          writer.commit(step, {});
        }
      } catch (...) {
      }
      _exit(1);
    }
    const auto most = static_cast<std::uint64_t>(2 * one.count() + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));  // it had not stopped by itself
    const auto found = llmc::find_newest_checkpoint(root.path());
    REQUIRE(found.path);
    CHECK(found.step >= last);
    last = found.step;
    CHECK(fault(*found.path) == "");
    for (const std::string& warning : found.warnings) {
      CAPTURE(warning);
      CHECK(contains(warning, "a save that was not finished"));
    }
  }
  MESSAGE("reached step " << last << " in " << rounds << " killed runs");
  save(root.path(), last + 1);
  for (const std::string& name : names_in(root.path())) CHECK(!llmc::is_temporary_name(name));
}

TEST_CASE("a manifest that lies is refused, whatever it says") {
  llmc::Manifest manifest;
  manifest.step = 3;
  manifest.state = {{"seed", 1}, {"inf", INFINITY}, {"text", "x"}};
  manifest.files = {{"a.safetensors", 5, "00", {Slice::flat(kOptimizer[0], 1, 3)}}};
  const std::string good = llmc::manifest_text(manifest);
  const auto parsed = llmc::parse_manifest(good, "m");
  CHECK(parsed.step == 3);
  CHECK(parsed.files[0].slices[0].begin == 1);
  CHECK(llmc::manifest_text(parsed) == good);

  // With a right checksum, so that what is behind it is reached.
  const std::size_t seal = llmc::manifest_detail::seal("").size();
  const std::string body = good.substr(0, good.size() - seal);
  const auto read = [](const std::string& text) {
    return complaint([&] { llmc::parse_manifest(text + llmc::manifest_detail::seal(text), "m"); });
  };
  CHECK(read(body) == "");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = body;
    REQUIRE(contains(text, from));
    text.replace(text.find(from), from.size(), to);
    return read(text);
  };
  CHECK(
      with("\"version\": 1", "\"version\": 2").starts_with("m has version 2, this program reads"));
  CHECK(with("llmc checkpoint", "other") == "m is of another format: other");
  CHECK(with("a.safetensors", "../a") == "m: bad file name ../a");
  CHECK(with("\"bytes\": 5", "\"bytes\": -5") ==
        "m: bytes of a.safetensors is -5, not an integer "
        "of 0 or more");
  CHECK(with("\"inf\"\n", "\"big\"\n") == "m: state inf is no number, text or truth value");
  CHECK(with("\"step\"", "\"stop\"") == "m has no \"step\"");

  std::mt19937_64 random(4);
  int accepted = 0;
  const int rounds = llmc_test::tiny() ? 1000 : 5000;
  for (int round = 0; round < rounds; ++round) {
    std::string text = body;
    for (int edits = 1 + static_cast<int>(random() % 2); edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, 1 + random() % 5);
    }
    accepted += read(text).empty();
    CHECK(complaint([&] { llmc::parse_manifest(text, "m"); }) ==
          "m is damaged or cut short (its checksum differs)");
  }
  CHECK(accepted > 0);
  CHECK(accepted < rounds);
}

TEST_CASE("slices: boxes, flat ranges and ranges of boxes make a tensor, wherever they lie") {
  const TensorHeader tensor = {"w", TensorDtype::f32, {4, 6, 5}};
  std::vector<float> whole(120);
  for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = static_cast<float>(i);
  // The elements of a slice, by the definition.
  const auto part = [&](const Slice& slice) {
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
  };
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
      const std::vector<float> values = part(slice);
      file.write("w", std::as_bytes(std::span(values)));
    }
    writer.commit(1, {});
    CheckpointReader reader(writer.path());
    std::vector<float> got(120, -1.0f);
    reader.load("w", {4, 6, 5}, got.data());
    std::vector<float> bytes(120, -1.0f);
    reader.load_bytes(tensor, bytes.data());
    CHECK(bytes == got);
    return got;
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

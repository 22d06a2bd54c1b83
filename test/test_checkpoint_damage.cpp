// Damaged checkpoints are detected and named. A save that fails or is interrupted at any moment
// leaves the older checkpoints unchanged.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/model_card.h"
#include "test/checkpoint_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("checkpoint");

using namespace llmc_test;
using llmc::Slice;

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

namespace {

// Saves a checkpoint with every file that training writes.
fs::path save_all(const fs::path& root, std::int64_t step) {
  CheckpointWriter writer(root, llmc::checkpoint_name(step));
  const llmc::HuggingFaceConfig config;
  writer.text_file("config.json", huggingface_config_text(config, TensorDtype::f32));
  writer.text_file("generation_config.json", llmc::generation_config_text(config));
  llmc::ModelCard card;
  card.name = llmc::checkpoint_name(step);
  writer.text_file("README.md", llmc::model_card_text(card));
  writer.text_file("vocab.json", "{\"a\": 0, \"b\": 1, \"ab\": 2}\n");
  writer.text_file("merges.txt", "#version: 0.2\na b\n");
  writer.text_file("tokenizer_config.json", "{\"tokenizer_class\": \"GPT2Tokenizer\"}\n");
  write_tensors(writer.tensor_file("model.safetensors", kModel), step);
  write_tensors(writer.tensor_file("optimizer.safetensors", {Slice::flat(kOptimizer[0], 0, 15),
                                                             Slice::flat(kOptimizer[1], 0, 15)}),
                step);
  writer.commit(step, state_of(step));
  return writer.path();
}

}  // namespace

TEST_CASE("damage of every kind, in every file of a whole checkpoint, is named and passed over") {
  const llmc_test::TemporaryDirectory root;
  const fs::path older = save_all(root.path(), 1), newest = save_all(root.path(), 2);

  // Texts that mark the kinds of content in a file; their first and last bytes are damaged.
  const std::vector<std::string> tensors = {"{",     "__metadata__", "\"F",          "shape",
                                            "[5,3]", "data_offsets", "transformer.", "master."};
  const std::vector<std::string> manifest = {
      "llmc checkpoint", "version", "\"step\": 2", "\"state\"",  "seed",         "42", "position",
      "\"files\"",       "bytes",   "xxh64",       "merges.txt", "model.safete", "2.5"};
  const std::vector<std::string> texts = {"gpt2",          "vocab_size", "token_id", "max_length",
                                          "library",       "step_",      "\"ab\"",   "a b",
                                          "GPT2Tokenizer", "version"};
  int tried = 0;
  for (const std::string& name : names_in(newest)) {
    CAPTURE(name);
    const fs::path file = newest / name;
    const std::string good = llmc::read_file(file);
    const auto passed_over = [&](const std::string& what) {
      CAPTURE(what);
      const auto found = llmc::find_newest_checkpoint(root.path());
      CHECK(found.path == older);
      REQUIRE(found.warnings.size() == 1);
      const bool gone = name == llmc::kManifestName && !fs::exists(file);
      CHECK(contains(found.warnings[0], (gone ? newest : file).string()));
      CHECK(found.warnings[0].starts_with("passed over " + newest.string() + ": "));
      ++tried;
    };
    const auto try_bytes = [&](const std::string& what, const std::string& bytes) {
      if (bytes == good) return;
      overwrite(file, bytes);
      passed_over(what);
    };
    const auto flip = [&](const std::string& what, std::size_t at) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
      try_bytes(what, bytes);
    };
    flip("first byte", 0);
    flip("last byte", good.size() - 1);
    flip("middle", good.size() / 2);
    const bool holds_tensors = name.ends_with(".safetensors");
    for (const auto* kinds : {&tensors, &manifest, &texts}) {
      if (holds_tensors != (kinds == &tensors)) continue;
      for (const std::string& kind : *kinds) {
        if (const std::size_t at = good.find(kind); at != good.npos) {
          flip(kind, at);
          flip("end of " + kind, at + kind.size() - 1);
        }
      }
    }
    if (holds_tensors) {
      flip("length of the header", 1);
      flip("high byte of the length", 7);
      try_bytes("a tensor of zeros", good.substr(0, good.size() - 6) + std::string(6, '\0'));
    }
    if (const std::size_t at = good.rfind("xxh64\": \""); at != good.npos) {
      for (std::size_t digit = 0; digit < 16; ++digit) flip("digit of the seal", at + 9 + digit);
    }
    try_bytes("cut by one byte", good.substr(0, good.size() - 1));
    try_bytes("cut in half", good.substr(0, good.size() / 2));
    try_bytes("longer", good + "\n");
    try_bytes("empty", "");
    try_bytes("zeros", std::string(good.size(), '\0'));
    // Valid in itself, but from another step.
    if (name != llmc::kManifestName) try_bytes("the older one's", llmc::read_file(older / name));
    fs::remove(file);
    passed_over("missing");
    overwrite(file, good);
    CHECK(llmc::find_newest_checkpoint(root.path()).path == newest);
  }
  MESSAGE(tried << " kinds of damage");
  CHECK(tried > 150);
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

  // A limit on the file size makes writes fail, like a full disk.
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

  // A directory cannot be created below a file.
  llmc::write_file(root.file("file"), "text");
  CHECK(contains(complaint([&] { save(root.path() / "file", 2); }),
                 "cannot make the directory " + root.file("file") + ": "));
  CHECK(contains(complaint([&] { save(root.path() / "file" / "deeper", 2); }), "Not a directory"));
  CHECK(llmc::read_file(root.file("file")) == "text");
}

TEST_CASE("a save killed at any moment leaves a good checkpoint to resume from") {
  const llmc_test::TemporaryDirectory root;
  // The time of a save depends on the disk; kills are spread over the first two saves of each run.
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
        // Odd rounds rewrite the same name; even rounds write new names.
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
    CHECK(WIFSIGNALED(status));  // it did not stop by itself
    const auto found = llmc::find_newest_checkpoint(root.path());
    REQUIRE(found.path);
    CHECK(found.step >= last);
    last = found.step;
    CHECK(fault(*found.path) == "");
    for (const std::string& warning : found.warnings) {
      CAPTURE(warning);
      CHECK(contains(warning, "a save or a removal that was not finished"));
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
  Slice slice = Slice::flat(kOptimizer[0], 1, 3);
  slice.stored_name = "master[0]";
  manifest.files = {{"a.safetensors", 5, "00", {slice}}};
  const std::string good = llmc::manifest_text(manifest);
  const auto parsed = llmc::parse_manifest(good, "m");
  CHECK(parsed.step == 3);
  CHECK(parsed.files[0].slices[0].begin == 1);
  CHECK(parsed.files[0].slices[0].name_in_file() == "master[0]");
  CHECK(llmc::manifest_text(parsed) == good);

  // Each text gets a valid checksum, so that the checks after the checksum are reached.
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
  CHECK(with("\"master[0]\"", "7") ==
        "m: stored name of a slice of master.wte.weight is not a string");

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

TEST_SUITE_END();

// Damaged checkpoints are detected and named. A save that fails or is interrupted at any moment
// leaves the older checkpoints unchanged.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_search.h"
#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/model_card.h"
#include "test/checkpoint_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("checkpoint");

using namespace llmc_test;
using llmc::Slice;

TEST_CASE("every damaged byte of every file is detected, and the error names the file") {
  const llmc_test::TemporaryDirectory root;
  const fs::path path = save(root.path(), 100);
  for (const std::string& name : names_in(path)) {
    CAPTURE(name);
    const fs::path file = path / name;
    const std::string original = llmc::read_file(file);
    int num_missed = 0;
    const auto try_bytes = [&](const std::string& bytes) {
      overwrite(file, bytes);
      num_missed += !contains(fault(path), file.string());
    };
    const std::size_t stride = llmc_test::tiny_shapes() ? 7 : 1;
    for (std::size_t at = 0; at < original.size(); at += stride) {
      std::string bytes = original;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
      try_bytes(bytes);
      try_bytes(original.substr(0, at));
    }
    try_bytes(original + "x");
    try_bytes(original + std::string(1, '\0'));
    try_bytes("");
    fs::remove(file);
    const std::string message = fault(path);
    CHECK((contains(message, file.string() + " is missing") ||
           message == path.string() + " is not a complete checkpoint: it has no manifest.json"));
    fs::create_directory(file);
    num_missed += fault(path).empty();
    fs::remove(file);
    CHECK(num_missed == 0);
    overwrite(file, original);
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

TEST_CASE("a checkpoint with damage of any kind in any file is skipped, and the file is named") {
  const llmc_test::TemporaryDirectory root;
  const fs::path older = save_all(root.path(), 1), newest = save_all(root.path(), 2);

  // Texts that mark the kinds of content in a file; their first and last bytes are damaged.
  const std::vector<std::string> tensors = {"{",     "__metadata__", "\"F",          "shape",
                                            "[5,3]", "data_offsets", "transformer.", "master."};
  const std::vector<std::string> manifest = {
      "llmc checkpoint", "version", "\"step\": 2", "\"state\"",  "seed",         "42", "position",
      "\"files\"",       "bytes",   "xxh64",       "merges.txt", "model.safete", "2.5"};
  const std::vector<std::string> texts = {
      "gpt2",  "vocab_size", "token_id", "max_new_tokens", "library",
      "step_", "\"ab\"",     "a b",      "GPT2Tokenizer",  "version"};
  int num_tried = 0;
  for (const std::string& name : names_in(newest)) {
    CAPTURE(name);
    const fs::path file = newest / name;
    const std::string original = llmc::read_file(file);
    const auto check_skipped = [&](const std::string& damage) {
      CAPTURE(damage);
      const auto result = llmc::find_newest_checkpoint(root.path());
      CHECK(result.path == older);
      REQUIRE(result.warnings.size() == 1);
      const bool is_missing = name == llmc::kManifestName && !fs::exists(file);
      CHECK(contains(result.warnings[0], (is_missing ? newest : file).string()));
      CHECK(result.warnings[0].starts_with("skipped " + newest.string() + ": "));
      ++num_tried;
    };
    const auto try_bytes = [&](const std::string& damage, const std::string& bytes) {
      if (bytes == original) return;
      overwrite(file, bytes);
      check_skipped(damage);
    };
    const auto flip = [&](const std::string& damage, std::size_t at) {
      std::string bytes = original;
      bytes[at] = static_cast<char>(bytes[at] ^ 1);
      try_bytes(damage, bytes);
    };
    flip("first byte", 0);
    flip("last byte", original.size() - 1);
    flip("middle", original.size() / 2);
    const bool has_tensors = name.ends_with(".safetensors");
    for (const auto* marks : {&tensors, &manifest, &texts}) {
      if (has_tensors != (marks == &tensors)) continue;
      for (const std::string& mark : *marks) {
        if (const std::size_t at = original.find(mark); at != original.npos) {
          flip(mark, at);
          flip("end of " + mark, at + mark.size() - 1);
        }
      }
    }
    if (has_tensors) {
      flip("length of the header", 1);
      flip("high byte of the length", 7);
      try_bytes("a tensor of zeros",
                original.substr(0, original.size() - 6) + std::string(6, '\0'));
    }
    if (const std::size_t at = original.rfind("xxh64\": \""); at != original.npos) {
      for (std::size_t digit = 0; digit < 16; ++digit) flip("digit of the seal", at + 9 + digit);
    }
    try_bytes("cut by one byte", original.substr(0, original.size() - 1));
    try_bytes("cut in half", original.substr(0, original.size() / 2));
    try_bytes("longer", original + "\n");
    try_bytes("empty", "");
    try_bytes("zeros", std::string(original.size(), '\0'));
    // Valid in itself, but from another step.
    if (name != llmc::kManifestName)
      try_bytes("of the older checkpoint", llmc::read_file(older / name));
    fs::remove(file);
    check_skipped("missing");
    overwrite(file, original);
    CHECK(llmc::find_newest_checkpoint(root.path()).path == newest);
  }
  MESSAGE(num_tried << " kinds of damage");
  CHECK(num_tried > 150);
}

TEST_CASE("errors of the writer leave the older checkpoint unchanged") {
  const llmc_test::TemporaryDirectory root;
  const fs::path path = save(root.path(), 1);
  const auto attempt = [&](auto&& action) {
    const std::string message = complaint([&] {
      CheckpointWriter writer(root.path(), "step_000002");
      action(writer);
    });
    CHECK(names_in(root.path()) == std::vector<std::string>{"step_000001"});
    CHECK(fault(path) == "");
    return message;
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
                 "step_000002: a is added twice"));
  for (const char* name : {"", ".", "..", "a/b", "manifest.json"}) {
    CHECK(attempt([&](CheckpointWriter& writer) { writer.text_file(name, ""); }) ==
          "'" + std::string(name) + "' is not a valid name for a file of a checkpoint");
  }
  CHECK(complaint([&] { CheckpointWriter(root.path(), "../x"); }) ==
        "'../x' is not a valid name for a checkpoint");

  // A limit on the file size makes writes fail, like a full disk.
  struct rlimit old_limit {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = old_limit;
  limit.rlim_cur = 300;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const std::string tensors = complaint([&] { save(root.path(), 2); });
  const std::string manifest = complaint([&] {
    CheckpointWriter writer(root.path(), "step_000002");
    writer.commit(2, {{"text", std::string(400, 'x')}});
  });
  REQUIRE(setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  std::signal(SIGXFSZ, handler);
  CHECK(contains(tensors, "optimizer.safetensors: File too large\n  hint: "));
  CHECK(contains(manifest, "manifest.json: File too large"));
  CHECK(names_in(root.path()) == std::vector<std::string>{"step_000001"});
  CHECK(fault(path) == "");

  // A directory cannot be created below a file.
  llmc::write_file(root.file("file"), "text");
  CHECK(contains(complaint([&] { save(root.path() / "file", 2); }),
                 "cannot create the directory " + root.file("file") + ": "));
  CHECK(contains(complaint([&] { save(root.path() / "file" / "deeper", 2); }), "Not a directory"));
  CHECK(llmc::read_file(root.file("file")) == "text");
}

TEST_CASE("a save killed at any moment leaves a valid checkpoint to resume from") {
  const llmc_test::TemporaryDirectory root;
  // The time of a save depends on the disk; kills are spread over the first two saves of each run.
  const auto start = std::chrono::steady_clock::now();
  save(root.path(), 1);
  const auto save_time = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  std::mt19937_64 random(3);
  std::int64_t last = 1;
  const int rounds = llmc_test::tiny_shapes() ? 10 : 30;
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
    const auto max_microseconds = static_cast<std::uint64_t>(2 * save_time.count() + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % max_microseconds));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));  // it did not stop by itself
    const auto result = llmc::find_newest_checkpoint(root.path());
    REQUIRE(result.path);
    CHECK(result.step >= last);
    last = result.step;
    CHECK(fault(*result.path) == "");
    for (const std::string& warning : result.warnings) {
      CAPTURE(warning);
      CHECK(contains(warning, "an unfinished save or removal"));
    }
  }
  MESSAGE("reached step " << last << " in " << rounds << " killed runs");
  save(root.path(), last + 1);
  for (const std::string& name : names_in(root.path())) CHECK(!llmc::is_temporary_name(name));
}

TEST_CASE("a manifest with wrong content is rejected even if its checksum is right") {
  llmc::Manifest manifest;
  manifest.step = 3;
  manifest.state = {{"seed", 1}, {"inf", INFINITY}, {"text", "x"}};
  Slice slice = Slice::flat(kOptimizer[0], 1, 3);
  slice.stored_name = "master[0]";
  const Slice viewed = Slice::box(kOptimizer[1], {5, 1, 3}, {0, 0, 1}, {5, 1, 2}).range(1, 4);
  manifest.files = {{"a.safetensors", 5, "00", {slice, viewed}}};
  const std::string original = llmc::manifest_text(manifest);
  const auto parsed_manifest = llmc::parse_manifest(original, "m");
  CHECK(parsed_manifest.step == 3);
  CHECK(parsed_manifest.files[0].slices[0].begin == 1);
  CHECK(parsed_manifest.files[0].slices[0].name_in_file() == "master[0]");
  CHECK(parsed_manifest.files[0].slices[1] == viewed);
  CHECK(llmc::manifest_text(parsed_manifest) == original);

  // Each text gets a valid checksum, so that the checks after the checksum are reached.
  const std::size_t seal = llmc::manifest_detail::seal("").size();
  const std::string body = original.substr(0, original.size() - seal);
  const auto read = [](const std::string& text) {
    return complaint([&] { llmc::parse_manifest(text + llmc::manifest_detail::seal(text), "m"); });
  };
  CHECK(read(body) == "");
  const std::size_t view_begin = body.find("\"view\"");
  const std::string view = body.substr(view_begin, body.find(']', view_begin) + 1 - view_begin);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = body;
    REQUIRE(contains(text, from));
    text.replace(text.find(from), from.size(), to);
    return read(text);
  };
  CHECK(contains(body, "\"version\": 2"));
  CHECK(with("\"version\": 2", "\"version\": 3") ==
        "m has version 3, but this program reads versions 1 and 2\n"
        "  hint: read it with the program that wrote it, or with a newer one");
  CHECK(with("\"version\": 2", "\"version\": 0").starts_with("m has version 0, but this program"));
  CHECK(with("\"version\": 2", "\"version\": 1") ==
        "m: a slice of moment1.wte.weight has a view, which version 1 does not have");
  CHECK(with(view, "\"view\": []") == "m: view of moment1.wte.weight is empty");
  CHECK(with(view, "\"view\": 15") == "m: view of moment1.wte.weight is not a list of integers");
  CHECK(with(view, "\"view\": [-5, -3]") ==
        "m: view of moment1.wte.weight is -5, not an integer of 0 or more");
  CHECK(
      with(view, "\"view\": [18446744073709551616, 1]")
          .starts_with("m: view of moment1.wte.weight is 1.8446744073709552e+19, not an integer"));
  CHECK(with("llmc checkpoint", "other") == "m has another format: other");
  CHECK(with("a.safetensors", "../a") == "m: invalid file name ../a");
  CHECK(with("\"bytes\": 5", "\"bytes\": -5") ==
        "m: bytes of a.safetensors is -5, not an integer "
        "of 0 or more");
  CHECK(with("\"inf\"\n", "\"big\"\n") == "m: state inf is not a number, a string or a boolean");
  CHECK(with("\"step\"", "\"stop\"") == "m has no \"step\"");
  CHECK(with("\"master[0]\"", "7") ==
        "m: stored name of a slice of master.wte.weight is not a string");

  std::mt19937_64 random(4);
  int num_accepted = 0;
  const int rounds = llmc_test::tiny_shapes() ? 1000 : 5000;
  for (int round = 0; round < rounds; ++round) {
    std::string text = body;
    for (int edits = 1 + static_cast<int>(random() % 2); edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, 1 + random() % 5);
    }
    num_accepted += read(text).empty();
    CHECK(complaint([&] { llmc::parse_manifest(text, "m"); }) ==
          "m is damaged or truncated (its checksum differs)");
  }
  CHECK(num_accepted > 0);
  CHECK(num_accepted < rounds);
}

TEST_CASE("a checkpoint without views has a manifest that older programs read") {
  // Written by a program that read only version 1.
  const std::string old = R"({
  "format": "llmc checkpoint",
  "version": 1,
  "step": 3,
  "state": {
    "seed": 1
  },
  "files": [
    {
      "name": "a.safetensors",
      "bytes": 32,
      "xxh64": "00",
      "slices": [
        {
          "name": "w",
          "shape": [
            2,
            12
          ],
          "offset": [
            0,
            4
          ],
          "extent": [
            2,
            4
          ],
          "range": [
            1,
            7
          ],
          "stored": "w[0]"
        }
      ]
    }
  ],
  "xxh64": "8dc8f7fc91be9e5c"
}
)";
  const llmc::Manifest manifest = llmc::parse_manifest(old, "m");
  Slice slice = Slice::box({"w", TensorDtype::f32, {2, 12}}, {0, 4}, {2, 4}).range(1, 7);
  slice.stored_name = "w[0]";
  CHECK(manifest.step == 3);
  CHECK(manifest.files[0].slices == std::vector<Slice>{slice});
  CHECK(llmc::manifest_text(manifest) == old);
}

TEST_SUITE_END();

// The files next to the weights: the tokenizer's, generation_config.json and the model card.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmc/config/recorded_settings.h"
#include "llmc/config/resolve.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/models/pretrained.h"
#include "llmc/train/checkpoint/checkpoint_texts.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "test/model_rig.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// A tokenizer with the given files.
class TokenizerWithFiles : public ByteTokenizer {
 public:
  explicit TokenizerWithFiles(std::vector<TextFile> files) : files_(std::move(files)) {}
  std::vector<TextFile> files() const override { return files_; }

 private:
  std::vector<TextFile> files_;
};

Request sample_request() {
  Request request;
  request.data.train = "/home/someone/secret/my|text.txt";
  request.data.tokenizer = "/home/someone/gpt2/";
  request.model.init_from = "models/old.bin";
  request.schedule.steps = 1000;
  request.precision.dtype = Dtype::bf16;
  return request;
}

ModelCard sample_card() {
  const ModelConfig config{
      .vocabulary = 257, .context = 16, .layers = 1, .heads = 2, .channels = 16};
  RunPosition position;
  position.step = 1234567;
  position.tokens = 9876543210;
  position.train = "my|text.txt";
  position.validation = MeasuredLoss{1234000, 1.0};
  return make_model_card(resolve(sample_request(), {.weights = config}),
                         to_huggingface(config, 256), 124439808, position, 2.5);
}

std::string text_of(const std::vector<TextFile>& files, const std::string& name) {
  for (const TextFile& file : files) {
    if (file.name == name) return file.text;
  }
  return "";
}

}  // namespace

TEST_SUITE("checkpoint_texts") {
  TEST_CASE("flags saved under old names are loaded under their current names") {
    const TemporaryDirectory folder;
    const ModelConfig config{
        .vocabulary = 257, .context = 8, .layers = 1, .heads = 1, .channels = 8};
    ModelRig<float> rig(config, RunShape{.B = 1, .T = 8});
    RunPosition position;
    position.step = 1;
    position.flags = recorded_settings(resolve(Request{}, {}));
    const CheckpointState current = position.flags;
    for (const auto& [present, old] :
         {std::pair("--grad-clip", "--clip"), std::pair("--final-lr-fraction", "--final-lr")}) {
      position.flags[old] = position.flags.at(present);
      position.flags.erase(present);
    }
    const std::string path = save_checkpoint(folder.path(), to_huggingface(config, 256), position,
                                             1, rig.state(), rig.stream());
    const RunPosition loaded = load_checkpoint(path, 1, rig.state(), rig.stream());
    CHECK(loaded.flags == current);
    CHECK(changed_settings(loaded.flags, current).empty());
  }

  TEST_CASE("the tokenizer's files are saved next to the weights and listed in the manifest") {
    const std::vector<TextFile> vocabulary = {{"tokenizer.json", "{\"model\": {}}\n"},
                                              {"tokenizer_config.json", "{}\n"},
                                              {"merges.txt", ""}};
    const std::vector<TextFile> texts =
        checkpoint_texts(sample_card(), TokenizerWithFiles(vocabulary));
    CHECK(texts.size() == 5);
    const ModelConfig config{
        .vocabulary = 257, .context = 16, .layers = 1, .heads = 2, .channels = 16};
    ModelRig<float> rig(config, RunShape{.B = 1, .T = 8});
    rig.state().initialise(1, rig.stream());
    const TemporaryDirectory folder;
    RunPosition position;
    position.step = 7;
    const std::string path = save_checkpoint(folder.path(), to_huggingface(config, 256), position,
                                             1, rig.state(), rig.stream(), {.texts = texts});
    const CheckpointReader reader(path);
    reader.verify();
    for (const TextFile& file : texts) {
      CAPTURE(file.name);
      CHECK(read_file(std::filesystem::path(path) / file.name) == file.text);
      CHECK(reader.text(file.name) == file.text);
    }
    CHECK(reader.files().size() == texts.size() + 3);  // config.json, weights, moments
    CHECK(contains(complaint([&] {
                     save_checkpoint(folder.path(), to_huggingface(config, 256), position, 1,
                                     rig.state(), rig.stream(), {.texts = {{"config.json", "{}"}}});
                   }),
                   "config.json is added twice"));
  }

  TEST_CASE("the validation loss is saved and loaded with the position") {
    const ModelConfig config{
        .vocabulary = 257, .context = 16, .layers = 1, .heads = 2, .channels = 16};
    ModelRig<float> rig(config, RunShape{.B = 1, .T = 8});
    rig.state().initialise(1, rig.stream());
    const TemporaryDirectory folder;
    RunPosition position{9, 18, 144, 8, "text.txt", MeasuredLoss{8, 1.0 / 3.0}};
    for (const bool known : {true, false}) {
      if (!known) position.validation.reset();
      const std::string path = save_checkpoint(folder.path(), to_huggingface(config, 256), position,
                                               1, rig.state(), rig.stream());
      const RunPosition loaded = load_checkpoint(path, 1, rig.state(), rig.stream());
      CHECK(loaded.step == 9);
      CHECK(loaded.samples == 18);
      CHECK(loaded.tokens == 144);
      CHECK(loaded.T == 8);
      CHECK(loaded.train == "text.txt");
      REQUIRE(loaded.validation.has_value() == known);
      if (known) CHECK(loaded.validation->step == 8);
      if (known) CHECK(loaded.validation->loss == 1.0 / 3.0);
    }
  }

  TEST_CASE("the model card has all known values and no directory names") {
    const std::string card =
        text_of(checkpoint_texts(sample_card(), TokenizerWithFiles({TextFile{"vocab.json", "{}"}})),
                "README.md");
    CAPTURE(card);
    CHECK(card.starts_with(
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- gpt2\n"));
    for (const char* part :
         {"\n# step_1234567\n", "| parameters | 124,439,808 |", "| context | 16 tokens |",
          "| tokenizer | `gpt2` |", "| started from | `old.bin` |",
          "| training text | `my?text.txt` |", "| validation text | `the end of my?text.txt` |",
          "| optimizer steps | 1,234,567 |", "| tokens trained on | 9,876,543,210,",
          "| training loss, of one step | 2.5000 nats per token (perplexity 12.18), after step "
          "1234567 |",
          "| validation loss | 1.0000 nats per token (perplexity 2.718), after step 1234000 |",
          "| arithmetic | bf16, with fp32 master weights and sums |",
          "pipeline(\"text-generation\", model=\"step_1234567\")",
          "--model step_1234567 --prompt"}) {
      CAPTURE(part);
      CHECK(contains(card, part));
    }
    CHECK(!contains(card, "/home"));
    CHECK(!contains(card, "license"));

    const std::string bare = text_of(
        checkpoint_texts(sample_card(), TokenizerWithFiles(std::vector<TextFile>{})), "README.md");
    CHECK(!contains(bare, "pipeline("));
    CHECK(contains(bare, "AutoModelForCausalLM"));
    CHECK(contains(bare, "--tokenizer TOKENIZER"));
  }

  TEST_CASE("generation_config.json has the end-of-text token if there is one") {
    HuggingFaceConfig config;
    config.n_positions = 64;
    CHECK(generation_config_text(config) ==
          "{\n  \"_from_model_config\": false,\n  \"bos_token_id\": 50256,\n"
          "  \"eos_token_id\": 50256,\n  \"pad_token_id\": 50256,\n  \"max_new_tokens\": 32\n}\n");
    config.bos_token_id.reset();
    config.eos_token_ids.clear();
    CHECK(generation_config_text(config) ==
          "{\n  \"_from_model_config\": false,\n  \"max_new_tokens\": 32\n}\n");
  }
}

// The settings of infer_gpt2: switches with two names, lists with commas, commands, contradictions.
#include <doctest/doctest.h>

#include <iostream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/config/command_line.h"
#include "llmc/config/infer_table.h"
#include "llmc/config/infer_values.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::contains;
using llmc_test::TemporaryDirectory;

namespace {

using Texts = std::vector<std::string>;

struct Parsed {
  InferRequest request;
  std::optional<int> exit_code;
  std::string out, err;
};

// Parses `flags` as infer_gpt2 does, after --model x.
Parsed parse(Texts flags) {
  flags.insert(flags.begin(), {"infer_gpt2", "--model", "x"});
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  std::ostringstream out, err;
  std::streambuf *old_out = std::cout.rdbuf(out.rdbuf()), *old_err = std::cerr.rdbuf(err.rdbuf());
  Parsed parsed;
  parsed.exit_code =
      parse_command_line<InferProgram>(static_cast<int>(argv.size()), argv.data(), parsed.request);
  std::cout.rdbuf(old_out);
  std::cerr.rdbuf(old_err);
  parsed.out = out.str();
  parsed.err = err.str();
  return parsed;
}

// The first line of the usage error, without the program's name; empty if there is none.
std::string error(const Texts& flags) {
  const Parsed parsed = parse(flags);
  CHECK(parsed.exit_code.value_or(kExitUsage) == kExitUsage);
  CHECK(parsed.exit_code.has_value() == !parsed.err.empty());
  const std::string name = "infer_gpt2: ";
  CHECK((parsed.err.empty() || parsed.err.starts_with(name)));
  return parsed.err.empty() ? ""
                            : parsed.err.substr(name.size(), parsed.err.find('\n') - name.size());
}

InferConfig config(const Texts& flags) {
  const Parsed parsed = parse(flags);
  CHECK(parsed.err == "");
  return resolve(parsed.request);
}

// The number of times that `part` is in `text`.
int count(const std::string& text, const std::string& part) {
  int number = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++number;
  return number;
}

}  // namespace

TEST_SUITE("infer_settings") {
  TEST_CASE("settings that are not given have their documented defaults") {
    const InferConfig defaults = config({});
    CHECK(defaults.command.empty());
    CHECK(defaults.tokens == 128);
    CHECK(defaults.samples == 1);
    CHECK(defaults.batch == 1);
    CHECK(defaults.chunk == 512);
    CHECK(defaults.top_p == 1);
    CHECK(defaults.min_p == 0);
    CHECK(defaults.typical == 1);
    CHECK(defaults.repeat_penalty == 1);
    CHECK(defaults.repeat_last_n == 64);
    CHECK(defaults.seed == 1337);
    CHECK(defaults.kv_dtype == CacheDtype::fp32);
    CHECK(defaults.stream);
    CHECK(!defaults.display_prompt);
    CHECK(defaults.seq_len == 0);
    CHECK(defaults.stride == 0);
    CHECK(whole_numbers(defaults.prompt_tokens) == std::vector<std::int64_t>{512});
    CHECK(whole_numbers(defaults.gen_tokens) == std::vector<std::int64_t>{128});
    CHECK(whole_numbers(defaults.batches) == std::vector<std::int64_t>{1, 8});
    CHECK(whole_numbers(defaults.positions) == std::vector<std::int64_t>{1, 128, 512, 1023});
    CHECK(defaults.repetitions == 5);
    CHECK(defaults.format == BenchFormat::md);
    CHECK(config({"--samples", "3"}).batch == 3);
    CHECK(config({"--samples", "30"}).batch == 8);
    CHECK(config({"--prompts", "a"}).batch == 8);
    CHECK(config({"--dtype", "bf16"}).kv_dtype == CacheDtype::bf16);
  }

  TEST_CASE("text is streamed for one completion as text, unless a switch says otherwise") {
    for (const Texts& flags : {Texts{"--json"},
                               {"--jsonl"},
                               {"--samples", "2"},
                               {"--prompts", "a"},
                               {"--no-stream"},
                               {"--stream=false"},
                               {"--stream", "--no-stream"}}) {
      CAPTURE(flags.front());
      CHECK(!config(flags).stream);
    }
    CHECK(config({"--no-stream=false"}).stream);
    CHECK(config({"--no-stream", "--stream"}).stream);
    CHECK(config({"--json", "--no-stream"}).stream == false);
    CHECK(config({"--display-prompt"}).display_prompt);
    CHECK(!config({"--no-display-prompt"}).display_prompt);
    CHECK(error({"--json", "--stream"}) == "--stream and --json exclude each other");
    CHECK(error({"--no-streem"}) == "there is no flag --no-streem; did you mean --no-stream?");
    CHECK(error({"--echo"}) == "there is no flag --echo; did you mean --display-prompt?");
    const std::string help = parse({"--help"}).out;
    CHECK(count(help, "--stream,--no-stream ") == 1);
    CHECK(count(help, "--no-stream") == 1);
    CHECK(count(help, "--display-prompt,--no-display-prompt") == 1);
    const TemporaryDirectory folder;
    const std::string file = folder.file("a.toml");
    for (const char* line : {"no-stream = true", "stream = false"}) {
      write_file(file, line);
      CHECK(!config({"--config", file}).stream);
    }
  }

  TEST_CASE("a stop text keeps its commas, and the other lists are separated by them") {
    CHECK(config({"--stop", "a, b", "--stop", "[x,y]", "--stop=\n"}).stop ==
          Texts{"a, b", "[x,y]", "\n"});
    CHECK(contains(error({"--stop", ""}), "--stop"));
    CHECK(contains(error({"--stop", "\xC3"}), "is not UTF-8"));
    const TemporaryDirectory folder;
    write_file(folder.file("a.toml"), "stop = [\"a,b\", \"c\"]\n");
    CHECK(config({"--config", folder.file("a.toml")}).stop == Texts{"a,b", "c"});
    CHECK(config({"bench", "--batches", "1,2", "--batches", "4"}).batches == Texts{"1", "2", "4"});
    CHECK(error({"bench", "--batches", "1,0"}) == "--batches: '0' is not a whole number from 1 up");
  }

  TEST_CASE("a logit bias is a token id and a number or -inf") {
    const auto biases = parse_logit_biases(
        config({"--logit-bias", "50256=-inf,3=1.5", "--logit-bias=4=-2"}).logit_bias);
    REQUIRE(biases.size() == 3);
    CHECK(biases[0].first == 50256);
    CHECK(biases[0].second == -std::numeric_limits<double>::infinity());
    CHECK(biases[1].second == 1.5);
    CHECK(biases[2] == std::pair<std::int32_t, double>(4, -2));
    for (const char* text : {"5", "=1", "5=", "-1=1", "5=inf", "5=nan", "x=1", "1.5=1", "5=1=2"}) {
      CAPTURE(text);
      CHECK(error({"--logit-bias", text}) ==
            "--logit-bias: '" + std::string(text) + "' is not ID=VALUE");
    }
    CHECK(error({"--logit-bias", "5=1,6=2,5=1"}) == "--logit-bias: token 5 has two values");
    CHECK(error({"--logit-bias", "5=1e30,6=-1e30"}) == "");
    for (const char* text : {"5=1e39", "5=-1e39", "5=1.1e30", "5=-1e300"}) {
      CHECK(error({"--logit-bias", text}) ==
            "--logit-bias: '" + std::string(text) + "' has a value that is too large");
    }
  }

  TEST_CASE("a seed of -1 is drawn, and other negative seeds are errors") {
    const std::int64_t seed = config({"--seed", "-1"}).seed;
    CHECK(seed >= 0);
    CHECK(seed < std::int64_t{1} << 53);
    CHECK(seed != config({"--seed", "-1"}).seed);
    CHECK(config({"--seed", "0"}).seed == 0);
    CHECK(error({"--seed", "-2"}) == "--seed: '-2' is not a whole number from -1 up");
  }

  TEST_CASE("values outside their ranges are errors") {
    for (const char* flag : {"--top-p", "--min-p", "--typical"}) {
      for (const char* value : {"-0.1", "1.1", "nan"}) {
        CHECK(contains(error({flag, value}), "is not a number from 0 to 1"));
      }
    }
    CHECK(contains(error({"--repeat-penalty", "0"}), "'0' is not"));
    CHECK(contains(error({"--repeat-penalty", "1e39"}), "'1e39' is not"));
    CHECK(contains(error({"--temperature", "1e39"}), "'1e39' is not"));
    CHECK(config({"--top-p", "0", "--typical", "0"}).top_p == 0);
    CHECK(contains(error({"--repeat-last-n", "-2"}), "from -1 up"));
    CHECK(contains(error({"--samples", "0"}), "from 1 up"));
    CHECK(contains(error({"--batch", "0"}), "from 1 to"));
    CHECK(contains(error({"--chunk", "0"}), "from 1 up"));
    CHECK(config({"--repeat-last-n", "-1", "--presence-penalty", "-0.5"}).presence_penalty == -0.5);
  }

  TEST_CASE("settings that contradict each other are usage errors") {
    const auto exclude = [](const std::string& a, const std::string& b) {
      return a + " and " + b + " exclude each other";
    };
    CHECK(error({"-f", "a", "-p", "b"}) == exclude("--prompt", "--file"));
    CHECK(error({"--prompts", "a", "-p", "b"}) == exclude("--prompt", "--prompts"));
    CHECK(error({"--prompts", "a", "-f", "b"}) == exclude("--file", "--prompts"));
    CHECK(error({"--json", "--jsonl"}) == exclude("--json", "--jsonl"));
    CHECK(error({"--json", "--prompts", "a"}) == exclude("--json", "--prompts"));
    CHECK(error({"--json", "--display-prompt"}) == exclude("--display-prompt", "--json"));
    CHECK(error({"-i", "--jsonl"}) == exclude("--interactive", "--jsonl"));
    CHECK(contains(error({"--json", "--samples", "2"}), "use --jsonl"));
    CHECK(contains(error({"-i", "--samples", "2"}), "--interactive has one completion"));
    CHECK(contains(error({"-i", "-p", "-"}), "both read stdin"));
    CHECK(error({"-i", "-p", "a"}) == "");
    CHECK(error({"--stream", "--samples", "2"}) ==
          "--stream prints one completion as it is generated, --samples is 2; leave --stream out");
    CHECK(error({"--stream", "--prompts", "a"}) ==
          "--stream prints one completion as it is generated, --prompts has several; leave "
          "--stream out");
    CHECK(error({"--stream", "--samples", "1"}) == "");
    CHECK(error({"--no-stream", "--samples", "2", "--prompts", "a"}) == "");
    CHECK(error({"-i", "--no-stream"}) ==
          "--interactive prints the text as it is generated; leave --no-stream out");
    CHECK(error({"-i", "--display-prompt"}) ==
          "--interactive does not print prompts, which the terminal shows; leave "
          "--display-prompt out");
    CHECK(error({"-i", "--stream", "--no-display-prompt"}) == "");
    CHECK(error({"--json", "--samples", "1"}) == "");
    CHECK(error({"--kv-dtype", "bf16"}) == "");
    CHECK(error({"--kv-dtype", "fp16", "--dtype", "fp16"}) == "");
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      CHECK(config({"--kv-dtype", "int8", "--dtype", dtype}).kv_dtype == CacheDtype::int8);
    }
    CHECK(contains(error({"--dtype", "int8"}), "--dtype: 'int8' is not one of fp32, bf16, fp16"));
    CHECK(contains(error({"--kv-dtype", "int4"}), "fp32, bf16, fp16, int8"));
    CHECK(contains(error({"--kv-dtype", "q8_0"}), "int8"));
    CHECK(
        contains(error({"--kv-dtype", "fp32", "--dtype", "bf16"}), "does not agree with --dtype"));
    CHECK(contains(error({"--kv-dtype", "fp32", "--dtype", "bf16"}), "use --kv-dtype int8"));
    CHECK(
        contains(error({"--kv-dtype", "fp16", "--dtype", "bf16"}), "does not agree with --dtype"));
    CHECK(error({"--quant", "w8a8", "--zero-points", "off", "--dtype", "bf16"}) == "");
    const std::string no_codes = "--zero-points is for INT8 activations; use it with --quant w8a8";
    CHECK(error({"--zero-points", "off"}) == "");  // the model may have INT8 weights
    CHECK(error({"--quant", "none", "--zero-points", "off"}) == no_codes);
    CHECK(error({"--quant", "w8", "--zero-points", "auto"}) == no_codes);
    CHECK(contains(error({"--quant", "int8"}), "did you mean w8a8?"));
    CHECK(error({"--quant", "w8a8-static", "--calibrate", "t", "--smoothing", "off"}) == "");
    CHECK(error({"--quant", "w8", "--calibrate", "t"}) ==
          "--calibrate is for INT8 activations; use it with --quant w8a8 or w8a8-static");
    CHECK(error({"--quant", "w8a8", "--smoothing", "off"}) ==
          "--smoothing needs a calibration text; give one with --calibrate");
    for (const std::string command : {"bench", "perplexity", "score"}) {
      Texts words = {command, "--quant", "w8"};
      if (command != "bench") words.insert(words.begin() + 1, "lambada:a");
      CHECK(error(words) == "");
    }
  }

  TEST_CASE("the first word may be a command with its arguments") {
    CHECK(config({"bench"}).command == Texts{"bench"});
    CHECK(config({"perplexity", "a.txt", "--limit", "3"}).command == Texts{"perplexity", "a.txt"});
    CHECK(config({"perplexity", "--limit", "3", "a.txt"}).command == Texts{"perplexity", "a.txt"});
    CHECK(config({"--quiet", "score", "hellaswag:a", "lambada:b"}).command ==
          Texts{"score", "hellaswag:a", "lambada:b"});
    CHECK(error({"bench", "x"}) == "the command bench has no argument: unexpected argument 'x'");
    CHECK(error({"perplexity"}) == "the command perplexity needs one FILE, not 0");
    CHECK(error({"perplexity", "a", "b"}) == "the command perplexity needs one FILE, not 2");
    CHECK(error({"quantize", "a", "--quant", "w8"}) ==
          "--model has no effect with the command quantize");
    CHECK(error({"score"}) == "the command score needs at least one TASK:FILE");
    CHECK(error({"score", "lambada:a", "chess:b"}) == "score: 'chess:b' is not TASK:FILE");
    const TemporaryDirectory folder;
    write_file(folder.file("a.toml"), "command = [\"perplexity\", \"a\"]\nstride = 2\n");
    CHECK(config({"--config", folder.file("a.toml")}).stride == 2);
    write_file(folder.file("a.toml"), "command = \"play\"\n");
    CHECK(error({"--config", folder.file("a.toml")}) ==
          "there is no command 'play'; the commands are bench, perplexity, score, quantize, merge, "
          "classify");
  }

  TEST_CASE("a mistyped command gets the nearest one, and any other word its flag") {
    const std::string commands =
        "; the commands are bench, perplexity, score, quantize, merge, classify; did you mean ";
    CHECK(error({"benhc"}) == "there is no command 'benhc'" + commands + "bench?");
    CHECK(error({"perplexty", "a.txt"}) ==
          "there is no command 'perplexty'" + commands + "perplexity?");
    CHECK(error({"Score", "lambada:a"}) == "there is no command 'Score'" + commands + "score?");
    CHECK(error({"benchmark"}) == "there is no command 'benchmark'" + commands + "bench?");
    CHECK(error({"Once", "bench"}) ==
          "unexpected arguments 'Once', 'bench'; did you mean --prompt 'Once bench'?");
    CHECK(error({"-p", "Once", "upon"}) ==
          "unexpected argument 'upon'; did you mean -p 'Once upon'?");
    CHECK(error({"gpt2.bin"}) == "unexpected argument 'gpt2.bin'; did you mean --model gpt2.bin?");
    CHECK(error({"--zz", "bench"}) == "there is no flag --zz");
  }

  TEST_CASE("a flag without effect in a command is a usage error") {
    CHECK(error({"bench", "-p", "a"}) == "--prompt has no effect with the command bench");
    CHECK(error({"bench", "--limit", "1"}) == "--limit has no effect with the command bench");
    CHECK(error({"score", "lambada:a", "--stride", "1"}) ==
          "--stride has no effect with the command score");
    CHECK(error({"perplexity", "a", "--samples", "2"}) ==
          "--samples has no effect with the command perplexity");
    CHECK(error({"--stride", "1"}) == "--stride has no effect without the command perplexity");
    CHECK(error({"--limit", "1"}) ==
          "--limit has no effect without the command perplexity or score");
    CHECK(error({"--batches", "1"}) == "--batches has no effect without the command bench");
    CHECK(error({"perplexity", "a", "--base", "b", "--base-log", "c"}) ==
          "--base and --base-log exclude each other");
    CHECK(error({"perplexity", "a", "--stride", "9", "--seq-len", "8"}) ==
          "--stride 9 is more than --seq-len 8");
    CHECK(error({"perplexity", "a", "--stride", "8", "--seq-len", "8", "--save-log", "l"}) == "");
    CHECK(error({"bench", "--dtype", "bf16", "--kv-dtype", "bf16", "--quiet"}) == "");
  }

  TEST_CASE("names of other programs are answered with the flag") {
    const std::vector<std::pair<std::string, std::string>> answers = {
        {"--num-return-sequences", "--samples"},
        {"--max-num-seqs", "--batch"},
        {"--ubatch-size", "--chunk"},
        {"--repetition-penalty", "--repeat-penalty"},
        {"--penalty-last-n", "--repeat-last-n"},
        {"--typical-p", "--typical"},
        {"--reverse-prompt", "--stop"},
        {"--kv-cache-dtype", "--kv-dtype"},
        {"--quantization", "--quant"},
        {"--context-shift", "--slide"},
        {"--prompt-file", "--file"},
        {"--eval-stride", "--stride"},
        {"--base-model", "--base"},
        {"--max-new-tokens", "--tokens"},
        {"--reps", "--repetitions"}};
    for (const auto& [name, flag] : answers) {
      CHECK(error({name, "1"}) == "there is no flag " + name + "; did you mean " + flag + "?");
    }
  }
}

// What a generation is told, with the defaults. infer_command_line.h reads it from flags and files;
// the rest of the program knows only this.
#pragma once

#include <cstdint>
#include <string>

namespace llmc {

struct InferSettings {
  std::string model;      // a directory with config.json and model.safetensors, or a .bin of llm.c
  std::string tokenizer;  // empty: the one whose files lie in the directory, else bytes
  std::string prompt;     // "-": read from stdin; empty: <|endoftext|> alone

  std::int64_t tokens = 128;  // to generate, at most
  bool ignore_eos = false;    // go on after <|endoftext|>
  double temperature = 1;     // 0: greedy
  std::int64_t top_k = 0;     // 0: the whole vocabulary
  std::uint64_t seed = 1337;

  std::string dtype = "fp32";
  std::string device = "auto";
  bool json = false;
};

}  // namespace llmc

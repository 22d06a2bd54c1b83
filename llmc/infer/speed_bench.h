// `infer_gpt2 bench`: the speed of prompts and of generated tokens.
//
//   prompt    time to read prompts of N tokens, one per sequence
//   generate  mean time of the N steps after a prompt of one token
//   step      time of a step at one position of the cache. Figures at short contexts alone are too
//             good, because the cache that a step reads grows with the position
//
// A step must read all weights once and the cache of every sequence. The bytes of that, divided by
// the time, are its GB/s. They are compared with a copy in the same process and, on a GPU, with the
// peak of its memory: the memory bandwidth utilisation (MBU).
//
// On a GPU, each test is then repeated for 0.6 s to measure its energy. On the host, and
// without NVML, energy is not measured.
#pragma once

#include "llmc/config/infer_settings.h"

namespace llmc {

// Prints the table, and as the last line one JSON object with all results.
void bench(const InferConfig& settings);

}  // namespace llmc

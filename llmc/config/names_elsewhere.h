// The names that flags of the programs have in other programs, such as llm.c, nanoGPT, Megatron-LM
// and transformers, and names of what no flag does here. They are suggested for an unknown flag,
// but never accepted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmc {

// Other names of a flag of "train_gpt2", "infer_gpt2" or "tokenize"; empty if there are none.
std::vector<std::string> names_elsewhere(std::string_view program, std::string_view flag);

// The flags of a program that have other names.
std::vector<std::string> flags_with_names_elsewhere(std::string_view program);

// A text for the error about a flag of other programs that has no equal here, such as --wandb or
// --lora: the way that exists here, or "not supported". Empty if the name is unknown.
std::string way_here(std::string_view program, std::string_view name);

// The same if the name belongs to train_gpt2 or infer_gpt2 and `program` is another one.
std::string way_in_other_program(std::string_view program, std::string_view name);

}  // namespace llmc

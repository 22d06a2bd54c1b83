#include "llmc/config/bare_words.h"

#include <filesystem>
#include <system_error>

namespace llmc {

bool is_data_word(const std::string& word) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(word, ignored)) return true;
  const std::string extension = std::filesystem::path(word).extension().string();
  return extension == ".txt" || extension == ".jsonl" || extension == ".bin" || extension == ".idx";
}

bool is_model_directory(const std::string& word) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(word) / "config.json", ignored);
}

bool is_model_word(const std::string& word) {
  std::error_code ignored;
  if (std::filesystem::is_directory(word, ignored)) return true;
  const bool is_path = word.find(' ') == word.npos && word.find('/') != word.npos;
  return is_path || word.ends_with(".bin") || word.ends_with(".safetensors");
}

bool is_size_name(const std::string& word) {
  return word.size() > 1 && word[0] == 'd' &&
         word.find_first_not_of("0123456789", 1) == std::string::npos;
}

}  // namespace llmc

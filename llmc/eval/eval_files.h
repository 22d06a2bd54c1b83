// The files of evaluation tasks, in the formats that their authors publish:
//
//   perplexity  any text
//   wikitext    WikiText-2 or -103: wiki.test.tokens, one article after the other
//   lambada     lambada_test.jsonl, one object per line:
//               {"text": "... whose last word is to be predicted"}
//   hellaswag   hellaswag_val.jsonl, one object per line:
//               {"ctx": "...", "endings": ["...", ...], "label": 2, ...}
//   race        one object per line, either a question
//               {"article": "...", "question": "...", "options": [four texts], "answer": "C"}
//               or an article with its questions, as in RACE's own files
//               {"article": "...", "questions": [...], "options": [[four texts], ...],
//                "answers": ["C", ...]}
//
// Every error names file, line and field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace llmc {

// The last word of a text, to be predicted from the text before it.
struct LambadaExample {
  std::int64_t line = 0;
  std::string context;
  std::string word;  // with the space before it
};

// A context and several endings, of which one is right.
struct HellaSwagExample {
  std::int64_t line = 0;
  std::string context;
  std::vector<std::string> endings;  // without the space before them
  std::size_t label = 0;
};

// A question about an article and four options, of which one is right.
struct RaceExample {
  std::int64_t line = 0;
  std::string article, question;
  std::vector<std::string> options;
  std::size_t answer = 0;
};

// The last word is the text after the last space; white space at the end of the text is ignored.
// `limit`: maximum number of examples (0: all).
std::vector<LambadaExample> read_lambada(const std::string& path, std::int64_t limit = 0);

std::vector<HellaSwagExample> read_hellaswag(const std::string& path, std::int64_t limit = 0);

// `limit`: maximum number of questions (0: all).
std::vector<RaceExample> read_race(const std::string& path, std::int64_t limit = 0);

}  // namespace llmc

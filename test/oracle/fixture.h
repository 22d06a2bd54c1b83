// Reads the fixtures that make_fixtures.py writes: PyTorch's results for small models.
//
// The format (described in fixture_writer.py) is a text header and raw little-endian data, so that
// no JSON library is needed. Parameters are not stored: they come from a hash of (seed, tensor,
// element), the same in Python (hashed.py) and here.
#pragma once

#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "test/oracle/gpt2.h"
#include "test/support.h"

namespace llmc::oracle {

// Element `element` of stream `stream` (a tensor's index, or 0x8000 and up for tokens) under `seed`
// (8 bits): splitmix64's output for that counter (Steele, Lea, Flood 2014).
inline std::uint64_t hash_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t element) {
  const std::uint64_t counter = (seed << 56) + (stream << 40) + element;
  std::uint64_t z = (counter + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Uniform in offset + (-amplitude, amplitude), exact in fp32.
inline double hashed_parameter(std::uint64_t seed, std::uint64_t index, std::uint64_t element,
                               double amplitude, double offset) {
  const double high_bits = static_cast<double>(hash_bits(seed, index, element) >> 48);
  return offset + amplitude * ((2 * high_bits - 65535) / 65536);
}

class Fixture {
 public:
  // Throws llmc::Error that names the file if it is missing, not a fixture, or truncated.
  explicit Fixture(const std::string& path) : path_(path) {
    static_assert(std::endian::native == std::endian::little, "fixtures are little-endian");
    std::ifstream in(path, std::ios::binary);
    std::stringstream content;
    content << in.rdbuf();
    require(in.good(), path + " cannot be read", "write it with test/oracle/make_fixtures.py");
    bytes_ = content.str();
    read_header();
    for (const auto& [key, entry] : tensors_) {
      const Index end = entry.offset + element_count(entry.shape) * width(entry.dtype);
      require(data_ + end <= static_cast<Index>(bytes_.size()),
              path + ": " + key + " is truncated");
    }
  }

  bool has(const std::string& key) const {
    return tensors_.contains(key) || numbers_.contains(key);
  }

  bool has_text(const std::string& key) const { return texts_.contains(key); }

  const std::string& text(const std::string& key) const { return find(texts_, key); }
  double number(const std::string& key) const { return find(numbers_, key); }
  Index integer(const std::string& key) const { return static_cast<Index>(number(key)); }

  const Shape& shape(const std::string& key) const { return find(tensors_, key).shape; }

  // A tensor stored as f64 or f32.
  Vec doubles(const std::string& key) const {
    const Entry& entry = find(tensors_, key);
    require(entry.dtype != "i32", path_ + ": " + key + " contains integers");
    return entry.dtype == "f64" ? values<double, double>(entry) : values<float, double>(entry);
  }

  // A tensor stored as i32.
  Ints ints(const std::string& key) const {
    const Entry& entry = find(tensors_, key);
    require(entry.dtype == "i32", path_ + ": " + key + " contains no integers");
    return values<std::int32_t, int>(entry);
  }

  Config config() const {
    Config config{integer("T_max"), integer("V"), integer("L"), integer("NH"), integer("C")};
    if (has_text("activation")) config.activation = activation_named(text("activation"));
    if (has("inner")) config.inner = integer("inner");
    if (has("norm_epsilon")) config.norm_epsilon = number("norm_epsilon");
    if (has("scale_attention")) config.scale_attention = integer("scale_attention") != 0;
    if (has("scale_attention_by_layer")) {
      config.scale_attention_by_layer = integer("scale_attention_by_layer") != 0;
    }
    if (has("tied_head")) config.tied_head = integer("tied_head") != 0;
    return config;
  }

  // The batch that the gradients belong to. The training fixture has several batches instead.
  Batch batch() const { return {integer("B"), integer("T"), ints("tokens"), ints("targets"), {}}; }

  // All parameters by name, exact in fp32.
  Tensors parameters() const {
    Tensors all;
    for (const Recipe& r : recipes_) {
      Vec& values = all[r.name];
      values.resize(element_count(r.shape));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = hashed_parameter(integer("seed"), r.index, i, r.amplitude, r.offset);
      }
    }
    return all;
  }

  // Names and shapes of the parameters, in the order of PyTorch's model.
  std::vector<NamedShape> shapes() const {
    std::vector<NamedShape> all;
    for (const Recipe& r : recipes_) all.push_back({r.name, r.shape});
    return all;
  }

 private:
  struct Entry {
    std::string dtype;
    Index offset = 0;  // bytes from the start of the data
    Shape shape;
  };
  struct Recipe {
    std::string name;
    std::uint64_t index = 0;
    double amplitude = 0, offset = 0;
    Shape shape;
  };

  Activation activation_named(const std::string& name) const {
    const std::map<std::string, Activation> names = {
        {"gelu", Activation::gelu},
        {"gelu_new", Activation::gelu_new},
        {"gelu_pytorch_tanh", Activation::gelu_pytorch_tanh},
        {"relu", Activation::relu}};
    return find(names, name);
  }

  static Index width(const std::string& dtype) { return dtype == "f64" ? 8 : 4; }

  static Shape read_shape(std::istream& line) {
    Shape shape;
    for (Index d; line >> d;) shape.push_back(d);
    return shape;
  }

  void read_header() {
    std::istringstream in(bytes_);
    std::string line;
    std::getline(in, line);
    require(line == "llmc-fixture 1", path_ + " is not a fixture of version 1");
    while (std::getline(in, line) && !line.starts_with("data")) {
      std::istringstream words(line);
      std::string kind;
      std::string key;
      words >> kind >> key;
      if (kind == "text") {
        std::getline(words >> std::ws, texts_[key]);
      } else if (kind == "number") {
        words >> numbers_[key];
      } else if (kind == "tensor") {
        Entry& entry = tensors_[key];
        words >> entry.dtype >> entry.offset;
        entry.shape = read_shape(words);
      } else if (kind == "parameter") {
        Recipe r{key, 0, 0, 0, {}};
        words >> r.index >> r.amplitude >> r.offset;
        r.shape = read_shape(words);
        recipes_.push_back(r);
      } else {
        fail(path_ + ": unknown line: " + line);
      }
    }
    require(line.starts_with("data"), path_ + " has no data");
    data_ = static_cast<Index>(in.tellg());
  }

  template <class Map>
  const typename Map::mapped_type& find(const Map& map, const std::string& key) const {
    const auto entry = map.find(key);
    require(entry != map.end(), path_ + " has no '" + key + "'");
    return entry->second;
  }

  template <class Stored, class Result>
  std::vector<Result> values(const Entry& entry) const {
    std::vector<Stored> raw(element_count(entry.shape));
    std::memcpy(raw.data(), bytes_.data() + data_ + entry.offset, raw.size() * sizeof(Stored));
    return {raw.begin(), raw.end()};
  }

  std::string path_, bytes_;
  Index data_ = 0;
  std::map<std::string, std::string> texts_;
  std::map<std::string, double> numbers_;
  std::map<std::string, Entry> tensors_;
  std::vector<Recipe> recipes_;
};

// The folder of the fixtures in the source tree.
inline std::string fixtures_dir() {
  return llmc_test::root_dir() + "/test/oracle/fixtures";
}

// The fixture of a case: "odd", "wide_vocab", "head64", "one_row", "adamw50".
inline Fixture load_fixture(const std::string& name) {
  return Fixture(fixtures_dir() + "/" + name + ".fixture");
}

}  // namespace llmc::oracle

#include "llmc/pipeline/page.h"

#include <algorithm>
#include <cstddef>

#include "llmc/base/number_text.h"
#include "llmc/pipeline/schedule.h"

namespace llmc {

namespace {

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// Sizes of the picture in pixels.
constexpr double kWidth = 1200, kLabel = 70, kRow = 28, kBox = 24;

// A color between a light and a dark tone of the direction.
std::string color(const PipelinePass& pass, int ranks, int stages) {
  const int chunks = stages / ranks, chunk = pass.stage / ranks;
  const int depth = chunks > 1 ? 20 * chunk / (chunks - 1) : 0;
  return "hsl(" + std::string(pass.kind == PassKind::forward ? "210,70%," : "30,85%,") +
         std::to_string(75 - depth) + "%)";
}

class TimelinePicture {
 public:
  TimelinePicture(const PipelineTimeline& timeline, const std::string& unit)
      : timeline_(timeline), unit_(unit), duration_(timeline.duration()), begin_(timeline.begin()) {
    for (const auto& passes : timeline.ranks) {
      for (const TimedPass& t : passes) stages_ = std::max(stages_, t.pass.stage + 1);
    }
  }

  std::string svg() const {
    const int ranks = static_cast<int>(timeline_.ranks.size());
    std::string text = "<svg viewBox=\"0 0 " + number_text("%.0f", kLabel + kWidth) + " " +
                       number_text("%.0f", ranks * kRow + 24) + "\" role=\"img\">\n";
    for (int rank = 0; rank < ranks; ++rank) {
      text += label(4, rank * kRow + 17, "rank " + std::to_string(rank));
      for (const TimedPass& t : timeline_.ranks[static_cast<std::size_t>(rank)])
        text += box(t, rank * kRow, ranks);
    }
    return text + axis(ranks * kRow) + "</svg>\n";
  }

 private:
  double x(double time) const { return kLabel + (time - begin_) / duration_ * kWidth; }

  static std::string label(double x, double y, const std::string& words) {
    return "<text x=\"" + number_text("%.1f", x) + "\" y=\"" + number_text("%.1f", y) + "\">" +
           words + "</text>\n";
  }

  std::string box(const TimedPass& t, double y, int ranks) const {
    const double left = x(t.begin), width = x(t.end) - left;
    const std::string name = t.pass.name();
    std::string text = "<rect x=\"" + number_text("%.2f", left) + "\" y=\"" +
                       number_text("%.0f", y) + "\" width=\"" + number_text("%.2f", width) +
                       "\" height=\"" + number_text("%.0f", kBox) + "\" fill=\"" +
                       color(t.pass, ranks, stages_) + "\" stroke=\"white\"><title>" + name + ": " +
                       number_text("%.2f", t.begin) + " to " + number_text("%.2f", t.end) + " " +
                       escaped(unit_) + "</title></rect>\n";
    constexpr double kLetter = 8;  // narrower boxes have no name
    if (width >= kLetter * static_cast<double>(name.size())) text += label(left + 3, y + 17, name);
    return text;
  }

  std::string axis(double y) const {
    std::string text;
    constexpr int kParts = 6;
    for (int i = 0; i <= kParts; ++i) {
      const double time = duration_ * i / kParts;
      const double left = std::min(x(begin_ + time), kLabel + kWidth - 75);
      text += label(left, y + 18,
                    number_text(duration_ < 100 ? "%.1f" : "%.0f", time) + " " + escaped(unit_));
    }
    return text;
  }

  const PipelineTimeline& timeline_;
  const std::string& unit_;
  double duration_, begin_;
  int stages_ = 1;
};

}  // namespace

std::string pipeline_page(const std::string& title, const std::vector<NamedTimeline>& timelines) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" +
      escaped(title) +
      "</title>\n<style>\n"
      "body { font: 15px sans-serif; margin: 2em; max-width: 1300px; }\n"
      "svg { width: 100%; font: 12px sans-serif; }\n"
      "</style>\n</head>\n<body>\n<h1>" +
      escaped(title) +
      "</h1>\n<p>A row per rank, a box per pass: 2F0 is the forward pass of micro-batch 0 through "
      "stage 2, 2B0 its backward pass. Later chunks are darker. The bubble is the idle time of all "
      "ranks divided by their busy time.</p>\n";
  for (const NamedTimeline& t : timelines) {
    text += "<h2>" + escaped(t.name) + "</h2>\n<p>duration " +
            number_text("%.2f", t.timeline.duration()) + " " + escaped(t.unit) + ", bubble " +
            number_text("%.1f", 100 * t.timeline.bubble()) + "%</p>\n" +
            TimelinePicture(t.timeline, t.unit).svg();
  }
  return text + "</body>\n</html>\n";
}

}  // namespace llmc

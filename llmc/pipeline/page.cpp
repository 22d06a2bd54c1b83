#include "llmc/pipeline/page.h"

#include <algorithm>
#include <cmath>
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

// Sizes of the picture in pixels. The narrowest box determines the width.
constexpr double kMinWidth = 1060, kMaxWidth = 8000, kLabel = 62, kRight = 14, kGap = 4;
constexpr double kLetter = 7.5, kNarrow = 13;  // of a name; a box for a name written upwards

// A color between a light and a dark tone of the direction.
std::string color(const PipelinePass& pass, int ranks, int stages) {
  const int chunks = stages / ranks, chunk = pass.stage / ranks;
  const int depth = chunks > 1 ? 20 * chunk / (chunks - 1) : 0;
  return "hsl(" + std::string(pass.kind == PassKind::forward ? "210,70%," : "30,85%,") +
         std::to_string(78 - depth) + "%)";
}

// The distance of about `count` labels of an axis: 1, 2 or 5 times a power of ten.
double label_distance(double duration, int count) {
  const double rough = duration / count, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

class TimelinePicture {
 public:
  TimelinePicture(const PipelineTimeline& timeline, const std::string& unit)
      : timeline_(timeline), unit_(unit), duration_(timeline.duration()), begin_(timeline.begin()) {
    double shortest = duration_;
    for (const auto& passes : timeline.ranks) {
      for (const TimedPass& t : passes) {
        stages_ = std::max(stages_, t.pass.stage + 1);
        box_ = std::max(box_, kLetter * static_cast<double>(t.pass.name().size()) + 4);
        if (t.end > t.begin) shortest = std::min(shortest, t.end - t.begin);
      }
    }
    if (duration_ > 0) width_ = std::clamp(kNarrow * duration_ / shortest, kMinWidth, kMaxWidth);
  }

  std::string svg() const {
    const int ranks = static_cast<int>(timeline_.ranks.size());
    const std::string width = number_text("%.0f", kLabel + width_ + kRight);
    const std::string height = number_text("%.0f", ranks * row() + 42);
    std::string text = "<div class=\"scroll\"><svg viewBox=\"0 0 " + width + " " + height +
                       "\" width=\"" + width + "\" height=\"" + height + "\" role=\"img\">\n";
    for (int rank = 0; rank < ranks; ++rank) {
      text += label(4, rank * row() + box_ / 2 + 4, "", "rank " + std::to_string(rank));
      for (const TimedPass& t : timeline_.ranks[static_cast<std::size_t>(rank)])
        text += box(t, rank * row(), ranks);
    }
    return text + axis(ranks * row()) + "</svg></div>\n";
  }

 private:
  double row() const { return box_ + kGap; }
  double x(double time) const { return kLabel + (time - begin_) / duration_ * width_; }

  // `attributes` of the text, such as its class.
  static std::string label(double x, double y, const std::string& attributes,
                           const std::string& words) {
    return "<text x=\"" + number_text("%.1f", x) + "\" y=\"" + number_text("%.1f", y) + "\"" +
           attributes + ">" + words + "</text>\n";
  }

  // A name that is wider than its box is written upwards.
  std::string name_label(const std::string& name, double left, double width, double y) const {
    const double center = left + width / 2, middle = y + box_ / 2;
    const std::string anchor = " class=\"pass\" text-anchor=\"middle\"";
    if (width >= kLetter * static_cast<double>(name.size()) + 2) {
      return label(center, middle + 4, anchor, name);
    }
    if (width < kNarrow - 0.5) return {};
    const std::string turn = " transform=\"rotate(-90 " + number_text("%.1f", center + 4) + " " +
                             number_text("%.1f", middle) + ")\"";
    return label(center + 4, middle, anchor + turn, name);
  }

  std::string box(const TimedPass& t, double y, int ranks) const {
    const double left = x(t.begin), width = x(t.end) - left;
    const std::string name = t.pass.name();
    return "<rect x=\"" + number_text("%.2f", left) + "\" y=\"" + number_text("%.0f", y) +
           "\" width=\"" + number_text("%.2f", width) + "\" height=\"" + number_text("%.0f", box_) +
           "\" fill=\"" + color(t.pass, ranks, stages_) + "\"><title>" + name + ": " +
           number_text("%.2f", t.begin) + " to " + number_text("%.2f", t.end) + " " +
           escaped(unit_) + "</title></rect>\n" + name_label(name, left, width, y);
  }

  std::string axis(double y) const {
    if (duration_ <= 0) return {};
    const auto line = [](double x1, double y1, double x2, double y2) {
      return "<line class=\"axis\" x1=\"" + number_text("%.1f", x1) + "\" x2=\"" +
             number_text("%.1f", x2) + "\" y1=\"" + number_text("%.1f", y1) + "\" y2=\"" +
             number_text("%.1f", y2) + "\"/>\n";
    };
    std::string text = line(kLabel, y, kLabel + width_, y);
    const double distance = label_distance(duration_, static_cast<int>(width_ / 110));
    const auto count = static_cast<int>(duration_ / distance * (1 + 1e-9));
    for (int i = 0; i <= count; ++i) {
      const double at = x(begin_ + i * distance);
      text += line(at, y, at, y + 4) +
              label(at, y + 17, " text-anchor=\"middle\"", number_text("%.6g", i * distance));
    }
    return text + label(kLabel + kMinWidth / 2, y + 34, " text-anchor=\"middle\"", escaped(unit_));
  }

  const PipelineTimeline& timeline_;
  const std::string& unit_;
  double duration_, begin_, width_ = kMinWidth;
  double box_ = 24;  // height of a box, in which the longest name fits upwards
  int stages_ = 1;
};

// The colors and cards of the page that scripts/plot writes.
constexpr const char* kStyle = R"(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1d2127; --quiet: #5d6672; --rule: #e3e6ea; --card: #fafbfc;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --ink: #e6e8eb; --quiet: #98a1ad; --rule: #2b3138; --card: #1a1e23; }
}
body { margin: 0 auto; max-width: 1200px; padding: 1.2rem; background: var(--paper);
  color: var(--ink); font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; }
figure { margin: 0 0 1rem; padding: .6rem .8rem .4rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: 8px; }
h2 { font-size: 1rem; margin: 0; }
.note { color: var(--quiet); font-size: 13.5px; margin: .2rem 0; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: 13px; color: var(--quiet); }
.swatch { display: inline-block; width: 1.1em; height: .8em; margin-right: .4em; }
.scroll { overflow-x: auto; margin-top: .4rem; }
svg { display: block; }
svg text { fill: var(--quiet); font-size: 12px; }
svg text.pass { fill: #1d2127; pointer-events: none; }
rect { stroke: var(--card); }
.axis { stroke: var(--quiet); }
)";

// The meaning of the colors.
std::string legend(const PipelineShape& shape) {
  const auto entry = [&](PassKind kind, int chunk, const std::string& name) {
    const PipelinePass pass{.stage = chunk * shape.ranks, .kind = kind};
    return "<span><i class=\"swatch\" style=\"background:" +
           color(pass, shape.ranks, shape.ranks * shape.chunks) + "\"></i>" + name + "</span>\n";
  };
  std::string text = "<div class=\"legend\">\n";
  for (const PassKind kind : {PassKind::forward, PassKind::backward}) {
    const std::string name = kind == PassKind::forward ? "forward" : "backward";
    if (shape.chunks == 1) text += entry(kind, 0, name);
    if (shape.chunks == 1) continue;
    text += entry(kind, 0, name + ", chunk 0");
    text += entry(kind, shape.chunks - 1, "chunk " + std::to_string(shape.chunks - 1));
  }
  return text + "</div>\n";
}

}  // namespace

std::string pipeline_page(const std::string& title, const PipelineShape& shape,
                          const std::vector<NamedTimeline>& timelines) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escaped(title) + "</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n<h1>" +
      escaped(title) +
      "</h1>\n<p class=\"note\">A row per rank, a box per pass: 2F0 is the forward pass of "
      "micro-batch 0 through stage 2, 2B0 its backward pass. A box under the pointer displays its "
      "name and times. The bubble is the idle time of all ranks divided by their busy time.</p>\n";
  for (const NamedTimeline& t : timelines) {
    text += "<figure>\n<h2>" + escaped(t.name) + "</h2>\n<p class=\"note\">" + "duration " +
            number_text("%.2f", t.timeline.duration()) + " " + escaped(t.unit) + ", bubble " +
            number_text("%.1f", 100 * t.timeline.bubble()) + "%</p>\n" + legend(shape) +
            TimelinePicture(t.timeline, t.unit).svg() + "</figure>\n";
  }
  return text + "</body>\n</html>\n";
}

}  // namespace llmc

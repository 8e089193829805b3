#include "cli/device_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/markup.hpp"
#include "cli/report.hpp"
#include "cli/run_shares.hpp"

namespace davit::cli {
namespace {

constexpr double kWidth = 1100;  // Of pictures, in pixels.
constexpr double kLeft = 120, kRight = 40;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr size_t kBoxesMax = 5000;

constexpr std::string_view kStyle =
    "body{font:14px sans-serif;max-width:1140px;margin:24px auto;padding:0 16px;color:#222}"
    "table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:right}"
    "th{border-bottom:1px solid #999}td:first-child,th:first-child,td.l{text-align:left}"
    "svg{background:#fafafa;border:1px solid #ddd;margin:4px 0}"
    "svg text{font:11px sans-serif}p.n{color:#666}";

// Steps of the golden angle: neighbours differ.
std::string colour(size_t index) {
  return fmt::format("hsl({},55%,62%)", index * 137 % 360);
}

std::string time_of(int64_t ps) {
  return format_time(static_cast<double>(ps) / 1000);
}

std::string svg_open(double height) {
  return fmt::format("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">\n", kWidth,
                     height);
}

std::string label(double x, double y, std::string_view text, const char* anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     text);
}

std::string box(double x, double y, double width, double height, const std::string& fill,
                std::string_view title) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\">"
      "<title>{}</title></rect>\n",
      x, y, std::max(width, 0.4), height, fill, title);
}

class Page {
 public:
  explicit Page(const DeviceReport& report) : report_(report) {
    const uint64_t runs = dvt_npu_run_count(report.npu);
    (void)dvt_npu_run(report.npu, runs - 1, &run_);
    tasks_ = tasks_of(report.npu, run_);
    run_ps_ = std::max<int64_t>(run_.end_ps - run_.begin_ps, 1);
  }

  std::string write() && {
    const std::string title = markup_text(report_.title);
    out_ = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
        "<title>{0}</title><style>{1}</style></head><body>\n<h1>{0}</h1>\n",
        title, kStyle);
    write_summary();
    write_shares();
    write_timeline();
    write_operators();
    write_roofline();
    write_memory();
    return out_ + "</body></html>\n";
  }

 private:
  void write_summary() {
    DvtNpuMemory memory{};
    dvt_npu_memory(report_.npu, &memory);
    out_ += fmt::format(
        "<p>Predicted: <b>{}</b> for a run of {}; device memory at most {} of {}.</p>\n"
        "<p class=\"n\">Virtual time of the Ascend model: calibrated on published kernel times, "
        "not "
        "measured on hardware.</p>\n",
        time_of(run_ps_), format_count(tasks_.size(), "task"), format_bytes(memory.peak_bytes),
        format_bytes(memory.capacity_bytes));
  }

  void write_shares() {
    const std::vector<Share> shares = shares_of(tasks_, run_, task_gap_ps(report_.npu));
    out_ += "<h2>What bounds the run</h2>\n" + svg_open(34);
    double x = 0;
    std::string rows;
    for (size_t i = 0; i < shares.size(); ++i) {
      const Share& share = shares[i];
      const double part = static_cast<double>(share.ps) / static_cast<double>(run_ps_);
      out_ += box(x, 4, part * kWidth, 26, colour(i),
                  fmt::format("{}: {}", share.name, format_percent(part)));
      x += part * kWidth;
      rows += fmt::format(
          "<tr><td><span style=\"color:{}\">&#9632;</span> {}</td><td>{}</td><td>{}</td>"
          "<td class=\"l\">{}</td></tr>\n",
          colour(i), share.name, time_of(share.ps), format_percent(part), share.advice);
    }
    out_ +=
        "</svg>\n<table><tr><th>share</th><th>time</th><th>%</th><th class=\"l\">less of it by"
        "</th></tr>\n" +
        rows + "</table>\n";
  }

  [[nodiscard]] double x_of(int64_t ps) const {
    return kLeft + kPlot * static_cast<double>(ps - run_.begin_ps) / static_cast<double>(run_ps_);
  }

  // One row a stream. Tasks that are too small to be seen side by side become one box.
  void write_timeline() {
    std::map<uint32_t, std::vector<const DvtNpuTask*>> streams;
    for (const DvtNpuTask& task : tasks_) streams[task.stream].push_back(&task);
    constexpr double kRow = 26;
    const double height = kRow * static_cast<double>(streams.size()) + 30;
    out_ += "<h2>Timeline</h2>\n" + svg_open(height);
    const double smallest =
        std::max(0.5, kPlot / static_cast<double>(kBoxesMax) * static_cast<double>(streams.size()));
    double y = 4;
    for (const auto& [stream, tasks] : streams) {
      out_ += label(8, y + 16, fmt::format("stream {}", stream));
      for (size_t i = 0; i < tasks.size();) i = draw_tasks(tasks, i, y, smallest);
      y += kRow;
    }
    for (int tick = 0; tick <= 10; ++tick) {
      const int64_t ps = run_ps_ * tick / 10;
      out_ += label(kLeft + kPlot * tick / 10, height - 8, time_of(ps), "middle");
    }
    out_ += "</svg>\n<p class=\"n\">Colours by operator; the names are in the tooltips.</p>\n";
  }

  size_t draw_tasks(const std::vector<const DvtNpuTask*>& tasks, size_t first, double y,
                    double smallest) {
    const double x = x_of(tasks[first]->start_ps);
    size_t next = first + 1;
    int64_t end_ps = tasks[first]->end_ps;
    while (next < tasks.size() && x_of(tasks[next]->end_ps) < x + smallest) {
      end_ps = std::max(end_ps, tasks[next++]->end_ps);
    }
    const DvtNpuTask& task = *tasks[first];
    const std::string title =
        next - first > 1 ? format_count(next - first, "task")
                         : fmt::format("{}: {}, {}", markup_text(task.name), markup_text(task.op),
                                       time_of(task.end_ps - task.start_ps));
    out_ += box(x, y, x_of(end_ps) - x, 22, colour(colour_of(task.op)), title);
    return next;
  }

  size_t colour_of(const char* op) {
    return colours_.try_emplace(op, colours_.size()).first->second;
  }

  void write_operators() {
    std::vector<DvtNpuOperator> rows(
        dvt_npu_operators(report_.npu, run_.first_task, run_.task_count, nullptr, 0));
    (void)dvt_npu_operators(report_.npu, run_.first_task, run_.task_count, rows.data(),
                            rows.size());
    out_ +=
        "<h2>Operators</h2>\n<table><tr><th>operator</th><th>task type</th><th>tasks</th>"
        "<th>total</th><th>%</th><th>average</th></tr>\n";
    for (size_t i = 0; i < std::min(rows.size(), report_.top); ++i) {
      const DvtNpuOperator& row = rows[i];
      out_ += fmt::format(
          "<tr><td><span style=\"color:{}\">&#9632;</span> {}</td><td "
          "class=\"l\">{}</td><td>{}</td>"
          "<td>{}</td><td>{}</td><td>{}</td></tr>\n",
          colour(colour_of(row.op)), markup_text(row.op), dvt_npu_task_type_name(row.type),
          row.count, time_of(row.total_ps), format_percent(row.share_ppm / 1e6),
          time_of(row.total_ps / static_cast<int64_t>(row.count)));
    }
    out_ += "</table>\n";
    if (rows.size() > report_.top) {
      out_ += fmt::format("<p class=\"n\">... {} more (--top)</p>\n", rows.size() - report_.top);
    }
  }

  struct Point {
    const DvtNpuTask* task;
    double intensity, rate;  // Operations per byte of HBM traffic, and per second.
  };

  // Operations of each node that has a cost, by its name.
  [[nodiscard]] std::unordered_map<std::string_view, double> operations() const {
    std::unordered_map<std::string_view, double> found;
    for (const exec::GraphView& graph : report_.image->graphs) {
      for (uint32_t node = 0; node < graph.node_count; ++node) {
        const uint32_t at = graph.cost_of(node);
        if (at == exec::kNone) continue;
        const DvtTaskCost& cost = report_.image->costs[at];
        const double products = 2.0 * static_cast<double>(cost.batch) *
                                static_cast<double>(cost.m) * static_cast<double>(cost.n) *
                                static_cast<double>(cost.k);
        const double passes = static_cast<double>(cost.vector_elements) *
                              static_cast<double>(cost.vector_passes_x100) / 100;
        found.try_emplace(report_.image->strings[graph.origin_of(node)], products + passes);
      }
    }
    return found;
  }

  [[nodiscard]] std::vector<Point> roofline_points() const {
    const auto found = operations();
    std::vector<Point> points;
    for (const DvtNpuTask& task : tasks_) {
      const auto at = found.find(task.name);
      if (at == found.end() || at->second <= 0 || task.hbm_bytes == 0) continue;
      points.push_back({&task, at->second / static_cast<double>(task.hbm_bytes),
                        at->second / (static_cast<double>(task.end_ps - task.start_ps) / 1e12)});
    }
    return points;
  }

  void write_roofline() {
    const std::vector<Point> points = roofline_points();
    out_ += "<h2>Roofline</h2>\n";
    if (points.empty()) {
      out_ += "<p>No task has operations and HBM traffic.</p>\n";
      return;
    }
    // 16 x 16 x k multiplications and additions a cycle and core.
    const double clock = npu_parameter(report_.npu, "core.clock") * 1e6;
    const double peak = npu_parameter(report_.npu, "core.aic") * 256 *
                        npu_parameter(report_.npu, "cube.k_f16") * 2 * clock;
    const double bandwidth = npu_parameter(report_.npu, "hbm.bandwidth") * 1e9;
    constexpr double kHeight = 380, kBottom = 40, kTop = 12;
    constexpr double kDecadesX = 6, kDecadesY = 6;  // 0.01 to 10^4; peak / 10^5.8 upwards.
    const double y_top = std::log10(peak) + 0.2;
    const auto x = [&](double intensity) {
      return kLeft + kPlot * std::clamp((std::log10(intensity) + 2) / kDecadesX, 0.0, 1.0);
    };
    const auto y = [&](double rate) {
      const double part = std::clamp((y_top - std::log10(rate)) / kDecadesY, 0.0, 1.0);
      return kTop + (kHeight - kTop - kBottom) * part;
    };
    out_ += svg_open(kHeight);
    const double ridge = peak / bandwidth;
    out_ += fmt::format(
        "<polyline points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"none\" "
        "stroke=\"#333\"/>\n",
        x(0.01), y(0.01 * bandwidth), x(ridge), y(peak), x(1e4), y(peak));
    out_ += label(x(1e4), y(peak) - 4, fmt::format("fp16 cube peak {:.0f} TFLOP/s", peak / 1e12),
                  "end");
    out_ +=
        label(x(0.02), y(0.02 * bandwidth) - 8, fmt::format("HBM {:.0f} GB/s", bandwidth / 1e9));
    for (int decade = -2; decade <= 4; ++decade) {
      out_ += label(x(std::pow(10, decade)), kHeight - 22,
                    fmt::format("{:g}", std::pow(10, decade)), "middle");
    }
    const auto highest = static_cast<int>(std::floor(std::log10(peak)));
    for (int decade = highest - 5; decade <= highest; ++decade) {
      const double rate = std::pow(10, decade);
      out_ += label(kLeft - 6, y(rate) + 4, fmt::format("{:g} TFLOP/s", rate / 1e12), "end");
    }
    out_ += label(kLeft + kPlot / 2, kHeight - 6, "operations per byte of HBM traffic", "middle");
    const size_t drawn = std::min(points.size(), kBoxesMax);
    for (size_t i = 0; i < drawn; ++i) {
      const Point& point = points[i];
      out_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" fill-opacity=\"0.7\"><title>{}: "
          "{:.3g} TFLOP/s</title></circle>\n",
          x(point.intensity), y(point.rate), colour(colour_of(point.task->op)),
          markup_text(point.task->name), point.rate / 1e12);
    }
    out_ += "</svg>\n";
  }

  void write_memory() {
    out_ += "<h2>Memory</h2>\n";
    if (report_.live_bytes.empty()) {
      out_ += "<p>Nothing is allocated while the graph runs.</p>\n";
      return;
    }
    const uint64_t peak = std::max<uint64_t>(
        *std::max_element(report_.live_bytes.begin(), report_.live_bytes.end()), 1);
    constexpr double kHeight = 220, kBottom = 24, kTop = 10;
    out_ += svg_open(kHeight);
    std::string line;
    const size_t count = report_.live_bytes.size();
    const size_t stride = (count + kBoxesMax - 1) / kBoxesMax;
    const auto last = static_cast<double>(std::max<size_t>(count - 1, 1));
    for (size_t i = 0; i < count; i += stride) {
      uint64_t most = 0;  // Peaks must not fall between two points.
      for (size_t k = i; k < std::min(count, i + stride); ++k) {
        most = std::max(most, report_.live_bytes[k]);
      }
      line += fmt::format(
          "{:.1f},{:.1f} ", kLeft + kPlot * static_cast<double>(i) / last,
          kHeight - kBottom -
              (kHeight - kTop - kBottom) * static_cast<double>(most) / static_cast<double>(peak));
    }
    out_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#346\"/>\n", line);
    out_ += label(kLeft - 6, kTop + 10, format_bytes(peak), "end");
    out_ += label(kLeft - 6, kHeight - kBottom, "0", "end");
    out_ += label(kLeft + kPlot / 2, kHeight - 6,
                  "live bytes after each node, in the order of the host", "middle");
    out_ += "</svg>\n";
  }

  const DeviceReport& report_;
  DvtNpuRun run_{};
  std::vector<DvtNpuTask> tasks_;
  int64_t run_ps_ = 1;
  std::unordered_map<std::string_view, size_t> colours_;
  std::string out_;
};

}  // namespace

std::string device_report_html(const DeviceReport& report) {
  return Page(report).write();
}

}  // namespace davit::cli

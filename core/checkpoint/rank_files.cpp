// The files of several ranks as the source of weights: finds the parts of each tensor and checks that they
// cover it. Members of WeightSource.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <tuple>

#include "core/base/text.hpp"
#include "core/checkpoint/safetensors.hpp"
#include "core/checkpoint/tensor_parts_file.hpp"

namespace trainhost::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBounce = 16384;  // elements

std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t> place_of(const TensorPart& p) {
  return {p.first_row, p.first_col, p.part_rows, p.part_cols};
}

/// Whether the parts, sorted by place and first element, have every element of the tensor once.
bool cover(const std::vector<WeightSource::Part>& parts) {
  const TensorPart& first = parts.front().at;
  bool by_rows = first.part_cols == first.cols;
  std::uint64_t next_row = 0, next_col = 0;
  for (std::size_t i = 0; i < parts.size();) {
    const TensorPart& p = parts[i].at;
    // Whole rows, or whole columns, one after the other.
    if (by_rows ? p.part_cols != p.cols || p.first_row != next_row
                : p.part_rows != p.rows || p.first_col != next_col)
      return false;
    next_row += p.part_rows, next_col += p.part_cols;
    std::uint64_t elements = 0;
    for (; i < parts.size() && place_of(parts[i].at) == place_of(p); ++i) {
      if (parts[i].first != elements) return false;
      elements += parts[i].count;
    }
    if (elements != p.elements()) return false;
  }
  return by_rows ? next_row == first.rows : next_col == first.cols;
}

}  // namespace

void WeightSource::open_rank_files(const std::vector<fs::path>& files) {
  std::map<std::string, std::vector<Part>> parts;
  std::map<std::string, std::uint32_t> dimensions;
  for (std::size_t f = 0; f < files.size(); ++f) {
    const SafetensorsFile& file = files_.emplace_back(files[f]);
    for (std::size_t i = 0; i < file.tensors().size(); ++i) {
      const TensorEntry& e = file.tensors()[i];
      const auto text = file.metadata().find(e.name);
      const std::optional<StoredPart> p =
          text == file.metadata().end() ? std::nullopt : parse_stored_part(text->second);
      if (!p || e.dtype != "F32" || e.shape.size() != 1 || e.shape[0] > p->part.elements() - p->first)
        throw usage_error(fmt::format("{}: the metadata do not say where '{}' is in its tensor",
                                      escaped(files[f].string(), 4096), escaped(e.name)));
      std::vector<Part>& all = parts[e.name];
      if (!all.empty() &&
          (all[0].at.rows != p->part.rows || all[0].at.cols != p->part.cols || dimensions[e.name] != p->rank))
        throw usage_error(fmt::format("{}: '{}' has another shape than in {}",
                                      escaped(files[f].string(), 4096), escaped(e.name),
                                      escaped(files_[all[0].file].path().string(), 4096)));
      dimensions[e.name] = p->rank;
      all.push_back({f, i, p->part, p->first, e.shape[0]});
    }
  }
  for (auto& [name, all] : parts) {
    std::ranges::sort(all, {},
                      [](const Part& p) { return std::tuple_cat(place_of(p.at), std::tuple(p.first)); });
    if (!cover(all))
      throw usage_error(fmt::format("{}: the files of the {} ranks do not have every element of '{}' once",
                                    escaped(source_.string(), 4096), files.size(), escaped(name)));
    TensorEntry whole;
    whole.name = name, whole.dtype = "F32";
    const std::uint64_t rows = all[0].at.rows, cols = all[0].at.cols;
    if (dimensions[name] == 2)
      whole.shape = {rows, cols};
    else
      whole.shape = {rows * cols};
    locations_.emplace(name, Location{kParts, in_parts_.size()});
    in_parts_.push_back({std::move(whole), std::move(all)});
  }
}

/// Elements [first, first + out.size()) of a tensor whose parts are in several files.
void WeightSource::read_parts(const InParts& tensor, std::uint64_t first, std::span<float> out) {
  for (const Part& p : tensor.parts) {
    const TensorPart& part = p.at;
    const std::uint64_t begin = std::max(part.elements_before(first), p.first),
                        end = std::min(part.elements_before(first + out.size()), p.first + p.count);
    const SafetensorsFile& file = files_[p.file];
    const TensorEntry& e = file.tensors()[p.entry];
    // A part of whole rows is contiguous in the tensor.
    const bool contiguous = part.part_cols == part.cols;
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t n = contiguous ? end - at : std::min<std::uint64_t>(kBounce, end - at);
      if (contiguous) {
        const std::uint64_t whole = part.first_row * part.cols + at;
        file.read(e, (at - p.first) * sizeof(float), std::as_writable_bytes(out.subspan(whole - first, n)));
      } else {
        bounce_.resize(kBounce);
        const std::span<float> piece = std::span(bounce_).first(n);
        file.read(e, (at - p.first) * sizeof(float), std::as_writable_bytes(piece));
        part.for_runs(at, n, [&](std::uint64_t i, std::uint64_t whole, std::uint64_t run) {
          std::ranges::copy(piece.subspan(i - at, run),
                            out.begin() + static_cast<std::ptrdiff_t>(whole - first));
        });
      }
      at += n;
    }
  }
}

}  // namespace trainhost::checkpoint

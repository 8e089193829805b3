#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <type_traits>

#include "cli/numbers.hpp"

namespace davit::cli {

namespace {

namespace fs = std::filesystem;

// The path in [NAME=]@PATH; nothing for another form.
std::optional<std::string> path_in(const std::string& form) {
  if (form.starts_with("@")) return form.substr(1);
  const size_t at = form.find("=@");
  return at == std::string::npos ? std::nullopt : std::optional(form.substr(at + 2));
}

// What test sets are read from.
std::vector<std::string> tensor_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  const auto add_from = [&](const fs::path& from) {
    for (fs::directory_iterator it(from, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() == ".pb") files.push_back(it->path().string());
    }
  };
  add_from(folder);
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored)) add_from(it->path());
  }
  return files;
}

// Absolute, without links, dots and a slash at the end; `path` itself where that cannot be told.
fs::path normal_path(const std::string& path) {
  std::error_code error;
  fs::path normal = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) return path;
  return normal.has_filename() ? normal : normal.parent_path();
}

// Whether `path` may be what a command that fills `folder` names a file of its own.
bool is_named_in(const std::string& folder, const std::string& path) {
  const fs::path file = normal_path(path);
  if (file.parent_path() != normal_path(folder)) return false;
  const std::string name = file.filename().string();
  const bool is_numbered = !name.empty() && name.front() >= '0' && name.front() <= '9' &&
                           (name.ends_with(".npy") || name.ends_with(".txt"));
  return is_numbered || name == "values.json";
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  return !fs::exists(a, error) && !fs::exists(b, error) && normal_path(a) == normal_path(b);
}

template <class T>
std::string out_of_bounds(const std::string& text, const char* kind, Bounds<T> bounds) {
  // Enough digits that no bound turns into a power of ten.
  std::string range = std::is_floating_point_v<T> ? fmt::format("from {:.15g}", double(bounds.min))
                                                  : fmt::format("from {}", bounds.min);
  if (bounds.max != std::numeric_limits<T>::infinity() || !std::is_floating_point_v<T>) {
    range += std::is_floating_point_v<T> ? fmt::format(" to {:.15g}", double(bounds.max))
                                         : fmt::format(" to {}", bounds.max);
  }
  return fmt::format("'{}' is not a {} {}", text, kind, range);
}

// Without a check of our own, CLI11 lets "-3" and "99999999999999999999" wrap around. No
// description: it would be noise in --help.
template <class T, class Parse>
CLI::Validator bounded(const char* kind, Bounds<T> bounds, Parse parse) {
  return {[=](std::string& text) {
            const std::optional<T> value = parse(text);
            const bool inside = value && *value >= bounds.min && *value <= bounds.max;
            return inside ? std::string() : out_of_bounds(text, kind, bounds);
          },
          ""};
}

// No option has a use for an empty value: a script's variable was not set.
CLI::Validator not_empty() {
  return {[](std::string& text) {
            return text.empty() ? std::string("it needs a value") : std::string();
          },
          ""};
}

}  // namespace

void OptionSet::add(const std::string& flags, std::string& target, const std::string& help,
                    const std::string& why, FileUse use) {
  CLI::Option* option = app_.add_option(flags, target, help);
  option->check(not_empty());
  Entry& entry = remember(
      option, [&target] { return target.empty() ? "-" : target; }, why);
  entry.use = use;
  entry.paths = [&target, use] {
    if (target.empty()) return std::vector<std::string>();
    return use == FileUse::kReadFolder ? tensor_files(target) : std::vector{target};
  };
}

void OptionSet::add(const std::string& flags, std::vector<std::string>& target,
                    const std::string& help, const std::string& why, FileUse use) {
  CLI::Option* option = app_.add_option(flags, target, help);
  option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  option->check(not_empty());
  Entry& entry = remember(
      option,
      [&target] { return target.empty() ? "-" : fmt::format("{}", fmt::join(target, " ")); }, why);
  entry.use = use;
  entry.paths = [&target, use] {
    if (use == FileUse::kReadPaths) return target;
    std::vector<std::string> paths;
    for (const std::string& form : target) {
      if (auto path = path_in(form)) paths.push_back(std::move(*path));
    }
    return paths;
  };
}

void OptionSet::add(const std::string& flags, double& target, Bounds<double> bounds,
                    const std::string& help, const std::string& why) {
  CLI::Option* option = app_.add_option(flags, target, help);
  option->check(bounded("number", bounds, parse_real));
  remember(
      option, [&target] { return fmt::format("{}", target); }, why);
}

void OptionSet::add(const std::string& flags, uint64_t& target, Bounds<uint64_t> bounds,
                    const std::string& help, const std::string& why) {
  CLI::Option* option = app_.add_option(flags, target, help);
  option->check(bounded("whole number", bounds, parse_unsigned));
  remember(
      option, [&target] { return fmt::format("{}", target); }, why);
}

void OptionSet::add(const std::string& flags, bool& target, const std::string& help,
                    const std::string& why) {
  remember(
      app_.add_flag(flags, target, help), [&target] { return std::string(target ? "on" : "off"); },
      why);
}

OptionSet::Entry& OptionSet::remember(CLI::Option* option, std::function<std::string()> value,
                                      const std::string& why) {
  const std::string name = option->get_lnames().empty() ? option->get_name(/*positional=*/true)
                                                        : "--" + option->get_lnames().front();
  option->group(group_);
  const std::string text = value();
  const bool shown = !text.empty() && text != "-" && text != "off";
  if (shown) option->description(fmt::format("{} [{}]", option->get_description(), text));
  return entries_.emplace_back(Entry{.option = option,
                                     .group = group_,
                                     .name = name,
                                     .value = std::move(value),
                                     .why = why,
                                     .resolved = "",
                                     .paths = {}});
}

const OptionSet::Entry* OptionSet::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

void OptionSet::resolve(std::string_view name, std::string value, std::string why) {
  for (Entry& entry : entries_) {
    if (entry.name != name || entry.option->count() > 0) continue;
    entry.resolved = std::move(value);
    entry.why = std::move(why);
    return;
  }
}

void OptionSet::hide(std::string_view group) {
  for (Entry& entry : entries_) entry.hidden = entry.hidden || entry.group == group;
}

bool OptionSet::given(std::string_view name) const {
  const Entry* entry = find(name);
  return entry != nullptr && entry->option->count() > 0;
}

std::optional<OptionSet::Conflict> OptionSet::file_conflict(
    std::span<const std::string> also_read) const {
  struct File {
    std::string option, path;
    FileUse use;
    [[nodiscard]] bool is_written() const {
      return use == FileUse::kWritten || use == FileUse::kWrittenFolder;
    }
    [[nodiscard]] bool meets(const File& other) const {
      return same_file(path, other.path) ||
             (use == FileUse::kWrittenFolder && is_named_in(path, other.path));
    }
  };
  std::vector<File> files;
  for (const Entry& entry : entries_) {
    if (entry.use == FileUse::kNone) continue;
    for (std::string& path : entry.paths()) {
      files.push_back({entry.name, std::move(path), entry.use});
    }
  }
  for (const std::string& path : also_read) {
    files.push_back({"the model's weights", path, FileUse::kRead});
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (!files[i].is_written()) continue;
    for (size_t j = 0; j < files.size(); ++j) {
      if (i == j || !files[i].meets(files[j])) continue;
      return Conflict{files[i].option, files[i].path, files[j].option, files[j].path,
                      !same_file(files[i].path, files[j].path)};
    }
  }
  return std::nullopt;
}

std::vector<Setting> OptionSet::effective() const {
  std::vector<Setting> settings;
  for (const Entry& entry : entries_) {
    if (entry.hidden) continue;
    const bool is_default = entry.option->count() == 0;
    settings.push_back({entry.group, entry.name,
                        is_default && !entry.resolved.empty() ? entry.resolved : entry.value(),
                        is_default, is_default ? entry.why : ""});
  }
  return settings;
}

std::vector<std::string> OptionSet::names() const {
  std::vector<std::string> names = {"--help"};
  for (const Entry& entry : entries_) {
    for (const std::string& name : entry.option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  // A third of the word may be wrong: "--outptu" is "--output", "--foo" is nothing.
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  std::string best;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= best_distance) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

std::string shell_quote(const std::string& argument) {
  constexpr std::string_view kSafe = "_@%+=:,./-";
  const bool plain =
      !argument.empty() && std::all_of(argument.begin(), argument.end(), [&](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
               kSafe.find(c) != std::string::npos;
      });
  if (plain) return argument;
  std::string quoted = "'";
  for (const char c : argument) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace davit::cli

#include "cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

namespace davit::cli {

void OptionSet::add(const std::string& flags, std::string& target, const std::string& help,
                    const std::string& why) {
  remember(
      app_.add_option(flags, target, help), [&target] { return target.empty() ? "-" : target; },
      why);
}

void OptionSet::add(const std::string& flags, std::vector<std::string>& target,
                    const std::string& help, const std::string& why) {
  CLI::Option* option = app_.add_option(flags, target, help);
  option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  remember(
      option,
      [&target] { return target.empty() ? "-" : fmt::format("{}", fmt::join(target, " ")); }, why);
}

void OptionSet::add(const std::string& flags, double& target, const std::string& help,
                    const std::string& why) {
  remember(
      app_.add_option(flags, target, help), [&target] { return fmt::format("{}", target); }, why);
}

void OptionSet::add(const std::string& flags, uint64_t& target, const std::string& help,
                    const std::string& why) {
  // Without the check, CLI11 lets "-3" wrap around.
  CLI::Validator not_negative = CLI::NonNegativeNumber;
  not_negative.description("");  // Noise in --help.
  CLI::Option* option = app_.add_option(flags, target, help)->check(not_negative);
  remember(
      option, [&target] { return fmt::format("{}", target); }, why);
}

void OptionSet::add(const std::string& flags, bool& target, const std::string& help,
                    const std::string& why) {
  remember(
      app_.add_flag(flags, target, help), [&target] { return std::string(target ? "on" : "off"); },
      why);
}

void OptionSet::remember(CLI::Option* option, std::function<std::string()> value,
                         const std::string& why) {
  const std::string name = option->get_lnames().empty() ? option->get_name(/*positional=*/true)
                                                        : "--" + option->get_lnames().front();
  option->group(group_);
  const std::string text = value();
  const bool shown = !text.empty() && text != "-" && text != "off";
  if (shown) option->description(fmt::format("{} [{}]", option->get_description(), text));
  entries_.push_back({option, group_, name, std::move(value), why, "", false});
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

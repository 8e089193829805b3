// options.hpp: the options of a sub-command, remembered with their groups and reasons, so that the
// effective ones can be shown.
//
// Threads  One thread.
// Trust    Arguments are the user's; parse errors become text, never exceptions that escape.
// Memory   An OptionSet refers to the variables its options fill; they must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace davit::cli {

// One effective option as shown to people and written to JSON.
struct Setting {
  std::string group;  // "Model", "Compile", "Run", "Device", "Report".
  std::string name;   // "--seed", or the word for a positional.
  std::string value;
  bool is_default = false;
  std::string why;  // Why the default is what it is; may be empty for given ones.
};

// What a command does with the path that an option holds. Values of a list are [NAME=]@PATH; those
// of another form hold no path.
enum class FileUse {
  kNone,
  kRead,
  kReadPaths,   // Of a list: values are paths, nothing else.
  kReadFolder,  // Its *.pb files, and those of its folders.
  kWritten,
  kWrittenFolder,  // Files that the command names: values.json, 00000.npy, 00_pass.txt.
};

// Values that an option takes, both ends included.
template <class T>
struct Bounds {
  T min, max;
};

class OptionSet {
 public:
  explicit OptionSet(CLI::App& app) : app_(app) {}

  // Options added from here on belong to `name`.
  void group(std::string name) { group_ = std::move(name); }

  // An option with one value; a repeatable one for a list; a flag for a bool. A name without dashes
  // is a positional argument. `why` explains the default. Numbers outside their bounds are an error
  // of the parser.
  void add(const std::string& flags, std::string& target, const std::string& help,
           const std::string& why, FileUse use = FileUse::kNone);
  void add(const std::string& flags, std::vector<std::string>& target, const std::string& help,
           const std::string& why, FileUse use = FileUse::kNone);
  void add(const std::string& flags, double& target, Bounds<double> bounds, const std::string& help,
           const std::string& why);
  void add(const std::string& flags, uint64_t& target, Bounds<uint64_t> bounds,
           const std::string& help, const std::string& why);
  void add(const std::string& flags, bool& target, const std::string& help, const std::string& why);

  // Replaces the shown value of an option that was left at its default by what it came to mean
  // ("workers 2: cgroup quota"). Does nothing for an option that was given.
  void resolve(std::string_view name, std::string value, std::string why);
  // Leaves the options of a group out of effective(), since they do not apply to this run.
  void hide(std::string_view group);
  // True when the option appeared on the command line.
  [[nodiscard]] bool given(std::string_view name) const;

  // A file that would be written although another option reads or writes it, under whatever
  // spelling; `also_read` are files that the model refers to. To be asked before anything is
  // written.
  struct Conflict {
    std::string written, written_path;  // Option and path.
    std::string other, other_path;
    bool is_in_folder;  // The other is a file in the folder that is written.
  };
  [[nodiscard]] std::optional<Conflict> file_conflict(
      std::span<const std::string> also_read = {}) const;

  [[nodiscard]] std::vector<Setting> effective() const;
  // "--seed", "--json", ...: every name that parses.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  struct Entry {
    CLI::Option* option;
    std::string group;
    std::string name;
    std::function<std::string()> value;
    std::string why;
    std::string resolved;
    bool hidden = false;
    FileUse use = FileUse::kNone;
    std::function<std::vector<std::string>()> paths;  // As given; empty without a use.
  };
  Entry& remember(CLI::Option* option, std::function<std::string()> value, const std::string& why);
  [[nodiscard]] const Entry* find(std::string_view name) const;

  CLI::App& app_;
  std::string group_;
  std::vector<Entry> entries_;
};

// Edits (insert, delete, replace, swap of neighbours) between two words.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, or "" when none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// As typed in a shell: quoted where needed.
std::string shell_quote(const std::string& argument);

}  // namespace davit::cli

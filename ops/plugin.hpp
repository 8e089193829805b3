// plugin.hpp: the operators of plug-ins (davit/plugin.h), as definitions.
//
// Threads  Constant once built.
// Trust    Records have passed dvt_plugin_check(); nodes are the model's, as in definition.hpp.
// Memory   Refers to the plug-ins, which are never unloaded. Modules refer to a PluginOperators
//          (ir::Module::plugin_operators): it must outlive them.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "davit/plugin.h"
#include "ops/definition.hpp"

namespace davit::ops {

class PluginOperators {
 public:
  // Two definitions of one operator for one version are an error that names both plug-ins'
  // operator.
  static Result<std::shared_ptr<PluginOperators>> create(std::span<const DvtPlugin* const> plugins);

  // Kernels that were generated for a module, which its operators name (ops/defs/generated.cpp).
  void add_kernels(const DvtKernelTable& table) { tables_.push_back(table); }

  // nullptr: no plug-in has it.
  [[nodiscard]] const OperatorDefinition* find(std::string_view domain, std::string_view name,
                                               int64_t version) const;
  // The record behind a definition that find() gave.
  [[nodiscard]] const DvtPluginOperator* record(std::string_view domain, std::string_view name,
                                                int64_t version) const;
  // "<base>.<dtype>", else "<base>", or nullptr.
  [[nodiscard]] const DvtKernel* find_kernel(std::string_view base, DvtDType dtype) const;
  // nullptr: the kernel is not given as source.
  [[nodiscard]] const DvtPluginSource* find_source(std::string_view kernel) const;
  [[nodiscard]] bool has_sources() const { return !sources_.empty(); }
  [[nodiscard]] std::span<const DvtKernelTable> kernel_tables() const { return tables_; }

 private:
  struct Entry {
    OperatorDefinition definition;
    const DvtPluginOperator* record;
  };
  [[nodiscard]] const Entry* entry(std::string_view domain, std::string_view name,
                                   int64_t version) const;

  std::vector<Entry> entries_;
  std::vector<DvtKernelTable> tables_;
  std::vector<const DvtPluginSource*> sources_;
};

}  // namespace davit::ops

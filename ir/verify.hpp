// verify.hpp: the structural rules of a Module.
//
// Threads  Pure.
// Trust    Importers run it on what they made of an untrusted file; the pass runner runs it after
//          every pass. It asks only that the columns of the Module have equal lengths, which its
//          methods see to.
// Memory   O(nodes + values) scratch.
#pragma once

#include "base/status.hpp"
#include "ir/module.hpp"

namespace davit::ir {

// Holds after OK:
//  V1  every handle in a live graph names a live object, and parents come before their subgraphs;
//  V2  a live value has exactly one definition: graph input, one node output, or constant;
//  V3  uses() lists exactly the operands that read the value;
//  V4  an operand or graph output is defined in its graph or in one that encloses it;
//  V5  names of values are not empty and unique within their graph;
//  V6  each subgraph is named by exactly one attribute, of its owner;
//  V7  constants have as many bytes, or strings, as their dims say, and dtype and shape agree;
//  V8  dependencies and control edges form no cycle, and control edges stay in one graph.
// The order of nodes is not checked: sort() gives it.
// An error names the node or value and the graph's path.
Status verify(const Module& module);

}  // namespace davit::ir

// fuse_epilogues: the fused kernels give the bits of the operators one after the other.
#include <doctest/doctest.h>

#include "tests/ir/passes/support.hpp"

using namespace davit;
using testing::check_untouched;
using testing::parse_graph;
using testing::Tensors;

namespace {

// Fuses, and compares bit for bit. Returns what the steps of the only fused node are.
std::string fused(const std::string& body, size_t nodes_left = 1, int64_t opset = 13) {
  CAPTURE(body);
  const ir::Module before = parse_graph(body, opset);
  ir::Module after = before;
  passes::SimplifyOptions options;
  options.only = {"fuse_epilogues"};
  const auto report = passes::simplify(after, options);
  REQUIRE_MESSAGE(report.ok(), report.status().to_string());
  CHECK(after.graph_nodes(ir::kMainGraph).size() == nodes_left);
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const Tensors inputs = testing::random_inputs(before, seed, seed % 2 == 1);
    const auto wanted = testing::evaluate_graph(before, inputs);
    const auto got = testing::evaluate_graph(after, inputs);
    REQUIRE_MESSAGE(wanted.ok(), wanted.status().to_string());
    REQUIRE_MESSAGE(got.ok(), got.status().to_string());
    const Status same = testing::compare_outputs(*wanted, *got, 0);
    CHECK_MESSAGE(same.ok(), same.to_string());
  }
  for (const ir::NodeId node : after.graph_nodes(ir::kMainGraph)) {
    const ir::AttributeValue* steps = after.attribute(node, "steps");
    if (steps == nullptr) continue;
    std::string text = after.node_path(node) + " " + std::string(after.op(node)) + ":";
    for (const std::string& step : std::get<std::vector<std::string>>(*steps)) text += " " + step;
    return text;
  }
  return "";
}

std::string reason(const std::string& body) {
  const passes::Refusals refusals = check_untouched("fuse_epilogues", body);
  return refusals.empty() ? "" : refusals[0].node + ": " + refusals[0].reason;
}

constexpr const char* kConv =
    "input %x: f32[2, 3, 5, 7] input %w: f32[4, 3, 3, 3] (%p) = Conv \"conv\" (%x, %w) ";
constexpr const char* kMatMul =
    "input %x: f32[2, 3, 5] input %w: f32[5, 4] (%p) = MatMul \"product\" (%x, %w) ";

}  // namespace

TEST_CASE("activations") {
  for (const char* op : {"Relu", "HardSigmoid", "LeakyRelu", "Elu", "HardSwish", "Sigmoid", "Tanh",
                         "Erf", "Exp", "Neg", "Abs", "Sqrt", "Softplus"}) {
    CHECK(fused(std::string(kConv) + "(%y) = " + op + " \"act\" (%p) output (%y)", 1, 14) ==
          std::string("conv+act FusedConv: ") + op);
  }
  const std::string clip =
      std::string(kConv) + "const %a: f32[] = {-0.5} const %b: f32[] = {0.25} ";
  CHECK(fused(clip + "(%y) = Clip \"c\" (%p, %a, %b) output (%y)") == "conv+c FusedConv: Clip");
  CHECK(fused(clip + "(%y) = Clip \"c\" (%p, _, %b) output (%y)") == "conv+c FusedConv: Clip");
  CHECK(fused(clip + "(%y) = Clip \"c\" (%p) output (%y)") == "conv+c FusedConv: Clip");
  CHECK(fused(std::string(kConv) + "(%y) = Clip \"c\" (%p) { max = float 0.5 } output (%y)", 1,
              10) == "conv+c FusedConv: Clip");
  CHECK(fused(std::string(kConv) +
              "(%y) = davit::Gelu \"g\" (%p) { approximate = string \"tanh\" } output (%y)") ==
        "conv+g FusedConv: Gelu");
}

TEST_CASE("every product, every float type") {
  for (const std::string t : {"f32", "f64", "f16", "bf16"}) {
    const std::string end = "(%a) = Add \"add\" (%p, %o) (%y) = Sigmoid \"act\" (%a) output (%y)";
    CHECK(fused("input %x: " + t + "[1, 4, 6] input %w: " + t + "[4, 2, 2] input %b: " + t +
                "[4] input %o: " + t + "[4, 1] (%p) = Conv \"p\" (%x, %w, %b) { group = int 2 } " +
                end) == "p+add+act FusedConv: Add Sigmoid");
    CHECK(fused("input %x: " + t + "[1, 4, 3] input %w: " + t + "[4, 2, 2] input %o: " + t +
                "[1, 2, 6] (%p) = ConvTranspose \"p\" (%x, %w) { strides = ints [2] } " + end) ==
          "p+add+act FusedConvTranspose: Add Sigmoid");
    CHECK(fused("input %x: " + t + "[2, 3, 4] input %w: " + t + "[4, 5] input %o: " + t +
                "[5] (%p) = MatMul \"p\" (%x, %w) " + end) == "p+add+act FusedMatMul: Add Sigmoid");
    CHECK(fused("input %x: " + t + "[3, 4] input %w: " + t + "[5, 4] input %c: " + t +
                "[3, 1] input %o: " + t +
                "[] (%p) = Gemm \"p\" (%x, %w, %c) { transB = int 1 "
                "alpha = float 0.5 } " +
                end) == "p+add+act FusedGemm: Add Sigmoid");
    CHECK(fused("input %x: " + t + "[3, 4] input %w: " + t + "[4, 5] input %o: " + t +
                "[3, 5] (%p) = Gemm \"p\" (%x, %w) " + end) == "p+add+act FusedGemm: Add Sigmoid");
  }
}

TEST_CASE("operands broadcast in every way") {
  for (const char* shape : {"", "1", "5", "5, 1", "4, 1, 1", "4, 3, 5", "1, 4, 3, 5", "2, 1, 1, 1",
                            "2, 4, 3, 5", "2, 1, 3, 1", "2, 4, 1, 5"}) {
    for (const char* node :
         {"Add \"n\" (%p, %o)", "Add \"n\" (%o, %p)", "Sub \"n\" (%p, %o)", "Sub \"n\" (%o, %p)",
          "Mul \"n\" (%p, %o)", "Div \"n\" (%p, %o)", "Max \"n\" (%p, %o)", "Min \"n\" (%p, %o)"}) {
      if (std::string(shape).rfind("5, 1", 0) == 0) continue;
      const std::string body =
          std::string(kConv) + "input %o: f32[" + shape + "] (%y) = " + node + " output (%y)";
      CHECK(fused(body).rfind("conv+n FusedConv: ", 0) == 0);
    }
  }
  // Rows longer than a block of the kernel.
  CHECK(fused("input %x: f32[1, 1, 700] input %w: f32[3, 1, 1] input %o: f32[3, 1] "
              "input %q: f32[1, 1, 700] (%p) = Conv \"conv\" (%x, %w) (%a) = Mul \"m\" (%p, %o) "
              "(%y) = Add \"a\" (%a, %q) output (%y)") == "conv+m+a FusedConv: Mul Add");
}

TEST_CASE("values of the chain are operands of later steps") {
  CHECK(fused(std::string(kConv) +
              "(%s) = Sigmoid \"s\" (%p) (%y) = Mul \"m\" (%p, %s) output (%y)") ==
        "conv+s+m FusedConv: Sigmoid Mul");
  CHECK(fused(std::string(kConv) + "(%y) = Mul \"square\" (%p, %p) output (%y)") ==
        "conv+square FusedConv: Mul");
  // The hard swish that exporters write out.
  CHECK(fused(std::string(kConv) + R"(
    const %three: f32[] = {3} const %zero: f32[] = {0} const %six: f32[] = {6}
    (%a) = Add (%p, %three) (%c) = Clip (%a, %zero, %six) (%m) = Mul (%c, %p)
    (%y) = Div "end" (%m, %six) output (%y))") == "conv+...+end FusedConv: Add Clip Mul Div");
  // A residual that is the product itself, twice.
  CHECK(fused(std::string(kMatMul) + "(%r) = Relu \"r\" (%p) (%a) = Sub \"a\" (%p, %r) "
                                     "(%y) = Add \"b\" (%a, %r) output (%y)") ==
        "product+r+a+b FusedMatMul: Relu SubFrom Add");
}

TEST_CASE("a chain ends where an interior value would be seen") {
  // The second step needs a value that is read elsewhere: only the first is taken.
  CHECK(fused(std::string(kConv) +
                  "(%r) = Relu \"r\" (%p) (%n) = Neg \"n\" (%r) (%s) = Softmax (%r) "
                  "output (%n, %s)",
              3) == "conv+r FusedConv: Relu");
  CHECK(fused(std::string(kConv) + "(%r) = Relu \"r\" (%p) (%n) = Neg \"n\" (%r) output (%r, %n)",
              2) == "conv+r FusedConv: Relu");
  // Eight steps and no more.
  std::string chain = kConv;
  std::string last = "p";
  for (int i = 0; i < 10; ++i) {
    const std::string name = "v" + std::to_string(i);
    chain += "(%" + name + ") = " + (i % 2 == 0 ? "Neg" : "Abs") + " (%" + last + ") ";
    last = name;
  }
  CHECK(fused(chain + "output (%" + last + ")", 3) ==
        "conv+...+Abs_8 FusedConv: Neg Abs Neg Abs Neg Abs Neg Abs");
  // Three values to keep are too many: the first step alone keeps none.
  CHECK(fused(std::string(kConv) +
                  "(%a) = Sigmoid (%p) (%b) = Exp (%a) (%c) = Neg (%b) "
                  "(%d) = Mul (%c, %a) (%e) = Mul (%d, %b) (%y) = Mul (%e, %c) output (%y)",
              6) == "conv+Sigmoid_1 FusedConv: Sigmoid");
}

TEST_CASE("two products may meet in one sum") {
  CHECK(fused("input %x: f32[2, 3] input %w: f32[3, 4] input %z: f32[2, 5] input %u: f32[5, 4] "
              "(%p) = MatMul \"p\" (%x, %w) (%q) = MatMul \"q\" (%z, %u) "
              "(%s) = Add \"s\" (%p, %q) (%y) = Relu \"r\" (%s) output (%y)",
              2) == "p+s+r FusedMatMul: Add Relu");
}

TEST_CASE("what cannot be fused has a reason, or is no pattern") {
  CHECK(reason(std::string(kConv) + "(%r) = Relu (%p) output (%p, %r)") ==
        "");  // Nothing to take: the product itself is an output.
  CHECK(reason(std::string(kConv) + "(%r) = Relu (%p) (%s) = Softmax (%p) output (%r, %s)") ==
        "conv: interior value 'p' is also read elsewhere");
  CHECK(reason(std::string(kConv) + "(%s) = Softmax (%p) output (%s)") == "");
  CHECK(reason(std::string(kConv) + "input %o: f32[3, 1, 1, 1, 1] (%s) = Add (%p, %o) "
                                    "output (%s)") == "");
  CHECK(reason(std::string(kConv) + "input %o: f32[] (%s) = Div (%o, %p) output (%s)") == "");
  CHECK(reason(std::string(kConv) + "input %o: f32[?] (%s) = Add (%p, %o) output (%s)") == "");
  CHECK(reason("input %x: i32[2, 2] input %w: i32[2, 2] (%p) = MatMul (%x, %w) "
               "(%y) = Relu (%p) output (%y)") == "");
}

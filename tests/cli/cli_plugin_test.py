"""--plugin: operators, kernels and rewrites from a shared object (examples/plugin)."""

import os
import shutil
import subprocess
import sys
import unittest

import tool
from tool import davit

ACME = os.environ["DAVIT_ACME_PLUGIN"]
EXAMPLE = os.environ["DAVIT_PLUGIN_EXAMPLE"]


class PluginTest(tool.ToolTest):

    def model(self, *, window=None):
        """y = m * sigmoid(m), m the moving average of four floats."""
        nodes = [("MovingAverage", "acme", "average", ["x"], ["m"]),
                 ("Sigmoid", "", "gate", ["m"], ["s"]), ("Mul", "", "swish", ["m", "s"], ["y"])]
        extra = {} if window is None else {"average": tool.field(5, 2, window)}
        model = tool.onnx_model(nodes, [("x", 1, [4])], [("m", 1, [4]), ("y", 1, [4])], extra=extra)
        return self.path("m.onnx", model)

    def test_an_operator_of_a_plugin(self):
        model, out = self.model(), self.path("m.npy")
        for target in ("cpu", "ascend"):
            result, document = self.davit_json(
                "run", model, "--plugin", ACME, "--target", target, "--input", "4xf32=3,6,9,0",
                "--output-data", "m=@" + out)
            self.check_passed(result)
            self.assertEqual(tool.read_npy(out, "f"), [3, 4.5, 6, 5])
            swish = document["result"]["outputs"][1]
            self.assertAlmostEqual(swish["max"], 5.98516, places=4)

    def test_attributes(self):
        def attribute(name, kind, payload):
            return tool.field(1, 2, name.encode()) + tool.field(20, 0, kind) + payload
        out = self.path("m.npy")
        model = self.model(window=attribute("window", 2, tool.field(3, 0, 2)))
        self.check_passed(davit("run", model, "--plugin", ACME, "--input", "4xf32=3,6,9,0",
                                "--output-data", "m=@" + out))
        self.assertEqual(tool.read_npy(out, "f"), [3, 4.5, 7.5, 4.5])
        for bad, code, words in ((attribute("window", 2, tool.field(3, 0, 0)), 3, "window"),
                                 (attribute("width", 2, tool.field(3, 0, 2)), 4, "attribute width"),
                                 (attribute("window", 3, tool.field(4, 2, b"two")), 4, "window"),
                                 (attribute("window", 7, tool.field(8, 0, 2) + tool.field(8, 0, 3)),
                                  3, "at most 1 integers")):
            result = davit("run", self.model(window=bad), "--plugin", ACME)
            self.assertEqual(result.code, code, result.out + result.err)
            self.assertIn(words, result.out + result.err)
            self.assertIn("average", result.last)

    def test_a_rewrite_of_a_plugin(self):
        model, image = self.model(), self.path("m.davit")
        result = davit("compile", model, "-o", image, "--plugin", ACME, "--verbose")
        self.check_passed(result)
        self.assertIn("pass acme_fuse_swish", result.err)
        self.assertIn("2 in the image", result.out)
        result = davit("compile", model, "-o", image, "--plugin", ACME,
                       "--disable-pass", "acme_fuse_swish")
        self.check_passed(result)
        self.assertIn("3 in the image", result.out)
        self.check_passed(davit("compare", model, "--plugin", ACME))

    def test_a_pass_over_the_whole_graph(self):
        def window(count):
            return tool.field(5, 2, tool.field(1, 2, b"window") + tool.field(20, 0, 2) +
                              tool.field(3, 0, count))
        # The output m keeps its name, so that one there stays; the inner one goes.
        nodes = [("MovingAverage", "acme", "average", ["x"], ["m"]),
                 ("Relu", "", "relu", ["m"], ["y"])]
        for count, changes in ((1, 1), (2, 0)):
            model = self.path("whole.onnx", tool.onnx_model(
                nodes, [("x", 1, [4])], [("y", 1, [4])], extra={"average": window(count)}))
            out = self.path("y.npy")
            result, document = self.davit_json("run", model, "--plugin", ACME, "--input",
                                               "4xf32=-1,2,4,6", "--output-data", "y=@" + out)
            self.check_passed(result)
            passes = document["result"]["compile"]["passes"]
            self.assertEqual(passes.get("acme_drop_averages", 0), changes)
            self.assertEqual(tool.read_npy(out, "f"), [0, 2, 4, 6] if count == 1 else [0, 0.5, 3, 5])
            result = davit("run", model, "--plugin", ACME, "--disable-pass", "acme_drop_averages")
            self.check_passed(result)

    def test_a_kernel_as_source_goes_into_the_image(self):
        model = self.path("source.onnx", tool.onnx_model(
            [("Swish", "acme", "swish", ["x"], ["y"])], [("x", 1, [4])], [("y", 1, [4])]))
        image, out = self.path("source.davit"), self.path("y.npy")
        self.check_passed(davit("compile", model, "-o", image, "--plugin", ACME, "--isa", "baseline",
                                "--no-cache"))
        # Without the plug-in.
        self.check_passed(davit("run", image, "--input", "4xf32=0,1,2,-1", "--output-data",
                                "y=@" + out))
        got = tool.read_npy(out, "f")
        for value, expected in zip(got, [0, 0.7310586, 1.7615942, -0.2689414]):
            self.assertAlmostEqual(value, expected, places=5)

    def test_source_with_names_of_its_own_for_several_shapes(self):
        # Two kernels with a helper, a constant and a macro of one name, each for two shapes.
        text = ('#define SCALE {scale}\\n'
                'enum {{ OFFSET = {offset} }};\\n'
                'static float helper(float x) {{ return SCALE * x + OFFSET; }}\\n'
                'DvtCode {name}(void* context) {{\\n'
                '  const DvtContext* ctx = context;\\n'
                '  const uint64_t count = dvt_input(ctx, 0)->tensor->bytes / sizeof(float);\\n'
                '  const float* x = dvt_input(ctx, 0)->data;\\n'
                '  float* y = dvt_output(ctx, 0)->data;\\n'
                '  for (uint64_t i = 0; i < count; ++i) y[i] = helper(x[i]);\\n'
                '  return DVT_OK;\\n}}\\n')
        kernels = operators = sources = ""
        for name, scale, offset in (("Once", "1.0F", 3), ("Twice", "2.0F", 5)):
            kernels += (f'{{.name = "own.{name}.f32", .abi_version = DVT_KERNEL_ABI_VERSION, '
                        '.flags = DVT_KERNEL_PURE, .input_min = 1, .input_max = 1, .output_min = 1, '
                        '.output_max = 1, .run = f, .check = g, .infer = h}, ')
            operators += (f'{{.domain = "acme", .name = "{name}", .since_version = 1, '
                          '.until_version = INT64_MAX, .input_min = 1, .input_max = 1, '
                          f'.output_min = 1, .output_max = 1, .kernel = "own.{name}"}}, ')
            sources += (f'{{.kernel = "own.{name}.f32", .function = "{name}", '
                        f'.text = "{text.format(name=name, scale=scale, offset=offset)}"}}, ')
        plugin = self.build("own.so", (
            '#include "davit/plugin.h"\n'
            "static DvtCode f(void* c) { (void)c; return DVT_INTERNAL; }\n"
            "static DvtCode g(const DvtContext* c, char* r, size_t s)"
            " { (void)c; (void)r; (void)s; return 0; }\n"
            "static DvtCode h(const DvtContext* c, DvtTensor* t, char* r, size_t s)"
            " { (void)r; (void)s; return dvt_set_shape(t, dvt_input(c, 0)->tensor->rank,"
            " dvt_input(c, 0)->tensor->dims); }\n"
            f"static const DvtKernel k[] = {{{kernels}}};\n"
            f"static const DvtPluginOperator o[] = {{{operators}}};\n"
            f"static const DvtPluginSource s[] = {{{sources}}};\n"
            "static const DvtPlugin p = {.struct_size = sizeof(DvtPlugin),"
            " .abi_version = DVT_PLUGIN_ABI_VERSION, .name = \"own\","
            " .kernels = {.kernels = k, .count = 2}, .operators = o, .operator_count = 2,"
            " .sources = s, .source_count = 2};\n"
            "const DvtPlugin* dvt_plugin(void) { return &p; }\n"))
        nodes = [(name, "acme", f"{name}_{port}", [port], [f"{name}_{port}_out"])
                 for port in "ab" for name in ("Once", "Twice")]
        nodes += [("Relu", "", "relu", ["a"], ["r"])]
        dims = {"a": [2], "b": [3]}
        model = self.path("own.onnx", tool.onnx_model(
            nodes, [(port, 1, dims[port]) for port in "ab"],
            [(node[4][0], 1, dims[node[3][0]]) for node in nodes]))
        image = self.path("own.davit")
        self.check_passed(davit("compile", model, "-o", image, "--plugin", plugin, "--isa",
                                "baseline", "--no-cache"))
        out = self.path("out.npy")
        self.check_passed(davit("run", image, "--input", "a=2xf32=1,2", "--input", "b=3xf32=0,0,4",
                                "--output-data", "Twice_b_out=@" + out))
        self.assertEqual(tool.read_npy(out, "f"), [5, 5, 13])
        folder = self.path("own")
        self.check_passed(davit("emit-c", image, "-o", folder, "--name", "own"))
        sources = [f"own_source_{i}.c" for i in range(4)]
        self.assertEqual(sorted(os.listdir(folder)), ["meson.build", "own.c", "own.h", *sources])
        with open(os.path.join(folder, "main.c"), "w", encoding="utf-8") as file:
            file.write('#include <stdio.h>\n#include "own.h"\nint main(void) {\n'
                       "  const float a[2] = {1, 2}, b[3] = {0, 0, 4};\n"
                       "  float y0[2], y1[2], y2[3], y3[3], r[2];\n"
                       "  if (own_run(a, b, y0, y1, y2, y3, r) != 0) return 1;\n"
                       '  printf("%g %g %g %g\\n", y0[1], y1[1], y2[2], y3[2]);\n'
                       "  return 0;\n}\n")
        for compiler in ("gcc", "clang"):
            if shutil.which(compiler) is None:
                continue
            flags = ["-std=gnu11", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
            subprocess.run([compiler, *flags, "main.c", "own.c", *sources, "-o", "main", "-lm"],
                           cwd=folder, check=True)
            ran = subprocess.run([os.path.join(folder, "main")], check=True, capture_output=True,
                                 text=True)
            self.assertEqual(ran.stdout, "5 9 7 13\n")
        with open(os.path.join(folder, "meson.build"), encoding="utf-8") as file:
            self.assertIn("'own_source_3.c'", file.read())

    def test_a_plugin_of_the_first_abi_loads(self):
        # The records of davit/plugin.h in ABI 1: a rewrite with two more behind it in memory would
        # be misread with today's size.
        source = (
            '#include "davit/kernel.h"\n'
            "typedef struct { const char* domain; const char* name; int64_t since, until;"
            " uint16_t input_min, input_max, output_min, output_max; uint32_t workspaces;"
            " const char* kernel; void* output_dtype; const void* defaults; } Operator;\n"
            "typedef struct { const char* name; uint32_t stage, reserved; const char* pattern;"
            " const char* replacement; const char* domain; int64_t version; } Pass;\n"
            "typedef struct { uint32_t struct_size, abi_version; const char* name;"
            " const char* version; DvtKernelTable kernels; const Operator* operators;"
            " size_t operator_count; const Pass* passes; size_t pass_count; } Plugin;\n"
            "static DvtCode run(void* c) { const DvtContext* x = c;"
            " for (int i = 0; i < 4; ++i) ((float*)dvt_output(x, 0)->data)[i] = 7; return 0; }\n"
            "static DvtCode check(const DvtContext* c, char* r, size_t s)"
            " { (void)r; (void)s; return dvt_input(c, 0)->tensor->bytes == 16 ? 0 : 1; }\n"
            "static DvtCode infer(const DvtContext* c, DvtTensor* t, char* r, size_t s)"
            " { (void)r; (void)s; return dvt_set_shape(t, dvt_input(c, 0)->tensor->rank,"
            " dvt_input(c, 0)->tensor->dims); }\n"
            "static const DvtKernel k[] = {{.name = \"old.Seven.f32\", .abi_version = 1,"
            " .flags = DVT_KERNEL_PURE, .input_min = 1, .input_max = 1, .output_min = 1,"
            " .output_max = 1, .run = run, .check = check, .infer = infer}};\n"
            "static const Operator o[] = {{.domain = \"acme\", .name = \"Seven\", .since = 1,"
            " .until = INT64_MAX, .input_min = 1, .input_max = 1, .output_min = 1,"
            " .output_max = 1, .kernel = \"old.Seven\"}};\n"
            "#define PASS(NAME, OP) {.name = NAME, .pattern = \"input %x (%y) = \" OP \" (%x)"
            " output (%y)\", .replacement = \"input %x (%y) = acme::Seven (%x) output (%y)\","
            " .domain = \"acme\", .version = 1}\n"
            "static const Pass p[] = {PASS(\"old_sin\", \"Sin\"), PASS(\"old_cos\", \"Cos\"),"
            " PASS(\"old_exp\", \"Exp\")};\n"
            "static const Plugin plugin = {sizeof(Plugin), 1, \"old\", \"1\", {k, 1}, o, 1, p, 3};\n"
            "const Plugin* dvt_plugin(void) { return &plugin; }\n")
        plugin = self.build("old.so", source)
        model = self.path("old.onnx", tool.onnx_model(
            [("Exp", "", "e", ["x"], ["y"])], [("x", 1, [4])], [("y", 1, [4])]))
        out = self.path("y.npy")
        result, document = self.davit_json("run", model, "--plugin", plugin, "--input",
                                           "4xf32=1,2,3,4", "--output-data", "@" + out)
        self.check_passed(result)
        self.assertEqual(document["result"]["compile"]["passes"].get("old_exp"), 1)
        self.assertEqual(tool.read_npy(out, "f"), [7, 7, 7, 7])

    def test_optional_and_variadic_operands(self):
        # y = the sum of the inputs that are there; n, which may be left out, = how many there are.
        plugin = self.build("total.so", (
            '#include "davit/plugin.h"\n'
            "static DvtCode run(void* c) { const DvtContext* x = c;"
            " float* y = dvt_output(x, 0)->data; int64_t n = 0; y[0] = y[1] = 0;"
            " for (uint32_t i = 0; i < x->input_count; ++i) { const DvtCell* in = dvt_input(x, i);"
            " if (in == NULL) continue; ++n; y[0] += ((float*)in->data)[0];"
            " y[1] += ((float*)in->data)[1]; }"
            " if (x->output_count > 1 && dvt_output(x, 1) != NULL)"
            " *(int64_t*)dvt_output(x, 1)->data = n; return 0; }\n"
            "static DvtCode check(const DvtContext* c, char* r, size_t s)"
            " { (void)c; (void)r; (void)s; return 0; }\n"
            "static DvtCode infer(const DvtContext* c, DvtTensor* t, char* r, size_t s)"
            " { (void)r; (void)s; const DvtTensor* x = dvt_input(c, 0)->tensor;"
            " DvtCode code = dvt_set_shape(t, x->rank, x->dims);"
            " if (code == 0 && c->output_count > 1) code = dvt_set_shape(t + 1, 0, x->dims);"
            " return code; }\n"
            "static DvtDType type(const DvtDType* in, uint32_t n, uint32_t output)"
            " { (void)in; (void)n; return output == 0 ? DVT_F32 : DVT_I64; }\n"
            "static const DvtKernel k[] = {{.name = \"total.Total.f32\","
            " .abi_version = DVT_KERNEL_ABI_VERSION, .flags = DVT_KERNEL_PURE, .input_min = 1,"
            " .input_max = UINT16_MAX, .output_min = 1, .output_max = 2, .run = run,"
            " .check = check, .infer = infer}};\n"
            "static const DvtPluginOperator o[] = {{.domain = \"acme\", .name = \"Total\","
            " .since_version = 1, .until_version = INT64_MAX, .input_min = 1,"
            " .input_max = DVT_PLUGIN_VARIADIC, .output_min = 1, .output_max = 2,"
            " .kernel = \"total.Total\", .output_dtype = type}};\n"
            "static const DvtPlugin p = {.struct_size = sizeof(DvtPlugin),"
            " .abi_version = DVT_PLUGIN_ABI_VERSION, .name = \"total\", .kernels = {k, 1},"
            " .operators = o, .operator_count = 1};\n"
            "const DvtPlugin* dvt_plugin(void) { return &p; }\n"))
        nodes = [("Total", "acme", "one", ["x"], ["a"]),
                 ("Total", "acme", "gap", ["x", "", "x", "x"], ["b", "n"]),
                 ("Total", "acme", "many", ["x"] * 20, ["c", "m"])]
        model = self.path("total.onnx", tool.onnx_model(
            nodes, [("x", 1, [2])],
            [("a", 1, [2]), ("b", 1, [2]), ("n", 7, []), ("c", 1, [2]), ("m", 7, [])]))
        files = {name: self.path(name + ".npy") for name in "abcnm"}
        saved = [word for name, path in files.items() for word in ("--output-data",
                                                                   f"{name}=@{path}")]
        self.check_passed(davit("run", model, "--plugin", plugin, "--input", "x=2xf32=1,2", *saved))
        self.assertEqual([tool.read_npy(files[name], "f") for name in "abc"],
                         [[1, 2], [3, 6], [20, 40]])
        self.assertEqual([tool.read_npy(files[name], "q") for name in "nm"], [[3], [20]])
        # Without the input that must be there.
        model = self.path("none.onnx", tool.onnx_model(
            [("Total", "acme", "none", [], ["a"])], [("x", 1, [2])], [("a", 1, [2])]))
        result = davit("run", model, "--plugin", plugin)
        self.assertNotEqual(result.code, 0)
        self.assertIn("none (acme::Total", result.err + result.out)

    def test_the_model_of_the_example(self):
        with open(os.path.join(EXAMPLE, "swish.onnx"), "rb") as file:
            checked_in = file.read()
        made = self.path("swish.onnx")
        subprocess.run([sys.executable, os.path.join(EXAMPLE, "make_model.py"), made], check=True)
        with open(made, "rb") as file:
            self.assertEqual(file.read(), checked_in)
        result = davit("run", made, "--plugin", ACME, "--profile", "--verbose")
        self.check_passed(result)
        self.assertNotIn("does nothing", result.err)
        self.assertRegex(result.err, r"pass acme_fuse_swish +1 change\n")
        for operator in ("acme::MovingAverage", "acme::Swish"):
            self.assertIn(operator, result.out)

    def test_a_plugin_that_does_nothing_is_said(self):
        relu = self.path("r.onnx", tool.onnx_model([("Relu", "", "r", ["x"], ["y"])],
                                                   [("x", 1, [4])], [("y", 1, [4])]))
        image, text = self.path("r.davit"), self.path("r.txt")
        result, document = self.davit_json("compile", relu, "-o", image, "--plugin", ACME)
        self.check_passed(result)
        self.assertIn("warning: plug-in acme does nothing here: the model needs none of its kernels, "
                      "and its rewrites found no match", result.err)
        self.assertEqual(document["result"]["unused_plugins"], ["acme"])
        self.check_passed(davit("dump", image, "-o", text))
        for arguments in (["run", image], ["verify", image], ["run", relu], ["run", text]):
            result = davit(*arguments, "--plugin", ACME, "--quiet")
            self.check_passed(result)
            self.assertIn("plug-in acme does nothing here", result.err)
        # Once, though tune compiles twice.
        result, document = self.davit_json("tune", relu, "-o", image, "--workers", "2", "--plugin",
                                           ACME)
        self.check_passed(result)
        self.assertEqual(result.err.count("does nothing here"), 1)
        self.assertEqual(document["result"]["unused_plugins"], ["acme"])

    def test_hints_name_the_option(self):
        model, image, text = self.model(), self.path("m.davit"), self.path("m.txt")
        self.assertIn("--plugin", davit("compile", model, "-o", image).err)
        self.check_passed(davit("compile", model, "-o", image, "--plugin", ACME))
        self.assertIn("--plugin", davit("run", image).err)
        self.check_passed(davit("dump", image, "-o", text))
        # The text declares its kernels; what they check takes the plug-in.
        self.assertIn("--plugin", davit("compile", text, "-o", image).err)
        with open(text, encoding="utf-8") as file:
            lines = [line for line in file if not line.startswith("kernel ")]
        undeclared = self.path("u.txt", "".join(lines))
        result = davit("compile", undeclared, "-o", image)
        self.check_failed(result, 3, "parse", "give its plug-in with --plugin")
        self.check_passed(davit("compile", text, "-o", image, "--plugin", ACME))
        # ONNX's own operators are in no plug-in.
        model = self.path("n.onnx", tool.onnx_model([("Nonsense", "", "n", ["x"], ["y"])],
                                                    [("x", 1, [4])], [("y", 1, [4])]))
        self.assertNotIn("--plugin", davit("compile", model, "-o", image, "--quiet").err)

    def test_an_image_needs_the_kernels(self):
        model, image = self.model(), self.path("m.davit")
        self.check_failed(davit("compile", model, "-o", image), 4, "check", "acme::MovingAverage")
        self.assertFalse(os.path.exists(image))
        self.check_passed(davit("compile", model, "-o", image, "--plugin", ACME))
        result = davit("run", image)
        self.check_failed(result, 4, "check", 'there is no kernel "acme.MovingAverage.f32"')
        for command in ("run", "verify"):
            self.check_passed(davit(command, image, "--plugin", ACME))

    def build(self, name, source):
        """A shared object of C, in the test's folder."""
        path = self.path(name)
        subprocess.run(["cc", "-shared", "-fPIC", "-I", os.environ["DAVIT_INCLUDE"], "-x", "c", "-",
                        "-o", path], input=source, text=True, check=True)
        return path

    def record(self, **members):
        fields = {"struct_size": "sizeof(DvtPlugin)", "abi_version": "DVT_PLUGIN_ABI_VERSION",
                  "name": '"bad"', **members}
        body = ", ".join(f".{name} = {value}" for name, value in fields.items())
        return ('#include "davit/plugin.h"\n'
                "static DvtCode f(void* c) { (void)c; return 0; }\n"
                "static DvtCode g(const DvtContext* c, char* r, size_t s)"
                " { (void)c; (void)r; (void)s; return 0; }\n"
                "static DvtCode h(const DvtContext* c, DvtTensor* t, char* r, size_t s)"
                " { (void)c; (void)t; (void)r; (void)s; return 0; }\n"
                "static const DvtKernel k[] = {{.name = \"bad.K\", .abi_version = 1, .run = f,"
                " .check = g, .infer = h}};\n"
                f"static const DvtPlugin p = {{{body}}};\n"
                "const DvtPlugin* dvt_plugin(void) { return &p; }\n")

    def test_device_time_of_a_plugin(self):
        # 2^24 elements in 2048 tiles of 32 KiB, on 48 cores: 43 each. A tile is 128 repeats.
        #   VEC   43 * (15 + 128 * 13)            = 72197
        #   MTE2  43 * (147 + 32768 / 51)         = 43 * 790 = 33970
        #   MTE3  43 * (121 + 32768 / 80)         = 43 * 531 = 22833
        # 128 MiB at 1320 GB/s take 101.7 us: 183022 cycles, of MTE2 as well.
        #   body  ceil(183021.5 + 0.05 * 72197)   = 186632 cycles, 103.68 us, and 4.1 us before it
        nodes = [("Swish", "acme", "swish", ["x"], ["y"])]
        model = self.path("s.onnx", tool.onnx_model(nodes, [("x", 1, [1 << 24])],
                                                    [("y", 1, [1 << 24])]))
        result, document = self.davit_json("run", model, "--plugin", ACME, "--target", "ascend")
        self.check_passed(result)
        operators = document["result"]["predicted"]["operators"]
        swish = next(row for row in operators if row["op"].startswith("acme::Swish"))
        self.assertAlmostEqual(swish["total_ps"] / 1e6, 103.68 + 4.1, delta=0.05)

    def test_a_plugin_is_not_overwritten(self):
        result = davit("compile", self.model(), "-o", ACME, "--plugin", ACME)
        self.check_failed(result, 2, "usage", "are one file")

    def test_bad_plugins(self):
        model = self.model()
        def operator(**members):
            fields = {"domain": '"bad"', "name": '"K"', "since_version": "1", "until_version": "1",
                      "input_max": "1", "output_max": "1", "kernel": '"bad.K"', **members}
            body = ", ".join(f".{name} = {value}" for name, value in fields.items())
            return {"kernels": "{k, 1}", "operator_count": "1",
                    "operators": f"(const DvtPluginOperator[]){{{{{body}}}}}"}
        def rewrite(pattern, replacement):
            return {"pass_count": "1", "passes": '(const DvtPluginPass[]){{.name = "r", .pattern = "' +
                    pattern + '", .replacement = "' + replacement + '"}}'}
        whole = "input %x (%y) = Neg (%x) output (%y)"
        for members, words in (
                ({"abi_version": "9"}, "another version"), ({"struct_size": "8"}, "another version"),
                ({"name": "0"}, "it has no name"),
                ({"kernels": "{0, 1}"}, "kernels is NULL"),
                ({"kernels": '{(const DvtKernel[]){{.name = "Relu.f32"}}, 1}'}, "one of Davit's own"),
                ({"kernels": '{(const DvtKernel[]){{.name = "bad.L", .abi_version = 1}}, 1}'},
                 "needs run, check and infer"),
                ({"kernels": '{(const DvtKernel[]){{.name = "bad.L", .abi_version = 7}}, 1}'},
                 "kernel ABI 7"),
                (operator(domain='""'), "needs a domain"),
                (operator(domain='"ai.onnx"'), "not the plug-in's"),
                (operator(kernel='"bad.Z"'), "there is no kernel bad.Z"),
                (operator(since_version="2"), "above its maximum"),
                ({"time_count": "1"}, "times is NULL"),
                ({"time_count": "1", "times": "(const DvtKernelTime[]){{0}}"}, "has no operator"),
                ({"time_count": "1", "times": '(const DvtKernelTime[]){{.op = "K"}}'},
                 "there is no operator K"),
                ({"time_count": "1", "times": '(const DvtKernelTime[]){{.op = "K"}}',
                  **operator()}, "times of K: one of nest and pipes"),
                (rewrite("(%y)", whole), "pass r: pattern"),
                (rewrite(whole, "input %z (%y) = Neg (%z) output (%y)"), "input 'z'")):
            path = self.build("bad.so", self.record(**members))
            result = davit("run", model, "--plugin", path)
            self.assertIn(result.code, (1, 2, 3), (members, result.out, result.err))
            self.assertIn(words, result.last, members)
        self.check_failed(davit("run", model, "--plugin", self.path("none.so")), 1, "load", "none.so")
        self.check_failed(davit("run", model, "--plugin", self.path("text.so", "no ELF")), 1, "load",
                          "cannot load plug-in")
        with open(ACME, "rb") as file:
            whole = file.read()
        for size in (len(whole) // 8, len(whole) // 2):
            self.check_failed(davit("run", model, "--plugin",
                                    self.path("cut.so", whole[:size])), 1, "load", "the file ends")
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        self.check_failed(davit("run", model, "--plugin", pipe), 1, "load", "a pipe")
        self.check_failed(davit("run", model, "--plugin", self.build("empty.so", "int a;")), 1,
                          "load", "exports no dvt_plugin")
        twice = davit("run", model, "--plugin", ACME, "--plugin", ACME)
        self.assertIn("is there already", twice.last)


if __name__ == "__main__":
    unittest.main()

"""Finds libtorch: a directory with include/ and lib/, or Debian's libtorch-dev.

In this order: $PSRING_TORCH (a directory, `pip` or `system`); the torch of the
active python3; the one in the repository's .venv; the system's libtorch-dev.
"""

# Finds it without importing it, which takes seconds.
_ASK_PYTHON = """
import importlib.util
print(importlib.util.find_spec("torch").submodule_search_locations[0])
"""

def _torch_of_python(ctx, python):
    result = ctx.execute([python, "-c", _ASK_PYTHON], quiet = True)
    root = result.stdout.strip()
    if result.return_code != 0 or not ctx.path(root + "/include/torch").exists:
        return None
    return root

def _find(ctx):
    wish = ctx.os.environ.get("PSRING_TORCH", "")
    if wish and wish not in ["pip", "system"]:
        for part in ["include/torch", "lib"]:
            if not ctx.path(wish + "/" + part).exists:
                fail("PSRING_TORCH=%s: no %s/ in it. It must be the directory of a libtorch, which has include/ and lib/." % (wish, part))
        return wish
    if wish != "system":
        venv = ctx.path(Label("//:WORKSPACE")).dirname.get_child(".venv").get_child("bin").get_child("python3")
        python = ctx.which("python3")
        for candidate in [python, venv if venv.exists else None]:
            root = candidate and _torch_of_python(ctx, candidate)
            if root:
                return root
    if wish != "pip" and ctx.path("/usr/include/torch").exists:
        return None
    fail("No libtorch found. Remedy: `./psring build` installs one, or set PSRING_TORCH to a directory with include/ and lib/.")

# pip's libraries carry parts of another libstdc++ and export them: what is linked
# with libtorch first calls those, and std::filesystem::remove_all of 2.11.0 jumps to
# a null pointer (github.com/pytorch/pytorch/issues/133437).
_LIBSTDCXX_FIRST = ["-Wl,--no-as-needed", "-lstdc++"]

def _torch_repository_impl(ctx):
    root = _find(ctx)
    if root == None:
        ctx.symlink("/usr/include/torch/csrc/api/include", "api")
        includes = ["api"]
        headers = ["api/**"]
        linkopts = []
        location = "/usr (libtorch-dev)"
    else:
        # Not all of include/: pip's also carries another protobuf and fmt.
        for part in ["ATen", "c10", "caffe2", "torch"]:
            if ctx.path(root + "/include/" + part).exists:
                ctx.symlink(root + "/include/" + part, "include/" + part)
        includes = ["include", "include/torch/csrc/api/include"]
        headers = ["include/**"]
        linkopts = ["-L%s/lib" % root, "-Wl,-rpath,%s/lib" % root]
        location = root
    ctx.file("BUILD", """
exports_files(["location.txt"])

cc_library(
    name = "torch",
    hdrs = glob({headers}),
    includes = {includes},
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
""".format(
        headers = headers,
        includes = includes,
        linkopts = linkopts + _LIBSTDCXX_FIRST + ["-ltorch", "-ltorch_cpu", "-lc10"],
    ))
    ctx.file("location.txt", location + "\n")

torch_repository = repository_rule(
    implementation = _torch_repository_impl,
    environ = ["PSRING_TORCH", "PATH"],
    local = True,
)

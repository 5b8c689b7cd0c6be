"""Where the build finds what it does not contain. Nothing is downloaded."""

load("//third_party:cuda.bzl", "cuda_repository")
load("//third_party:torch.bzl", "torch_repository")

def psring_repositories():
    cuda_repository(name = "cuda")
    torch_repository(name = "torch")
    native.new_local_repository(
        name = "chart_js",  # Debian's libjs-chart.js
        path = "/usr/share/javascript/chart.js",
        build_file_content = "exports_files([\"chart.min.js\"])",
    )

    # Debian's bazel-bootstrap reports no version and carries none of the rule
    # sets that an upstream Bazel downloads by itself. Only there, they come
    # from Debian's packages and from two small stand-ins.
    if not native.bazel_version:
        native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
        native.local_repository(name = "rules_proto", path = "/usr/share/bazel/rules/proto")
        native.local_repository(name = "platforms", path = "/usr/share/bazel/platforms")
        native.local_repository(name = "rules_cc", path = "third_party/offline/rules_cc")
        native.local_repository(
            name = "remote_coverage_tools",
            path = "third_party/offline/remote_coverage_tools",
        )

"""embed(name, src, symbol): a header with a file's text as a string constant."""

def embed(name, src, symbol, visibility = None):
    native.genrule(
        name = name + "_header",
        srcs = [src],
        outs = [name + ".h"],
        cmd = """(
            echo '#pragma once'
            echo 'namespace psring {{'
            printf '%s' 'inline constexpr char {symbol}[] = R"__text__('
            cat $(SRCS)
            echo ')__text__";'
            echo '}}  // namespace psring'
        ) > $@""".format(symbol = symbol),
    )
    native.cc_library(
        name = name,
        hdrs = [name + ".h"],
        visibility = visibility,
    )

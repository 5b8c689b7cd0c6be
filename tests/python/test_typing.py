"""What type checkers see of the package, which says by py.typed that it has types."""

import os
import types

import pytest

import psring
import psring.torch as ps


def public_names(module):
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in ("Any", "TYPE_CHECKING") and not isinstance(value, types.ModuleType)
    }


@pytest.mark.parametrize("module", [psring, ps], ids=lambda module: module.__name__)
def test_checkers_know_every_public_name(module):
    """Without __all__, they take what a module imports for its own affair."""
    modules = {"elastic"} & set(module.__all__)
    assert sorted(module.__all__) == sorted(public_names(module) | modules)


def test_checkers_tell_a_name_that_does_not_exist_and_the_forms_of_alltoall(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    monkeypatch.setenv("MYPYPATH", os.path.dirname(os.path.dirname(psring.__file__)))
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nimport psring.torch as ps\n"
        "ps.alltoall(torch.ones(2)).sum()\nps.alltoall(torch.ones(2), [1, 1])[1].sum()\nps.allreduse\n"
        "ps.elastic.TorchState(epoch=0).epoch += 1\n"
    )
    said, _, _ = api.run(["--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(script)])
    assert "script.py:5" in said and "found 1 error" in said.lower(), said

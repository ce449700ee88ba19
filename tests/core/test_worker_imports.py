"""Which modules of slow packages worker processes import early."""

from __future__ import annotations

import gc
import sys
import types

import pytest

from hyperplane.core.worker_imports import list_loaded_modules


def test_only_public_modules_of_slow_packages_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("sklearn", "sklearn.svm", "sklearn._own", "sklearn.svm._base", "sklearn.a.b", "other")
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "sklearn.hidden", None)  # type: ignore[arg-type]
    listed = list_loaded_modules()
    assert {"sklearn", "sklearn.svm"} <= set(listed)
    assert not {"sklearn._own", "sklearn.svm._base", "sklearn.a.b", "other"} & set(listed)
    assert "sklearn.hidden" not in listed


@pytest.mark.slow
def test_a_finalizer_may_import_a_module_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[str] = []

    class Finalizer:
        """An object whose finalizer imports, as that of an open socket does for its warning."""

        def __del__(self) -> None:
            added.append(f"hyperplane_test_finalizer_{len(added)}")
            sys.modules[added[-1]] = types.ModuleType(added[-1])

    for number in range(5000):
        monkeypatch.setitem(sys.modules, f"hyperplane_test_{number}", types.ModuleType("any"))
    # The collector runs where memory is asked for, and not for a pair from Python's store.
    held = [(number, number) for number in range(5000)]
    threshold = gc.get_threshold()
    gc.disable()
    try:
        for _ in range(10):
            garbage = Finalizer()
            garbage.itself = garbage  # type: ignore[attr-defined]
        del garbage
        gc.set_threshold(gc.get_count()[0] + 2000)
        gc.enable()
        assert "hyperplane_test_0" not in list_loaded_modules()
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
        gc.collect()
        for name in added:
            del sys.modules[name]
    assert len(added) == 10
    assert len(held) == 5000

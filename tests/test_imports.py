"""What importing the library does and does not do."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import balancer
import loaders

HEAVY = ("torch", "hydra", "omegaconf", "transformers", "pyarrow", "matplotlib", "PIL")


def modules_after(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    return set(done.stdout.split())


def test_importing_balancer_loads_nothing_heavy():
    """`import balancer` brings numpy, numba (and what it brings) and tqdm; the rest waits."""
    assert not modules_after("import balancer") & set(HEAVY)


def test_the_check_above_can_fail():
    assert "pyarrow" in modules_after("import balancer, pyarrow")


def test_importing_balancer_compiles_nothing():
    """Kernels compile at their first call, not at import."""
    program = (
        "import balancer, numba.core.dispatcher as d\n"
        "import balancer.kernels.slots as s, balancer.kernels.refine as r\n"
        "print(len(s.place_in_slots.signatures) + len(r.refine.signatures))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.strip() == "0"


def all_modules():
    names = []
    for package in (balancer, loaders):
        names += [package.__name__]
        prefix = f"{package.__name__}."
        names += [info.name for info in pkgutil.walk_packages(package.__path__, prefix)]
    return sorted(name for name in names if not name.endswith("__main__"))


@pytest.mark.parametrize("name", all_modules())
def test_every_module_lists_and_documents_its_public_names(name):
    """Every module, and every class and function that it lists as public, has a docstring."""
    module = importlib.import_module(name)
    assert module.__doc__, f"{name} has no docstring"
    exported = module.__all__ if hasattr(module, "__all__") else []
    for entry in exported:
        value = getattr(module, entry)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, f"{name}.{entry} has no docstring"


@pytest.mark.parametrize("package", [balancer, loaders])
def test_no_module_asserts_on_its_input(package):
    """Asserts vanish under -O; bad input raises errors of the library instead."""
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        spec = importlib.util.find_spec(info.name)
        with open(spec.origin) as file:
            tree = ast.parse(file.read())
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Assert)], info.name

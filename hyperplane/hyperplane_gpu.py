"""The package ``hyperplane_gpu``: the notebook API under the name that GPU images give it.

The wheel and the editable installation hold this file as ``hyperplane_gpu/__init__.py``
(``force-include`` in ``pyproject.toml``). It is the same module, so that a class or a cluster of
one name is that of the other; ``ngpus=`` of the calls asks for GPUs.
"""

import sys

from hyperplane import notebook_common

__all__ = ["notebook_common"]

# ``import hyperplane_gpu.notebook_common`` looks here before it looks for a file.
sys.modules[f"{__name__}.notebook_common"] = notebook_common

"""Package ``hyperplane_gpu``: the notebook API under the name that GPU images use.

The wheel and the editable installation contain this file as ``hyperplane_gpu/__init__.py``
(``force-include`` in ``pyproject.toml``). ``hyperplane_gpu.notebook_common`` is the module
``hyperplane.notebook_common``; request GPUs with ``ngpus=``.
"""

import sys

from hyperplane import notebook_common

__all__ = ["notebook_common"]

# ``import hyperplane_gpu.notebook_common`` checks sys.modules before it searches for a file.
sys.modules[f"{__name__}.notebook_common"] = notebook_common

"""File formats: how each one is read, split and written.

Each format has one class, such as ``OrcFormat`` in ``orc.format``, and its code is a package, or a
module if it is short. ``base`` has the interfaces of these classes, and ``registry`` their list.
The other modules are shared by several formats. CONTRIBUTING.md, *Add a file format*, lists the
files of a new one.
"""

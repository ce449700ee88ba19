"""Commits on an object store: each creates the manifest with the next number.

Then the parts are copied to the output's folder, where other programs look for them. Copying is
not atomic: until it ends, :func:`~hyperplane.load` reads the parts in the staging folder.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import replace

from hyperplane.core.errors import StorageError
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.save_target import Target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.manifest import Manifest, parse_manifest_file
from hyperplane.storage.published_state import PublishedState, conflict_error, foreign_manifest

_COMMIT = re.compile(r"commit-([0-9]{8})\.json")


class ManifestCommit:
    """Commit protocol of object stores: only one process can create the next manifest."""

    def __init__(self, target: Target, store_files: StoreFiles) -> None:
        self.target, self.store_files = target, store_files

    def read_state(self) -> PublishedState:
        """Return the state of the manifest with the highest number."""
        while True:
            if numbers := self._list_numbers():
                manifest = self._read_manifest(numbers[-1])
                if manifest is not None:
                    return PublishedState(str(numbers[-1]), manifest)
                # The manifest was removed after the listing, so a newer one exists.
            elif not (sizes := self._list_target_sizes()):
                return PublishedState()
            elif not self._list_numbers():  # otherwise the files belong to a concurrent commit
                return PublishedState("0", foreign_manifest(sizes))

    def _read_manifest(self, number: int) -> Manifest | None:
        """Return the manifest with a number; None if it does not exist."""
        path = self._commit_path(number)
        data = self.store_files.get(path)
        return (
            None if data is None else parse_manifest_file(data, Location(self.target.store, path))
        )

    def _list_target_sizes(self) -> dict[str, int]:
        """Return the size of each file in the output's folder."""
        files = self.store_files.list_files(self.target.path)
        if not files and self.store_files.is_file(self.target.path):
            files = {"": self.store_files.store.system.info(self.target.path)}
        return {name: int(info["size"] or 0) for name, info in files.items()}

    def finish_interrupted(self, state: PublishedState) -> None:
        """Copy the parts of the manifest if its commit has not copied all of them."""
        manifest = state.manifest
        number = manifest.details.get("commit") if manifest else None
        if manifest and number and not self.store_files.is_file(self._done_path(number)):
            self.finish_commit(manifest)

    def publish(self, manifest: Manifest, staged: str, base: PublishedState) -> Manifest:
        """Create the next manifest, then copy the parts; see :class:`CommitProtocol`."""
        number = int(base.version or 0) + 1
        folder = staged.removeprefix(f"{self.target.metadata_folder}/")
        manifest = replace(
            manifest, details={**manifest.details, "staged": folder, "commit": number}
        )
        if number == 1 and base.manifest is not None:  # written by another program
            names = [part.name for part in base.manifest.parts]
            manifest = replace(manifest, details={**manifest.details, "replaced": names})
        body = manifest.to_json().encode()
        try:
            self.store_files.put_new(self._commit_path(number), body)
        except FileExistsError as error:
            raise conflict_error(self.target) from error
        if self._is_superseded(number):
            # The manifest with this number existed, but later commits have removed it.
            self.store_files.remove([self._commit_path(number)])
            raise conflict_error(self.target)
        self.finish_commit(manifest)
        return manifest

    def is_needed(self, attempt: str) -> bool:
        """Return whether an attempt is published but not all of its parts are copied."""
        manifest = self.read_state().manifest
        if manifest is None or not self._staged_folder(manifest).startswith(f"{attempt}/"):
            return False
        return not self.store_files.is_file(self._done_path(manifest.details["commit"]))

    def discard_attempt(self, attempt: str) -> None:
        """Remove the folder of an attempt, unless it is needed."""
        if not self.is_needed(attempt):
            self.store_files.remove_folder(attempt)

    def finish_commit(self, manifest: Manifest) -> None:
        """Copy the parts to the output's folder and remove older commits; can be repeated."""
        path, number = self.target.path, int(manifest.details["commit"])
        staged, done_path = self._staged_folder(manifest), self._done_path(number)
        if not self.store_files.is_file(done_path):
            wanted = {part.name for part in manifest.parts}
            to_copy = [name for name in self.store_files.list_files(staged) if name in wanted]
            try:
                self.store_files.map_concurrently(
                    lambda name: self.store_files.copy(f"{staged}/{name}", f"{path}/{name}"),
                    to_copy,
                )
            except (FileNotFoundError, StorageError) as error:
                # Another process has finished this commit meanwhile.
                if self.store_files.is_missing(error) and self._is_finished(number):
                    return
                raise
            if self._is_superseded(number):
                return
            replaced = self._replaced_names(manifest, number) - wanted
            self.store_files.remove(f"{path}/{name}".rstrip("/") for name in replaced)
            self.store_files.put(done_path, b"")
        self.store_files.remove_folder(staged)
        older = [other for other in self._list_numbers() if other < number]
        self.store_files.remove(map(self._commit_path, older))
        self.store_files.remove(map(self._done_path, older))

    def _replaced_names(self, manifest: Manifest, number: int) -> set[str]:
        """Return the names of the parts that this commit replaces; it removes no other files."""
        before = self._read_manifest(number - 1)
        if before is not None:
            return {part.name for part in before.parts}
        return set(manifest.details.get("replaced", ()))

    def _is_superseded(self, number: int) -> bool:
        """Return whether a later commit exists."""
        return max(self._list_numbers(), default=0) > number

    def _is_finished(self, number: int) -> bool:
        """Return whether the parts of a commit are copied, or a later commit exists."""
        return self.store_files.is_file(self._done_path(number)) or self._is_superseded(number)

    def part_paths(self, manifest: Manifest) -> list[str]:
        """Return the paths of the parts, copied or in the staging folder."""
        path, uncopied = self.target.path, self._uncopied_names(manifest)
        staged = self._staged_folder(manifest)
        return [
            f"{staged if part.name in uncopied else path}/{part.name}".rstrip("/")
            for part in manifest.parts
        ]

    def data_folder(self, manifest: Manifest) -> str:
        """Return the path of a folder that contains all parts."""
        return self._staged_folder(manifest) if self._uncopied_names(manifest) else self.target.path

    def _uncopied_names(self, manifest: Manifest) -> Set[str]:
        """Return the names of parts that are still in the staging folder."""
        number = manifest.details.get("commit")
        if number is None or self.store_files.is_file(self._done_path(number)):
            return frozenset()
        return self.store_files.list_files(self._staged_folder(manifest)).keys()

    def _commit_path(self, number: int) -> str:
        """Return the path of a commit's manifest."""
        return f"{self.target.metadata_folder}/commit-{number:08d}.json"

    def _done_path(self, number: int) -> str:
        """Return the path of the empty file which marks that all parts of a commit are copied."""
        return f"{self.target.metadata_folder}/commit-{number:08d}.done"

    def _staged_folder(self, manifest: Manifest) -> str:
        """Return the staging folder of a manifest."""
        return f"{self.target.metadata_folder}/{manifest.details.get('staged', '')}"

    def _list_numbers(self) -> list[int]:
        """Return the numbers of all manifests in order."""
        matches = map(_COMMIT.fullmatch, self.store_files.list_files(self.target.metadata_folder))
        return sorted(int(match[1]) for match in matches if match)

"""Publishing on an object store: by a manifest with the next number, which only one can create.

The store then copies the parts to where other tools look for them. That is not one step: for its
duration :func:`~hyperplane.storage.load` reads them where they were written.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import replace

from hyperplane.errors import StorageError
from hyperplane.storage.commit_protocol import State, conflict, foreign
from hyperplane.storage.manifest import Manifest
from hyperplane.storage.object_store import Shelf
from hyperplane.storage.target import Target

_COMMIT = re.compile(r"commit-([0-9]{8})\.json")


class Numbers:
    """On an object store: by a manifest with the next number, which only one can create."""

    def __init__(self, target: Target, shelf: Shelf) -> None:
        self.target, self.shelf = target, shelf

    def state(self) -> State:
        """What others see now: the manifest with the highest number."""
        while True:
            if numbers := self._numbers():
                found = self.shelf.get(f"{self.target.beside}/{_commit(numbers[-1])}")
                if found is not None:
                    return State(str(numbers[-1]), Manifest.from_json(found))
                # It was removed since it was listed, so there is a later one.
            elif not (sizes := self._sizes()):
                return State()
            elif not self._numbers():  # else they are the parts of a commit of this moment
                return State("0", foreign(sizes))

    def _sizes(self) -> dict[str, int]:
        """The bytes of each file that is where other tools look."""
        found = self.shelf.listing(self.target.path)
        if not found and self.shelf.is_file(self.target.path):
            found = {"": self.shelf.store.system.info(self.target.path)}
        return {name: int(info["size"] or 0) for name, info in found.items()}

    def settle(self, state: State) -> None:
        """Copy the parts of the manifest, where whoever published it did not come to that."""
        manifest = state.manifest
        number = manifest.details.get("commit") if manifest else None
        if manifest and number and not self.shelf.is_file(self._done(number)):
            self.tidy(manifest)

    def publish(self, manifest: Manifest, staged: str, base: State) -> Manifest:
        """Create the next manifest, then copy the parts; see :class:`Commits`."""
        number = int(base.version or 0) + 1
        folder = staged.removeprefix(f"{self.target.beside}/")
        manifest = replace(
            manifest, details={**manifest.details, "staged": folder, "commit": number}
        )
        if number == 1 and base.manifest is not None:  # what another program wrote
            names = [part.name for part in base.manifest.parts]
            manifest = replace(manifest, details={**manifest.details, "replaced": names})
        body = manifest.to_json().encode()
        try:
            self.shelf.put_new(f"{self.target.beside}/{_commit(number)}", body)
        except FileExistsError as error:
            raise conflict(self.target) from error
        if self._superseded(number):
            # Others have published since, and have cleared away the commit of this number.
            self.shelf.remove([f"{self.target.beside}/{_commit(number)}"])
            raise conflict(self.target)
        self.tidy(manifest)
        return manifest

    def needs(self, attempt: str) -> bool:
        """Whether an attempt is published, and its parts are not all copied yet."""
        manifest = self.state().manifest
        if manifest is None or not self._staged(manifest).startswith(f"{attempt}/"):
            return False
        return not self.shelf.is_file(self._done(manifest.details["commit"]))

    def drop(self, attempt: str) -> None:
        """Remove an attempt, unless it is needed."""
        if not self.needs(attempt):
            self.shelf.remove_folder(attempt)

    def tidy(self, manifest: Manifest) -> None:
        """Bring the parts to where other tools look; a second time it does what is left to do."""
        path, number = self.target.path, int(manifest.details["commit"])
        staged, done = self._staged(manifest), self._done(number)
        if not self.shelf.is_file(done):
            wanted = {part.name for part in manifest.parts}
            to_copy = [name for name in self.shelf.listing(staged) if name in wanted]
            try:
                self.shelf.each(
                    lambda name: self.shelf.copy(f"{staged}/{name}", f"{path}/{name}"), to_copy
                )
            except (FileNotFoundError, StorageError) as error:
                # Another process does the same, and was faster.
                if self.shelf.missing(error) and self._is_tidied(number):
                    return
                raise
            if self._superseded(number):
                return
            replaced = self._replaced(manifest, number) - wanted
            self.shelf.remove(f"{path}/{name}".rstrip("/") for name in replaced)
            self.shelf.put(done, b"")
        self.shelf.remove_folder(staged)
        older = [before for before in self._numbers() if before < number]
        self.shelf.remove(f"{self.target.beside}/{_commit(before)}" for before in older)
        self.shelf.remove(map(self._done, older))

    def _replaced(self, manifest: Manifest, number: int) -> set[str]:
        """Names of the parts that this commit took the place of; of others nothing is removed."""
        before = self.shelf.get(f"{self.target.beside}/{_commit(number - 1)}")
        if before is not None:
            return {part.name for part in Manifest.from_json(before).parts}
        return set(manifest.details.get("replaced", ()))

    def _superseded(self, number: int) -> bool:
        return max(self._numbers(), default=0) > number

    def _is_tidied(self, number: int) -> bool:
        return self.shelf.is_file(self._done(number)) or self._superseded(number)

    def where(self, manifest: Manifest) -> list[str]:
        """The paths of the parts, be they copied or not."""
        path, aside = self.target.path, self._not_copied(manifest)
        staged = self._staged(manifest)
        return [
            f"{staged if part.name in aside else path}/{part.name}".rstrip("/")
            for part in manifest.parts
        ]

    def folder(self, manifest: Manifest) -> str:
        """The path of a folder that has all of them."""
        return self._staged(manifest) if self._not_copied(manifest) else self.target.path

    def _not_copied(self, manifest: Manifest) -> Set[str]:
        """Names of parts that are still where they were written."""
        number = manifest.details.get("commit")
        if number is None or self.shelf.is_file(self._done(number)):
            return frozenset()
        return self.shelf.listing(self._staged(manifest)).keys()

    def _done(self, number: int) -> str:
        """A mark that all parts of a commit are where other tools look."""
        return f"{self.target.beside}/commit-{number:08d}.done"

    def _staged(self, manifest: Manifest) -> str:
        return f"{self.target.beside}/{manifest.details.get('staged', '')}"

    def _numbers(self) -> list[int]:
        found = map(_COMMIT.fullmatch, self.shelf.listing(self.target.beside))
        return sorted(int(match[1]) for match in found if match)


def _commit(number: int) -> str:
    return f"commit-{number:08d}.json"

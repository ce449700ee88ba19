"""Recorded answers of a service of Amazon."""

from __future__ import annotations

from typing import Any

from hyperplane.platforms.aws.errors import AwsError


class AnsweredSession:
    """Answers of each operation, in turn: dicts, or errors to raise."""

    def __init__(self, service: str, *answers: Any) -> None:
        self.service, self.answers = service, list(answers)
        self.requests: list[tuple[str, Any]] = []

    def call(self, service: str, operation: str, **request: Any) -> Any:
        assert service == self.service
        self.requests.append((operation, request))
        answer = self.answers.pop(0)
        if isinstance(answer, AwsError):
            raise answer
        return answer

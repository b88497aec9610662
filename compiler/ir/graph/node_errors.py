"""Errors of a node's import: both importers name the node, its operator and its inputs alike."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from compiler.errors import CompileError, ImportFailed, is_out_of_memory
from compiler.ir.graph.origins import Origins

_MESSAGE_CHARACTERS = 300


class NodeErrors:
    """A base for the nodes that handlers see."""

    @property
    def label(self) -> str:
        """The name under which messages and the trace of an inspection speak of the node."""
        raise NotImplementedError

    @property
    def origin(self) -> str:
        """The name under which profiles speak of the node."""
        return self.label

    @property
    def origins(self) -> Origins:
        """Names what the node's import emits."""
        raise NotImplementedError

    @property
    def op(self) -> str:
        """The operator with its domain."""
        raise NotImplementedError

    def describe_inputs(self) -> list[str]:
        """Each input for messages: dtype and symbolic shape of tensors."""
        raise NotImplementedError

    def fail(
        self, message: str, *, reason: str = "invalid_node", hint: str | None = None
    ) -> NoReturn:
        """Raise ImportFailed naming this node, its operator and the shapes of its inputs."""
        raise ImportFailed(
            message,
            reason=reason,
            node=self.label,
            op=self.op,
            hint=hint,
            inputs=self.describe_inputs(),
        )

    @contextmanager
    def naming_errors(self) -> Iterator[None]:
        """Errors of the body name this node, unless they name another already; what the body emits
        is named after it.
        """
        try:
            with self.origins.inside(self.origin, f"{self.op} {self.label!r}"):
                yield
        except CompileError as error:
            if error.failure.node is None:
                reason = error.failure.code.partition(".")[2]
                self.fail(error.failure.message, reason=reason, hint=error.failure.hint)
            raise
        # TVM's and numpy's errors of a handler that was given what it did not expect.
        except Exception as error:
            if is_out_of_memory(error):
                raise
            raise ImportFailed(
                f"{self.op} cannot be imported here: {_last_line(error)}",
                reason="internal",
                node=self.label,
                op=self.op,
                inputs=self.describe_inputs(),
            ) from error


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:_MESSAGE_CHARACTERS]

"""How chat templates compile: jinja2's code, with text origins kept, loops counted, and nothing run at compile time."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from minfer_models.chat.budget import STEP


class ChatCodeGenerator(CodeGenerator):
    """Sends `~`, loops, slices, comparisons and dict keys through the environment, which counts what they cost."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._around: dict[int, tuple[str, str]] = {}

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """As jinja2, with the call put around the expressions that get one."""
        before, after = self._around.pop(id(node), ("", ""))
        if not before:
            return super().visit(node, *args, **kwargs)
        self.write(before)
        super().visit(node, *args, **kwargs)
        self.write(after)
        return None

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802
        """Tells the environment how long the template is: what a macro's call costs at most, loops aside."""
        self.environment.template_size = _size(node)  # type: ignore[attr-defined]
        super().visit_Template(node, frame)

    def enter_frame(self, frame: Frame) -> None:
        """Tells the environment which names the template takes from outside."""
        super().enter_frame(frame)
        read = {name for action, name in frame.symbols.loads.values() if action == "resolve" and name is not None}
        self.environment.outside_names |= read  # type: ignore[attr-defined]

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """jinja2's own helper would lose the operands' origins."""
        self.write("environment.concat(map(environment.finalize, (")
        for operand in node.nodes:
            self.visit(operand, frame)
            self.write(", ")
        self.write(")))")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802
        """A step costs as much as the loop's body is long."""
        self._around[id(node.iter)] = ("environment.counted(", f", {STEP + sum(map(_size, node.body))})")
        super().visit_For(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """A slice copies."""
        if isinstance(node.arg, nodes.Slice):
            self._around[id(node.node)] = ("environment.copied(", ")")
        super().visit_Getitem(node, frame)

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        """A comparison reads all of both sides."""
        for operand in (node.expr, *(o.expr for o in node.ops)):
            self._read(operand)
        super().visit_Compare(node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        """A key is hashed."""
        for pair in node.items:
            self._read(pair.key)
        super().visit_Dict(node, frame)

    def _read(self, node: nodes.Node) -> None:
        if not isinstance(node, nodes.Const):
            self._around[id(node)] = ("environment.read(", ")")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        """Only the text between tags is constant: evaluating anything else belongs to a rendering and its budget."""
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible()
        return super()._output_child_to_const(node, frame, finalize)


def _size(node: nodes.Node) -> int:
    return sum(1 for _ in node.find_all(nodes.Node))

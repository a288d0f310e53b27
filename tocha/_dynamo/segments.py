"""Segments: a program runs as a chain of captured stretches, with what can't be captured done in plain Python between them.

    state   = frames (code, place, locals, stack) with real values
    segment = prologue (guards) -> graph -> epilogue (writes; the result, or the frames at the break)

Segments are kept by where the frames stand; at one place there may be several, told apart by their guards.
"""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable
from typing import Any

from tocha._dynamo import arrays, config, control, functions, library, opcodes, report, rules, scalars, subgraphs, transforms
from tocha._dynamo.backends import Backend, compile_graph, freezes
from tocha._dynamo.bound import Bound, met
from tocha._dynamo.exc import (
    BackendCompilerFailed,
    Break,
    CheckFailed,
    NotDynamic,
    RecompileError,
    RecompileLimitExceeded,
    Refused,
    Restart,
    Unsupported,
)
from tocha._dynamo.frame import NULL, Frame
from tocha._dynamo.generators import Generator
from tocha._dynamo.guards import Guards, Prologue, environment
from tocha._dynamo.interpreter import Interpreter
from tocha._dynamo.rebuild import Rebuilder, Unmakeable
from tocha._dynamo.recorder import Recorder, leave_modes, set_grad_mode
from tocha._dynamo.sizes import SizeChanged
from tocha._dynamo.source import Source
from tocha._dynamo.tracer import Tracer
from tocha._dynamo.world import Unentered, World
from tocha.aot import journal, trace
from tocha.aot.run import draw, draw_into
from tocha.autograd import mode
from tocha.dispatch.override import DisableTorchFunction, stacks
from tocha.nn import Parameter
from tocha.tensor import Tensor

#: The stance in force: "default", "force_eager", "eager_on_recompile" or "fail_on_recompile".
stance = ["default"]
assert opcodes and control and rules and subgraphs and library and functions and transforms  # their functions register themselves


class Frames(list[Frame]):
    """The frames of a suspended program, innermost last, and the exception it is handling."""

    handled: Any = None
    owned: dict[int, Any] = {}  # noqa: RUF012  # iterators that only the frames hold, by id; never changed in place

    def key(self) -> Any:
        """Where the program stands."""
        return tuple([(f.code, f.ip, tuple(f.local), f.outline(), f.instead is NULL) for f in self]) + (self.handled is None,)


@dataclasses.dataclass(slots=True)
class Segment:
    """A captured stretch. `graph` is None if it computes nothing on tensors."""

    prologue: Prologue
    environment: Any
    inputs: int
    graph: Callable[..., Any] | None
    module: Any
    epilogue: Callable[[Any, Any], Any]
    epilogue_text: str
    returns: bool
    reason: str  # of the break
    hint: str  # what to do about it
    where: str
    shapes: dict[str, tuple[int, ...]]  # of tensors from before, by where they come from
    check: Callable[[Any, Any], Any]
    wait: int = 8  # entries until it is bound, and how many it will be the next time
    again: int = 8

    def text(self) -> str:
        """The three functions."""
        code = "" if self.module is None else self.module.code
        return f"{self.prologue.text}\n{code}\n{self.epilogue_text}"


class Program:
    """A function and its segments."""

    def __init__(self, name: str, backend: Backend, options: dict[str, Any], fullgraph: bool) -> None:
        self.name, self.backend, self.options, self.fullgraph = name, backend, options, fullgraph
        self.segments: dict[Any, list[Segment]] = {}
        self.dynamic: bool | None = None
        self.fixed: set[Any] = set()  # places where sizes turned out not to vary freely
        self.constant: set[Any] = set()  # places where floats are
        self.plain: dict[Any, str] = {}  # places that run in plain Python from there on, and why
        self.bound: tuple[Bound, ...] = ()  # segments of the entry, for objects that come again

    def recall(self, local: dict[str, Any], frames: Callable[[dict[str, Any]], Frames]) -> Any:
        """What a call gives by a bound segment; NULL if none is for it, and nothing has happened."""
        around = environment()
        for bound in self.bound:
            given = bound.check(local, None)
            if given.__class__ is not tuple or bound.environment != around:
                if given == bound.last:  # words that differ never come back
                    self.bound = tuple([b for b in self.bound if b is not bound])
                continue
            segment, outs = bound.segment, ()
            if bound.graph is not None:
                try:
                    outs = bound.graph(*given[0])
                except SizeChanged:
                    return NULL  # the guards that are asked one by one come to the same end
                except Exception as error:
                    return self._raised(segment, frames(local), error)
            result = segment.epilogue(given[1], outs)
            if segment.returns:
                return result
            stepped = self._stepped(result)
            return stepped[0] if stepped.__class__ is tuple else self.run(stepped, None)
        return NULL

    def run(self, frames: Frames, original: Callable[[], Any] | None) -> Any:
        """Run to the end. `original` runs the whole call in plain Python; it is used before anything happened."""
        while True:
            key, around, modes = frames.key(), environment(), stacks.function_modes
            segment, given = self.find(key, frames, around) if not modes else without_modes(self.find, key, frames, around)
            if segment is None:
                return Interpreter(frames, frames.handled).execute(0)[1] if original is None else original()
            outs: Any = ()
            if segment.graph is not None:
                try:
                    used = given[: segment.inputs]
                    outs = segment.graph(*used) if not modes else without_modes(segment.graph, *used)
                except SizeChanged:
                    if segment.module.meta["by_example"]:
                        return Interpreter(frames, frames.handled).execute(0)[1] if original is None else original()
                    self.fixed.add(key)
                    self.segments[key].remove(segment)
                    self.bound = tuple([b for b in self.bound if b.segment is not segment])
                    continue
                except Exception as error:
                    return self._raised(segment, frames, error)
            if original is not None:
                met(self, segment, frames[0].local)
            original = None
            result = segment.epilogue(given, outs) if not modes else without_modes(segment.epilogue, given, outs)
            if segment.returns:
                return result
            stepped = self._stepped(result)
            if stepped.__class__ is tuple:
                return stepped[0]
            frames = stepped

    def _raised(self, segment: Segment, frames: Frames, error: Exception) -> Any:
        """After a graph raised, which has written nothing then: in plain Python the error comes where it belongs, after what was before it."""
        leave_modes(segment.environment[0])
        if isinstance(error, CheckFailed):
            raise error
        return Interpreter(frames, frames.handled).execute(0)[1]

    def _stepped(self, result: Any) -> Any:
        """The frames after the instruction that broke the graph; the result in a tuple if that was the last one."""
        vm = Interpreter(result[0], result[1])
        vm.step()
        if vm.done is not NULL:
            return (vm.done[1],)
        frames = Frames(vm.frames)
        frames.handled, frames.owned = vm.handled, result[2]
        return frames

    def find(self, key: Any, frames: Frames, around: Any) -> tuple[Segment | None, Any]:
        """The segment whose guards hold, captured now if there is none; None if it is to run in plain Python."""
        found = self.segments.get(key)
        failed: list[str] = []
        if found is not None:
            for i, segment in enumerate(found):
                if segment.environment == around:
                    given = segment.check(frames[0].local, frames)
                    if given.__class__ is tuple:
                        if i:
                            found.insert(0, found.pop(i))
                        return segment, given
                    failed.append(segment.prologue.failure(given))
                else:
                    failed.append("the grad mode, autocast, inference mode, function modes or default type")
        if key in self.plain:
            return None, ()
        if found is not None and len(found) >= config.limit():
            self._give_up(key, frames, failed)
            return None, ()
        if stance[0] == "eager_on_recompile":
            return None, ()
        with journal.about((self.name, frames[-1].where())):
            report.listen()
            return self._captured(key, frames, around, failed)

    def _captured(self, key: Any, frames: Frames, around: Any, failed: list[str]) -> tuple[Segment | None, Any]:
        """A new segment; None if there can be none."""
        if stance[0] == "fail_on_recompile" or (failed and config.error_on_recompile):
            raise RecompileError(
                f"torch.compile: {self.name} would be captured {'anew' if failed else 'now'} at {frames[-1].where()}"
                f"{': ' + failed[0] if failed else ''}, which {'the stance' if stance[0] != 'default' else 'the configuration'} forbids"
            )
        if failed:
            report.recompile(frames[-1].where(), failed)
        try:
            with journal.without_collections(), journal.stage("capture"):
                segment = capture(frames, self, around, key)
        except Refused as why:
            report.refused(frames[-1].where(), str(why))
            if self.fullgraph:
                raise Unsupported(f"{why} ({frames[-1].where()})") from None
            self.plain[key] = str(why)
            return None, ()
        given = segment.check(frames[0].local, frames)
        if given.__class__ is not tuple:  # the trace changed what it looked at, or took it for something else
            self.plain[key] = f"a guard fails at once: {segment.prologue.failure(given)}"
            report.refused(frames[-1].where(), self.plain[key])
            return None, ()
        self.segments.setdefault(key, []).insert(0, segment)
        return segment, given

    def _give_up(self, key: Any, frames: Frames, failed: list[str]) -> None:
        self.limit_reached = True
        text = (
            f"torch.compile: {self.name} was captured {config.limit()} times at {frames[-1].where()} (config.recompile_limit); other "
            f"calls run eagerly. The latest failed check: {failed[0] if failed else ''}"
        )
        if self.fullgraph or config.fail_on_recompile_limit_hit:
            raise RecompileLimitExceeded(text)
        if key not in _warned:
            _warned.add(key)
            warnings.warn(text, UserWarning, stacklevel=5)


_warned: set[Any] = set()


_lock = threading.RLock()


class _Aside(threading.local):
    """The function modes around a captured stretch."""

    def __init__(self) -> None:
        self.modes: list[Any] = []


_aside = _Aside()


def without_modes(function: Callable[..., Any], *args: Any) -> Any:
    """Call with this thread's function modes off, which a trace asks itself and a graph has been asked about."""
    modes, held, outer = stacks.function_modes, list(stacks.function_modes), _aside.modes
    modes.clear()
    _aside.modes = held
    try:
        return function(*args)
    finally:
        modes[:], _aside.modes = held, outer


def capture(frames: Frames, program: Program, around: Any, key: Any) -> Segment:
    """Trace from a state on; again with an earlier end where a break came halfway, and with fixed sizes where they can't vary."""
    stop: dict[int, tuple[str, str]] = {}
    by_example = program.fullgraph
    while True:
        attempt = _Attempt(frames, stop)
        attempt.recorder.examples = by_example
        if program.dynamic is not False and key not in program.fixed and config.automatic_dynamic_shapes:
            attempt.world.previous = tuple([s.shapes for s in program.segments.get(key, ())]) or ({},)
            attempt.world.all_vary = program.dynamic is True
            attempt.world.enter_float = None if key in program.constant else scalars.from_before
        try:
            with _lock:
                return attempt.run(program, around)
        except (NotDynamic, Restart, Refused, Unmakeable) as end:
            if attempt.recorder.by_example and isinstance(end, NotDynamic):
                by_example = False
                continue
            if attempt.world.floats or isinstance(end, NotDynamic):
                (program.constant if attempt.world.floats else program.fixed).add(key)
                stop.clear()
                continue
            if isinstance(end, Refused):
                raise
            if isinstance(end, Restart):
                at, why = end.at, (end.reason, end.hint)
            else:
                place = attempt.made_at(end.value)
                if place is None:
                    raise Refused(str(end)) from None
                at, why = place, (str(end), "")
        if at in stop:
            raise Refused(why[0])
        stop[at] = why


class _Attempt:
    """One trace."""

    def __init__(self, frames: Frames, stop: dict[int, tuple[str, str]]) -> None:
        self.frames, self.stop, self.modes = frames, stop, _aside.modes
        self.guards, self.recorder = Guards(), Recorder()
        self.world = World(self.guards, self.recorder)
        self.world.owned, self.world.enter_array = frames.owned, arrays.from_before
        self.tracer: Tracer | None = None

    def made_at(self, value: Any) -> int | None:
        return None if self.tracer is None else self.tracer.made_at.get(id(value))

    def run(self, program: Program, around: Any) -> Segment:
        with report.capturing(), self.recorder.recording():
            try:
                entered, handled = self.enter()
            except Break as why:
                raise Refused(why.reason) from None
            self.recorder.fullgraph = program.fullgraph
            self.recorder.scalars = program.fullgraph or config.capture_scalar_outputs
            self.tracer = tracer = Tracer(entered, handled, self.world, self.stop)
            what, value = tracer.run()
            if what == "break" and self.world.floats:  # perhaps a number was asked for
                raise NotDynamic
            if what == "break" and program.fullgraph:
                report.graph_break(entered[-1].where(), value)
                raise Unsupported(
                    f"graph break with fullgraph=True: {value.reason} ({entered[-1].where()}){value.hint and '. ' + value.hint}"
                )
            for generator in tracer.generators:
                if what == "return" and generator.cleans_up():
                    raise Refused("a generator is left before its end")
            parts = self.finish(what, value, not self.recorder.grad and freezes(program.backend, program.options))
            final = mode.is_grad_enabled()
        segment = parts(program, around, final)
        report.segment(segment)
        return segment

    def enter(self) -> tuple[list[Frame], Any]:
        """The frames with values of the trace."""
        made = []
        for i, f in enumerate(self.frames):
            base = self.guards.root(f"frames[{i}].local" if i else "local", "")
            stack = self.guards.root(f"frames[{i}].stack", "stack")
            new = Frame(f.code, f.globals, {})
            new.ip = f.ip
            for name, value in f.local.items():
                new.local[name] = Unentered(value, base.item(name, name))
            new.stack += [v if v is NULL else self.world.enter_iterator(v, stack.item(j)) for j, v in enumerate(f.stack)]
            new.instead = (
                f.instead
                if f.instead is NULL
                else self.world.enter(f.instead, self.guards.root(f"frames[{i}].instead", "result"))
            )
            made.append(new)
        around = self.world.constant(_aside, "modes").attribute("modes") if self.modes else None
        self.recorder.modes = [self.world.enter(m, around.item(i, f"mode {i}")) for i, m in enumerate(self.modes) if around is not None]
        handled = self.frames.handled
        return made, handled if handled is None else self.world.enter(handled, self.guards.root("frames.handled", "exception"))

    def finish(self, what: str, value: Any, freezing: bool) -> Callable[[Program, Any, bool], Segment]:
        """The segment's parts; its graph is compiled by the returned function, outside the trace."""
        recorder, world, tracer = self.recorder, self.world, self.tracer
        if recorder.checks and any(n.target in (draw, draw_into) for n in trace.graph().nodes):
            raise NotDynamic  # when a check fails the call starts again, which must not draw again
        assert tracer is not None
        if recorder.opened:
            context, at = recorder.opened[0]
            raise Restart(at, f"a {type(context).__name__} is entered that is open where the graph ends", "")
        used, inputs = [], []
        for node, t in zip([n for n in recorder.graph.nodes if n.op == "placeholder"], list(recorder.inputs), strict=True):
            if node.users:
                used.append(world.known[id(t)].source)
                inputs.append(t)
            else:
                recorder.graph.erase_node(node)
        with DisableTorchFunction():
            constants = self.constants(used, inputs) if freezing else {}
        still_open = recorder.close()
        rebuilder = Rebuilder(world, used)
        rebuilder.effects()
        if what == "return":
            if isinstance(value, Generator):
                raise Unmakeable(value, "a generator is returned")
            result = rebuilder.value(value)
        else:
            handled = rebuilder.value(tracer.handled)
            listed = ", ".join(rebuilder.frame(f) for f in tracer.frames)
            result = f"([{listed}], {handled}, {rebuilder.owned()})"
        if mode.is_grad_enabled() != recorder.grad:
            rebuilder.lines.append(f"{rebuilder.constants.name(set_grad_mode)}({mode.is_grad_enabled()})")
        for context in still_open:
            rebuilder.lines.append(f"{rebuilder.value(tracer.entered.get(id(context), context))}.__enter__()")
        epilogue, text = rebuilder.compile(result)
        prologue = self.guards.compile(rebuilder.given)
        where = "" if what == "return" else tracer.frames[-1].where()
        module = recorder.module(rebuilder.outputs) if recorder.calls or recorder.checks or rebuilder.outputs else None
        if recorder.writes and recorder.checks:
            raise NotDynamic  # when a check fails nothing must have happened
        if module is not None:
            module.meta["dynamic"], module.meta["constants"] = recorder.varying, constants
            module.meta["by_example"] = recorder.by_example
            module.meta["written"] = [i for i, t in enumerate(inputs) if world.known[id(t)].value._a.buffer.version]
        reason, hint = ("", "") if what == "return" else (value.reason, value.hint)

        def compiled(program: Program, around: Any, final: bool) -> Segment:
            graph = None if module is None else _compiled(program, module, inputs)
            return Segment(
                prologue,
                around,
                len(used),
                graph,
                module,
                epilogue,
                text,
                what == "return",
                reason,
                hint,
                where,
                world.shapes,
                prologue.call,
            )

        return compiled

    def constants(self, used: list[Source], inputs: list[Tensor]) -> dict[int, Tensor]:
        """Parameters and buffers that the graph doesn't write to, by their number: guarded to be the same, unchanged, at every call."""
        found: dict[int, Tensor] = {}
        for i, (source, t) in enumerate(zip(used, inputs, strict=True)):
            held = isinstance(t, Parameter) or (source.parent is not None and source.parent.step == ("attribute", "_buffers"))
            fake = self.world.known[id(t)].value
            if held and not t.is_inference() and not fake._a.buffer.version and (id(fake), "data") not in self.world.overlay:
                source.check("is as it was frozen", "{v} is {c0} and {v}._version == {c1}", t, t._version)
                found[i] = t
        return found


def _compiled(program: Program, module: Any, inputs: list[Any]) -> Callable[..., Any]:
    try:
        return compile_graph(program.backend, module, inputs, program.options)
    except BackendCompilerFailed as error:
        if not config.suppress_errors:
            raise
        warnings.warn(f"torch.compile: {error}; the graph runs eagerly", UserWarning, stacklevel=2)
        return module.forward

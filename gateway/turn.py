"""One turn, from the checked request to its record."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import structlog
from django.db import InterfaceError, OperationalError

from gateway import definitions, demo, loop, metrics, spans, sse, tails, wiring
from gateway.chat import Chat
from gateway.fields import Fields
from gateway.outlet import Outlet
from gateway.providers import Route
from gateway.record import Record, Status
from gateway.sse import Event
from gateway.turns import TURNS, Stopping
from gateway.upstream import Upstream
from gateway.wire import Tail, Usage, Wire
from orazaka.caller import Caller
from orazaka.errors import OrazakaError
from orazaka.http import HTTP
from orazaka.runtime import Runtime
from orazaka.tracing import TRACER
from orazaka.writer import WRITER
from tools.base import ToolCall

Json = Any
logger = logging.getLogger(__name__)

KINDS: dict[str, type[Wire]] = {"chat": Chat}


class TurnLate(OrazakaError):
    """The turn took longer than its provider's limit for one."""

    status = 504
    code = "turn_timeout"


class NoDatabase(OrazakaError):
    """What the turn needs from the database can't be had."""

    status = 503
    code = "database_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a client asked: its body without the gateway's members, and those."""

    caller: Caller
    wire: str
    body: dict[str, Json]
    fields: Fields
    route: Route
    headers: dict[str, str]
    trace: dict[str, str] = field(default_factory=dict)  # where the turn's spans belong


class Turn:
    """One owner task runs the turn from start to end; the response only waits for it.

    For a plain turn `reply` is the answer once `over` returns; a streamed one comes by `outlet`.
    Where neither came to be, `failed` says why.
    """

    def __init__(self, ask: Ask, runtime: Runtime) -> None:
        self.ask, self._runtime = ask, runtime
        self.stream = bool(ask.body.get("stream"))
        name = f"{ask.route.peer.name}:{ask.route.model}"
        self.record = Record(ask.caller, wire=ask.wire, model=name, streamed=self.stream)
        self.reply: Event | None = None
        self.failed: OrazakaError | None = None
        self.back: dict[str, str] = {}  # headers of the provider for the client
        self._kind = KINDS[ask.wire]
        self._wire: Wire | None = None
        self.outlet = Outlet()
        if ask.fields.orazaka_trace and self.stream:
            self.record.watch = lambda step: self.outlet.note(sse.comment(b"trace " + step))
        self.task = runtime[TURNS].start(self._run())

    # --- the owner task

    async def _run(self) -> None:
        structlog.contextvars.bind_contextvars(request_id=self.ask.caller.request_id)
        limit = self.ask.route.peer.limits.turn
        status: str = Status.ERROR
        try:
            async with asyncio.timeout(limit) as deadline:
                await self._work()
            status = Status.OK
        except asyncio.CancelledError:
            status = Status.CANCELLED
            if not self._runtime[TURNS].cut:
                raise
            self._fail(Stopping("the gateway is stopping, and the turn took too long to wait for"))
        except OrazakaError as error:
            self._fail(error)
        except TimeoutError:
            if not deadline.expired():
                logger.exception("a limit inside a turn was not heeded where it was set")
            self._fail(TurnLate(f"the turn took longer than {limit:g} seconds"))
        except (OperationalError, InterfaceError):
            logger.exception("the database can't be reached")
            self._fail(NoDatabase("the gateway's database can't be reached now", retry_after=1))
        except Exception:
            logger.exception("a turn failed because of a fault of ours")
            self._fail(OrazakaError("the gateway failed because of a fault of its own"))
        finally:
            self._close(status)

    def _close(self, status: str) -> None:
        self.outlet.close()  # first: whatever fails below, the response comes to its end
        ask, record = self.ask, self.record
        usage = self._wire.totals() if self._wire else Usage()
        self._runtime[WRITER].put(*record.rows(status, usage, self.failed))
        peer = ask.route.peer.name
        metrics.count(record, wire=ask.wire, provider=peer, status=status, usage=usage)
        if tracer := self._runtime[TRACER]:
            spans.report(
                tracer,
                record,
                wire=ask.wire,
                provider=peer,
                model=ask.route.model,
                usage=usage,
                error=self.failed,
                parent=ask.trace,
            )

    async def _work(self) -> None:
        ask, record = self.ask, self.record
        box = await wiring.attach(
            ask.fields, body=ask.body, caller=ask.caller, runtime=self._runtime, record=record
        )
        body = await self._restored(ask.body)
        self._wire = wire = self._kind(
            body,
            tools=[definitions.chat(shown) for shown in box.shown],
            claims=wiring.claims(box, ask.body),
            hints=wiring.hints(box, header=ask.fields.tools_header),
            images=ask.route.sees,
        )
        shown = loop.run(
            wire,
            self._recorded(self._upstream(), wire),
            lambda calls: box.call_all(calls, caller=ask.caller),
            limit=ask.fields.rounds,
            keep=self._keep,
        )
        async with aclosing(shown) as batches:  # type: ignore[type-var]
            async for batch in batches:
                record.output()
                if self.stream:
                    await self.outlet.put(b"".join(map(wire.encode, batch)))
                else:
                    self.reply = batch[-1]
        if self.reply is not None and ask.fields.orazaka_trace:
            self.reply = {**self.reply, "orazaka": {"trace": record.steps}}

    def _upstream(self) -> loop.Upstream:
        route = self.ask.route
        if route.demo:
            return demo.answer
        session = self._runtime[HTTP].trusted
        upstream = Upstream(session, route, self.ask.wire, headers=self.ask.headers)
        self.back = upstream.back
        return upstream

    def _recorded(self, upstream: loop.Upstream, wire: Wire) -> loop.Upstream:
        """The same, each model call noted as a step with its own usage: they add up."""
        record, model = self.record, self.ask.route.model[:255]

        async def call(body: Json) -> AsyncIterator[list[Event]]:
            record.rounds += 1
            number, started, before = record.rounds, record.now(), wire.totals()
            outcome = "error"
            try:
                async with aclosing(upstream(body)) as batches:  # type: ignore[type-var]
                    async for batch in batches:
                        yield batch
                outcome = "ok"
            except OrazakaError as error:
                outcome = "late" if error.status == 504 else "error"
                raise
            finally:
                if (task := asyncio.current_task()) and task.cancelling():
                    outcome = "cancelled"
                used = wire.totals().since(before)
                record.step("model", model, outcome, started=started, round=number, usage=used)

        return call

    async def _restored(self, body: dict[str, Json]) -> dict[str, Json]:
        """The body with what earlier turns kept in the place of the client's copies."""
        if not (ids := tails.ids_in(body["messages"])):
            return body
        caller, wire = self.ask.caller, self.ask.wire
        rows = await self._runtime.db(tails.find, ids, principal=caller.principal, wire=wire)
        if not rows:
            return body
        return {**body, "messages": tails.restored(body["messages"], rows)}

    async def _keep(self, tail: Tail, calls: Sequence[ToolCall]) -> None:
        """Before the reply ends: a continuation can come at once, to any worker."""
        await self._runtime.db(
            tails.save,
            tail,
            calls,
            principal=self.ask.caller.principal,
            wire=self.ask.wire,
            turn_id=self.record.id,
            messages=self.ask.body["messages"],
        )

    def _fail(self, error: OrazakaError) -> None:
        self.failed = error
        if self.stream and self.outlet.begun:
            self.outlet.note(self._kind.encode(self._kind.error(error, usage=self.usage)))

    @property
    def usage(self) -> Json:
        """What the model calls that are over have used, in the wire's own form; None so far."""
        return self._wire.usage if self._wire else None

    async def over(self) -> None:
        """Wait for the end."""
        await asyncio.wait({self.task})

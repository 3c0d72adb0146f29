"""Whoever does all the harm: by a table, by dice with a seed, and with a record of each act."""

import heapq
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from tests.proxy import Cut, Proxy

from chaos.app import LEASE
from chaos.fleet import Fleet, Slot, send
from chaos.grounds import Ground
from chaos.records import Recorder

BETWEEN: Final = 1.2  # seconds from one act to the next, on average
FIRST: Final = 4.0  # seconds until everybody is at work


class Act(NamedTuple):
    """Something that is done to the others: how often, on which stores, and what it counts as."""

    weight: int
    stores: str
    counts_as: str
    do: "Callable[[Nemesis], int]"


class Nemesis:
    """Does one act after the other, and what has to follow some of them later."""

    def __init__(self, ground: Ground, fleet: Fleet, recorder: Recorder, seed: int) -> None:
        self._ground, self._fleet, self._recorder = ground, fleet, recorder
        self._dice = random.Random(seed)  # noqa: S311 - no secrets here
        self._acts = [act for act in ACTS if ground.name in act.stores.split()]
        self._first = self._dice.sample(self._acts, len(self._acts))  # each of them once, whatever the dice say
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._next = time.monotonic() + FIRST
        self.counts: dict[str, int] = {act.counts_as: 0 for act in ACTS} | {"zombies": 0}

    def tick(self) -> None:
        """Do what it is time for."""
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()
        if time.monotonic() < self._next:
            return
        is_first = bool(self._first)
        act = self._first.pop() if is_first else self._dice.choices(self._acts, [a.weight for a in self._acts])[0]
        done = act.do(self)
        if is_first and not done:
            self._first.insert(0, act)  # there was nobody to do it to
        self.counts[act.counts_as] += done
        self._recorder.note("acts", act=act.do.__name__, counts_as=act.counts_as, done=done)
        self._next = time.monotonic() + self._dice.uniform(0.1, 1.9) * BETWEEN

    @property
    def is_satisfied(self) -> bool:
        """Tell whether each act was done, and somebody was stopped past his lease, and woke."""
        return not self._first and self.counts["zombies"] > 0

    def rest(self) -> None:
        """Do no more, and let everything follow that was to."""
        while self._later:
            heapq.heappop(self._later)[2]()

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), act))

    def _some(self, slots: list[Slot]) -> Slot:
        """Choose the older one of two: most of those who were just started hold nothing yet."""
        return min(self._dice.sample(slots, 2), key=lambda slot: slot.begun)

    # --- processes ----------------------------------------------------------------------------------------------------

    def kill_worker(self) -> int:
        """Switch a worker off, with everything that it started."""
        return self._fleet.kill(self._some(self._fleet.workers))

    def kill_process(self) -> int:
        """Kill one process of a worker: the parent, a child, or one that runs isolated attempts."""
        tree = self._some(self._fleet.workers).tree
        if tree:
            send([self._dice.choice(tree)], signal.SIGKILL)
        return min(1, len(tree))

    def kill_client(self) -> int:
        """Kill a client, in the middle of whatever it asks for."""
        return self._fleet.kill(self._some(self._fleet.clients))

    def stop_worker(self) -> int:
        """Stop a worker for longer than its leases, and let it go on: by then its jobs are somebody else's."""
        slot = self._some(self._fleet.workers)
        tree = slot.tree
        if slot.stopped or not tree:
            return 0
        slot.stopped = True
        send(tree, signal.SIGSTOP)
        begun, born = time.monotonic(), slot.born
        self._in(self._dice.uniform(1.2, 2.5) * LEASE, lambda: self._wake(slot, born, tree, begun))
        return 1

    def _wake(self, slot: Slot, born: int, tree: list[int], begun: float) -> None:
        if slot.born != born or not slot.tree:
            return  # it was killed meanwhile
        send(tree, signal.SIGCONT)
        slot.stopped = False
        stopped = time.monotonic() - begun
        self.counts["zombies"] += stopped > LEASE
        self._recorder.note("wakes", worker=slot.name, stopped=stopped)

    # --- a server -----------------------------------------------------------------------------------------------------

    def crash_server(self) -> int:
        """Kill the server, and start it again: it recovers from its log."""
        if not self._ground.is_up:
            return 0
        self._ground.crash()
        self._in(self._dice.uniform(0, 2), self._ground.start)
        return 1

    def kill_backend(self) -> int:
        """Kill one process of the server, which then throws everybody out and recovers."""
        pids = self._ground.backends() if self._ground.is_up else []
        if pids:
            send([self._dice.choice(pids)], signal.SIGKILL)
        return min(1, len(pids))

    def _ways(self) -> list[Proxy]:
        """Choose the way to the server of the workers, of the clients, or both."""
        return self._dice.sample(self._ground.proxies, self._dice.randint(1, 2))

    def cut_all(self) -> int:
        """Cut all connections at once."""
        return sum(proxy.sever() for proxy in self._ways())

    def cut_reply(self) -> int:
        """Cut connections one by one: mostly when the server has done what it was asked, and before it can say so."""
        cut = self._dice.choices(list(Cut), [1, 3])[0]
        for proxy in self._ways():
            proxy.cut(self._dice.randint(1, 8), cut, times=10)
            self._in(2 * BETWEEN, proxy.listen)  # whoever listens counts anew, and forgets
        return 1

    def refuse(self) -> int:
        """Cut all connections, and take no new ones for a while."""
        ways = self._ways()
        for proxy in ways:
            proxy.refuses = True
            self._in(self._dice.uniform(0.5, 3), partial(setattr, proxy, "refuses", False))
        return sum(proxy.sever() for proxy in ways)

    def hold(self) -> int:
        """Let nothing through for a while, some of it longer than a lease."""
        for proxy in self._ways():
            proxy.hold()
            self._in(self._dice.uniform(0.5, 2.5) * LEASE, proxy.resume)
        return 1

    # --- a file -------------------------------------------------------------------------------------------------------

    def lock_file(self) -> int:
        """Hold the file's write lock, now and then for longer than a lease."""
        self._ground.lock(self._dice.uniform(0.2, 1.5) * LEASE)
        return 1


ACTS: Final = (
    Act(6, "sqlite postgres", "worker processes killed", Nemesis.kill_worker),
    Act(4, "sqlite postgres", "worker processes killed", Nemesis.kill_process),
    Act(3, "sqlite postgres", "clients killed", Nemesis.kill_client),
    Act(5, "sqlite postgres", "workers stopped", Nemesis.stop_worker),
    Act(2, "postgres", "database crashes", Nemesis.crash_server),
    Act(1, "postgres", "database crashes", Nemesis.kill_backend),
    Act(3, "postgres", "connections cut", Nemesis.cut_all),
    Act(6, "postgres", "rounds of cut replies", Nemesis.cut_reply),
    Act(1, "postgres", "connections cut", Nemesis.refuse),
    Act(3, "postgres", "black holes", Nemesis.hold),
    Act(4, "sqlite", "locks held", Nemesis.lock_file),
)

"""What Celery's workers do with a broker and a result backend in one server. Prints what was seen,
in the same order in each run: python3 run.py PORT."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

os.environ["PORT"] = sys.argv[1]

from celery import chain, chord, group  # noqa: E402
from celery.exceptions import TimeoutError  # noqa: E402
from celery.result import AsyncResult, GroupResult  # noqa: E402

import tasks  # noqa: E402
from tasks import app, notes  # noqa: E402

SECONDS = 60
# How often a result is asked for within them.
ASKED_MAX = 6


def main():
    with worker("solo", "-Q", "celery"):
        for part in [results, workflows, retries, delays, revoked, rate_limit, control]:
            part()
    for pool in [["prefork", "--concurrency", "2"], ["threads", "--concurrency", "4"]]:
        pools(*pool)
    priorities()
    lost_worker()
    purge()
    show("keys that are left", left())


def results():
    """What becomes of a single task."""
    show("add", value_of(tasks.add.delay(2, 3)))
    failed = tasks.broken.delay("no luck")
    show("broken", [error_of(failed), failed.state, failed.failed()])
    named = tasks.add.apply_async((1, 1), task_id="named")
    show("named", [value_of(named), AsyncResult("named", app=app).state])
    show("extended", [named.name, named.args, named.queue, named.retries])
    backend = app.backend.client
    seconds = backend.ttl(app.backend.get_key_for_task("named"))
    show("expires within the hour", 3500 < seconds <= 3600)
    show("stored", sorted(json.loads(backend.get("celery-task-meta-named"))))
    named.forget()
    state = AsyncResult("named", app=app).state
    show("forgotten", [state, backend.exists("celery-task-meta-named")])
    silent = tasks.silent.apply_async(("quiet",), task_id="silent")
    show("silent", [notes.blpop("silent", SECONDS), silent.state])
    show("unknown", AsyncResult("nobody", app=app).state)
    show("progress", [value_of(tasks.steps.delay(3)), notes.lrange("steps", 0, -1)])
    expiring = tasks.add.apply_async((1, 2), expires=-1)
    show("came too late", [error_of(expiring), expiring.state])


def workflows():
    """Chains, groups, chords, and what is built of them."""
    show("chain", value_of(chain(tasks.add.s(1, 2), tasks.add.s(10), tasks.add.s(100))()))
    many = group(tasks.add.s(n, n) for n in range(20))()
    show("group", value_of(many))
    many.save()
    again = GroupResult.restore(many.id, app=app)
    show("restored", [again.completed_count(), again.successful(), len(again)])
    many.delete()
    show("deleted", GroupResult.restore(many.id, app=app))
    show("chord", value_of(chord((tasks.add.s(n, 1) for n in range(10)), tasks.total.s())()))
    nested = chain(
        tasks.add.s(1, 1),
        group(tasks.add.s(n) for n in range(3)),
        tasks.total.s(),
        group(tasks.add.s(10), tasks.add.s(20)),
        tasks.total.s(),
    )
    show("chords in a chain", value_of(nested()))
    failing = chord([tasks.add.s(1, 1), tasks.broken.s("in a chord")], tasks.total.s())()
    show("chord that fails", re.sub(UUID, "ID", error_of(failing)))
    broken = chain(tasks.add.s(1, 1), tasks.total.s(), tasks.add.s(1))()
    show("chain that fails", error_of(broken.parent))
    show("what follows", error_of(broken))
    show("starmap", value_of(tasks.add.starmap([(1, 2), (3, 4)]).delay()))
    show("chunks", value_of(tasks.add.chunks(zip(range(6), range(6)), 2)()))
    show("replaced", value_of(tasks.replaced.delay(1, 2)))
    linked = tasks.add.apply_async((1, 2), link=tasks.silent.s())
    show("linked", [value_of(linked), notes.blpop("silent", SECONDS)[1]])
    linked = tasks.broken.apply_async(("bad",), link_error=tasks.silent.si("called"))
    show("linked to its error", [error_of(linked), notes.blpop("silent", SECONDS)[1]])


def retries():
    show("third time", value_of(tasks.patient.delay("third", 3)))
    failed = tasks.patient.delay("never", 100)
    show("never", [error_of(failed), failed.state, notes.get("attempts:never")])
    failed = tasks.stubborn.delay("key")
    show("stubborn", [error_of(failed), notes.get("attempts:key")])


def delays():
    """A countdown is waited for; what is due first runs first."""
    begun = time.time()
    later = tasks.add.apply_async((1, 0), countdown=4)
    soon = tasks.add.apply_async((2, 0), countdown=0.5)
    show("soon", [value_of(soon), time.time() - begun >= 0.5, later.ready()])
    show("later", [value_of(later), time.time() - begun >= 4])
    show("order", later.date_done > soon.date_done)


def revoked():
    waiting = tasks.add.apply_async((1, 1), queue="held", task_id="revoked")
    waiting.revoke()
    until("heard", lambda: "revoked" in str(inspect().revoked()))
    app.control.add_consumer("held", reply=True, timeout=10, limit=1)
    show("revoked", [error_of(waiting), waiting.state])


def rate_limit():
    """Four in a second: the last of six waits a second at least."""
    value_of(group(tasks.limited.s() for _ in range(6))())
    times = sorted(float(it) for it in notes.lrange("limited", 0, -1))
    show("rate limit", [len(times), times[-1] - times[0] >= 1])
    changed = app.control.rate_limit("tasks.limited", "100/s", reply=True, timeout=10, limit=1)
    show("changed", changed)


def control():
    """The worker answers what all workers are asked."""
    show("ping", app.control.ping(timeout=10, limit=1))
    show("registered", [it for it in inspect().registered()["solo@test"] if it.startswith("tasks")])
    show("queues", [it["name"] for it in inspect().active_queues()["solo@test"]])
    show("active", inspect().active())
    app.control.add_consumer("added", reply=True, timeout=10, limit=1)
    show("from another queue", value_of(tasks.add.apply_async((5, 5), queue="added")))
    show("counted", inspect().stats()["solo@test"]["total"]["tasks.add"])


def pools(pool, *options):
    """Workers that run some tasks at the same time."""
    with worker(pool, "-Q", "celery", *options):
        many = group(tasks.add.s(n, n) for n in range(50))()
        show(f"{pool} group", sum(value_of(many)))
        body = chord([tasks.add.s(n, n) for n in range(20)], tasks.total.s())()
        show(f"{pool} chord", value_of(body))
        show(f"{pool} retry", value_of(tasks.patient.delay(pool, 2)))


def priorities():
    """What waits in the queue is taken by its priority, and in order within one."""
    for name, priority in [("low", 9), ("high", 0), ("middle", 5), ("high2", 0), ("lower", 6)]:
        last = tasks.noted.apply_async((name,), priority=priority)
    waiting = app.connection().default_channel.client
    queues = ["ordered", "ordered\x06\x163", "ordered\x06\x166", "ordered\x06\x169"]
    show("waiting", [waiting.llen(queue) for queue in queues])
    with worker("solo", "-Q", "ordered"):
        until("five ran", lambda: notes.llen("order") == 5)
        value_of(last)
    show("priorities", notes.lrange("order", 0, -1))


def lost_worker():
    """A worker dies within a task, which the next worker does when the message is visible again."""
    task = tasks.lost.delay()
    broker = app.connection().default_channel.client
    with worker("solo", "-Q", "lost", dies=True):
        until("it dies", lambda: notes.get("lost") == "1")
    show("not acknowledged", [broker.zcard("unacked_index"), broker.hlen("unacked")])
    os.environ["VISIBILITY_SECONDS"] = "1"
    with worker("solo", "-Q", "lost"):
        show("done again", value_of(task))
    show("acknowledged", [broker.zcard("unacked_index"), broker.hlen("unacked")])


def purge():
    for n in range(7):
        tasks.add.delay(n, n)
    show("purged", app.control.purge())


def left():
    """The keys of the broker, and those of the backend by their kind."""
    found = {}
    for client in [app.connection().default_channel.client, app.backend.client]:
        for key in client.scan_iter(count=1000):
            kind = re.sub(UUID, "ID", key.decode())
            ttl = "expires" if client.ttl(key) > 0 else "stays"
            found[f"{kind} {client.type(key).decode()} {ttl}"] = 0
            found[f"{kind} {client.type(key).decode()} {ttl}"] += 1
    return sorted(kind for kind in found if "reply.celery.pidbox" not in kind)


@contextlib.contextmanager
def worker(pool, *options, dies=False):
    """A worker process that is ready, and that is told to stop at the end."""
    log = open(f"worker-{pool}.log", "a", encoding="utf-8")
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", pool,
               "--hostname", f"{pool}@test", "--loglevel", "WARNING", *options]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        if not dies:
            until(f"{pool} is ready", lambda: app.control.ping([f"{pool}@test"], timeout=1))
        yield process
        if not dies:
            process.send_signal(signal.SIGTERM)
        show(f"{pool} worker ends", process.wait(SECONDS))
    finally:
        process.kill()


def inspect():
    return app.control.inspect(["solo@test"], timeout=10, limit=1)


def value_of(result):
    """Waits for a value, which the client is told of by PUBLISH.

    The client asks, subscribes, and waits, without reading that it is subscribed. A server with
    many threads may come to the subscription late on a busy machine: then it must ask again."""
    for _ in range(ASKED_MAX):
        try:
            return result.get(timeout=SECONDS / ASKED_MAX)
        except TimeoutError:
            print("asked once more", file=sys.stderr)
    sys.exit("there is no result")


def error_of(result):
    try:
        return f"no error but {value_of(result)}"
    except Exception as error:  # The worker's own error.
        return f"{type(error).__name__}: {error}"


def until(what, condition):
    limit = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > limit:
            sys.exit(f"{what}: takes too long")
        time.sleep(0.02)


def show(name, value):
    print(f"{name}: {json.dumps(value, default=str)}", flush=True)


UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

main()

"""What a site made with Django keeps in a server: caches, sessions, locks, and messages between
its processes. Prints what was seen, in the same order in each run: python3 run.py PORT."""

import asyncio
import json
import sys
import threading
import time

import django
import redis
from django.conf import settings

PORT = int(sys.argv[1])
URL = f"redis://127.0.0.1:{PORT}"


def cache(backend, database, **options):
    return {"BACKEND": backend, "LOCATION": f"{URL}/{database}", "KEY_PREFIX": "site", **options}


settings.configure(
    SECRET_KEY="for a workload only",
    USE_TZ=True,
    CACHES={
        "default": cache("django.core.cache.backends.redis.RedisCache", 0, TIMEOUT=300),
        "other": cache("django_redis.cache.RedisCache", 1, TIMEOUT=300),
        "packed": cache("django_redis.cache.RedisCache", 2, OPTIONS={
            "SERIALIZER": "django_redis.serializers.msgpack.MSGPackSerializer",
            "COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor",
        }),
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    CHANNEL_LAYERS={
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [f"{URL}/3"], "capacity": 5, "expiry": 60},
        },
        "pubsub": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [f"{URL}/4"]},
        },
    },
)
django.setup()

from channels.exceptions import ChannelFull  # noqa: E402
from channels.layers import channel_layers, get_channel_layer  # noqa: E402
from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.contrib.sessions.backends.base import UpdateError  # noqa: E402
from django.core.cache import caches  # noqa: E402
from redis.exceptions import LockError, ResponseError  # noqa: E402


def main():
    for name in ["default", "other", "packed"]:
        basics(name)
        many(name)
        times(name)
        counters(name)
    extensions()
    types()
    locks()
    sessions()
    asyncio.run(layer_of_lists())
    asyncio.run(layer_of_messages())


def basics(name):
    """What every cache of Django can do."""
    it = caches[name]
    values = ["text", 7, 1.5, None, True, ["list", 1], {"a": {"b": [1, 2]}}, "ü" * 3, b"\x00\xff"]
    for number, value in enumerate(values):
        it.set(f"value{number}", value)
    show(name, "kept", [it.get(f"value{n}") == value for n, value in enumerate(values)])
    show(name, "large", len(caches[name].get_or_set("large", "x" * 1_000_000)))
    show(name, "missing", [it.get("missing"), it.get("missing", "default")])
    show(name, "add", [it.add("added", 1), it.add("added", 2), it.get("added")])
    show(name, "has", [it.has_key("added"), "added" in it, "missing" in it])
    show(name, "get_or_set", [it.get_or_set("computed", lambda: 5), it.get_or_set("computed", 6)])
    show(name, "delete", [it.delete("added"), it.delete("added"), it.get("added")])
    it.set("versioned", "one", version=1)
    it.set("versioned", "two", version=2)
    show(name, "versions", [it.get("versioned", version=n) for n in (1, 2, 3)])
    moved = it.incr_version("versioned", version=2)
    show(name, "incr_version", [moved, it.get("versioned", version=3)])
    show(name, "key", it.make_key("a key", version=4))


def many(name):
    it = caches[name]
    show(name, "set_many", it.set_many({f"many{n}": n for n in range(50)}, timeout=60))
    found = it.get_many([f"many{n}" for n in range(45, 55)])
    show(name, "get_many", sorted(found.items()))
    it.delete_many([f"many{n}" for n in range(40)])
    show(name, "left", sorted(it.get_many([f"many{n}" for n in range(50)])))
    it.clear()
    show(name, "cleared", [it.get("value0"), it.get("many49")])


def times(name):
    it = caches[name]
    it.set("brief", 1, timeout=1)
    it.set("never", 1, timeout=None)
    it.set("gone", 1, timeout=0)
    it.set("negative", 1, timeout=-1)
    show(name, "at once", [it.get("gone"), it.get("negative"), it.get("never")])
    show(name, "expired", until(lambda: it.get("brief"), None))
    it.set("touched", 1, timeout=100)
    show(name, "touch", [it.touch("touched", 600), it.touch("missing", 600)])
    show(name, "default time", it.touch("never"))
    client = it._cache.get_client() if name == "default" else it.client.get_client()
    client = client if not isinstance(client, tuple) else client[0]
    keys = [it.make_key(key) for key in ("touched", "never")]
    show(name, "seconds", [ttl_class(client.ttl(key)) for key in keys])


def counters(name):
    it = caches[name]
    it.set("counter", 10)
    show(name, "counter", [it.incr("counter"), it.incr("counter", 5), it.decr("counter", 20)])
    show(name, "read", it.get("counter"))
    for act in [it.incr, it.decr]:
        show(name, "of nothing", error_of(lambda: act("nothing")))
    it.set("text", "not a number")
    show(name, "of a text", error_of(lambda: it.incr("text")).split(":")[0])
    it.set("shared", 0, timeout=None)
    run_threads(8, lambda: [it.incr("shared") for _ in range(50)])
    show(name, "of eight threads", it.get("shared"))


def extensions():
    """What django-redis adds."""
    it = caches["other"]
    it.clear()
    it.set("a", 1, timeout=100)
    it.set("forever", 1, timeout=None)
    show("ttl", [ttl_class(it.ttl(key)) for key in ("a", "forever", "missing")])
    show("pttl", ttl_class(it.pttl("a") // 1000))
    show("persist", [it.persist("a"), it.ttl("a")])
    show("expire", [it.expire("a", 50), ttl_class(it.ttl("a")), it.expire("missing", 1)])
    show("pexpire", [it.pexpire("a", 45_000), ttl_class(it.ttl("a"))])
    show("expire_at", [it.expire_at("a", int(time.time()) + 70), ttl_class(it.ttl("a"))])
    show("in the past", [it.expire_at("a", 1), it.get("a")])
    show("nx", [it.set("once", 1, nx=True), it.set("once", 2, nx=True), it.get("once")])
    it.set_many({f"user:{n}:name": n for n in range(30)} | {f"group:{n}": n for n in range(5)})
    show("keys", sorted(it.keys("group:*")))
    show("iter_keys", len(list(it.iter_keys("user:*", itersize=7))))
    show("delete_pattern", [it.delete_pattern("user:*", itersize=5), it.keys("user:*")])
    show("delete_pattern of nothing", it.delete_pattern("user:*"))
    show("left", sorted(it.keys("*")))
    raw = it.client.get_client()
    show("raw", [raw.type(it.make_key("group:1")).decode(), raw.dbsize()])


def types():
    """Sets, hashes and sorted sets of django-redis."""
    it = caches["other"]
    show("sadd", [it.sadd("s1", "a", "b", "c"), it.sadd("s1", "c"), it.sadd("s2", "c", "d")])
    show("members", [sorted(it.smembers("s1")), it.scard("s1"), it.sismember("s1", "a")])
    show("smismember", [bool(answer) for answer in it.smismember("s1", "a", "x", "c")])
    show("sets", [sorted(f("s1", "s2")) for f in (it.sdiff, it.sinter, it.sunion)])
    show("stored", [it.sunionstore("s3", "s1", "s2"), it.sinterstore("s4", "s1", "s2")])
    show("smove", [it.smove("s1", "s2", "a"), sorted(it.smembers("s2"))])
    show("sscan_iter", sorted(it.sscan_iter("s3")))
    show("spop", [it.spop("s4"), it.scard("s4"), it.srem("s1", "b", "x")])
    show("hset", [it.hset("h", "a", 1), it.hset("h", "b", {"x": 1}), it.hset("h", "a", 2)])
    show("hash", [it.hlen("h"), sorted(it.hkeys("h")), it.hexists("h", "b"), it.hdel("h", "b")])
    show("zadd", [it.zadd("z", {"a": 1, "b": 2.5, "c": 3}), it.zcard("z"), it.zscore("z", "b")])
    show("zrange", it.zrange("z", 0, -1, withscores=True))
    show("zrangebyscore", [it.zrangebyscore("z", 2, 3), it.zrevrangebyscore("z", "+inf", "(1")])
    show("zset", [it.zincrby("z", 10, "a"), it.zrank("z", "a"), it.zcount("z", 2, 4)])
    show("popped", [it.zpopmax("z"), it.zpopmin("z"), it.zrem("z", "c"), it.zcard("z")])


def locks():
    """A lock is held by one; others wait, or are refused."""
    it = caches["other"]
    lock = it.lock("lock", timeout=30)
    show("acquired", [lock.acquire(), lock.owned(), lock.locked()])
    show("refused", it.lock("lock", timeout=30).acquire(blocking=False))
    show("not in time", it.lock("lock", blocking_timeout=0.2, sleep=0.05).acquire())
    show("extended", [lock.extend(100), lock.reacquire()])
    show("released", [lock.release(), lock.locked(), error_of(lock.release)])
    brief = it.lock("lock", timeout=0.2)
    brief.acquire()
    show("expired", until(brief.locked, False))
    show("lost", error_of(brief.release, LockError))
    inside, most, order = [0], [0], []

    def enter():
        for _ in range(5):
            with it.lock("shared lock", timeout=60, sleep=0.001):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                order.append(inside[0])
                time.sleep(0.001)
                inside[0] -= 1

    run_threads(4, enter)
    show("one at a time", [most[0], len(order)])


def sessions():
    session = SessionStore()
    session["user"] = {"name": "Ada", "roles": ["admin"]}
    session.set_expiry(600)
    session.save()
    again = SessionStore(session.session_key)
    show("session", [again["user"], again.get_expiry_age(), again.exists(session.session_key)])
    again["visits"] = 1
    again.save()
    old = again.session_key
    again.cycle_key()
    show("new key", [again.exists(old), SessionStore(again.session_key)["visits"]])
    again.flush()
    show("flushed", [again.session_key, SessionStore(old).load()])
    gone = SessionStore()
    gone["a"] = 1
    gone.save()
    gone.delete(gone.session_key)
    show("save of a deleted one", error_of(gone.save, UpdateError))


async def layer_of_lists():
    """The layer that keeps messages until they are received."""
    layer = get_channel_layer()
    await layer.flush()
    await layer.send("jobs", {"type": "job", "number": 1})
    await layer.send("jobs", {"type": "job", "number": 2})
    show("received", [(await layer.receive("jobs"))["number"] for _ in range(2)])
    waiting = asyncio.create_task(layer.receive("jobs"))
    await asyncio.sleep(0.1)
    await layer.send("jobs", {"type": "job", "text": "waited for", "bytes": [1, 2]})
    show("waited for", await asyncio.wait_for(waiting, 30))
    names = [await layer.new_channel() for _ in range(3)]
    for name in names:
        await layer.group_add("room", name)
    await layer.group_send("room", {"type": "chat", "text": "hello"})
    show("group", [(await layer.receive(name))["text"] for name in names])
    await layer.group_discard("room", names[0])
    await layer.group_send("room", {"type": "chat", "text": "again"})
    show("those left", [(await layer.receive(name))["text"] for name in names[1:]])
    for number in range(5):
        await layer.send("full", {"type": "job", "number": number})
    try:
        await layer.send("full", {"type": "job"})
        show("full", "accepted")
    except ChannelFull:
        show("full", "ChannelFull")
    show("in order", [(await layer.receive("full"))["number"] for _ in range(5)])
    client = layer.connection(0)
    show("group's key", ttl_class(await client.ttl("asgi:group:room")))
    await layer.flush()
    show("flushed", await client.dbsize())
    await layer.close_pools()


async def layer_of_messages():
    """The layer that is all PUBLISH and SUBSCRIBE."""
    layer = channel_layers["pubsub"]
    names = [await layer.new_channel() for _ in range(3)]
    for name in names:
        await layer.group_add("room", name)
    # The layer does not read that it is subscribed.
    server = redis.Redis(port=PORT)
    show("channels", until(lambda: len(server.pubsub_channels("asgi*")), 4))
    await layer.send(names[0], {"type": "own", "number": 1})
    show("sent", await asyncio.wait_for(layer.receive(names[0]), 30))
    for number in range(10):
        await layer.group_send("room", {"type": "chat", "number": number})
    for name in names:
        got = [(await asyncio.wait_for(layer.receive(name), 30))["number"] for _ in range(10)]
        show("room", got)
    await layer.group_discard("room", names[0])
    await layer.group_send("room", {"type": "chat", "number": 10})
    show("those left", [(await asyncio.wait_for(layer.receive(name), 30)) for name in names[1:]])
    await layer.flush()


def run_threads(count, action):
    threads = [threading.Thread(target=action) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ttl_class(seconds):
    """A time that is left, to ten seconds."""
    return seconds if seconds is None or seconds <= 0 else f"at most {-(-seconds // 10) * 10}"


def error_of(action, kind=(ValueError, LockError, ResponseError, TypeError)):
    try:
        return f"no error but {action()}"
    except kind as error:
        return f"{type(error).__name__}: {error}"


def until(read, wanted):
    """Reads until the value is there, or says what is there instead."""
    limit = time.monotonic() + 20
    value = read()
    while value != wanted and time.monotonic() < limit:
        time.sleep(0.01)
        value = read()
    return value


def show(*names_and_value):
    *names, value = names_and_value
    print(f"{' '.join(names)}: {json.dumps(value, default=str)}", flush=True)


main()

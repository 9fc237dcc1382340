"""The client-side cache of redis-py: what comes from the cache, and what makes it forget. Prints
what was seen, in the same order in each run: python3 run.py PORT."""

import json
import sys
import time

import redis
from redis.cache import CacheConfig

PORT = int(sys.argv[1])


def main():
    for part in [hits, invalidation, kinds, expiry, transactions, many_keys, size, scripts,
                 flushes, several_caches, reconnects, limits]:
        plain().flushall()
        part()


def hits():
    """A value that was read once is not asked for again."""
    client, other = cached(), plain()
    other.set("key", "first")
    before = calls("get")
    show("read", [client.get("key") for _ in range(10)])
    show("asked", calls("get") - before)
    show("cached", client.get_cache().size)
    show("missing", [client.get("nothing"), client.get("nothing")])
    show("asked for what is missing", calls("get") - before)
    show("not kept", client.get_cache().size)
    show("tracking", client.client_trackinginfo())


def invalidation():
    """Each kind of write by another client is heard of."""
    client, other = cached(), plain()
    writes = [
        ("set", lambda: other.set("key", "set")),
        ("append", lambda: other.append("key", "+")),
        ("setrange", lambda: other.setrange("key", 0, "S")),
        ("rename", lambda: other.rename("key", "away")),
        ("copy", lambda: other.copy("away", "key")),
        ("getdel", lambda: other.getdel("key")),
        ("restore", lambda: other.restore("key", 0, other.dump("away"))),
        ("unlink", lambda: other.unlink("key")),
    ]
    for name, write in writes:
        client.get("key")
        write()
        show(f"after {name}", until(lambda: client.get("key"), other.get("key")))
    other.set("own", 1)
    client.get("own")
    client.set("own", 2)
    show("own write", client.get("own"))
    show("own increment", [client.incr("own"), client.get("own")])


def kinds():
    """The commands of other types are cached as well, by their arguments."""
    client, other = cached(), plain()
    other.hset("hash", mapping={"a": 1, "b": 2})
    other.rpush("list", "x", "y", "z")
    other.sadd("set", "m")
    other.zadd("zset", {"one": 1, "two": 2})
    other.setbit("bits", 7, 1)
    reads = {
        "hget": lambda: client.hget("hash", "a"),
        "hgetall": lambda: client.hgetall("hash"),
        "hmget": lambda: client.hmget("hash", "a", "b", "c"),
        "lrange": lambda: client.lrange("list", 0, -1),
        "llen": lambda: client.llen("list"),
        "smembers": lambda: sorted(client.smembers("set")),
        "sismember": lambda: client.sismember("set", "m"),
        "zrange": lambda: client.zrange("zset", 0, -1, withscores=True),
        "zscore": lambda: client.zscore("zset", "two"),
        "bitcount": lambda: client.bitcount("bits"),
        "strlen": lambda: client.strlen("bits"),
        "exists": lambda: client.exists("hash"),
        "type": lambda: client.type("hash"),
    }
    for name, read in reads.items():
        before = calls(name)
        values = [read(), read(), read()]
        show(name, [values[0], values[0] == values[2], calls(name) - before])
    other.hset("hash", "a", 3)
    show("hget again", until(reads["hget"], "3"))
    show("hgetall again", until(reads["hgetall"], {"a": "3", "b": "2"}))
    other.rpop("list")
    show("llen again", until(reads["llen"], 2))
    other.zincrby("zset", 5, "two")
    show("zscore again", until(reads["zscore"], 7.0))
    for name, read in [("ttl", lambda: client.ttl("hash")), ("time", client.time)]:
        before = calls(name)
        read()
        read()
        show(f"{name} is not cached", calls(name) - before)


def expiry():
    """A key that expires is forgotten."""
    client, other = cached(), plain()
    other.set("brief", "value", px=2000)
    show("before", client.get("brief"))
    show("after", until(lambda: client.get("brief"), None))
    other.set("later", "value")
    client.get("later")
    other.pexpire("later", 100)
    show("given a time", until(lambda: client.get("later"), None))
    other.hset("fields", mapping={"brief": 1, "long": 2})
    show("fields", client.hgetall("fields"))
    other.expireat("fields", 1)
    show("in the past", until(lambda: client.hgetall("fields"), {}))


def transactions():
    """What a transaction or a pipeline writes is heard of; what it reads is not cached."""
    client, other = cached(), plain()
    other.mset({"a": 1, "b": 2})
    show("before", [client.get("a"), client.get("b")])
    with other.pipeline(transaction=True) as pipe:
        pipe.set("a", 10).incrby("b", 5).get("a")
        show("executed", pipe.execute())
    show("after", [until(lambda: client.get("a"), "10"), until(lambda: client.get("b"), "7")])
    with client.pipeline() as pipe:
        pipe.get("a").get("b").set("c", 3).get("c")
        show("own transaction", pipe.execute())
    show("its write", client.get("c"))
    with client.pipeline() as pipe:
        pipe.watch("a")
        other.set("a", 11)
        pipe.multi()
        pipe.set("a", 12)
        try:
            pipe.execute()
            show("watch", "executed")
        except redis.WatchError:
            show("watch", "refused")
    show("value", until(lambda: client.get("a"), "11"))


def many_keys():
    """MGET is kept under all of its keys; a write to one of them forgets it."""
    client, other = cached(), plain()
    other.mset({f"key{n}": n for n in range(20)})
    keys = [f"key{n}" for n in range(20)]
    before = calls("mget")
    show("mget", [client.mget(keys) == client.mget(keys), calls("mget") - before])
    other.set("key7", "new")
    show("mget again", until(lambda: client.mget(keys)[7], "new"))
    for n in range(20):
        client.get(f"key{n}")
    show("cached", client.get_cache().size)
    other.delete("key3", "key4")
    show("two are gone", until(lambda: [client.get("key3"), client.get("key4")], [None, None]))
    show("scan is not cached", len(list(client.scan_iter("key*", count=100))))


def size():
    """A full cache forgets what was used longest ago."""
    client = cached(max_size=5)
    other = plain()
    for n in range(8):
        other.set(f"key{n}", n)
        client.get(f"key{n}")
    show("kept", client.get_cache().size)
    before = calls("get")
    for n in [7, 6, 5, 4, 3]:
        client.get(f"key{n}")
    show("asked for the newest", calls("get") - before)
    client.get("key0")
    show("asked for the oldest", calls("get") - before)


def scripts():
    """What a script or a function writes is heard of."""
    client, other = cached(), plain()
    other.set("key", "first")
    client.get("key")
    script = "redis.call('SET', KEYS[1], ARGV[1]); return redis.call('GET', KEYS[1])"
    show("script", other.eval(script, 1, "key", "second"))
    show("after", until(lambda: client.get("key"), "second"))
    library = "#!lua name=lib\nredis.register_function('put', function(keys, args) " \
        "return redis.call('SET', keys[1], args[1]) end)"
    other.function_load(library, replace=True)
    show("function", other.fcall("put", 1, "key", "third"))
    show("after it", until(lambda: client.get("key"), "third"))


def flushes():
    """FLUSHALL and FLUSHDB forget all of it."""
    client, other = cached(), plain()
    for flush in [other.flushall, other.flushdb]:
        other.set("key", "value")
        show("before", until(lambda: client.get("key"), "value"))
        flush()
        show("after", until(lambda: client.get("key"), None))


def several_caches():
    """Each client has its own cache, and hears of each write."""
    clients, other = [cached() for _ in range(3)], plain()
    for value in ["one", "two", "three"]:
        other.set("key", value)
        show("all read", [until(lambda: client.get("key"), value) for client in clients])
    before = calls("get")
    show("all keep", [client.get("key") for client in clients])
    show("asked", calls("get") - before)


def reconnects():
    """A connection that is gone takes its cache with it."""
    client, other = cached(), plain()
    other.set("key", "first")
    client.get("key")
    number = client.client_id()
    show("killed", other.client_kill_filter(_id=number))
    other.set("key", "second")
    show("after", until(lambda: client.get("key"), "second"))
    show("another connection", client.client_id() != number)
    other.set("key", "third")
    show("tracked again", until(lambda: client.get("key"), "third"))


def limits():
    """The cache wants RESP3."""
    try:
        redis.Redis(port=PORT, protocol=2, cache_config=CacheConfig()).get("key")
        show("RESP2", "allowed")
    except redis.RedisError as error:
        show("RESP2", str(error))


def cached(**options):
    return redis.Redis(port=PORT, protocol=3, decode_responses=True, max_connections=64,
                       cache_config=CacheConfig(**options))


def plain():
    return redis.Redis(port=PORT, protocol=3, decode_responses=True)


def calls(command):
    """How often the server was asked."""
    return plain().info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def until(read, wanted):
    """Reads until the value is there, or says what is there instead."""
    limit = time.monotonic() + 20
    value = read()
    while value != wanted and time.monotonic() < limit:
        time.sleep(0.005)
        value = read()
    return value


def show(name, value):
    print(f"{name}: {json.dumps(value, default=str)}", flush=True)


main()

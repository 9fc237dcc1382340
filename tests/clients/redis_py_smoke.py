"""What a Python program does with redis-py. Usage: redis_py_smoke.py PORT"""

import sys
import threading

import redis


def strings(client):
    assert client.set("k", "v") is True
    assert client.get("k") == "v"
    assert client.set("k", "w", nx=True) is None
    assert client.set("k", "w", xx=True, get=True) == "v"
    assert client.set("t", "v", ex=100) and 0 < client.ttl("t") <= 100
    assert client.set("t", "v", px=100000) and 0 < client.pttl("t") <= 100000
    assert client.getex("t", persist=True) == "v" and client.ttl("t") == -1
    assert client.getdel("t") == "v" and client.get("t") is None
    assert client.mset({"a": 1, "b": 2}) and client.mget("a", "b", "missing") == ["1", "2", None]
    assert client.incr("n") == 1 and client.incrby("n", 9) == 10 and client.decr("n") == 9
    assert client.incrbyfloat("f", 1.5) == 1.5
    assert client.append("s", "ab") == 2 and client.setrange("s", 1, "cd") == 3
    assert client.getrange("s", 0, -1) == "acd" and client.strlen("s") == 3
    assert client.setbit("bits", 7, 1) == 0 and client.getbit("bits", 7) == 1
    assert client.bitcount("bits") == 1 and client.bitpos("bits", 1) == 7
    assert client.bitop("NOT", "not", "bits") == 1
    assert client.bitfield("field").set("u8", 0, 255).incrby("u8", 0, 1).execute() == [0, 0]
    assert client.lcs("a", "b") == ""


def keys(client):
    client.mset({f"scan:{i}": i for i in range(1000)})
    assert len(set(client.scan_iter("scan:*", count=50))) == 1000
    assert len(client.keys("scan:*")) == 1000
    assert client.exists("scan:1", "scan:2", "missing") == 2
    assert client.type("scan:1") == "string"
    assert client.expire("scan:1", 100) and not client.expire("scan:1", 50, gt=True)
    assert client.expireat("scan:2", 4102444800) and client.expiretime("scan:2") == 4102444800
    assert client.persist("scan:2")
    assert client.rename("scan:3", "renamed") and client.get("renamed") == "3"
    assert client.copy("renamed", "copied")
    assert client.object("encoding", "copied") == "int"
    assert client.unlink("copied") == 1
    assert client.randomkey()
    assert client.dbsize() > 990
    assert client.flushdb()
    assert client.dbsize() == 0


def transactions(client):
    with client.pipeline(transaction=True) as pipe:
        assert pipe.set("a", 1).incr("a").get("a").execute() == [True, 2, "2"]
    with client.pipeline(transaction=False) as pipe:
        for i in range(1000):
            pipe.set(f"p:{i}", i)
        assert all(pipe.execute())

    def increment(pipe):
        value = int(pipe.get("cas") or 0)
        pipe.multi()
        pipe.set("cas", value + 1)

    def worker():
        for _ in range(50):
            client.transaction(increment, "cas")

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("cas") == "200", client.get("cas")


def errors(client):
    client.set("s", "text")
    for call in (
        lambda: client.incr("s"),
        lambda: client.execute_command("NOSUCHCOMMAND"),
        lambda: client.set("k", "v", ex=0),
    ):
        try:
            call()
        except redis.ResponseError:
            continue
        raise AssertionError("an error was expected")


def server(client):
    assert client.ping()
    assert client.echo("hello") == "hello"
    assert client.client_setname("smoke") and client.client_getname() == "smoke"
    assert any(row["name"] == "smoke" for row in client.client_list())
    assert client.config_get("maxmemory")["maxmemory"] == "0"
    assert client.config_set("maxmemory-samples", 7)
    assert client.config_get("maxmemory-samples")["maxmemory-samples"] == "7"
    info = client.info()
    assert info["tcp_port"] and info["used_memory"] > 0 and info["connected_clients"] >= 1
    assert "get" in client.command()
    assert client.command_getkeys("MSET", "a", 1, "b", 2) in (["a", "b"], [b"a", b"b"])
    assert client.slowlog_len() >= 0
    assert client.time()[0] > 1_500_000_000
    assert client.memory_usage("s") > 0


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        client = redis.Redis(port=port, protocol=protocol, decode_responses=True)
        client.flushall()
        for step in (strings, keys, transactions, errors, server):
            step(client)
        client.close()
    print("ok")


if __name__ == "__main__":
    main()
